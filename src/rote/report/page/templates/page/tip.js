// What a plot says of a value, beside its place in the picture.

/** Says a value beside its place in the picture: every number with the key of where it stands in the figure. */
function showTip(plot, target) {
  if (plot.current === target) return;
  plot.current = target;
  const { tip, area } = plot;
  tip.replaceChildren(...tipLines(plot, target));
  tip.hidden = false;
  plot.ring.setAttribute("d", ringAround(target));
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  const scale = plot.svg.clientWidth / plot.width || 1;
  const [x, y] = [target.x * scale, target.y * scale];
  const left = x + 14 + wide <= area.width * scale ? x + 14 : Math.max(0, x - 14 - wide);
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(0, Math.min(y - high - 10 < 0 ? y + 14 : y - high - 10, area.height * scale - high))}px`;
}

function ringAround({ x, y, box }) {
  if (!box) return `M${round(x - 7)} ${round(y)}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0`;
  const [left, top, right, bottom] = box.map(round);
  return `M${left} ${top}H${right}V${bottom}H${left}Z`;
}

function hideTip(plot) {
  if (!plot.current) return;
  plot.current = null;
  plot.tip.hidden = true;
  plot.ring.setAttribute("d", "");
}

function tipLines(plot, target) {
  const { layer, row } = target;
  const { kind, data } = layer;
  const { x, y } = plot.area;
  const { colour } = plot.figure;
  const lines = layer.label ? [make("p", { class: "tip-name" }, ...typeset(layer.label))] : [];
  const line = (name, ...content) => lines.push(make("p", {}, ...(name ? [...typeset(name), ": "] : []), ...content));
  const number = (axis, column) => tipNumber(plot, target, axis, column);
  const range = (axis, low, high) => [number(axis, low), " to ", number(axis, high)];
  const span = (axis, low, high) =>
    axis.scale === "category" ? [categoryName(axis, (data[low][row] + data[high][row]) / 2)] : range(axis, low, high);
  if (kind === "bars" || kind === "cells") line(x.label, ...span(x, "x0", "x1"));
  else line(x.label, number(x, "x"));
  if (kind === "cells") {
    line(y.label, ...span(y, "y0", "y1"));
    if (colour) line(colour.label, number(scaled(colour, []), "value"));
  } else if (kind === "band") {
    line(y.label, ...range(y, "low", "high"));
  } else {
    line(y.label, number(y, "y"));
    if (kind === "interval") line("Interval", ...range(y, "low", "high"));
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
  if (place >= 0) {
    return keyed("bdi", `figures/${plot.figure.name}/${side}/marks/${place}/1`, "text", axis.marks[place][1]);
  }
  const isColour = column === "value"; // a place on the scale of colours, shown as what it stands for
  const [text, how] = valueText(axis, isColour ? axis.back(stored) : stored);
  const key = layer.keyOf
    ? layer.keyOf(column, row)
    : `figures/${plot.figure.name}/layers/${plot.figure.layers.indexOf(layer)}/${column}/${row}`;
  return key === null ? text : keyed("data", key, isColour ? "colour" : how, text, stored);
}
