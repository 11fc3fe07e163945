// Find an item; its panels show what is known about it. A panel is a file in panels/ that ends with
//   itemPanels.push({ key, title, note(item), make(item, host) });
// `item` is what itemAt gives; item.group.panels[key] is what the panel's module in report/panels packed. `make` fills
// its host and gives back a function that draws it again, or null where there is nothing to show.
const itemPanels = [];
const explorer = { chosen: null, redraw: () => {} };

function makeExplorer(host) {
  const list = el("ul", { id: "found", role: "listbox", "aria-label": "Items found", hidden: true });
  const input = el("input", {
    id: "search",
    type: "search",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "found",
    "aria-autocomplete": "list",
    autocomplete: "off",
    placeholder: "Type part of an item id",
    "aria-label": "Find an item",
  });
  const shown = el("div", { id: "item", "aria-live": "polite" });
  const lower = report.ids.map((id) => id.toLowerCase());
  let found = [],
    active = -1;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const mark = (k) => {
    active = k;
    [...list.children].forEach((li, i) => li.setAttribute("aria-selected", i === k));
    if (k >= 0) {
      input.setAttribute("aria-activedescendant", `found-${k}`);
      list.children[k].scrollIntoView({ block: "nearest" });
    }
  };
  const pick = (k) => {
    if (found[k] !== undefined) {
      openItem(report.ids[found[k]], false);
      close();
    }
  };
  const search = () => {
    const words = input.value.trim().toLowerCase();
    found = [];
    const begins = [];
    for (let i = 0; i < lower.length && begins.length < 50; i++) {
      const at = words ? lower[i].indexOf(words) : 0;
      if (at === 0) begins.push(i);
      else if (at > 0 && found.length < 50) found.push(i);
    }
    found = [...begins, ...found].slice(0, 50);
    list.replaceChildren(
      ...found.map((i, k) =>
        el(
          "li",
          {
            id: `found-${k}`,
            role: "option",
            "aria-selected": "false",
            onmousedown: (event) => {
              event.preventDefault();
              pick(k);
            },
          },
          report.ids[i],
        ),
      ),
    );
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    active = -1;
  };
  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) search();
      if (found.length) mark((active + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      pick(active >= 0 ? active : 0);
    } else if (event.key === "Escape") close();
  });
  const step = (by) => () => {
    if (report.ids.length)
      openItem(
        report.ids[((explorer.chosen ?? (by > 0 ? -1 : 0)) + by + report.ids.length) % report.ids.length],
        false,
      );
  };
  host.append(
    el(
      "div",
      { class: "controls" },
      el("div", { class: "search", style: "flex:1 1 20rem" }, input, list),
      el("button", { type: "button", onclick: step(-1) }, "Previous item"),
      el("button", { type: "button", onclick: step(1) }, "Next item"),
    ),
    el(
      "p",
      {},
      `${number(report.ids.length)} items; those in tables and points in figures open here. ${section("items").why}`,
    ),
    shown,
  );
  explorer.show = (index) => {
    explorer.chosen = index;
    showItem(shown, index);
  };
}

function openItem(id, scroll = true) {
  const index = report.ids.indexOf(id);
  if (index < 0) return;
  explorer.show(index);
  history.replaceState(null, "", "#item=" + encodeURIComponent(id));
  if (scroll) document.getElementById("items").scrollIntoView();
}

// An item by its number in the bank: {index, id, group, k: its place in the group, moved: periods in which it moved}.
function itemAt(index) {
  const { group, k } = whereIs(index);
  return { index, id: report.ids[index], group, k, moved: section("items").movers[index] || [] };
}

// The item's row in a period's arrays, -1 where the period did not see it; and its responses there.
const rowIn = (period, item) => array(item.group.seen[period].item).indexOf(item.k);
const responsesIn = (period, item, at) => array(item.group.seen[period].n)[at];

function aboutItem({ group, k }) {
  const categories = group.categories > 2 ? ` with ${group.categories} categories` : "";
  const source = section("items").sources[array(group.source)[k]];
  const n = array(group.n_periods)[k];
  return (
    `${group.name}, ${group.model}${categories}, dimension ${group.dimension}. Source of the numbers: ${source}. ` +
    `${number(array(group.n_responses)[k])} responses in ${n} ${n === 1 ? "period" : "periods"}.`
  );
}

function showItem(host, index) {
  const item = itemAt(index);
  const flags = section("items").flags[index] || [];
  host.replaceChildren(
    el(
      "div",
      { class: "itemhead" },
      el("h3", { id: "item-id" }, item.id),
      ...flags.map((f) => el("span", { class: "flag" }, f)),
    ),
    el("p", {}, aboutItem(item)),
  );
  const draws = [];
  for (const panel of itemPanels) {
    const place = el("div");
    const draw = panel.make(item, place);
    if (!draw) continue;
    host.append(
      el(
        "figure",
        { "data-panel": panel.key },
        el("figcaption", {}, el("h3", {}, panel.title), el("p", {}, panel.note(item))),
        place,
      ),
    );
    draws.push(draw);
  }
  explorer.redraw = () => draws.forEach((draw) => draw());
  explorer.redraw();
}
