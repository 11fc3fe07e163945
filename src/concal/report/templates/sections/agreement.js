// Consensus against pooled fit, a point per item.
figureMakers.agreement = (host) => {
  const cells = section("agreement").pairs;
  if (!cells) return () => {};
  const loaded = new Map(),
    load = (c) => {
      if (!loaded.has(c)) loaded.set(c, new Frame(c.frame));
      return loaded.get(c);
    };
  const methods = distinct(cells.flatMap((c) => c.methods)),
    scopes = distinct(cells.map((c) => `${c.dimension} · ${c.model}`));
  const box = el("div"),
    key = el("div");
  let rows = [];
  const draw = () => {
    const everything = byScope.box.value === "all";
    const method = byMethod.box.value;
    const own = cells.filter(
      (c) => c.methods.includes(method) && (everything || `${c.dimension} · ${c.model}` === byScope.box.value),
    );
    const parameters = distinct(own.map((c) => c.parameter)).filter((p) => !everything || p === "d" || p === "log_a");
    rows = own
      .filter((c) => parameters.includes(c.parameter))
      .flatMap((c) => {
        const f = load(c);
        return f
          .rows()
          .map((i) => [
            f.value("item_id", i),
            c.dimension,
            c.model,
            c.parameter,
            f.value("exposure", i),
            f.value("tertile", i),
            f.value("mean " + method, i),
            f.value("pooled_mean", i),
            f.value("sd " + method, i),
            f.value("pooled_sd", i),
          ]);
      });
    const fills = { low: color("low"), mid: color("mid"), high: color("high") };
    key.replaceChildren(legend(["low", "mid", "high"].map((t) => [`${t} exposure`, fills[t]])));
    const wanted = [
      ["posterior mean", 6],
      ["posterior SD", 8],
    ].flatMap(([what, at]) => parameters.map((p) => [what, at, p]));
    const made = panels(
      wanted.map(([what, , p]) => `${pretty(p)}: ${what}`),
      parameters.length > 2 ? "15rem" : "20rem",
    );
    if (parameters.length <= 4)
      made.box.style.gridTemplateColumns =
        window.innerWidth < 700 ? "1fr" : `repeat(${parameters.length}, minmax(0, 26rem))`;
    box.replaceChildren(made.box);
    wanted.forEach(([what, at, p], k) => {
      const mine = rows.filter((r) => r[3] === p),
        xs = mine.map((r) => r[at + 1]),
        ys = mine.map((r) => r[at]);
      const domain = at === 8 ? [0, extent([xs, ys])[1]] : extent([xs, ys]);
      const size = Math.min(made.hosts[k].clientWidth || 320, 420);
      const plot = new Plot(made.hosts[k], {
        height: Math.max(size - 14, 180),
        describe: `Consensus against pooled ${what} of ${p}`,
        x: { domain, label: "pooled" },
        y: { domain, label: "consensus" },
      });
      plot.points(xs, ys, {
        fill: (i) => fills[mine[i][5]],
        radius: 2,
        describe: (i) => `${mine[i][0]}\nconsensus ${number(ys[i])}, pooled ${number(xs[i])}`,
        choose: (i) => openItem(mine[i][0]),
      });
      plot.identity();
    });
    details.refresh();
  };
  const byMethod = choice(
    "Method",
    methods.map((m) => [m, m]),
    draw,
  );
  const byScope = choice("Items", [["all", "all (d and log a)"], ...scopes.map((s) => [s, s])], draw);
  const details = numbers(() =>
    rowsTable(
      [
        "item",
        "dimension",
        "model",
        "parameter",
        "responses per period",
        "tertile",
        "mean",
        "pooled mean",
        "SD",
        "pooled SD",
      ],
      rows,
      "agreement",
      [0],
    ),
  );
  figureBox(
    host,
    "Consensus against pooled fit",
    "One point per item that passed the R-hat screen; the dashed line is identity. " +
      "Colours: tertiles of responses per item and period.",
    el("div", { class: "controls" }, byMethod, byScope),
    key,
    box,
    details,
  );
  return draw;
};
