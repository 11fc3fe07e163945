// Links draw by draw, and the anchors they rest on.
figureMakers.clouds = (host) => {
  const clouds = section("links").clouds;
  if (!clouds.length) {
    host.append(el("p", {}, "Only the reference: nothing to link."));
    return () => {};
  }
  const dimensions = distinct(clouds.map((c) => c.dimension)),
    periods = distinct(clouds.map((c) => c.period));
  const { box, hosts } = panels(dimensions, "22rem"),
    key = el("div");
  const draws = () =>
    clouds.flatMap((c) => Array.from(array(c.A), (a, s) => [c.period, c.dimension, a, array(c.B)[s]]));
  figureBox(
    host,
    "Links, draw by draw",
    "Each point is one draw of (A, B), found from the period's anchors alone; the spread is the link's uncertainty.",
    key,
    box,
    numbers(() => rowsTable(["period", "dimension", "A", "B"], draws(), "links-by-draw")),
  );
  return () => {
    key.replaceChildren(
      legend([
        ...periods.map((p, k) => [p, series(k + 1)]),
        [`${section("links").reference} (reference)`, color("ink")],
      ]),
    );
    dimensions.forEach((dimension, k) => {
      const own = clouds.filter((c) => c.dimension === dimension),
        A = own.map((c) => array(c.A)),
        B = own.map((c) => array(c.B));
      const plot = new Plot(hosts[k], {
        height: 300,
        describe: `A and B by draw, ${dimension}`,
        x: { domain: extent([...B, [0]]), label: "B" },
        y: { domain: extent([...A, [1]]), label: "A" },
      });
      const xs = own.flatMap((_, i) => Array.from(B[i])),
        ys = own.flatMap((_, i) => Array.from(A[i]));
      const who = own.flatMap((c, i) => Array(A[i].length).fill(periods.indexOf(c.period)));
      const fills = periods.map((_, p) => series(p + 1));
      plot.points(xs, ys, {
        fill: (i) => fills[who[i]],
        describe: (i) => `${periods[who[i]]}\nA ${number(ys[i])}, B ${number(xs[i])}`,
        alpha: 0.5,
      });
      plot.path(
        [
          [0, 1],
          [0, 1],
        ],
        {},
      );
      plot.svg.append(
        shape("path", { class: "axis", d: `M${plot.x(0) - 6},${plot.y(1)}h12M${plot.x(0)},${plot.y(1) - 6}v12` }),
      );
    });
  };
};

figureMakers.anchors = (host) => {
  const table = frame(section("links").anchors);
  if (!table || !table.n) {
    host.append(el("p", {}, "No anchors: the bank has one period."));
    return () => {};
  }
  const why = (i) =>
    table.value("kept", i)
      ? "kept"
      : `dropped: ${{ rhat: "R-hat" }[table.value("dropped_by", i)] || table.value("dropped_by", i) || "unknown"}`;
  const kinds = distinct(table.rows().map(why)).sort((a, b) => (b === "kept") - (a === "kept"));
  const counts = () => {
    const found = new Map();
    for (let i = 0; i < table.n; i++) {
      const name = `${table.value("period", i)}\u0000${table.value("dimension", i)}`;
      if (!found.has(name)) found.set(name, new Map());
      found.get(name).set(why(i), (found.get(name).get(why(i)) || 0) + 1);
    }
    return [...found].map(([name, m]) => [...name.split("\u0000"), ...kinds.map((k) => m.get(k) || 0)]);
  };
  host.append(pagedTable(rowsTable(["period", "dimension", ...kinds], counts(), "anchors-kept"), 30));
  if (!table.has("displacement")) return () => {};
  const periods = distinct(table.words("period")),
    dimensions = distinct(table.words("dimension"));
  let chosen = [];
  const draw = () => {
    chosen = table.rows((i) => table.value("period", i) === byPeriod.box.value);
    key.replaceChildren(legend(kinds.map((kind, k) => [kind, k ? series(k) : color("s0")])));
    dimensions.forEach((dimension, k) => {
      const rows = chosen.filter((i) => table.value("dimension", i) === dimension);
      const xs = rows.map((i) => Math.max(table.value("n_responses", i) || 1, 1)),
        ys = rows.map((i) => table.value("displacement", i) ?? NaN);
      hosts[k].parentNode.hidden = !rows.length;
      if (!rows.length) return;
      const plot = new Plot(hosts[k], {
        height: 280,
        describe: `Displacement of anchors, ${dimension}`,
        x: { domain: logDomain(xs), log: true, label: "responses in both periods" },
        y: { domain: extent([ys, [0]]), label: "displacement of d" },
      });
      plot.path(
        [
          [plot.options.x.domain[0], 0],
          [plot.options.x.domain[1], 0],
        ],
        { class: "mark" },
      );
      plot.points(xs, ys, {
        fill: (j) => {
          const c = kinds.indexOf(why(rows[j]));
          return c ? series(c) : color("s0");
        },
        describe: (j) => {
          const sd = table.has("displacement_sd") ? table.value("displacement_sd", rows[j]) : null;
          const id = table.value("item_id", rows[j]);
          return `${id}\n${why(rows[j])}\ndisplacement ${number(ys[j])} ± ${number(sd)}`;
        },
        choose: (j) => openItem(table.value("item_id", rows[j])),
      });
    });
    details.refresh();
  };
  const byPeriod = choice(
      "Period",
      periods.map((p) => [p, p]),
      draw,
    ),
    key = el("div");
  const { box, hosts } = panels(dimensions, "22rem");
  const details = numbers(() => frameTable(table, "anchors", chosen));
  figureBox(
    host,
    "Displacement of anchors after linking",
    "d in the reference minus linked d in the period, both posterior means. Points far from zero moved.",
    el("div", { class: "controls" }, byPeriod),
    key,
    box,
    details,
  );
  return draw;
};
