// Expected-score curves: consensus and periods with their uncertainty, and the scores that were observed.
const FINE = 41; // points a curve is drawn through

// A packed curve on a fine grid: [[theta, middle, low, high]], the 90 % band on the logit scale.
function bandOf(packed, at, step) {
  const theta = report.content.theta;
  const n = theta.length;
  const curve = array(packed.curve, n).slice(at * n, (at + 1) * n);
  const spread = Array.from(array(packed.spread).slice(at * n, (at + 1) * n), (root) => (root * step) ** 2);
  const logits = Array.from(curve, (v) => {
    const inside = Math.min(Math.max(v, 0.001), 0.999);
    return Math.log(inside / (1 - inside));
  });
  const back = (z) => 1 / (1 + Math.exp(-z));
  return Array.from({ length: FINE }, (_, i) => {
    const place = (i / (FINE - 1)) * (n - 1);
    const left = Math.min(Math.floor(place), n - 2);
    const share = place - left;
    const z = logits[left] * (1 - share) + logits[left + 1] * share;
    const sd = spread[left] * (1 - share) + spread[left + 1] * share;
    const x = theta[left] * (1 - share) + theta[left + 1] * share;
    return [x, back(z), back(z - 1.645 * sd), back(z + 1.645 * sd)];
  });
}

// Mean score of groups of examinees by ability, in one period; none where only draws were at hand.
function observedScores(packed, at, n) {
  if (!packed.bins) return [];
  const theta = report.content.theta;
  const [low, high] = [theta[0], theta[theta.length - 1]];
  const share = array(packed.bin_theta, packed.bins);
  const score = array(packed.bin_score, packed.bins);
  const used = Math.min(packed.bins, n);
  return Array.from({ length: used }, (_, b) => {
    const i = at * packed.bins + b;
    return [low + (high - low) * share[i], score[i]];
  });
}

// The item's curves: [{name, band, observed, moved}], periods first, the consensus last.
function curvesOf(item) {
  const own = item.group.panels.curves;
  const found = [];
  for (const [name, packed] of Object.entries(own.periods)) {
    const at = rowIn(name, item);
    if (at < 0) continue;
    const band = bandOf(packed, at, own.step);
    found.push({
      name,
      band,
      observed: observedScores(packed, at, responsesIn(name, item, at)),
      moved: item.moved.includes(name),
    });
  }
  found.push({ name: "consensus", band: bandOf(own, item.k, own.step), observed: [], moved: false });
  return found;
}

// Colours of an item's curves: the consensus blue, a period that moved orange, others each their own or grey.
function hueOf(name, item, plain) {
  if (name === "consensus") return color("s0");
  if (item.moved.includes(name)) return color("s1");
  return plain ? color("s5") : series(2 + (report.content.periods.indexOf(name) % 6));
}

function drawCurves(host, item, { height = 320, labels = true, observed = true, bands = null }) {
  const theta = report.content.theta;
  const plot = new Plot(host, {
    height,
    describe: `Expected-score curves of ${item.id}`,
    x: { domain: [theta[0], theta[theta.length - 1]], label: `θ, ${item.group.dimension}` },
    y: { domain: [0, 1], label: labels ? "expected score" : null },
  });
  const curves = curvesOf(item);
  for (const { name, band, moved } of curves) {
    const hue = hueOf(name, item, !labels);
    const consensus = name === "consensus";
    if (consensus || moved || bands === name) {
      const edge = [...band.map(([x, , low]) => [x, low]), ...band.map(([x, , , high]) => [x, high]).reverse()];
      plot.path(edge, { fill: hue, "fill-opacity": 0.16, stroke: "none" });
    }
    const width = consensus ? 2.5 : moved ? 2.5 : 1.2;
    plot.path(
      band.map(([x, y]) => [x, y]),
      { stroke: hue, "stroke-width": width, "stroke-dasharray": moved ? "7 3" : "none" },
    );
  }
  if (!observed) return;
  const points = curves.flatMap((c) => c.observed.map(([x, y]) => [c.name, x, y]));
  if (!points.length) return;
  const fills = points.map((p) => hueOf(p[0], item, false));
  plot.points(
    points.map((p) => p[1]),
    points.map((p) => p[2]),
    {
      fill: (i) => fills[i],
      radius: 4,
      alpha: 0.9,
      describe: (i) => `${points[i][0]}\nθ ${number(points[i][1], 2)}, mean score ${number(points[i][2], 2)}`,
    },
  );
}

itemPanels.push({
  key: "curves",
  title: "Expected score",
  note(item) {
    const moved = item.moved.length ? ` It moved in ${item.moved.join(" and ")}: dashed, with its band.` : "";
    const seen = curvesOf(item).some((c) => c.observed.length);
    const points = seen
      ? " Points: mean scores of its examinees, in groups by the ability their other responses show."
      : "";
    const what =
      "By ability, as a share of the largest score: the consensus with its 90 % band, and each period alone.";
    return what + moved + points;
  },
  make(item, host) {
    const curves = curvesOf(item);
    const names = curves.map((c) => c.name).filter((name) => name !== "consensus");
    const plot = el("div", { class: "plot" });
    const key = el("div");
    const draw = () => {
      key.replaceChildren(
        legend(curves.map((c) => [c.moved ? `${c.name} (moved)` : c.name, hueOf(c.name, item, false)])),
      );
      drawCurves(plot, item, { bands: which.box.value });
    };
    const which = choice("Uncertainty of", [["", "the consensus"], ...names.map((n) => [n, n])], draw);
    host.append(el("div", { class: "controls" }, which), key, plot);
    host.append(
      numbers(() => {
        const rows = curves.flatMap((c) => c.band.filter((_, i) => i % 5 === 0).map((point) => [c.name, ...point]));
        return rowsTable(["curve", "theta", "expected score", "5 %", "95 %"], rows, `curves-${item.index}`);
      }),
    );
    const points = curves.flatMap((c) => c.observed.map((point) => [c.name, ...point]));
    if (points.length) {
      const table = () => rowsTable(["period", "theta", "mean score"], points, `observed-${item.index}`);
      host.append(numbers(table, "Numbers of the points"));
    }
    return draw;
  },
});
