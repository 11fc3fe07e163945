// How certain items are, by their responses.
figureMakers.uncertainty = (host) => {
  const { groups, sources } = section("items"),
    shown = ["d", "log_a"];
  const { box, hosts } = panels(["Posterior SD of d", "Posterior SD of log a"], "22rem"),
    key = el("div");
  const rows = () => {
    const found = [];
    let at = 0;
    for (const g of groups) {
      const n = array(g.n_responses),
        sd = array(g.sd),
        mean = array(g.mean),
        p = g.parameters.length;
      for (let k = 0; k < g.n; k++)
        found.push([
          report.ids[at + k],
          g.name,
          sources[array(g.source)[k]],
          n[k],
          mean[k * p],
          sd[k * p],
          mean[k * p + 1],
          sd[k * p + 1],
        ]);
      at += g.n;
    }
    return found;
  };
  let cached = null;
  const all = () => {
    cached ??= rows();
    return cached;
  };
  figureBox(
    host,
    "Uncertainty by exposure",
    "Consensus posterior SD against the number of responses over all periods (items without a response stand at ½).",
    key,
    box,
    numbers(() =>
      rowsTable(
        ["item", "group", "source", "responses", "mean d", "SD d", "mean log a", "SD log a"],
        all(),
        "items",
        [0],
      ),
    ),
  );
  return () => {
    const fills = { consensus: color("s0"), fallback: color("s1"), predicted: color("s5") };
    key.replaceChildren(legend(sources.map((s) => [s, fills[s]])));
    shown.forEach((_, k) => {
      const xs = all().map((r) => Math.max(r[3], 0.5)),
        ys = all().map((r) => r[5 + 2 * k]);
      const plot = new Plot(hosts[k], {
        height: 280,
        describe: `Posterior SD by exposure, ${shown[k]}`,
        x: { domain: logDomain(xs), log: true, label: "responses" },
        y: { domain: [0, extent([ys])[1]], label: "posterior SD" },
      });
      plot.points(xs, ys, {
        fill: (i) => fills[all()[i][2]],
        radius: 2,
        alpha: 0.5,
        describe: (i) => `${all()[i][0]}\n${number(all()[i][3])} responses, SD ${number(ys[i])}`,
        choose: (i) => openItem(all()[i][0]),
      });
    });
  };
};
