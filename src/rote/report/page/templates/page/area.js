// Where the axes of a plot are, and how they are drawn.

const LINE = 16; // height of a line of text in a plot, in pixels

/** Where the axes are: as much room as their labels need, the rest is for the values. */
function layout(plot, width, height) {
  const { figure, measure } = plot;
  const columns = (names) => plot.layers.flatMap((layer) => names.flatMap((name) => layer.data[name] ?? []));
  const x = scaled(plot.x ?? figure.x, columns(["x", "x0", "x1"]));
  const y = scaled(figure.y, columns(["y", "y0", "y1", "low", "high"]));
  const above = figure.y.label ? wrapped(figure.y.label, width, measure, 2) : [];
  const top = above.length ? above.length * LINE + 14 : 12;
  const below = figure.x.label ? wrapped(figure.x.label, width, measure, 2) : [];
  const wide = (lines) => Math.max(...lines.map(measure));
  const most = Math.min(0.4 * width, 220);
  const guess = height - top - LINE - 8 - below.length * LINE;
  const yTicks = ticksOf(y, guess, (lines) => (lines.length || 1) * LINE - GAP + 4, 28).map((tick) => ({
    ...tick,
    lines: y.scale === "category" ? wrapped(y.names[tick.value], most, measure, 1) : tick.lines,
  }));
  const left = Math.ceil(Math.max(8, ...yTicks.map((tick) => wide(tick.lines)))) + 10;
  const right = width - 16;
  const xTicks = ticksOf(x, right - left, wide);
  const deep = Math.max(1, ...xTicks.map((tick) => tick.lines.length));
  const bottom = height - deep * LINE - 10 - below.length * (LINE + 2);
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    x,
    y,
    xTicks,
    yTicks,
    above,
    below,
    deep,
    px: (value) => left + x.at(value) * (right - left),
    py: (value) => bottom - y.at(value) * (bottom - top),
  };
}

function drawAxes(plot) {
  const { svg } = plot;
  const { left, right, top, bottom, above, below, deep } = plot.area;
  add(svg, "path", { class: "gridline", d: gridPath(plot.area) });
  add(svg, "path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` });
  drawTicks(plot);
  above.forEach((line, i) => svgText(svg, line, { class: "axis-label", x: 0, y: 13 + LINE * i }));
  below.forEach((line, i) => {
    svgText(svg, line, {
      class: "axis-label",
      x: round(keptInside(plot, line, (left + right) / 2)),
      y: bottom + 8 + deep * LINE + (LINE + 1) * (i + 1),
      "text-anchor": "middle",
    });
  });
}

/** A line for each tick, but none for names. */
function gridPath({ left, right, top, bottom, x, y, xTicks, yTicks }) {
  const rows = y.scale === "category" ? [] : yTicks.map(({ at }) => round(bottom - at * (bottom - top)));
  const columns = x.scale === "category" ? [] : xTicks.map(({ at }) => round(left + at * (right - left)));
  return [
    ...rows.map((row) => `M${left} ${row}H${right}`),
    ...columns.map((column) => `M${column} ${top}V${bottom}`),
  ].join("");
}

function drawTicks(plot) {
  const { svg } = plot;
  const { left, right, top, bottom, xTicks, yTicks } = plot.area;
  for (const tick of yTicks) {
    const y = round(bottom - tick.at * (bottom - top) + 4.5);
    add(svg, "text", { class: "tick", x: left - 8, y, "text-anchor": "end" }).textContent = tick.lines.join(" ");
  }
  for (const tick of xTicks) {
    tick.lines.forEach((line, i) => {
      const x = round(keptInside(plot, line, left + tick.at * (right - left)));
      const y = bottom + 3 + LINE * (i + 1);
      add(svg, "text", { class: "tick", x, y, "text-anchor": "middle" }).textContent = line;
    });
  }
}

/** The middle of a text below the axis: a label at its end stays inside the picture. */
function keptInside(plot, text, middle) {
  const half = plot.measure(text) / 2;
  return Math.max(half, Math.min(plot.area.width - half, middle));
}
