// Find an item; see its period posteriors and consensus, its expected-score curve with band, its responses and flags.
const explorer = { chosen: null, redraw: () => {} };

function makeExplorer(host) {
  const list = el("ul", { id: "found", role: "listbox", "aria-label": "Items found", hidden: true });
  const input = el("input", { id: "search", type: "search", role: "combobox", "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", placeholder: "Type part of an item id", "aria-label": "Find an item" });
  const shown = el("div", { id: "item", "aria-live": "polite" });
  const lower = report.ids.map(id => id.toLowerCase());
  let found = [], active = -1;
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); active = -1; };
  const mark = k => {
    active = k;
    [...list.children].forEach((li, i) => li.setAttribute("aria-selected", i === k));
    if (k >= 0) { input.setAttribute("aria-activedescendant", `found-${k}`); list.children[k].scrollIntoView({ block: "nearest" }); }
  };
  const pick = k => { if (found[k] !== undefined) { openItem(report.ids[found[k]], false); close(); } };
  const search = () => {
    const words = input.value.trim().toLowerCase();
    found = [];
    const begins = [];
    for (let i = 0; i < lower.length && begins.length < 50; i++) {
      const at = words ? lower[i].indexOf(words) : 0;
      if (at === 0) begins.push(i); else if (at > 0 && found.length < 50) found.push(i);
    }
    found = [...begins, ...found].slice(0, 50);
    list.replaceChildren(...found.map((i, k) => el("li", { id: `found-${k}`, role: "option", "aria-selected": "false", onmousedown: event => { event.preventDefault(); pick(k); } }, report.ids[i])));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    active = -1;
  };
  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) search();
      if (found.length) mark((active + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length);
    } else if (event.key === "Enter") { event.preventDefault(); pick(active >= 0 ? active : 0); }
    else if (event.key === "Escape") close();
  });
  const step = by => () => { if (report.ids.length) openItem(report.ids[((explorer.chosen ?? (by > 0 ? -1 : 0)) + by + report.ids.length) % report.ids.length], false); };
  host.append(
    el("div", { class: "controls" }, el("div", { class: "search", style: "flex:1 1 20rem" }, input, list),
      el("button", { type: "button", onclick: step(-1) }, "Previous item"), el("button", { type: "button", onclick: step(1) }, "Next item")),
    el("p", {}, `${report.ids.length.toLocaleString("en")} items. Items in tables and points in figures open here.`), shown);
  explorer.show = index => { explorer.chosen = index; showItem(shown, index); };
}

function openItem(id, scroll = true) {
  const index = report.ids.indexOf(id);
  if (index < 0) return;
  explorer.show(index);
  document.getElementById("items").classList.add("chosen");
  history.replaceState(null, "", "#item=" + encodeURIComponent(id));
  if (scroll) document.getElementById("items").scrollIntoView();
}

// All posteriors of one item: [{name, mean[], sd[], n, score, rhat, observed[[theta, score]]}], the consensus last.
function posteriors(group, k) {
  const p = group.parameters.length, found = [];
  for (const name of report.content.periods) {
    const own = group.periods[name];
    if (!own) continue;
    const at = array(own.item).indexOf(k);
    if (at < 0) continue;
    const part = ref => Array.from(array(ref).slice(at * p, (at + 1) * p));
    found.push({ name, mean: part(own.mean), sd: part(own.sd), n: array(own.n)[at], score: array(own.score)[at], rhat: array(own.rhat)[at], observed: observedScores(own, at) });
  }
  found.push({ name: "consensus", observed: [], mean: Array.from(array(group.mean).slice(k * p, (k + 1) * p)), sd: Array.from(array(group.sd).slice(k * p, (k + 1) * p)), n: array(group.n_responses)[k], score: null, rhat: null });
  return found;
}

// Mean score of groups of examinees by ability, in one period; none where only draws were at hand.
function observedScores(own, at) {
  if (!own.bins) return [];
  const theta = report.content.theta, [low, high] = [theta[0], theta[theta.length - 1]];
  const share = array(own.bin_theta, own.bins), score = array(own.bin_score, own.bins), used = Math.min(own.bins, array(own.n)[at]);
  return Array.from({ length: used }, (_, b) => [low + (high - low) * share[at * own.bins + b], score[at * own.bins + b]]);
}

