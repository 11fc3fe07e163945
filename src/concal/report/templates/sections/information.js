// What the bank measures: information per dimension, and examinees against items.
figureMakers.measures = (host) => {
  const { curves, best } = section("information");
  const table = frame(curves);
  const where = frame(section("information").where);
  const dimensions = distinct(table.words("dimension"));
  const { box, hosts } = panels(
    dimensions.flatMap((d) => [`${d}: information of all items`, `${d}: SEM with the best ${best} items`]),
    "22rem",
  );
  figureBox(
    host,
    "Information of the bank",
    "By ability on the reference metric, averaged over what is not known of the items. Shaded: nine examinees in ten.",
    box,
    numbers(() => frameTable(table, "bank-information")),
  );
  return () => {
    dimensions.forEach((dimension, k) => {
      const rows = table.rows((i) => table.value("dimension", i) === dimension);
      const [here] = where.rows((i) => where.value("dimension", i) === dimension);
      ["information", "sem_best"].forEach((name, c) => {
        const points = rows.map((i) => [table.value("theta", i), table.value(name, i)]);
        const middle = points.map((p) => p[1]);
        const plot = new Plot(hosts[2 * k + c], {
          height: 220,
          describe: `${c ? "SEM" : "Information"} by ability, ${dimension}`,
          x: { domain: [-4, 4], label: "θ, reference metric" },
          y: { domain: [0, 1.05 * Math.max(...middle)], label: c ? "SEM" : "information" },
        });
        const ends = ["examinees_from", "examinees_to"].map((end) => (where.has(end) ? where.value(end, here) : null));
        if (ends[0] !== null) {
          const [low, high] = ends.map((v) => Math.min(Math.max(v, -4), 4));
          plot.bar(low, high, ...plot.options.y.domain, { fill: color("s5"), "fill-opacity": 0.14 });
        }
        plot.path(points, { stroke: color(c ? "s1" : "s0") });
      });
    });
  };
};

// Shares of a histogram's counts: [[from, to, share]].
function sharesOf(table, keep) {
  const rows = table.rows(keep);
  const total = rows.reduce((sum, i) => sum + table.value("count", i), 0) || 1;
  return rows.map((i) => [table.value("from", i), table.value("to", i), table.value("count", i) / total]);
}

// The person-item map: abilities of the periods above, locations of the items below, one axis.
figureMakers.map = (host) => {
  const people = frame(section("abilities").histogram);
  const items = frame(section("information").locations);
  const dimensions = distinct(items.words("dimension"));
  const periods = people.n ? distinct(people.words("period")) : [];
  const { box, hosts } = panels(dimensions, "22rem");
  const halves = hosts.map((plot) => {
    const below = el("div", { class: "plot" });
    plot.after(below);
    return [plot, below];
  });
  const key = el("div");
  figureBox(
    host,
    "Examinees and items",
    "Above: posterior mean abilities of each period's examinees. Below: locations d of the items. Shares per quarter " +
      "of a unit; the outermost hold what lies beyond.",
    key,
    box,
    numbers(() => frameTable(items, "item-locations")),
  );
  return () => {
    key.replaceChildren(legend([...periods.map((p, k) => [p, series(k + 1)]), ["items", color("s0")]]));
    dimensions.forEach((dimension, k) => {
      const own = (table) => (i) => table.value("dimension", i) === dimension;
      const lines = periods.map((period) =>
        sharesOf(people, (i) => own(people)(i) && people.value("period", i) === period),
      );
      const bars = sharesOf(items, own(items));
      const top = (rows) => 1.05 * Math.max(0.01, ...rows.map((r) => r[2]));
      const x = { domain: [-5, 5] };
      const above = new Plot(halves[k][0], {
        height: 170,
        describe: `Abilities of the examinees, ${dimension}`,
        x,
        y: { domain: [0, top(lines.flat())], label: "examinees" },
      });
      lines.forEach((line, p) => {
        const steps = line.flatMap(([from, to, share]) => [
          [from, share],
          [to, share],
        ]);
        above.path(steps, { stroke: series(p + 1), "stroke-width": 1.5 });
      });
      const below = new Plot(halves[k][1], {
        height: 190,
        describe: `Locations of the items, ${dimension}`,
        x: { ...x, label: "θ and d, reference metric" },
        y: { domain: [0, top(bars)], label: "items" },
      });
      bars.forEach(([from, to, share]) => below.bar(from + 0.02, to - 0.02, 0, share, { fill: color("s0") }));
    });
  };
};
