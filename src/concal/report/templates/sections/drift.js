// Drift: a picture per item that moved, the list of movers, and every test as a point.
const PICTURES = 6;

figureMakers.moved = (host) => {
  host.append(pagedTable(frameTable(frame(section("drift").moved), "moved")));
  return () => {};
};

// The items that moved, most consequential first: consensus, unmoved periods, and the period that moved.
figureMakers.movers = (host) => {
  const table = frame(section("drift").moved);
  const ids = distinct(table.words("item_id"));
  const box = el("div", { class: "panels", style: "--least:17rem" });
  let plots = [];
  const draw = () => plots.forEach((paint) => paint());
  const show = (n) => {
    plots = [];
    box.replaceChildren();
    for (const id of ids.slice(0, n)) {
      const plot = el("div", { class: "plot" });
      const rows = table.rows((i) => table.value("item_id", i) === id);
      const said = rows.map((i) => section("drift").said[i]);
      box.append(
        el("div", { class: "panel" }, el("h4", {}, itemButton(id)), el("p", { class: "small" }, said.join("; ")), plot),
      );
      const item = itemAt(report.ids.indexOf(id));
      plots.push(() => drawCurves(plot, item, { height: 190, labels: false, observed: false }));
    }
    more.hidden = n >= ids.length;
    draw();
  };
  const more = el("button", { type: "button", onclick: () => show(plots.length + 4 * PICTURES) }, "Show more");
  const key = el("div");
  figureBox(
    host,
    "The items whose drift matters most",
    "Expected score by ability: the consensus with its 90 % band, the periods, and the one that moved with its band.",
    key,
    box,
    el("div", { class: "controls" }, more),
    numbers(() => frameTable(table, "moved")),
  );
  return () => {
    if (!plots.length) show(PICTURES);
    key.replaceChildren(
      legend([
        ["consensus", color("s0")],
        ["moved", color("s1")],
        ["other periods", color("s5")],
      ]),
    );
    draw();
  };
};

figureMakers.tests = (host) => {
  const table = frame(section("drift").tests),
    tested = section("drift").n_tested;
  if (!table || !table.n) {
    host.append(el("p", {}, "No item was seen in two periods."));
    return () => {};
  }
  const { box, hosts } = panels(["Distance by shift of the expected score"], "min(100%, 40rem)"),
    key = el("div");
  figureBox(
    host,
    "Every tested item and period",
    "Shift: what the period alone would change the expected score by (positive: easier), over its examinees. " +
      "Distance: in standard errors." +
      (tested > table.n ? ` The ${number(table.n)} most certain of ${number(tested)} tests.` : ""),
    key,
    box,
    numbers(() => frameTable(table, "drift-tests")),
  );
  return () => {
    key.replaceChildren(
      legend([
        ["drifted", color("s1")],
        ["not", color("s5")],
      ]),
    );
    const xs = table.numbers("score_shift"),
      ys = table.numbers("distance");
    const plot = new Plot(hosts[0], {
      height: 300,
      describe: "Drift",
      x: { domain: extent([xs, [0]]), label: "shift of the expected score" },
      y: { domain: [0, extent([ys, [1]])[1]], label: "distance" },
    });
    const [hot, cool] = [color("s1"), color("s5")];
    plot.points(xs, ys, {
      fill: (i) => (table.value("drifted", i) ? hot : cool),
      describe: (i) =>
        `${table.value("item_id", i)}\n${table.value("period", i)}, shift ${number(xs[i])}, distance ${number(ys[i])}`,
      choose: (i) => openItem(table.value("item_id", i)),
    });
  };
};
