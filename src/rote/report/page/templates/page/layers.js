// The layers of a plot, each as one or a few paths.

// Cells reach a little under their neighbours: edges that meet would let the page shine through.
const OVERLAP = 0.6;

const COLOURS = 8;
const DASHES = ["", "8 3", "2 3", "9 3 2 3", "15 4", "4 4", "9 3 2 3 2 3", "1 4"];
const RULES = ["6 4", "2 3", "10 3 2 3"];

function seriesClass(layer) {
  return layer.colour === null ? "muted-series" : `c${layer.colour % COLOURS}`;
}

function dashOf(layer) {
  return layer.colour === null ? "" : DASHES[layer.colour % COLOURS];
}

/** Whether the colours have been used up once: then a line has markers too. */
function isRepeated(layer) {
  return layer.colour !== null && layer.colour >= COLOURS;
}

/** How many times the colours have been used up. */
function roundOf(layer) {
  return Math.floor(layer.colour / COLOURS);
}

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
    let [path, markers, last, joined] = ["", "", -Infinity, false];
    layer.data.x.forEach((x, row) => {
      const y = layer.data.y[row];
      if (x === null || y === null) {
        joined = false; // a gap
        return;
      }
      const [px, py] = [plot.area.px(x), plot.area.py(y)];
      path += `${joined ? "L" : "M"}${round(px)} ${round(py)}`;
      joined = true;
      if (!isRepeated(layer) || px - last < 90) return;
      last = px;
      markers += markerPath(roundOf(layer), px, py, 4);
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
      whiskers += `M${round(px)} ${round(from)}V${round(to)}`;
      for (const end of [from, to]) whiskers += `M${round(px - 4)} ${round(end)}h8`;
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
      paths[cellLevel(value)] +=
        `M${round(left)} ${round(top)}H${round(px(x1) + OVERLAP)}V${round(py(y0) + OVERLAP)}H${round(left)}z`;
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
    add(group, "path", {
      class: "violin",
      d: [...shapes.values()].map(([right, left]) => `${right}${left}Z`).join(""),
    });
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

function cellLevel(value) {
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
    case 0:
      return `M${px} ${py}h0`;
    case 1:
      return `M${round(x - r * 0.9)} ${round(y - r * 0.9)}h${round(r * 1.8)}v${round(r * 1.8)}h${round(-r * 1.8)}z`;
    case 2:
      return `M${px} ${round(y - d)}l${d} ${round(2 * r)}h${-2 * d}z`;
    case 3:
      return `M${px} ${round(y - d)}l${d} ${d}l${-d} ${d}l${-d} ${-d}z`;
    case 4:
      return `M${px} ${round(y + d)}l${d} ${round(-2 * r)}h${-2 * d}z`;
    case 5:
      return `M${round(x - d)} ${py}h${2 * d}M${px} ${round(y - d)}v${2 * d}`;
    case 6:
      return `M${round(x - r)} ${round(y - r)}l${2 * r} ${2 * r}M${round(x - r)} ${round(y + r)}l${2 * r} ${-2 * r}`;
    default:
      return `M${round(x - r)} ${py}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }
}

function drawMarkers(group, kind, path, radius, more) {
  const shape = kind === 0 ? "dots" : kind >= 5 ? "strokes" : "marker";
  const element = add(group, "path", { class: shape + more, d: path });
  if (kind === 0) element.setAttribute("stroke-width", 2 * radius);
}
