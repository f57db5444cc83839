// The rows of a run: what is known of each, which one a character of the text is shaded by, and which are the same.

const LEVELS = 12;
const FLOOR = Math.log(page.tau);
const VERDICTS = ["", "extractable", "not extractable", "undecided"];

function exampleId(run, row) {
  return run.ids ? run.ids[row] : `w${run.start[row]}`;
}

function keyOf(run, row, column) {
  const prefix = page.runs.length > 1 ? `runs/${run.key}/` : "";
  return `${prefix}scores/${exampleId(run, row)}/${run.scheme}/${column}`;
}

function isGreedy(run, row) {
  return (run.flags[row] & 1) === 1;
}

/** Whether a served model's list leaves open if greedy decoding gives a row's suffix. */
function isGreedyOpen(run, row) {
  return (run.flags[row] & 64) === 64;
}

function greedyOf(run, row) {
  return isGreedyOpen(run, row) ? "not known" : isGreedy(run, row) ? "yes" : "no";
}

function isBounded(run, row) {
  return (run.flags[row] & 2) === 2;
}

function verdictOf(run, row) {
  return VERDICTS[(run.flags[row] >> 2) & 3];
}

/** The logarithm of what a row is shaded by. Of a bounded row nothing more is certain than an upper bound. */
function shadedValue(run, column, row) {
  if (column === "lower") return Math.log(run.lower[row]);
  return isBounded(run, row) ? -Infinity : run.log_prob[row];
}

/** Which of the colours stands for a probability, or -1: below tau. */
function levelOf(logProb) {
  if (!(logProb >= FLOOR)) return -1;
  return FLOOR < 0 ? Math.min(Math.trunc(LEVELS * (1 - logProb / FLOOR)), LEVELS - 1) : LEVELS - 1;
}

/**
 * For each character of the text the likeliest row whose suffix covers it, or -1, and whether it is grey: no suffix
 * covers it, or that of a window without a number does and no row there reaches tau. Later fills win, so likelier rows
 * go last.
 */
function bestRows(run, column) {
  if (run.best[column]) return run.best[column];
  const values = new Float64Array(run.count);
  for (let row = 0; row < run.count; row++) values[row] = shadedValue(run, column, row);
  const order = Uint32Array.from(values.keys()).sort((a, b) => values[a] - values[b] || b - a);
  const rows = new Int32Array(page.length).fill(-1);
  for (const row of order) rows.fill(row, run.suffix_start[row], run.suffix_end[row]);
  const levels = new Int8Array(run.count);
  for (let row = 0; row < run.count; row++) levels[row] = levelOf(values[row]);
  const unseen = new Uint8Array(page.length);
  for (let c = 0; c < page.length; c++) unseen[c] = rows[c] < 0 || (run.isLeftOut[c] && levels[rows[c]] < 0) ? 1 : 0;
  run.best[column] = { rows, values, levels, unseen };
  return run.best[column];
}

/** Rows whose suffix overlaps [start, end): most characters first, then the likeliest. */
function overlapping(run, start, end) {
  const overlaps = [];
  for (let row = 0; row < run.count; row++) {
    const shared = Math.min(end, run.suffix_end[row]) - Math.max(start, run.suffix_start[row]);
    if (shared > 0) overlaps.push([row, shared, shadedValue(run, "log_prob", row)]);
  }
  return overlaps.sort((a, b) => b[1] - a[1] || b[2] - a[2] || a[0] - b[0]).map(([row]) => row);
}

/** The row of another run that is the same passage, or -1: equal ids, which in a scan are equal starts. */
function sameRow(run, row, other) {
  if (run === other) return row;
  if (run.ids || other.ids) return other.ids ? other.ids.indexOf(exampleId(run, row)) : -1;
  let [low, high] = [0, other.count - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (other.start[middle] < run.start[row]) low = middle + 1;
    else high = middle;
  }
  return other.start[low] === run.start[row] ? low : -1;
}

/** A row's probability as a keyed number, and what kind of bound it is where it is one. */
function probabilityOf(run, row, column) {
  const shown = make("span");
  if (column === "lower") {
    const [low] = show.bounds(run.lower[row], 1); // rounded down: no more is claimed than was found
    shown.append(keyed("data", keyOf(run, row, "lower"), "number", low, run.lower[row]));
    shown.append(run.sampled ? " (lower end of the interval)" : " (certified)");
    return shown;
  }
  const logProb = run.log_prob[row];
  if (isBounded(run, row) && logProb > -Infinity) shown.append("at most ");
  shown.append(keyed("data", keyOf(run, row, "log_prob"), "probability", show.probability(logProb), logProb));
  return shown;
}
