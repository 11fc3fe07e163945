// The data of the page: plain content, and a compressed block of arrays it points into.
const report = { ids: [], content: null, bytes: null };

async function readData() {
  report.content = JSON.parse(document.getElementById("content").textContent);
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to unpack the figures (it lacks DecompressionStream)");
  }
  const packed = Uint8Array.from(atob(document.getElementById("block").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  report.bytes = await new Response(stream).arrayBuffer();
  report.ids = unpack(report.content.ids);
}

// Numbers are stored by planes: all lowest bytes first, all highest last.
function fromPlanes(bytes, size) {
  const n = bytes.length / size,
    found = new Uint8Array(bytes.length);
  for (let b = 0; b < size; b++) for (let i = 0; i < n; i++) found[i * size + b] = bytes[b * n + i];
  return found.buffer;
}

// A reference -> typed array (or strings). `row` is the length of a row of curve steps.
function unpack(ref, row) {
  const [start, length] = ref.at,
    bytes = new Uint8Array(report.bytes, start, length);
  if (ref.t === "f32") return new Float32Array(fromPlanes(bytes, 4));
  if (ref.t === "i32") return new Int32Array(fromPlanes(bytes, 4));
  if (ref.t === "s32") {
    const steps = new Int32Array(fromPlanes(bytes, 4));
    for (let i = 1; i < steps.length; i++) steps[i] += steps[i - 1];
    return steps;
  }
  if (ref.t === "u8") return bytes;
  if (ref.t === "text") return JSON.parse(new TextDecoder().decode(bytes));
  if (ref.t === "r16")
    return Float64Array.from(new Int16Array(fromPlanes(bytes, 2)), (v) => (v === -32768 ? NaN : v * ref.step));
  if (ref.t === "r32")
    return Float64Array.from(new Int32Array(fromPlanes(bytes, 4)), (v) => (v === -2147483648 ? NaN : v * ref.step));
  const found = new Float32Array(length);
  for (let k = 0, sum = 0; k < length; k++) {
    sum = (k % row ? sum + bytes[k] : bytes[k]) & 255;
    found[k] = sum / ref.parts;
  }
  return found;
}

// A table by columns; `value(name, i)` gives a number, a word, a boolean, null, or for item columns the id.
class Frame {
  constructor(packed) {
    this.n = packed.n;
    this.columns = packed.columns;
    this.byName = new Map(packed.columns.map((c) => [c.name, { ...c, data: unpack(c) }]));
  }
  has(name) {
    return this.byName.has(name);
  }
  numbers(name) {
    return this.byName.get(name).data;
  }
  value(name, i) {
    const column = this.byName.get(name),
      v = column.data[i];
    if (column.kind === "level") return column.levels[v];
    if (column.kind === "item") return report.ids[v];
    if (column.kind === "bool") return v === 2 ? null : v === 1;
    return typeof v === "number" && Number.isNaN(v) ? null : v;
  }
  words(name) {
    return Array.from({ length: this.n }, (_, i) => this.value(name, i));
  }
  rows(keep) {
    const found = [];
    for (let i = 0; i < this.n; i++) if (!keep || keep(i)) found.push(i);
    return found;
  }
}

// What a section of the page was given to draw.
const section = (key) => report.content.sections[key];

const frames = new Map();
// A packed table, unpacked once; null where there is none.
function frame(packed) {
  if (!packed) return null;
  if (!frames.has(packed)) frames.set(packed, new Frame(packed));
  return frames.get(packed);
}

// Item number in the bank -> its group and place there.
function whereIs(index) {
  let k = index;
  for (const group of section("items").groups) {
    if (k < group.n) return { group, k };
    k -= group.n;
  }
  return null;
}

const cache = new Map();
function array(ref, row) {
  if (!cache.has(ref)) cache.set(ref, unpack(ref, row));
  return cache.get(ref);
}
