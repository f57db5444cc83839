// Plots: what rote/report/figure.py says a figure is, drawn as SVG.
//
// A layer is one or a few paths, however many values it has, so that thousands of points stay fast; which value the
// pointer means is found by looking at all of them. Colours are CSS variables: dark mode needs no drawing anew.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;
const LEVELS = 12;
const DASHES = ["", "8 3", "2 3", "9 3 2 3", "15 4", "4 4", "9 3 2 3 2 3", "1 4"];
const RULES = ["6 4", "2 3", "10 3 2 3"];
const BEFORE = "600px"; // so far below the window a plot is drawn already

/** Draws every <figure class="plot"> of the page, each when it comes near the window, all before printing. */
function drawFigures(figures, runs) {
  const plots = new Map();
  for (const element of document.querySelectorAll("figure.plot[data-figure]")) {
    const figure = figures[element.dataset.figure];
    const canvas = element.querySelector(".canvas");
    if (!figure || !canvas) continue;
    const plot = { figure, layers: figure.layers, element, canvas, width: 0, drawn: false, waiting: false };
    canvas.style.minHeight = `${heightOf(canvas.clientWidth)}px`;
    if (figure.name === "prompts" && runs.length) choosePrompts(plot, runs);
    plots.set(canvas, plot);
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(target);
      if (plot.drawn && Math.abs(target.clientWidth - plot.width) >= 1) drawSoon(plot);
    }
  });
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      resized.observe(target);
      drawSoon(plots.get(target));
    }
  }, { rootMargin: BEFORE });
  for (const canvas of plots.keys()) near.observe(canvas);
  window.addEventListener("beforeprint", () => {
    for (const plot of plots.values()) if (!plot.drawn) draw(plot);
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
  if (plot.waiting) draw(plot);
  waiting.shift();
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
    "aria-label": `${plain(figure.title)}. Arrow keys move through its values, Escape hides them; the table below has them all.`,
  });
  plot.tip = make("div", { class: "tip", hidden: "" });
  plot.legend = make("ul", { class: "plot-legend" });
  canvas.append(plot.svg, plot.tip, plot.legend);
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
  const yTicks = ticksOf(y, guess, (lines) => (lines.length || 1) * LINE - GAP + 4).map((tick) => ({
    ...tick,
    lines: y.scale === "category" ? wrapped(y.names[tick.value], most, measure, 1) : tick.lines,
  }));
  const left = Math.ceil(Math.max(8, ...yTicks.map((tick) => wide(tick.lines)))) + 10;
  const right = width - 16;
  const xTicks = ticksOf(x, right - left, wide);
  const deep = Math.max(1, ...xTicks.map((tick) => tick.lines.length));
  const bottom = height - deep * LINE - 8 - below.length * (LINE + 2);
  return {
    width, height, left, right, top, bottom, x, y, xTicks, yTicks, above, below, deep,
    px: (value) => left + x.at(value) * (right - left),
    py: (value) => bottom - y.at(value) * (bottom - top),
  };
}

