// What a plot says of the value under the pointer, or of the one that the arrow keys have reached.

const PREFERRED = ["interval", "points", "bars", "cells", "line", "step", "band"];

/**
 * Every value that can be pointed at, in the order of layers and, within one, from left to right. Where a line runs
 * through the dots of another layer of its colour, the dot alone counts: it knows more.
 */
function targetsOf(plot) {
  const { px, py } = plot.area;
  const found = [];
  const taken = new Map();
  const order = plot.layers
    .map((layer, index) => ({ layer, index }))
    .filter(({ layer }) => PREFERRED.includes(layer.kind));
  // A curve of a chosen p comes first.
  const rank = ({ layer }) => PREFERRED.indexOf(layer.kind) - (layer.live ? PREFERRED.length : 0);
  order.sort((a, b) => rank(a) - rank(b));
  for (const { layer, index } of order) {
    const own = [];
    const columns = { bars: ["x0", "x1", "y"], cells: ["x0", "x1", "y0", "y1"], band: ["x", "low", "high"] }[
      layer.kind
    ] ?? ["x", "y"];
    eachRow(layer, columns, (row, a, b, c, d) => {
      const target = { layer, index, row };
      if (layer.kind === "bars")
        Object.assign(target, { x: (px(a) + px(b)) / 2, y: py(c), box: [px(a), py(c), px(b), plot.area.bottom] });
      else if (layer.kind === "cells")
        Object.assign(target, { x: (px(a) + px(b)) / 2, y: (py(c) + py(d)) / 2, box: [px(a), py(d), px(b), py(c)] });
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
  found.forEach((target, place) => {
    target.place = place;
  });
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
    const [x, y] = [
      ((asked.clientX - box.left) * plot.width) / box.width,
      ((asked.clientY - box.top) * plot.width) / box.width,
    ];
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
    const target = stepTo(plot, event.key);
    if (target === undefined) return;
    event.preventDefault();
    if (target) showTip(plot, target);
  });
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The value that a key leads to; null where it leads nowhere, undefined where the key means nothing here. */
function stepTo(plot, key) {
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
    line(
      x.label,
      ...(x.scale === "category"
        ? [categoryName(x, (layer.data.x0[row] + layer.data.x1[row]) / 2)]
        : range(x, "x0", "x1")),
    );
  } else {
    line(x.label, number(x, "x"));
  }
  if (layer.kind === "cells") {
    line(
      y.label,
      ...(y.scale === "category"
        ? [categoryName(y, (layer.data.y0[row] + layer.data.y1[row]) / 2)]
        : range(y, "y0", "y1")),
    );
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
function tipNumber(plot, { layer, row }, axis, column) {
  const stored = layer.data[column][row];
  if (axis.scale === "category") return categoryName(axis, stored);
  const place = (axis.marks ?? []).findIndex(([value]) => Math.abs(value - stored) <= 1e-9 * Math.abs(value));
  const side = column.startsWith("x") ? "x" : "y";
  if (place >= 0)
    return keyed("bdi", `figures/${plot.figure.name}/${side}/marks/${place}/1`, "text", axis.marks[place][1]);
  const isColour = column === "value"; // a place on the scale of colours, shown as what it stands for
  const [text, how] = valueText(axis, isColour ? axis.back(stored) : stored);
  const key = layer.keyOf
    ? layer.keyOf(column, row)
    : `figures/${plot.figure.name}/layers/${plot.figure.layers.indexOf(layer)}/${column}/${row}`;
  return key === null ? text : keyed("data", key, isColour ? "colour" : how, text, stored);
}
