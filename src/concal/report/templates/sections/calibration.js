// R-hat of every period, and the items where it is largest.
figureMakers.rhat = (host) => {
  const table = frame(section("calibration").rhat),
    names = distinct(table.words("period")),
    { box, hosts } = panels(names, "17rem");
  figureBox(
    host,
    "R-hat of item parameters",
    "Share of (item, parameter) pairs; the last bin holds everything above 1.1.",
    box,
    numbers(() => frameTable(table, "rhat")),
  );
  const rowsOf = (name) => table.rows((i) => table.value("period", i) === name);
  const shares = (name) => {
    const c = rowsOf(name).map((i) => table.value("count", i)),
      total = c.reduce((a, b) => a + b, 0) || 1;
    return c.map((v) => v / total);
  };
  const top = Math.max(0.05, ...names.flatMap(shares));
  return () =>
    names.forEach((name, k) => {
      const rows = rowsOf(name),
        share = shares(name);
      const plot = new Plot(hosts[k], {
        height: 200,
        describe: `R-hat, ${name}`,
        x: { domain: [1, 1.105], label: "R-hat" },
        y: { domain: [0, 1.05 * top], label: "share" },
      });
      rows.forEach((i, b) => {
        const from = table.value("from", i),
          to = Math.min(table.value("to", i) ?? 1.105, 1.105);
        plot.bar(from, to, 0, share[b], { fill: color(from >= 1.05 - 1e-9 ? "low" : "s0") });
      });
    });
};

figureMakers.worst = (host) => {
  const table = frame(section("calibration").worst);
  host.append(table.n ? pagedTable(frameTable(table, "worst-rhat")) : el("p", {}, "None."));
  return () => {};
};
