// The legend of a plot: which series is which.

function drawLegend(plot) {
  const items = new Map();
  const rules = plot.layers.filter((layer) => layer.kind === "rule");
  for (const layer of plot.layers) {
    if (!layer.label) continue;
    const key = `${layer.label} ${layer.colour}`;
    items.set(key, [...(items.get(key) ?? []), layer]);
  }
  plot.legend.replaceChildren(
    ...[...items.values()].map((layers) => {
      const key = legendKey([...plot.layers.filter((layer) => goesWith(layer, layers[0])), ...layers], rules);
      return make("li", {}, key, make("span", {}, ...typeset(layers[0].label)));
    }),
  );
  if (plot.figure.colour && plot.layers.some((layer) => layer.kind === "cells")) plot.legend.append(colourScale(plot));
  plot.legend.hidden = !plot.legend.childElementCount;
}

/** Whether a layer without a label is part of a series that has one: the line through its dots, or its whiskers. */
function goesWith(layer, series) {
  const kinds = ["line", "points", "interval"];
  return (
    !layer.label &&
    layer.colour === series.colour &&
    layer.kind !== series.kind &&
    kinds.includes(layer.kind) &&
    kinds.includes(series.kind)
  );
}

/** A small picture of how a series is drawn. */
function legendKey(layers, rules) {
  const svg = document.createElementNS(SVG, "svg");
  set(svg, { class: "legend-key", viewBox: "0 0 28 14", "aria-hidden": "true" });
  for (const layer of layers) {
    const group = add(svg, "g", { class: `${seriesClass(layer)} ${layer.live ? "live" : ""}` });
    drawSample(group, layer, rules.indexOf(layer));
  }
  return svg;
}

/** The picture of one layer; `place`: of a rule, among the rules. */
function drawSample(group, layer, place) {
  const { kind } = layer;
  if (kind === "line" || kind === "step") {
    add(group, "path", { class: "line", d: "M0 7H28", "stroke-dasharray": dashOf(layer) });
    if (isRepeated(layer)) add(group, "path", { class: "marker", d: markerPath(roundOf(layer), 14, 7, 4) });
  } else if (kind === "rule") {
    add(group, "path", { class: "rule", d: "M0 7H28", "stroke-dasharray": RULES[place % RULES.length] });
  } else if (kind === "points" || kind === "interval") {
    if (kind === "interval") add(group, "path", { class: "whiskers", d: "M14 1V13M11 1h6M11 13h6" });
    drawMarkers(group, markerOf(layer), markerPath(markerOf(layer), 14, 7, 4), 4, "");
  } else {
    add(group, "path", { class: { band: "band", violin: "violin" }[kind] ?? "bar", d: "M4 2H24V12H4Z" });
  }
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
  return make(
    "li",
    { class: "colour-scale" },
    make("span", {}, ...typeset(axis.label)),
    make("div", { class: "scale" }, swatches, ticks),
  );
}
