// Small plots: axes and lines in SVG, many points on a canvas below it.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 12, top: 8, bottom: 38 };

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null));
  return node;
}
function shape(tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}
const color = (name) =>
  getComputedStyle(document.documentElement)
    .getPropertyValue("--" + name)
    .trim();
const series = (k) => color("s" + (k % 8));

function number(v, digits = 3) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (Number.isInteger(v)) return v.toLocaleString("en");
  if (Math.abs(v) >= 1000) return Math.round(v).toLocaleString("en");
  return v.toFixed(digits).replace(/^-(?=[0.]*$)/, ""); // no minus before a zero
}
// A p-value is never "0.000".
function pValue(v) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  return v < 0.001 ? "< .001" : v.toFixed(3).replace(/^0/, "");
}
function ticks([low, high], wanted) {
  const raw = (high - low) / Math.max(wanted, 1),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return { at: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
function extent(arrays, pad = 0.04) {
  let low = Infinity,
    high = -Infinity;
  for (const values of arrays)
    for (const v of values)
      if (Number.isFinite(v)) {
        if (v < low) low = v;
        if (v > high) high = v;
      }
  if (low > high) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * pad;
  return [low - room, high + room];
}

class Plot {
  // options: height, x and y as {domain, label, log, labels}; labels: words at whole positions.
  constructor(host, options) {
    const width = Math.max(host.clientWidth, 160),
      height = options.height || 240;
    host.style.height = height + "px";
    host.style.setProperty("--ratio", `${width} / ${height}`); // for print, where plots are scaled to the paper
    host.replaceChildren();
    this.host = host;
    this.width = width;
    this.height = height;
    this.options = options;
    const words = options.y.labels || [];
    this.left = Math.max(MARGIN.left, Math.min(0.4 * width, 10 + 6.6 * Math.max(0, ...words.map((w) => w.length))));
    this.svg = shape("svg", {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": options.describe || "",
    });
    this.x = this.scale(options.x, this.left, width - MARGIN.right);
    this.y = this.scale(options.y, height - MARGIN.bottom, MARGIN.top);
    // Grid lines, under the points.
    this.back = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    host.append(this.back, this.svg);
    this.axes();
  }
  scale(axis, from, to) {
    const f = axis.log ? (v) => Math.log(v) : (v) => v,
      [a, b] = axis.domain.map(f);
    return (v) => from + ((f(v) - a) / (b - a || 1)) * (to - from);
  }
  marks(axis, room) {
    if (axis.labels) return axis.labels.map((text, k) => [k, text]);
    if (axis.log) {
      const [a, b] = axis.domain.map(Math.log10),
        found = [];
      for (let k = Math.floor(a); k <= Math.floor(b); k++)
        for (const m of b - a < 2.5 ? [1, 2, 5] : [1]) {
          const v = m * 10 ** k;
          if (v >= axis.domain[0] && v <= axis.domain[1]) found.push([v, v.toLocaleString("en")]);
        }
      return found;
    }
    const { at, digits } = ticks(axis.domain, room);
    return at.map((v) => [v, v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })]);
  }
  axes() {
    const { x, y } = this.options,
      bottom = this.height - MARGIN.bottom,
      right = this.width - MARGIN.right;
    for (const [v, text] of this.marks(y, this.height / 55)) {
      const at = this.y(v);
      this.back.append(shape("line", { class: "grid", x1: this.left, x2: right, y1: at, y2: at }));
      this.svg.append(shape("text", { x: this.left - 6, y: at + 4, "text-anchor": "end" }, text));
    }
    const marks = this.marks(x, this.width / 80);
    const longest = Math.max(1, ...marks.map((m) => m[1].length)) * 6.5 + 8;
    const every = x.labels ? Math.ceil((longest * marks.length) / (right - this.left)) : 1;
    marks.forEach(([v, text], k) => {
      const at = this.x(v);
      if (!x.labels) this.back.append(shape("line", { class: "grid", x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
      if (k % every === 0) this.svg.append(shape("text", { x: at, y: bottom + 14, "text-anchor": "middle" }, text));
    });
    this.svg.append(shape("line", { class: "axis", x1: this.left, x2: right, y1: bottom, y2: bottom }));
    if (x.label)
      this.svg.append(
        shape(
          "text",
          { class: "title", x: (this.left + right) / 2, y: this.height - 6, "text-anchor": "middle" },
          x.label,
        ),
      );
    if (y.label) {
      const at = (MARGIN.top + bottom) / 2;
      this.svg.append(
        shape(
          "text",
          { class: "title", x: 12, y: at, "text-anchor": "middle", transform: `rotate(-90 12 ${at})` },
          y.label,
        ),
      );
    }
  }
  path(points, attributes) {
    const d = points.map(([a, b], k) => `${k ? "L" : "M"}${this.x(a).toFixed(2)},${this.y(b).toFixed(2)}`).join("");
    this.svg.append(shape("path", { d, fill: "none", "stroke-width": 2, ...attributes }));
  }
  bar(x0, x1, from, to, attributes) {
    const [a, b, c, d] = [this.x(x0), this.x(x1), this.y(from), this.y(to)];
    this.svg.append(
      shape("rect", {
        x: Math.min(a, b),
        width: Math.abs(b - a),
        y: Math.min(c, d),
        height: Math.abs(d - c),
        ...attributes,
      }),
    );
  }
  text(x, y, words, attributes = {}) {
    this.svg.append(shape("text", { x: this.x(x), y: this.y(y), ...attributes }, words));
  }
  identity() {
    const low = Math.max(this.options.x.domain[0], this.options.y.domain[0]),
      high = Math.min(this.options.x.domain[1], this.options.y.domain[1]);
    this.path(
      [
        [low, low],
        [high, high],
      ],
      { class: "mark" },
    );
  }
  // Points: xs, ys, fill(i) -> colour; describe(i) -> text of the tip; choose(i) on a click.
  points(xs, ys, { fill, describe, choose, radius = 2.5, alpha = 0.7 }) {
    const dots = el("canvas"),
      ratio = window.devicePixelRatio || 1;
    dots.width = this.width * ratio;
    dots.height = this.height * ratio;
    dots.style.width = this.width + "px";
    dots.style.height = this.height + "px";
    const pen = dots.getContext("2d");
    pen.scale(ratio, ratio);
    pen.globalAlpha = xs.length > 5000 ? alpha * 0.6 : alpha;
    for (let i = 0; i < xs.length; i++) {
      const a = this.x(xs[i]),
        b = this.y(ys[i]);
      if (!Number.isFinite(a) || !Number.isFinite(b)) continue;
      pen.fillStyle = fill(i);
      pen.beginPath();
      pen.arc(a, b, radius, 0, 7);
      pen.fill();
    }
    this.back.after(dots);
    this.host.dataset.points = xs.length;
    if (describe) this.hover(xs, ys, describe, choose);
  }
  hover(xs, ys, describe, choose) {
    const nearest = (event) => {
      const box = this.svg.getBoundingClientRect(),
        px = event.clientX - box.left,
        py = event.clientY - box.top;
      let best = -1,
        distance = 100;
      for (let i = 0; i < xs.length; i++) {
        const d = (this.x(xs[i]) - px) ** 2 + (this.y(ys[i]) - py) ** 2;
        if (d < distance) {
          distance = d;
          best = i;
        }
      }
      return [best, px, py];
    };
    let tip = null;
    const leave = () => {
      if (tip) tip.remove();
      tip = null;
    };
    this.svg.addEventListener("mousemove", (event) => {
      const [i, px, py] = nearest(event);
      leave();
      this.svg.style.cursor = i >= 0 && choose ? "pointer" : "";
      if (i < 0) return;
      tip = el(
        "div",
        { class: "tip", style: `left:${Math.min(px + 12, this.width - 140)}px;top:${Math.max(py - 30, 0)}px` },
        describe(i),
      );
      this.host.append(tip);
    });
    this.svg.addEventListener("mouseleave", leave);
    if (choose)
      this.svg.addEventListener("click", (event) => {
        const [i] = nearest(event);
        if (i >= 0) choose(i);
      });
  }
}
