// Put the page together.
// Figures by host: how to draw them, and whether that was done. Those far below are drawn when one comes near them.
const figures = new Map();
function drawFigure(host) {
  const figure = figures.get(host);
  figure.drawn = true;
  figure.draw();
}
function redrawAll() {
  for (const [host, { drawn }] of figures) if (drawn) drawFigure(host);
  explorer.redraw();
}
function drawEverything() {
  for (const host of figures.keys()) drawFigure(host);
  explorer.redraw();
}
function makeFigures() {
  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting && !figures.get(target).drawn) drawFigure(target);
      }
    },
    { rootMargin: "600px 0px" },
  );
  for (const host of document.querySelectorAll("[data-figure]")) {
    figures.set(host, { draw: figureMakers[host.dataset.figure](host), drawn: false });
    near.observe(host);
  }
}

function makeTheme() {
  const button = document.getElementById("theme"),
    order = ["system", "light", "dark"];
  let now = 0;
  const set = (name) => {
    if (name === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    redrawAll();
  };
  button.addEventListener("click", () => {
    now = (now + 1) % 3;
    set(order[now]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  window.addEventListener("beforeprint", () => {
    set("light");
    drawEverything();
  });
  window.addEventListener("afterprint", () => set(order[now]));
}

function followSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        if (entry.isIntersecting) {
          links.forEach((a) => a.removeAttribute("aria-current"));
          links.get(entry.target.id)?.setAttribute("aria-current", "true");
        }
    },
    { rootMargin: "-10% 0px -80% 0px" },
  );
  document.querySelectorAll("main > section").forEach((s) => seen.observe(s));
}

function openFromAddress() {
  const found = /^#item=(.*)$/.exec(location.hash);
  if (found) openItem(decodeURIComponent(found[1]));
}

// The item of the address, otherwise the one most worth seeing.
function openFirst() {
  if (/^#item=/.test(location.hash)) openFromAddress();
  else if (report.ids.length) explorer.show(section("items").first);
}

async function start() {
  try {
    await readData();
    makeFigures();
    makeExplorer(document.getElementById("explorer"));
    makeTheme();
    followSections();
    openFirst();
    window.addEventListener("hashchange", openFromAddress);
    let width = window.innerWidth,
      waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        if (window.innerWidth !== width) {
          width = window.innerWidth;
          redrawAll();
        }
      }, 150);
    });
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    const note = document.getElementById("broken");
    note.textContent = "The figures could not be drawn: " + error.message;
    note.hidden = false;
    document.documentElement.dataset.ready = "failed";
    throw error;
  }
}
start();
