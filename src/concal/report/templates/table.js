// Tables by pages, with all rows as a CSV file one click away.
const PAGE = 15;
const SHORT_ID = 20; // characters of an id that is not broken over lines

const isNumeric = (kind) => kind === "number" || kind === "p";
function cellText(value, kind, digits) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return kind === "p" ? pValue(value) : number(value, digits);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

// content: {heads, kinds, digits, n, cell(row, column), name}; kinds: "item", "number", "p", "text".
function pagedTable(content, size = PAGE) {
  const body = el("tbody"),
    said = el("span", { "aria-live": "polite" });
  let first = 0;
  const show = () => {
    body.replaceChildren();
    for (let i = first; i < Math.min(first + size, content.n); i++) {
      body.append(
        el(
          "tr",
          {},
          ...content.heads.map((_, j) => {
            const value = content.cell(i, j),
              kind = content.kinds[j];
            if (kind === "item" && value !== null) {
              return el("td", { class: value.length <= SHORT_ID ? "short" : null }, itemButton(value));
            }
            return el("td", { class: isNumeric(kind) ? "number" : null }, cellText(value, kind, content.digits?.[j]));
          }),
        ),
      );
    }
    said.textContent = content.n
      ? `${number(first + 1)}–${number(Math.min(first + size, content.n))} of ${number(content.n)}`
      : "no rows";
    back.disabled = first === 0;
    next.disabled = first + size >= content.n;
  };
  const back = el(
    "button",
    {
      type: "button",
      onclick: () => {
        first = Math.max(0, first - size);
        show();
      },
    },
    "Previous",
  );
  const next = el(
    "button",
    {
      type: "button",
      onclick: () => {
        first += size;
        show();
      },
    },
    "Next",
  );
  const save = el("button", { type: "button", onclick: () => saveCsv(content) }, "Save as CSV");
  const head = el(
    "tr",
    {},
    ...content.heads.map((h, j) => el("th", { scope: "col", class: isNumeric(content.kinds[j]) ? "number" : null }, h)),
  );
  show();
  return el(
    "div",
    {},
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), body)),
    el("div", { class: "pager" }, content.n > size ? back : null, content.n > size ? next : null, said, save),
  );
}

function itemButton(id) {
  return el("button", { type: "button", class: "link", title: id, onclick: () => openItem(id) }, id);
}

// Text that a spreadsheet would run as a formula gets an apostrophe in front.
function csvCell(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(String(value)) ? "'" + value : String(value);
  return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}
function csvText(content) {
  const lines = [content.heads.map(csvCell).join(",")];
  for (let i = 0; i < content.n; i++) lines.push(content.heads.map((_, j) => csvCell(content.cell(i, j))).join(","));
  return lines.join("\n") + "\n";
}
function saveCsv(content) {
  const url = URL.createObjectURL(new Blob([csvText(content)], { type: "text/csv" }));
  const link = el("a", { href: url, download: `${content.name || "table"}.csv` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// A frame (or some of its rows) as the content of a table.
function frameTable(source, name, rows = null, columns = null) {
  const shown = columns || source.columns.map((c) => c.name),
    index = rows || source.rows();
  const kind = (c) => {
    const stored = source.byName.get(c).kind;
    if (stored === "item" || c === "item_id") return "item";
    if (/(^|_)[pq]_value$/.test(c)) return "p";
    return stored === "int" || stored === "float" ? "number" : "text";
  };
  return {
    name,
    heads: shown.map((c) => report.content.words[c] || c.replaceAll("_", " ")),
    kinds: shown.map(kind),
    digits: shown.map((c) => report.content.digits[c]),
    n: index.length,
    cell: (i, j) => source.value(shown[j], index[i]),
  };
}
// Plain rows as the content of a table.
function rowsTable(heads, rows, name, items = []) {
  const kinds = heads.map((_, j) =>
    items.includes(j) ? "item" : rows.length && typeof rows[0][j] === "number" ? "number" : "text",
  );
  return { name, heads, kinds, n: rows.length, cell: (i, j) => rows[i][j] };
}

// Numbers behind a figure, made when they are asked for.
function numbers(make, words = "Numbers") {
  const box = el("details", { class: "numbers" }, el("summary", {}, words));
  box.addEventListener("toggle", () => {
    if (box.open && box.children.length === 1) box.append(pagedTable(make()));
  });
  box.refresh = () => {
    while (box.children.length > 1) box.lastChild.remove();
    if (box.open) box.append(pagedTable(make()));
  };
  return box;
}
function legend(entries) {
  return el(
    "ul",
    { class: "legend" },
    ...entries.map(([name, fill]) => el("li", {}, el("i", { style: `background:${fill}` }), name)),
  );
}
function choice(label, options, changed) {
  const box = el(
    "select",
    { onchange: () => changed() },
    ...options.map(([value, words]) => el("option", { value }, words)),
  );
  const wrapped = el("label", {}, label + " ", box);
  wrapped.box = box;
  return wrapped;
}
