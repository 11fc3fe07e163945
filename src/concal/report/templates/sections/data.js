// How often the items were answered.
function binLabel(from, to) {
  if (!Number.isFinite(to)) return `≥ ${number(from)}`;
  return to - from === 1 ? String(from) : `${from}–${to - 1}`;
}

figureMakers.exposure = (host) => {
  const table = frame(section("data").exposure),
    names = distinct(table.words("period")),
    { box, hosts } = panels(names, "17rem");
  const top = Math.max(1, ...table.numbers("count"));
  figureBox(
    host,
    "Responses per item",
    "Items by their number of responses in the period; bins double in width.",
    box,
    numbers(() => frameTable(table, "responses-per-item")),
  );
  return () =>
    names.forEach((name, k) => {
      const rows = table.rows((i) => table.value("period", i) === name);
      const labels = rows.map((i) => binLabel(table.value("from", i), table.value("to", i)));
      const plot = new Plot(hosts[k], {
        height: 200,
        describe: `Responses per item, ${name}`,
        x: { domain: [-0.5, rows.length - 0.5], labels, label: "responses" },
        y: { domain: [0, top * 1.05], label: "items" },
      });
      rows.forEach((i, b) => plot.bar(b - 0.42, b + 0.42, 0, table.value("count", i), { fill: color("s0") }));
    });
};
