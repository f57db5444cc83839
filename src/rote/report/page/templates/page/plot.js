// One plot: what rote/report/figures/figure.py says a figure is, drawn as SVG.
//
// A layer is one or a few paths, however many values it has, so that thousands of points stay fast; which value the
// pointer means is found by looking at all of them. Colours are CSS variables: dark mode needs no drawing anew.

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

function heightOf(width) {
  return width < 520 ? 300 : 340;
}