function showItem(host, index) {
  const { group, k } = whereIs(index), id = report.ids[index], p = group.parameters.length;
  const rows = posteriors(group, k), theta = report.content.theta, nodes = theta.length;
  const curve = array(group.curve, nodes), part = c => Array.from(curve.slice((k * 3 + c) * nodes, (k * 3 + c + 1) * nodes));
  const [middle, low, high] = [0, 1, 2].map(part);
  const flags = report.content.flags[index] || [], moved = report.content.movers[index] || [];
  const forest = panels(group.parameters.map(pretty), "15rem"), curvePanel = panels(["Expected score"], "24rem"), key = el("div");
  const seen = rows.filter(r => r.observed.length), points = seen.flatMap(r => r.observed.map(([t, y]) => [r.name, t, y]));
  const hue = name => series(report.content.periods.indexOf(name) + 1);
  host.replaceChildren(
    el("div", { class: "itemhead" }, el("h3", { id: "item-id" }, id), ...flags.map(f => el("span", { class: "flag" }, f))),
    el("p", {}, `${group.name}, ${group.model}${group.categories && group.categories > 2 ? ` with ${group.categories} categories` : ""}, dimension ${group.dimension}. Source of the numbers: ${report.content.sources[array(group.source)[k]]}. ${number(array(group.n_responses)[k])} responses in ${array(group.n_periods)[k]} periods.`),
    pagedTable(rowsTable(["", ...group.parameters.flatMap(q => [pretty(q), "± SD"]), "responses", "mean score", "largest R-hat"],
      rows.map(r => [r.name, ...r.mean.flatMap((m, q) => [m, r.sd[q]]), r.n, r.score, r.rhat]).map(r => r.map((v, j) => j && v === null ? NaN : v)), `item-${index}`), 40),
    el("figure", {}, el("figcaption", {}, el("h3", {}, "Period posteriors and consensus"), el("p", {}, `On the reference metric: mean, 50 % and 90 % intervals (Gaussian).${moved.length ? ` Moved in ${moved.join(", ")}.` : ""}`)), forest.box),
    el("figure", {}, el("figcaption", {}, el("h3", {}, "Expected-score curve"), el("p", {}, `At the posterior mean, with the 90 % band of the consensus; score divided by the largest score.${seen.length ? " Points: mean scores of the examinees who answered it, in groups by the ability their other responses show." : ""}`)), key, curvePanel.box,
      numbers(() => rowsTable(["theta", "expected score", "5 %", "95 %"], theta.map((t, i) => [t, middle[i], low[i], high[i]]), `curve-${index}`)),
      seen.length ? numbers(() => rowsTable(["period", "theta", "mean score"], points, `observed-${index}`), "Numbers of the points") : null));
  explorer.redraw = () => {
    group.parameters.forEach((_, q) => {
      const spans = rows.flatMap(r => [r.mean[q] - 1.645 * r.sd[q], r.mean[q] + 1.645 * r.sd[q]]);
      const plot = new Plot(forest.hosts[q], { height: 56 + 26 * rows.length, left: 84, describe: `Posteriors of ${group.parameters[q]}`,
        x: { domain: extent([spans]), label: pretty(group.parameters[q]) }, y: { domain: [rows.length - 0.5, -0.5], labels: rows.map(r => r.name) } });
      rows.forEach((r, i) => {
        const ink = color(i === rows.length - 1 ? "ink" : moved.includes(r.name) ? "s1" : "s0"), [m, s] = [r.mean[q], r.sd[q]];
        plot.path([[m - 1.645 * s, i], [m + 1.645 * s, i]], { stroke: ink, "stroke-width": 1.5 });
        plot.path([[m - 0.674 * s, i], [m + 0.674 * s, i]], { stroke: ink, "stroke-width": 4 });
        plot.svg.append(shape("circle", { cx: plot.x(m), cy: plot.y(i), r: 4, fill: ink }));
      });
    });
    const plot = new Plot(curvePanel.hosts[0], { height: 300, describe: "Expected-score curve",
      x: { domain: [theta[0], theta[nodes - 1]], label: `θ, ${group.dimension}` }, y: { domain: [0, 1], label: "expected score" } });
    plot.path([...theta.map((t, i) => [t, low[i]]), ...theta.map((t, i) => [t, high[i]]).reverse()], { fill: color("band"), stroke: "none" });
    plot.path(theta.map((t, i) => [t, middle[i]]), { stroke: color("s0") });
    if (!seen.length) return;
    key.replaceChildren(legend(seen.map(r => [r.name, hue(r.name)])));
    const fills = points.map(q => hue(q[0]));
    plot.points(points.map(q => q[1]), points.map(q => q[2]), { fill: i => fills[i], radius: 4, alpha: 0.9,
      describe: i => `${points[i][0]}\nθ ${number(points[i][1], 2)}, mean score ${number(points[i][2], 2)}` });
  };
  explorer.redraw();
}
