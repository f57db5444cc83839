// The plot of (n, p) rates: a slider chooses p, and the curves are counted anew from the rows of the runs.

const LEAST_P = 0.01;
const MOST_P = 0.999999;
const FIRST_P = 0.5; // the p of the curves that a figure of several runs comes with
const PER_DECADE = 20;
const GENERATIONS = [
  ...new Set(Array.from({ length: 7 * PER_DECADE + 1 }, (_, i) => Math.round(10 ** (i / PER_DECADE)))),
];

const sortedBounds = new WeakMap();

/**
 * Ascending lower and upper bounds on the rows' log p_z: a row that was stopped early may be anything below its own.
 * Rows of a held-out corpus do not count: they are a group beside the run's own.
 */
function ascendingBounds(run) {
  if (!sortedBounds.has(run)) {
    const own = run.flags.some((flags) => flags & 16)
      ? (values) => values.filter((_, row) => !(run.flags[row] & 16))
      : (values) => values;
    const upper = own(Float64Array.from(run.log_prob)).sort();
    const stopped = run.flags.some((flags) => flags & 2);
    const bounds = () => own(run.log_prob.map((value, row) => (run.flags[row] & 2 ? -Infinity : value)));
    sortedBounds.set(run, { lower: stopped ? bounds().sort() : upper, upper });
  }
  return sortedBounds.get(run);
}

/** How many rows appear at least once in n generations with probability p or more. */
function reaching(ascending, n, p) {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (atLeastOnce(Math.exp(ascending[middle]), n) >= p) high = middle;
    else low = middle + 1;
  }
  return ascending.length - low;
}

/** The share of a run's rows at (n, p): `low` takes stopped rows as never coming, `high` as likely as their bounds. */
function sharesAt(run, n, p) {
  const { lower, upper } = ascendingBounds(run);
  return { low: reaching(lower, n, p) / lower.length, high: reaching(upper, n, p) / upper.length };
}

/** The layers of one run's curve: a line where the share is known, a band where stopped rows leave a range. */
function curveOf(run, p, label, colour) {
  const found = GENERATIONS.map((n) => ({ n, ...sharesAt(run, n, p) }));
  const isOpen = (place) => place >= 0 && place < found.length && found[place].low !== found[place].high;
  const band = found.filter((_, i) => isOpen(i - 1) || isOpen(i) || isOpen(i + 1)); // up to where it joins the line
  const layer = (kind, rows, data) => ({
    kind,
    label,
    colour,
    live: true,
    data: { x: rows.map(({ n }) => n), ...data },
    keyOf: (column, row) =>
      column === "x" ? null : `np/${run.key}/${rows[row].n}/${p}${column === "high" ? "/upper" : ""}`,
  });
  const line = layer("line", found, { y: found.map(({ low, high }) => (low === high ? low : null)) });
  if (!band.length) return [line];
  return [layer("band", band, { low: band.map(({ low }) => low), high: band.map(({ high }) => high) }), line];
}

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
    return [...given.filter((layer) => plain(layer.label) !== label), ...curveOf(runs[0], p, label, null)];
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