function drawAxes(plot) {
  const { svg, measure } = plot;
  const { left, right, top, bottom, width, xTicks, yTicks, above, below, deep, x, y } = plot.area;
  let grid = "";
  for (const tick of yTicks) if (y.scale !== "category") grid += `M${left} ${round(bottom - tick.at * (bottom - top))}H${right}`;
  for (const tick of xTicks) if (x.scale !== "category") grid += `M${round(left + tick.at * (right - left))} ${top}V${bottom}`;
  add(svg, "path", { class: "gridline", d: grid });
  add(svg, "path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` });
  for (const tick of yTicks) {
    const text = add(svg, "text", { class: "tick", x: left - 8, y: round(bottom - tick.at * (bottom - top) + 4.5), "text-anchor": "end" });
    text.textContent = tick.lines.join(" ");
  }
  for (const tick of xTicks) {
    const middle = left + tick.at * (right - left);
    tick.lines.forEach((line, i) => {
      const half = measure(line) / 2; // a label at the end of the axis stays inside the picture
      const at = Math.max(half, Math.min(width - half, middle));
      add(svg, "text", { class: "tick", x: round(at), y: bottom + LINE * (i + 1), "text-anchor": "middle" }).textContent = line;
    });
  }
  above.forEach((line, i) => svgText(svg, line, { class: "axis-label", x: 0, y: 13 + LINE * i }));
  const middle = (left + right) / 2;
  below.forEach((line, i) => {
    const half = measure(line) / 2;
    const at = Math.max(half, Math.min(width - half, middle));
    svgText(svg, line, { class: "axis-label", x: round(at), y: bottom + 6 + deep * LINE + (LINE + 1) * (i + 1), "text-anchor": "middle" });
  });
}

/** Text in which p_z has its subscript. */
function svgText(parent, text, attributes) {
  const element = add(parent, "text", attributes);
  let lowered = false;
  plain(text).split(P_Z).forEach((part, place) => {
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

function seriesClass(layer) {
  return layer.colour === null ? "muted-series" : `c${layer.colour % COLOURS}`;
}

function dashOf(layer) {
  return layer.colour === null ? "" : DASHES[layer.colour % COLOURS];
}

// --- layers

/** Calls `each` with the row and its numbers, in the order of `names`; a row with a number missing is not drawn. */
function eachRow(layer, names, each) {
  const columns = names.map((name) => layer.data[name]);
  for (let row = 0; row < columns[0].length; row++) {
    const numbers = columns.map((column) => column[row]);
    if (!numbers.includes(null)) each(row, ...numbers);
  }
}

const DRAW = {
  line(group, plot, layer) {
    let path = "";
    let [last, every] = [-Infinity, 90];
    let markers = "";
    const again = layer.colour !== null && layer.colour >= COLOURS; // the colours have been used up once: markers too
    eachRow(layer, ["x", "y"], (row, x, y) => {
      const [px, py] = [plot.area.px(x), plot.area.py(y)];
      path += `${path ? "L" : "M"}${round(px)} ${round(py)}`;
      if (!again || px - last < every) return;
      last = px;
      markers += markerPath(Math.floor(layer.colour / COLOURS), px, py, 4);
    });
    add(group, "path", { class: "line", d: path, "stroke-dasharray": dashOf(layer) });
    if (markers) add(group, "path", { class: "marker", d: markers });
  },

  step(group, plot, layer) {
    let path = "";
    eachRow(layer, ["x", "y"], (row, x, y) => {
      const [px, py] = [round(plot.area.px(x)), round(plot.area.py(y))];
      path += path ? `H${px}V${py}` : `M${px} ${py}`;
    });
    if (path) path += `H${plot.area.right}`;
    add(group, "path", { class: "line", d: path, "stroke-dasharray": dashOf(layer) });
  },

  points(group, plot, layer) {
    const count = layer.data.x.length;
    const radius = count <= 60 ? 4 : count <= 1000 ? 3 : 2.2;
    let path = "";
    eachRow(layer, ["x", "y"], (row, x, y) => {
      path += markerPath(markerOf(layer), plot.area.px(x), plot.area.py(y), radius);
    });
    const cloud = count > 300 ? " cloud" : "";
    drawMarkers(group, markerOf(layer), path, radius, cloud);
  },

  bars(group, plot, layer) {
    const { px, py, y } = plot.area;
    const floor = py(y.log ? y.low : Math.max(0, y.low));
    let path = "";
    eachRow(layer, ["x0", "x1", "y"], (row, x0, x1, value) => {
      if (!value) return;
      const [from, to] = [px(x0), px(x1)];
      const inset = to - from > 4 ? 0.5 : 0;
      path += `M${round(from + inset)} ${round(floor)}V${round(py(value))}H${round(to - inset)}V${round(floor)}Z`;
    });
    add(group, "path", { class: "bar", d: path });
  },

  band(group, plot, layer) {
    let [upper, lower] = ["", ""];
    eachRow(layer, ["x", "low", "high"], (row, x, low, high) => {
      const px = round(plot.area.px(x));
      upper += `${upper ? "L" : "M"}${px} ${round(plot.area.py(high))}`;
      lower = `L${px} ${round(plot.area.py(low))}${lower}`;
    });
    if (upper) add(group, "path", { class: "band", d: `${upper}${lower}Z` });
  },

  interval(group, plot, layer) {
    let [whiskers, markers] = ["", ""];
    eachRow(layer, ["x", "y", "low", "high"], (row, x, y, low, high) => {
      const [px, from, to] = [plot.area.px(x), plot.area.py(low), plot.area.py(high)];
      whiskers += `M${round(px)} ${round(from)}V${round(to)}M${round(px - 4)} ${round(from)}h8M${round(px - 4)} ${round(to)}h8`;
      markers += markerPath(markerOf(layer), px, plot.area.py(y), 4);
    });
    add(group, "path", { class: "whiskers", d: whiskers });
    drawMarkers(group, markerOf(layer), markers, 4, "");
  },

  cells(group, plot, layer) {
    const paths = Array(LEVELS).fill("");
    const { px, py } = plot.area;
    eachRow(layer, ["x0", "x1", "y0", "y1", "value"], (row, x0, x1, y0, y1, value) => {
      const [left, top] = [px(x0), py(y1)];
      paths[levelOf(value)] += `M${round(left)} ${round(top)}h${round(px(x1) - left)}v${round(py(y0) - top)}h${round(left - px(x1))}z`;
    });
    paths.forEach((path, level) => path && add(group, "path", { class: `cell h${level}`, d: path }));
  },

  violin(group, plot, layer) {
    const shapes = new Map();
    const half = 0.42 * (plot.area.px(1) - plot.area.px(0));
    eachRow(layer, ["x", "y", "width"], (row, x, y, width) => {
      const shape = shapes.get(x) ?? ["", ""];
      const [px, py] = [plot.area.px(x), round(plot.area.py(y))];
      shape[0] += `${shape[0] ? "L" : "M"}${round(px + half * width)} ${py}`;
      shape[1] = `L${round(px - half * width)} ${py}${shape[1]}`;
      shapes.set(x, shape);
    });
    add(group, "path", { class: "violin", d: [...shapes.values()].map(([right, left]) => `${right}${left}Z`).join("") });
  },

  rule(group, plot, layer, place) {
    const { px, py } = plot.area;
    let path = "";
    eachRow(layer, ["x0", "y0", "x1", "y1"], (row, x0, y0, x1, y1) => {
      path += `M${round(px(x0))} ${round(py(y0))}L${round(px(x1))} ${round(py(y1))}`;
    });
    add(group, "path", { class: "rule", d: path, "stroke-dasharray": RULES[place % RULES.length] });
  },
};

function levelOf(value) {
  return Math.min(LEVELS - 1, Math.floor(value * LEVELS));
}

function markerOf(layer) {
  return layer.colour === null ? 0 : layer.colour % COLOURS;
}

/** One marker of a path with many. The round one is a line without length: its round ends are all of it. */
function markerPath(kind, x, y, r) {
  const [px, py] = [round(x), round(y)];
  const d = round(r * 1.25);
  switch (kind) {
    case 0: return `M${px} ${py}h0`;
    case 1: return `M${round(x - r * 0.9)} ${round(y - r * 0.9)}h${round(r * 1.8)}v${round(r * 1.8)}h${round(-r * 1.8)}z`;
    case 2: return `M${px} ${round(y - d)}l${d} ${round(2 * r)}h${-2 * d}z`;
    case 3: return `M${px} ${round(y - d)}l${d} ${d}l${-d} ${d}l${-d} ${-d}z`;
    case 4: return `M${px} ${round(y + d)}l${d} ${round(-2 * r)}h${-2 * d}z`;
    case 5: return `M${round(x - d)} ${py}h${2 * d}M${px} ${round(y - d)}v${2 * d}`;
    case 6: return `M${round(x - r)} ${round(y - r)}l${2 * r} ${2 * r}M${round(x - r)} ${round(y + r)}l${2 * r} ${-2 * r}`;
    default: return `M${round(x - r)} ${py}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }
}

function drawMarkers(group, kind, path, radius, more) {
  const shape = kind === 0 ? "dots" : kind >= 5 ? "strokes" : "marker";
  const element = add(group, "path", { class: shape + more, d: path });
  if (kind === 0) element.setAttribute("stroke-width", 2 * radius);
}

// --- the legend

function drawLegend(plot) {
  const items = new Map();
  const rules = plot.layers.filter((layer) => layer.kind === "rule");
  for (const layer of plot.layers) {
    if (!layer.label) continue;
    const key = `${layer.label} ${layer.colour}`;
    items.set(key, [...(items.get(key) ?? []), layer]);
  }
  plot.legend.replaceChildren(...[...items.values()].map((layers) => {
    const beside = plot.layers.filter((layer) => layer.kind !== "rule" && !layer.label && layer.colour === layers[0].colour && !layer.live === !layers[0].live && layer.kind !== layers[0].kind && layers[0].kind !== "rule" && layers[0].kind !== "band");
    const key = legendKey([...beside, ...layers], rules);
    return make("li", {}, key, make("span", {}, ...typeset(layers[0].label)));
  }));
  if (plot.figure.colour && plot.layers.some((layer) => layer.kind === "cells")) plot.legend.append(colourScale(plot));
  plot.legend.hidden = !plot.legend.childElementCount;
}

/** A small picture of how a series is drawn. */
function legendKey(layers, rules) {
  const svg = document.createElementNS(SVG, "svg");
  set(svg, { class: "legend-key", viewBox: "0 0 28 14", "aria-hidden": "true" });
  for (const layer of layers) {
    const group = add(svg, "g", { class: `${seriesClass(layer)} ${layer.live ? "live" : ""}` });
    const kind = markerOf(layer);
    if (layer.kind === "line" || layer.kind === "step") {
      add(group, "path", { class: "line", d: "M0 7H28", "stroke-dasharray": dashOf(layer) });
      if (layer.colour !== null && layer.colour >= COLOURS) add(group, "path", { class: "marker", d: markerPath(Math.floor(layer.colour / COLOURS), 14, 7, 4) });
    } else if (layer.kind === "rule") {
      add(group, "path", { class: "rule", d: "M0 7H28", "stroke-dasharray": RULES[rules.indexOf(layer) % RULES.length] });
    } else if (layer.kind === "points" || layer.kind === "interval") {
      if (layer.kind === "interval") add(group, "path", { class: "whiskers", d: "M14 1V13M11 1h6M11 13h6" });
      drawMarkers(group, kind, markerPath(kind, 14, 7, 4), 4, "");
    } else {
      add(group, "path", { class: { band: "band", violin: "violin" }[layer.kind] ?? "bar", d: "M4 2H24V12H4Z" });
    }
  }
  return svg;
}

/** The colours of the cells, from the lightest to the darkest, with the values they stand for. */
function colourScale(plot) {
  const axis = scaled(plot.figure.colour, []);
  const swatches = make("div", { class: "swatches" });
  for (let level = 0; level < LEVELS; level++) swatches.append(make("span", { class: `s${level}` }));
  const ticks = make("div", { class: "legend-ticks" });
  const wide = (lines) => Math.max(...lines.map(plot.measure));
  for (const tick of ticksOf(axis, 200, wide)) {
    const label = make("span", {}, tick.lines[0]);
    label.style.left = `${100 * tick.at}%`;
    ticks.append(label);
  }
  return make("li", { class: "colour-scale" }, make("span", {}, ...typeset(axis.label)), make("div", { class: "scale" }, swatches, ticks));
}

// --- values under the pointer

const PREFERRED = ["interval", "points", "bars", "cells", "line", "step", "band"];

/**
 * Every value that can be pointed at, in the order of layers and, within one, from left to right. Where a line runs
 * through the dots of another layer of its colour, the dot alone counts: it knows more.
 */
function targetsOf(plot) {
  const { px, py } = plot.area;
  const found = [];
  const taken = new Map();
  const order = plot.layers.map((layer, index) => ({ layer, index })).filter(({ layer }) => PREFERRED.includes(layer.kind));
  order.sort((a, b) => PREFERRED.indexOf(a.layer.kind) - PREFERRED.indexOf(b.layer.kind));
  for (const { layer, index } of order) {
    const own = [];
    const columns = { bars: ["x0", "x1", "y"], cells: ["x0", "x1", "y0", "y1"], band: ["x", "low", "high"] }[layer.kind] ?? ["x", "y"];
    eachRow(layer, columns, (row, a, b, c, d) => {
      const target = { layer, index, row };
      if (layer.kind === "bars") Object.assign(target, { x: (px(a) + px(b)) / 2, y: py(c), box: [px(a), py(c), px(b), plot.area.bottom] });
      else if (layer.kind === "cells") Object.assign(target, { x: (px(a) + px(b)) / 2, y: (py(c) + py(d)) / 2, box: [px(a), py(d), px(b), py(c)] });
      else Object.assign(target, { x: px(a), y: py(layer.kind === "band" ? c : b) });
      const place = `${seriesClass(layer)} ${Math.round(target.x)} ${Math.round(target.y)}`;
      const other = taken.get(place);
      if (other !== undefined && other !== index) return;
      taken.set(place, index);
      own.push(target);
    });
    own.sort((a, b) => a.x - b.x || b.y - a.y);
    found.push(...own);
  }
  found.forEach((target, place) => { target.place = place; });
  return found;
}

/** The value that the pointer means: the bar above or below it, the cell around it, or the nearest point. */
function nearest(plot, x, y) {
  let best = null;
  let least = Infinity;
  for (const target of plot.targets) {
    if (target.box) {
      const [left, top, right, bottom] = target.box;
      if (x < left || x > right || (target.layer.kind === "cells" && (y < top || y > bottom))) continue;
      if (least > 12 ** 2) [best, least] = [target, 12 ** 2]; // a dot close by comes first
      continue;
    }
    const distance = (target.x - x) ** 2 + (target.y - y) ** 2;
    if (distance < least) [best, least] = [target, distance];
  }
  return best;
}

function listen(plot) {
  const { svg } = plot;
  let asked = null;
  const look = () => {
    const { left, right, top, bottom } = plot.area;
    const box = svg.getBoundingClientRect();
    const [x, y] = [((asked.clientX - box.left) * plot.width) / box.width, ((asked.clientY - box.top) * plot.width) / box.width];
    asked = null;
    const inside = x > left - 10 && x < right + 10 && y > top - 10 && y < bottom + 10;
    const target = inside ? nearest(plot, x, y) : null;
    if (target) showTip(plot, target);
    else hideTip(plot);
  };
  const move = (event) => {
    if (asked === null) requestAnimationFrame(() => asked && look());
    asked = event;
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", (event) => {
    asked = null;
    if (event.pointerType === "mouse") hideTip(plot);
  });
  svg.addEventListener("focus", () => {
    plot.tip.setAttribute("aria-live", "polite");
    if (svg.matches(":focus-visible") && plot.targets.length && !plot.current) showTip(plot, plot.targets[0]);
  });
  svg.addEventListener("blur", () => {
    plot.tip.removeAttribute("aria-live");
    hideTip(plot);
  });
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      hideTip(plot);
      return;
    }
    const target = step(plot, event.key);
    if (target === undefined) return;
    event.preventDefault();
    if (target) showTip(plot, target);
  });
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The value that a key leads to; null where it leads nowhere, undefined where the key means nothing here. */
function step(plot, key) {
  const { targets, current } = plot;
  if (!(key in ARROWS) && key !== "Home" && key !== "End") return undefined;
  if (!targets.length) return null;
  if (!current) return targets[0];
  const own = targets.filter((target) => target.index === current.index);
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  const [right, down] = ARROWS[key];
  if (right && current.layer.kind !== "cells") return own[own.indexOf(current) + right] ?? null;
  return beside(targets, current, right, down);
}

/** The nearest value on one side; above and below a curve, that of another curve. */
function beside(targets, current, right, down) {
  const within = current.layer.kind === "cells" || current.layer.kind === "points";
  let best = null;
  let least = Infinity;
  for (const target of targets) {
    if (target.index === current.index && !within) continue;
    const along = right ? (target.x - current.x) * right : (target.y - current.y) * down;
    const across = right ? Math.abs(target.y - current.y) : Math.abs(target.x - current.x);
    if (along < 0.5 || along + 8 * across >= least) continue;
    [best, least] = [target, along + 8 * across];
  }
  return best;
}

/** Says a value beside its place in the picture: every number with the key of where it stands in the figure. */
function showTip(plot, target) {
  if (plot.current === target) return;
  plot.current = target;
  const { tip, area } = plot;
  tip.replaceChildren(...tipLines(plot, target));
  tip.hidden = false;
  if (target.box) {
    const [left, top, right, bottom] = target.box.map(round);
    plot.ring.setAttribute("d", `M${left} ${top}H${right}V${bottom}H${left}Z`);
  } else {
    plot.ring.setAttribute("d", `M${round(target.x - 7)} ${round(target.y)}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0`);
  }
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  const scale = plot.svg.clientWidth / plot.width || 1;
  const [x, y] = [target.x * scale, target.y * scale];
  const left = x + 14 + wide <= area.width * scale ? x + 14 : Math.max(0, x - 14 - wide);
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(0, Math.min(y - high - 10 < 0 ? y + 14 : y - high - 10, area.height * scale - high))}px`;
}

function hideTip(plot) {
  if (!plot.current) return;
  plot.current = null;
  plot.tip.hidden = true;
  plot.ring.setAttribute("d", "");
}

function tipLines(plot, target) {
  const { layer, row } = target;
  const { x, y } = plot.area;
  const lines = layer.label ? [make("p", { class: "tip-name" }, ...typeset(layer.label))] : [];
  const number = (axis, column) => tipNumber(plot, target, axis, column);
  const line = (name, ...content) => lines.push(make("p", {}, ...(name ? [...typeset(name), ": "] : []), ...content));
  const range = (axis, low, high) => [number(axis, low), " to ", number(axis, high)];
  if (layer.kind === "bars" || layer.kind === "cells") {
    line(x.label, ...(x.scale === "category" ? [categoryName(x, (layer.data.x0[row] + layer.data.x1[row]) / 2)] : range(x, "x0", "x1")));
  } else {
    line(x.label, number(x, "x"));
  }
  if (layer.kind === "cells") {
    line(y.label, ...(y.scale === "category" ? [categoryName(y, (layer.data.y0[row] + layer.data.y1[row]) / 2)] : range(y, "y0", "y1")));
    if (plot.figure.colour) line(plot.figure.colour.label, number(scaled(plot.figure.colour, []), "value"));
  } else if (layer.kind === "band") {
    line(y.label, ...range(y, "low", "high"));
  } else {
    line(y.label, number(y, "y"));
    if (layer.kind === "interval") line("Interval", ...range(y, "low", "high"));
  }
  return lines;
}

function categoryName(axis, value) {
  return axis.names[Math.round(value)] ?? "";
}

/** A number of a layer as it is printed, with its key. A place with a mark of its own is what the mark says. */
function tipNumber(plot, { layer, index, row }, axis, column) {
  const stored = layer.data[column][row];
  if (axis.scale === "category") return categoryName(axis, stored);
  const place = (axis.marks ?? []).findIndex(([value]) => Math.abs(value - stored) <= 1e-9 * Math.abs(value));
  const side = column.startsWith("x") ? "x" : "y";
  if (place >= 0 && column !== "value") return keyed("data", `figures/${plot.figure.name}/${side}/marks/${place}/1`, "text", axis.marks[place][1]);
  const value = column === "value" ? axis.back(stored) : stored;
  const [text, how] = valueText(axis, value);
  const key = layer.keyOf ? layer.keyOf(column, row) : `figures/${plot.figure.name}/layers/${index}/${column}/${row}`;
  return key === null ? text : keyed("data", key, how, text, stored);
}
