// What the sections' figures share. A maker fills its host and gives back a function that draws it again:
//   figureMakers.name = function (host) { ...; return () => { ... }; };   for <div data-figure="name">
const figureMakers = {};

function figureBox(host, title, note, ...parts) {
  host.append(el("figure", {}, el("figcaption", {}, el("h3", {}, title), note ? el("p", {}, note) : null), ...parts));
}
function panels(names, least = "20rem") {
  const box = el("div", { class: "panels", style: `--least:${least}` });
  const hosts = names.map((name) => {
    const plot = el("div", { class: "plot" });
    box.append(el("div", { class: "panel" }, el("h4", {}, name), plot));
    return plot;
  });
  return { box, hosts };
}
const distinct = (values) => [...new Set(values)];

const pretty = (p) => (p === "log_a" ? "log a" : p.replaceAll("_", " "));
function logDomain(values) {
  const [low, high] = extent([values], 0);
  return [Math.max(low, 0.5) / 1.3, Math.max(high, 1) * 1.3];
}
