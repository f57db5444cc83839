// The slider that chooses p for the plot of (n, p) rates.

const LEAST_P = 0.01;
const MOST_P = 0.999999;
const FIRST_P = 0.5; // the p of the curves that a figure of several runs comes with

/** p at a place of the slider, which runs along the log odds: with two digits of p, or of what is missing to 1. */
function chanceAt(logOdds) {
  const p = 1 / (1 + Math.exp(-logOdds));
  if (p < 0.5) return Math.max(LEAST_P, Number(p.toPrecision(2)));
  const miss = Number((1 / (1 + Math.exp(logOdds))).toPrecision(2));
  return Math.min(MOST_P, Number((1 - miss).toFixed(7)));
}

function logOddsOf(p) {
  return Math.log(p / (1 - p));
}

/** Puts the slider above the plot. One run keeps its curves for fixed p beside the chosen one; several have one each. */
function choosePrompts(plot, runs) {
  const last = GENERATIONS[GENERATIONS.length - 1];
  const given = plot.figure.layers.map((layer) =>
    layer.kind === "rule" ? { ...layer, data: { ...layer.data, x1: [last] } } : layer,
  );
  const names = given.filter((layer) => layer.kind === "line").map((layer) => layer.label);
  let p = FIRST_P;
  plot.x = { ...plot.figure.x, limits: [1, last] };
  plot.before = runs.map((run) => () => ascendingBounds(run));
  plot.layersNow = () => {
    if (runs.length > 1) {
      const curves = runs.flatMap((run, i) => curveOf(run, p, names[i] ?? run.name, i));
      return [
        ...given.filter((layer) => layer.kind === "rule" || (layer.kind === "interval" && p === FIRST_P)),
        ...curves,
      ];
    }
    const label = `p = ${show.threshold(p)}`;
    // The chosen curve stands in for the given one at the same p.
    const others = given.filter((layer) => layer.kind !== "band" && plain(layer.label) !== label);
    return [...others, ...curveOf(runs[0], p, label, null)];
  };
  // What stands below several runs' curves is said of one p alone.
  const note = make("p", { class: "caption", hidden: "" });
  const choose = (chosen) => {
    p = chosen;
    note.hidden = runs.length === 1 || p === FIRST_P;
    const [drawn, first] = [show.threshold(p), show.threshold(FIRST_P)];
    note.textContent = `Drawn for p = ${drawn}, as chosen; what follows is said of ${first}.`;
    if (plot.drawn) drawSoon(plot);
  };
  plot.element.insertBefore(slider(choose), plot.canvas);
  plot.canvas.after(note);
}

/** A slider for p and a field for an exact one. With step "any" an arrow key moves a slider by a hundredth. */
function slider(choose) {
  const range = make("input", {
    type: "range",
    min: logOddsOf(LEAST_P),
    max: logOddsOf(MOST_P),
    step: "any",
    id: "prompts-p",
  });
  const exact = make("input", { type: "number", min: LEAST_P, max: MOST_P, step: "any", inputmode: "decimal" });
  const output = make("output", { for: "prompts-p" });
  const settle = (p) => {
    output.textContent = `p = ${show.threshold(p)}`;
    range.setAttribute("aria-valuetext", show.threshold(p));
    choose(p);
  };
  range.addEventListener("input", () => {
    const p = chanceAt(Number(range.value));
    exact.value = p;
    settle(p);
  });
  exact.addEventListener("change", () => {
    const p = Math.min(MOST_P, Math.max(LEAST_P, exact.valueAsNumber || FIRST_P));
    exact.value = p;
    range.value = logOddsOf(p);
    settle(p);
  });
  exact.value = FIRST_P;
  range.value = logOddsOf(FIRST_P);
  settle(FIRST_P);
  return make(
    "div",
    { class: "plot-tools noprint" },
    make("label", {}, make("span", {}, "Probability of coming at least once"), range),
    output,
    make("label", {}, make("span", {}, "or exactly"), exact),
  );
}
