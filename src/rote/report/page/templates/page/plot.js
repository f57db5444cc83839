// Plots: what rote/report/figures/figure.py says a figure is, drawn as SVG.
//
// A layer is one or a few paths, however many values it has, so that thousands of points stay fast; which value the
// pointer means is found by looking at all of them. Colours are CSS variables: dark mode needs no drawing anew.

const SVG = "http://www.w3.org/2000/svg";
const BEFORE = "600px"; // so far below the window a plot is drawn already

/** Draws every <figure class="plot"> of the page, each when it comes near the window, all before printing. */
function drawFigures(figures, runs) {
  const plots = new Map();
  for (const element of document.querySelectorAll("figure.plot[data-figure]")) {
    const figure = figures[element.dataset.figure];
    const canvas = element.querySelector(".canvas");
    if (!figure || !canvas) continue;
    const plot = {
      figure,
      layersNow: () => figure.layers,
      before: [],
      element,
      canvas,
      width: 0,
      drawn: false,
      waiting: false,
    };
    canvas.style.minHeight = `${heightOf(canvas.clientWidth) + 2 * LINE}px`;
    if (figure.name === "prompts" && runs.length) choosePrompts(plot, runs);
    plots.set(canvas, plot);
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(target);
      if (Math.abs(target.clientWidth - plot.width) >= 1) drawSoon(plot);
    }
  });
  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        resized.observe(target);
        drawSoon(plots.get(target));
      }
    },
    { rootMargin: BEFORE },
  );
  for (const canvas of plots.keys()) near.observe(canvas);
  window.addEventListener("beforeprint", () => {
    for (const plot of plots.values()) if (!plot.drawn) draw(plot);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") plots.forEach(hideTip);
  });
}

const waiting = [];

/** Each plot is drawn in a task of its own, so that the page answers in between. */
function drawSoon(plot) {
  if (plot.waiting) return;
  plot.waiting = true;
  waiting.push(plot);
  if (waiting.length === 1) setTimeout(drawNext);
}

function drawNext() {
  const plot = waiting[0];
  if (plot.waiting && plot.before.length) {
    plot.before.shift()();
  } else {
    waiting.shift();
    if (plot.waiting) draw(plot);
  }
  if (waiting.length) setTimeout(drawNext);
}

function heightOf(width) {
  return width < 520 ? 300 : 340;
}

// --- one plot

/** Draws a plot, or draws it anew where its layers or its width have changed. */
function draw(plot) {
  plot.waiting = false;
  const width = plot.canvas.clientWidth;
  if (!width) return;
  if (!plot.drawn) prepare(plot);
  plot.layers = plot.layersNow();
  const { svg } = plot;
  hideTip(plot);
  plot.width = width;
  plot.area = layout(plot, width, heightOf(width));
  svg.setAttribute("viewBox", `0 0 ${width} ${plot.area.height}`);
  svg.replaceChildren();
  drawAxes(plot);
  const clip = add(add(svg, "clipPath", { id: `inside-${plot.figure.name}` }), "rect", {});
  const { left, top, right, bottom } = plot.area;
  set(clip, { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 12 });
  const group = add(svg, "g", { "clip-path": `url(#inside-${plot.figure.name})` });
  const rules = plot.layers.filter((layer) => layer.kind === "rule");
  for (const layer of plot.layers) {
    const own = add(group, "g", { class: `${seriesClass(layer)} ${layer.live ? "live" : ""}` });
    DRAW[layer.kind](own, plot, layer, rules.indexOf(layer));
  }
  plot.ring = add(svg, "path", { class: "ring", d: "" });
  plot.targets = targetsOf(plot);
  drawLegend(plot);
  plot.drawn = true;
}

/** What is made once: the picture, the box that says a value, the legend, and what listens to pointer and keys. */
function prepare(plot) {
  const { canvas, figure } = plot;
  canvas.removeAttribute("role");
  canvas.removeAttribute("aria-label");
  plot.svg = document.createElementNS(SVG, "svg");
  set(plot.svg, {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "plot",
    "aria-label": `${plain(figure.title)}. Arrow keys move through its values; the table below has them all.`,
  });
  plot.tip = make("div", { class: "tip", hidden: "" });
  plot.legend = make("ul", { class: "plot-legend" });
  canvas.append(plot.svg, plot.tip, plot.legend);
  canvas.style.minHeight = ""; // that was so that nothing moves when the plot comes
  const style = getComputedStyle(plot.svg);
  plot.measure = measurer(`${style.fontSize} ${style.fontFamily}`);
  listen(plot);
}

function measurer(font) {
  const pen = document.createElement("canvas").getContext("2d");
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      pen.font = font;
      known.set(text, pen.measureText(text.replace(P_Z, "pz")).width);
    }
    return known.get(text);
  };
}

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
  const { svg, measure } = plot;
  const { left, right, top, bottom, width, xTicks, yTicks, above, below, deep, x, y } = plot.area;
  let grid = "";
  for (const tick of yTicks)
    if (y.scale !== "category") grid += `M${left} ${round(bottom - tick.at * (bottom - top))}H${right}`;
  for (const tick of xTicks)
    if (x.scale !== "category") grid += `M${round(left + tick.at * (right - left))} ${top}V${bottom}`;
  add(svg, "path", { class: "gridline", d: grid });
  add(svg, "path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` });
  for (const tick of yTicks) {
    const text = add(svg, "text", {
      class: "tick",
      x: left - 8,
      y: round(bottom - tick.at * (bottom - top) + 4.5),
      "text-anchor": "end",
    });
    text.textContent = tick.lines.join(" ");
  }
  for (const tick of xTicks) {
    const middle = left + tick.at * (right - left);
    tick.lines.forEach((line, i) => {
      const half = measure(line) / 2; // a label at the end of the axis stays inside the picture
      const at = Math.max(half, Math.min(width - half, middle));
      add(svg, "text", {
        class: "tick",
        x: round(at),
        y: bottom + 3 + LINE * (i + 1),
        "text-anchor": "middle",
      }).textContent = line;
    });
  }
  above.forEach((line, i) => svgText(svg, line, { class: "axis-label", x: 0, y: 13 + LINE * i }));
  const middle = (left + right) / 2;
  below.forEach((line, i) => {
    const half = measure(line) / 2;
    const at = Math.max(half, Math.min(width - half, middle));
    svgText(svg, line, {
      class: "axis-label",
      x: round(at),
      y: bottom + 8 + deep * LINE + (LINE + 1) * (i + 1),
      "text-anchor": "middle",
    });
  });
}

/** Text in which p_z has its subscript. */
function svgText(parent, text, attributes) {
  const element = add(parent, "text", attributes);
  let lowered = false;
  plain(text)
    .split(P_Z)
    .forEach((part, place) => {
      if (place) {
        add(element, "tspan", { "font-style": "italic", ...(lowered ? { dy: -3 } : {}) }).textContent = "p";
        add(element, "tspan", { class: "subscript", dy: 3 }).textContent = "z";
        lowered = true;
      }
      if (!part) return;
      add(element, "tspan", lowered ? { dy: -3 } : {}).textContent = part;
      lowered = false;
    });
  return element;
}

function add(parent, tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function round(pixels) {
  return Math.round(pixels * 10) / 10;
}
