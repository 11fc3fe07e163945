// An item's information by ability: the average over its posterior, with the 90 % band of its peak.
const LEAST_SHARE = 0.006; // curves are drawn on the logarithmic scale: what was packed as nothing is half a step

// Cubic through four neighbouring nodes; at the ends the last one counts twice.
function cubicAt(values, place) {
  const last = values.length - 1;
  const left = Math.min(Math.floor(place), last - 1);
  const t = place - left;
  const at = (k) => values[Math.min(Math.max(k, 0), last)];
  const [a, b, c, d] = [at(left - 1), at(left), at(left + 1), at(left + 2)];
  return (
    (-t * (t - 1) * (t - 2) * a) / 6 +
    ((t + 1) * (t - 1) * (t - 2) * b) / 2 -
    ((t + 1) * t * (t - 2) * c) / 2 +
    ((t + 1) * t * (t - 1) * d) / 6
  );
}

// [[theta, middle, low, high]] on a fine grid.
const BETWEEN = 8;
function informationOf(item) {
  const own = item.group.panels.information;
  const n = own.theta.length;
  const largest = Math.exp(own.least + own.step * array(own.largest)[item.k]);
  const sd = own.step * array(own.sd)[item.k];
  const curve = array(own.curve, n).slice(item.k * n, (item.k + 1) * n);
  const logs = Array.from(curve, (v) => Math.log(Math.max(v, LEAST_SHARE)));
  return Array.from({ length: BETWEEN * (n - 1) + 1 }, (_, i) => {
    const middle = largest * Math.exp(cubicAt(logs, i / BETWEEN));
    const x = own.theta[0] + ((own.theta[n - 1] - own.theta[0]) * i) / (BETWEEN * (n - 1));
    return [x, middle, middle * Math.exp(-1.645 * sd), middle * Math.exp(1.645 * sd)];
  });
}

itemPanels.push({
  key: "information",
  title: "Information",
  note() {
    return "What one response tells about θ, by ability, with the 90 % band of its peak.";
  },
  make(item, host) {
    const band = informationOf(item);
    const plot = el("div", { class: "plot" });
    host.append(plot);
    host.append(
      numbers(() => {
        const rows = band.filter((_, i) => i % BETWEEN === 0);
        return rowsTable(["theta", "information", "5 %", "95 %"], rows, `information-${item.index}`);
      }),
    );
    return () => {
      const theta = item.group.panels.information.theta;
      const drawn = new Plot(plot, {
        height: 220,
        describe: `Information of ${item.id}`,
        x: { domain: [theta[0], theta[theta.length - 1]], label: `θ, ${item.group.dimension}` },
        y: { domain: [0, 1.05 * Math.max(...band.map((p) => p[3]))], label: "information" },
      });
      const edge = [...band.map(([x, , low]) => [x, low]), ...band.map(([x, , , high]) => [x, high]).reverse()];
      drawn.path(edge, { fill: color("s0"), "fill-opacity": 0.16, stroke: "none" });
      drawn.path(
        band.map(([x, y]) => [x, y]),
        { stroke: color("s0"), "stroke-width": 2.5 },
      );
    };
  },
});
