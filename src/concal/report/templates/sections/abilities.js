// Ability distributions.
figureMakers.abilities = (host) => {
  const table = frame(section("abilities").histogram);
  if (!table || !table.n) {
    host.append(el("p", {}, "No period has abilities."));
    return () => {};
  }
  const dimensions = distinct(table.words("dimension")),
    periods = distinct(table.words("period"));
  const { box, hosts } = panels(dimensions, "22rem"),
    key = el("div");
  figureBox(
    host,
    "Examinees' posterior mean abilities",
    "Share of examinees per quarter of a unit.",
    key,
    box,
    numbers(() => frameTable(table, "abilities")),
  );
  return () => {
    key.replaceChildren(legend(periods.map((p, k) => [p, series(k)])));
    dimensions.forEach((dimension, k) => {
      const lines = periods.map((period) => {
        const rows = table.rows(
          (i) => table.value("dimension", i) === dimension && table.value("period", i) === period,
        );
        const total = rows.reduce((sum, i) => sum + table.value("count", i), 0) || 1;
        return rows.flatMap((i) => {
          const s = table.value("count", i) / total;
          return [
            [table.value("from", i), s],
            [table.value("to", i), s],
          ];
        });
      });
      const plot = new Plot(hosts[k], {
        height: 260,
        describe: `Abilities, ${dimension}`,
        x: { domain: [-4, 4], label: "θ, reference metric" },
        y: { domain: [0, 1.05 * Math.max(0.01, ...lines.flat().map((p) => p[1]))], label: "share" },
      });
      lines.forEach((line, p) =>
        plot.path(
          line.filter(([x]) => x >= -4 && x <= 4),
          { stroke: series(p), "stroke-width": 1.5 },
        ),
      );
    });
  };
};
