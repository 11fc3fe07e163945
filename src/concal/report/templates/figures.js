// The figures of the sections. Each maker fills its host and gives back a function that draws it again.
function figureBox(host, title, note, ...parts) {
  host.append(el("figure", {}, el("figcaption", {}, el("h3", {}, title), note ? el("p", {}, note) : null), ...parts));
}
function panels(names, least = "20rem") {
  const box = el("div", { class: "panels", style: `--least:${least}` });
  const hosts = names.map(name => {
    const plot = el("div", { class: "plot" });
    box.append(el("div", { class: "panel" }, el("h4", {}, name), plot));
    return plot;
  });
  return { box, hosts };
}
const distinct = values => [...new Set(values)];

function binLabel(from, to) {
  if (!Number.isFinite(to)) return `≥ ${number(from)}`;
  return to - from === 1 ? String(from) : `${from}–${to - 1}`;
}

const figureMakers = {
  exposure(host) {
    const table = frame("exposure"), names = distinct(table.words("period")), { box, hosts } = panels(names, "17rem");
    const top = Math.max(1, ...table.numbers("count"));
    figureBox(host, "Responses per item", "Items by their number of responses in the period; bins double in width.", box,
      numbers(() => frameTable(table, "responses-per-item")));
    return () => names.forEach((name, k) => {
      const rows = table.rows(i => table.value("period", i) === name);
      const labels = rows.map(i => binLabel(table.value("from", i), table.value("to", i)));
      const plot = new Plot(hosts[k], { height: 200, describe: `Responses per item, ${name}`,
        x: { domain: [-0.5, rows.length - 0.5], labels, label: "responses" }, y: { domain: [0, top * 1.05], label: "items" } });
      rows.forEach((i, b) => plot.bar(b - 0.42, b + 0.42, 0, table.value("count", i), { fill: color("s0") }));
    });
  },

  rhat(host) {
    const table = frame("rhat"), names = distinct(table.words("period")), { box, hosts } = panels(names, "17rem");
    figureBox(host, "R-hat of item parameters", "Share of (item, parameter) pairs; the last bin holds everything above 1.1.", box,
      numbers(() => frameTable(table, "rhat")));
    const rowsOf = name => table.rows(i => table.value("period", i) === name);
    const shares = name => { const c = rowsOf(name).map(i => table.value("count", i)), total = c.reduce((a, b) => a + b, 0) || 1; return c.map(v => v / total); };
    const top = Math.max(0.05, ...names.flatMap(shares));
    return () => names.forEach((name, k) => {
      const rows = rowsOf(name), share = shares(name);
      const plot = new Plot(hosts[k], { height: 200, describe: `R-hat, ${name}`,
        x: { domain: [1, 1.105], label: "R-hat" }, y: { domain: [0, 1.05 * top], label: "share" } });
      rows.forEach((i, b) => {
        const from = table.value("from", i), to = Math.min(table.value("to", i) ?? 1.105, 1.105);
        plot.bar(from, to, 0, share[b], { fill: color(from >= 1.05 - 1e-9 ? "low" : "s0") });
      });
    });
  },

  clouds(host) {
    const clouds = report.content.clouds;
    if (!clouds.length) { host.append(el("p", {}, "Only the reference: nothing to link.")); return () => {}; }
    const dimensions = distinct(clouds.map(c => c.dimension)), periods = distinct(clouds.map(c => c.period));
    const { box, hosts } = panels(dimensions, "22rem"), key = el("div");
    const draws = () => clouds.flatMap(c => Array.from(array(c.A), (a, s) => [c.period, c.dimension, a, array(c.B)[s]]));
    figureBox(host, "Links, draw by draw", "Each point is one draw of (A, B), found from the period's anchors alone; the spread is the link's uncertainty.", key, box,
      numbers(() => rowsTable(["period", "dimension", "A", "B"], draws(), "links-by-draw")));
    return () => {
      key.replaceChildren(legend([...periods.map((p, k) => [p, series(k + 1)]), [`${report.content.reference} (reference)`, color("ink")]]));
      dimensions.forEach((dimension, k) => {
        const own = clouds.filter(c => c.dimension === dimension), A = own.map(c => array(c.A)), B = own.map(c => array(c.B));
        const plot = new Plot(hosts[k], { height: 300, describe: `A and B by draw, ${dimension}`,
          x: { domain: extent([...B, [0]]), label: "B" }, y: { domain: extent([...A, [1]]), label: "A" } });
        const xs = own.flatMap((c, i) => Array.from(B[i])), ys = own.flatMap((c, i) => Array.from(A[i]));
        const who = own.flatMap((c, i) => Array(A[i].length).fill(periods.indexOf(c.period)));
        const fills = periods.map((_, p) => series(p + 1));
        plot.points(xs, ys, { fill: i => fills[who[i]], describe: i => `${periods[who[i]]}\nA ${number(ys[i])}, B ${number(xs[i])}`, alpha: 0.5 });
        plot.path([[0, 1], [0, 1]], {});
        plot.svg.append(shape("path", { class: "axis", d: `M${plot.x(0) - 6},${plot.y(1)}h12M${plot.x(0)},${plot.y(1) - 6}v12` }));
      });
    };
  },

  anchors(host) {
    const table = frame("anchors");
    if (!table || !table.n) { host.append(el("p", {}, "No anchors: the bank has one period.")); return () => {}; }
    const why = i => table.value("kept", i) ? "kept" : `dropped: ${{ rhat: "R-hat" }[table.value("dropped_by", i)] || table.value("dropped_by", i) || "unknown"}`;
    const kinds = distinct(table.rows().map(why)).sort((a, b) => (b === "kept") - (a === "kept"));
    const counts = () => {
      const found = new Map();
      for (let i = 0; i < table.n; i++) {
        const name = `${table.value("period", i)}\u0000${table.value("dimension", i)}`;
        if (!found.has(name)) found.set(name, new Map());
        found.get(name).set(why(i), (found.get(name).get(why(i)) || 0) + 1);
      }
      return [...found].map(([name, m]) => [...name.split("\u0000"), ...kinds.map(k => m.get(k) || 0)]);
    };
    host.append(pagedTable(rowsTable(["period", "dimension", ...kinds], counts(), "anchors-kept"), 30));
    if (!table.has("displacement")) return () => {};
    const periods = distinct(table.words("period")), dimensions = distinct(table.words("dimension"));
    let chosen = [];
    const draw = () => {
      chosen = table.rows(i => table.value("period", i) === byPeriod.box.value);
      key.replaceChildren(legend(kinds.map((kind, k) => [kind, k ? series(k) : color("s0")])));
      dimensions.forEach((dimension, k) => {
        const rows = chosen.filter(i => table.value("dimension", i) === dimension);
        const xs = rows.map(i => Math.max(table.value("n_responses", i) || 1, 1)), ys = rows.map(i => table.value("displacement", i) ?? NaN);
        hosts[k].parentNode.hidden = !rows.length;
        if (!rows.length) return;
        const plot = new Plot(hosts[k], { height: 280, describe: `Displacement of anchors, ${dimension}`,
          x: { domain: logDomain(xs), log: true, label: "responses in both periods" }, y: { domain: extent([ys, [0]]), label: "displacement of d" } });
        plot.path([[plot.options.x.domain[0], 0], [plot.options.x.domain[1], 0]], { class: "mark" });
        plot.points(xs, ys, { fill: j => { const c = kinds.indexOf(why(rows[j])); return c ? series(c) : color("s0"); },
          describe: j => `${table.value("item_id", rows[j])}\n${why(rows[j])}\ndisplacement ${number(ys[j])} ± ${number(table.has("displacement_sd") ? table.value("displacement_sd", rows[j]) : null)}`,
          choose: j => openItem(table.value("item_id", rows[j])) });
      });
      details.refresh();
    };
    const byPeriod = choice("Period", periods.map(p => [p, p]), draw), key = el("div");
    const { box, hosts } = panels(dimensions, "22rem");
    const details = numbers(() => frameTable(table, "anchors", chosen));
    figureBox(host, "Displacement of anchors after linking", "d in the reference minus linked d in the period, both posterior means. Points far from zero moved.",
      el("div", { class: "controls" }, byPeriod), key, box, details);
    return draw;
  },

  uncertainty(host) {
    const groups = report.content.groups, sources = report.content.sources, shown = ["d", "log_a"];
    const { box, hosts } = panels(["Posterior SD of d", "Posterior SD of log a"], "22rem"), key = el("div");
    const rows = () => {
      const found = [];
      let at = 0;
      for (const g of groups) {
        const n = array(g.n_responses), sd = array(g.sd), mean = array(g.mean), p = g.parameters.length;
        for (let k = 0; k < g.n; k++) found.push([report.ids[at + k], g.name, sources[array(g.source)[k]], n[k], mean[k * p], sd[k * p], mean[k * p + 1], sd[k * p + 1]]);
        at += g.n;
      }
      return found;
    };
    let cached = null;
    const all = () => (cached = cached || rows());
    figureBox(host, "Uncertainty by exposure", "Consensus posterior SD against the number of responses over all periods (items without a response stand at ½).", key, box,
      numbers(() => rowsTable(["item", "group", "source", "responses", "mean d", "SD d", "mean log a", "SD log a"], all(), "items", [0])));
    return () => {
      const fills = { consensus: color("s0"), fallback: color("s1"), predicted: color("s5") };
      key.replaceChildren(legend(sources.map(s => [s, fills[s]])));
      shown.forEach((_, k) => {
        const xs = all().map(r => Math.max(r[3], 0.5)), ys = all().map(r => r[5 + 2 * k]);
        const plot = new Plot(hosts[k], { height: 280, describe: `Posterior SD by exposure, ${shown[k]}`,
          x: { domain: logDomain(xs), log: true, label: "responses" }, y: { domain: [0, extent([ys])[1]], label: "posterior SD" } });
        plot.points(xs, ys, { fill: i => fills[all()[i][2]], radius: 2, alpha: 0.5,
          describe: i => `${all()[i][0]}\n${number(all()[i][3])} responses, SD ${number(ys[i])}`, choose: i => openItem(all()[i][0]) });
      });
    };
  },

  agreement(host) {
    const cells = report.content.pairs;
    if (!cells) return () => {};
    const loaded = new Map(), load = c => { if (!loaded.has(c)) loaded.set(c, new Frame(c.frame)); return loaded.get(c); };
    const methods = distinct(cells.flatMap(c => c.methods)), scopes = distinct(cells.map(c => `${c.dimension} · ${c.model}`));
    const box = el("div"), key = el("div");
    let rows = [];
    const draw = () => {
      const everything = byScope.box.value === "all";
      const method = byMethod.box.value;
      const own = cells.filter(c => c.methods.includes(method) && (everything || `${c.dimension} · ${c.model}` === byScope.box.value));
      const parameters = distinct(own.map(c => c.parameter)).filter(p => !everything || p === "d" || p === "log_a");
      rows = own.filter(c => parameters.includes(c.parameter)).flatMap(c => { const f = load(c); return f.rows().map(i => [f.value("item_id", i), c.dimension, c.model, c.parameter, f.value("exposure", i), f.value("tertile", i), f.value("mean " + method, i), f.value("pooled_mean", i), f.value("sd " + method, i), f.value("pooled_sd", i)]); });
      const fills = { low: color("low"), mid: color("mid"), high: color("high") };
      key.replaceChildren(legend(["low", "mid", "high"].map(t => [`${t} exposure`, fills[t]])));
      const wanted = [["posterior mean", 6], ["posterior SD", 8]].flatMap(([what, at]) => parameters.map(p => [what, at, p]));
      const made = panels(wanted.map(([what, , p]) => `${pretty(p)}: ${what}`), parameters.length > 2 ? "15rem" : "20rem");
      if (parameters.length <= 4) made.box.style.gridTemplateColumns = window.innerWidth < 700 ? "1fr" : `repeat(${parameters.length}, minmax(0, 26rem))`;
      box.replaceChildren(made.box);
      wanted.forEach(([what, at, p], k) => {
        const mine = rows.filter(r => r[3] === p), xs = mine.map(r => r[at + 1]), ys = mine.map(r => r[at]);
        const domain = at === 8 ? [0, extent([xs, ys])[1]] : extent([xs, ys]);
        const size = Math.min(made.hosts[k].clientWidth || 320, 420);
        const plot = new Plot(made.hosts[k], { height: Math.max(size - 14, 180), describe: `Consensus against pooled ${what} of ${p}`,
          x: { domain, label: "pooled" }, y: { domain, label: "consensus" } });
        plot.points(xs, ys, { fill: i => fills[mine[i][5]], radius: 2,
          describe: i => `${mine[i][0]}\nconsensus ${number(ys[i])}, pooled ${number(xs[i])}`, choose: i => openItem(mine[i][0]) });
        plot.identity();
      });
      details.refresh();
    };
    const byMethod = choice("Method", methods.map(m => [m, m]), draw);
    const byScope = choice("Items", [["all", "all (d and log a)"], ...scopes.map(s => [s, s])], draw);
    const details = numbers(() => rowsTable(["item", "dimension", "model", "parameter", "responses per period", "tertile", "mean", "pooled mean", "SD", "pooled SD"], rows, "agreement", [0]));
    figureBox(host, "Consensus against pooled fit", "One point per item that passed the R-hat screen; the dashed line is identity. Colours: tertiles of responses per item and period.",
      el("div", { class: "controls" }, byMethod, byScope), key, box, details);
    return draw;
  },

  abilities(host) {
    const table = frame("ability_histogram");
    if (!table || !table.n) { host.append(el("p", {}, "No period has abilities.")); return () => {}; }
    const dimensions = distinct(table.words("dimension")), periods = distinct(table.words("period"));
    const { box, hosts } = panels(dimensions, "22rem"), key = el("div");
    figureBox(host, "Examinees' posterior mean abilities", "Share of examinees per quarter of a unit.", key, box, numbers(() => frameTable(table, "abilities")));
    return () => {
      key.replaceChildren(legend(periods.map((p, k) => [p, series(k)])));
      dimensions.forEach((dimension, k) => {
        const lines = periods.map(period => {
          const rows = table.rows(i => table.value("dimension", i) === dimension && table.value("period", i) === period);
          const total = rows.reduce((sum, i) => sum + table.value("count", i), 0) || 1;
          return rows.flatMap(i => { const s = table.value("count", i) / total; return [[table.value("from", i), s], [table.value("to", i), s]]; });
        });
        const plot = new Plot(hosts[k], { height: 260, describe: `Abilities, ${dimension}`,
          x: { domain: [-4, 4], label: "θ, reference metric" }, y: { domain: [0, 1.05 * Math.max(0.01, ...lines.flat().map(p => p[1]))], label: "share" } });
        lines.forEach((line, p) => plot.path(line.filter(([x]) => x >= -4 && x <= 4), { stroke: series(p), "stroke-width": 1.5 }));
      });
    };
  },

  drift(host) {
    const table = frame("tests"), tested = report.content.n_tested;
    if (!table || !table.n) { host.append(el("p", {}, "No item was seen in two periods.")); return () => {}; }
    const { box, hosts } = panels(["Distance by shift of the expected score"], "30rem"), key = el("div");
    figureBox(host, "Every tested item and period", `Shift: what the period alone would change the expected score by (positive: easier), averaged over the period's examinees. Distance: in standard errors. ${tested > table.n ? `The ${number(table.n)} most certain of ${number(tested)} tests.` : ""}`, key, box,
      numbers(() => frameTable(table, "drift-tests")));
    return () => {
      key.replaceChildren(legend([["drifted", color("s1")], ["not", color("s5")]]));
      const xs = table.numbers("score_shift"), ys = table.numbers("distance");
      const plot = new Plot(hosts[0], { height: 300, describe: "Drift", x: { domain: extent([xs, [0]]), label: "shift of the expected score" }, y: { domain: [0, extent([ys, [1]])[1]], label: "distance" } });
      const [hot, cool] = [color("s1"), color("s5")];
      plot.points(xs, ys, { fill: i => table.value("drifted", i) ? hot : cool, describe: i => `${table.value("item_id", i)}\n${table.value("period", i)}, shift ${number(xs[i])}, distance ${number(ys[i])}`, choose: i => openItem(table.value("item_id", i)) });
    };
  },
};

const pretty = p => p === "log_a" ? "log a" : p.replaceAll("_", " ");
function logDomain(values) {
  const [low, high] = extent([values], 0);
  return [Math.max(low, 0.5) / 1.3, Math.max(high, 1) * 1.3];
}
