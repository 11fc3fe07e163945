// Every parameter's posterior, period by period, beside the consensus.
const HALF = 0.674;
const NINETY = 1.645; // normal deviates of 50 % and 90 % intervals

// [{name, mean[], sd[], n, rhat}], the consensus last.
function posteriorsOf(item) {
  const { group, k } = item;
  const p = group.parameters.length;
  const part = (ref, at) => Array.from(array(ref).slice(at * p, (at + 1) * p));
  const found = [];
  for (const [name, own] of Object.entries(group.panels.posteriors.periods)) {
    const at = rowIn(name, item);
    if (at < 0) continue;
    found.push({
      name,
      mean: part(own.mean, at),
      sd: part(own.sd, at),
      n: responsesIn(name, item, at),
      rhat: array(own.rhat)[at],
    });
  }
  found.push({
    name: "consensus",
    mean: part(group.mean, k),
    sd: part(group.sd, k),
    n: array(group.n_responses)[k],
    rhat: NaN,
  });
  return found;
}

function drawForest(host, item, rows, q) {
  const parameter = item.group.parameters[q];
  const plot = new Plot(host, {
    height: 56 + 26 * rows.length,
    describe: `Posteriors of ${parameter}`,
    x: {
      domain: extent([rows.flatMap((r) => [r.mean[q] - NINETY * r.sd[q], r.mean[q] + NINETY * r.sd[q]])]),
      label: pretty(parameter),
    },
    y: { domain: [rows.length - 0.5, -0.5], labels: rows.map((r) => r.name) },
  });
  rows.forEach((row, i) => {
    const ink = hueOf(row.name, item, true);
    const [m, s] = [row.mean[q], row.sd[q]];
    plot.path(
      [
        [m - NINETY * s, i],
        [m + NINETY * s, i],
      ],
      { stroke: ink, "stroke-width": 1.5 },
    );
    plot.path(
      [
        [m - HALF * s, i],
        [m + HALF * s, i],
      ],
      { stroke: ink, "stroke-width": 4 },
    );
    plot.svg.append(shape("circle", { cx: plot.x(m), cy: plot.y(i), r: 4, fill: ink }));
  });
}

itemPanels.push({
  key: "posteriors",
  title: "Parameters",
  note: () =>
    "On the reference metric: mean, 50 % and 90 % intervals (Gaussian) of each period alone and of the consensus.",
  make(item, host) {
    const rows = posteriorsOf(item);
    const { parameters } = item.group;
    const { box, hosts } = panels(parameters.map(pretty), "15rem");
    const heads = ["", ...parameters.flatMap((q) => [pretty(q), "± SD"]), "responses", "R-hat"];
    const cells = rows.map((r) => [r.name, ...r.mean.flatMap((m, q) => [m, r.sd[q]]), r.n, r.rhat]);
    host.append(box, pagedTable(rowsTable(heads, cells, `item-${item.index}`), 40));
    return () => hosts.forEach((plot, q) => drawForest(plot, item, rows, q));
  },
});
