// What changed since an earlier version, item by item.
figureMakers.changes = (host) => {
  const { items, n, base } = section("changes");
  const table = frame(items);
  if (!table.n) {
    host.append(el("p", {}, "No item changed."));
    return () => {};
  }
  const { box, hosts } = panels(["Change of the expected score by responses"], "min(100%, 40rem)");
  const compared = table.rows((i) => table.value("score_shift", i) !== null);
  figureBox(
    host,
    "Items whose numbers changed",
    `Against ${base}. Positive: easier now. Over examinees with N(0, 1) abilities, as a share of the largest score.` +
      (n > table.n ? ` The ${number(table.n)} most consequential of ${number(n)}.` : ""),
    box,
  );
  host.append(pagedTable(frameTable(table, "changes")));
  if (!compared.length) box.hidden = true;
  return () => {
    if (!compared.length) return;
    const xs = compared.map((i) => Math.max(table.value("n_responses", i), 0.5));
    const ys = compared.map((i) => table.value("score_shift", i));
    const plot = new Plot(hosts[0], {
      height: 240,
      describe: "Change of the expected score by responses",
      x: { domain: logDomain(xs), log: true, label: "responses" },
      y: { domain: extent([ys, [0]]), label: "change" },
    });
    plot.path(
      plot.options.x.domain.map((x) => [x, 0]),
      { class: "mark" },
    );
    const fill = color("s0");
    plot.points(xs, ys, {
      fill: () => fill,
      describe: (j) => `${table.value("item_id", compared[j])}\nchange ${number(ys[j])}`,
      choose: (j) => openItem(table.value("item_id", compared[j])),
    });
  };
};
