// The curves of (n, p) rates, counted anew from the rows of the runs for any p.

const PER_DECADE = 20;
const GENERATIONS = [
  ...new Set(Array.from({ length: 7 * PER_DECADE + 1 }, (_, i) => Math.round(10 ** (i / PER_DECADE)))),
];

const sortedBounds = new WeakMap();

const HELD_OUT = 16;
const DRAWN = 32;

/**
 * Ascending lower and upper bounds on the rows' log p_z: a row that was stopped early may be anything below its own.
 * Rows of a held-out corpus do not count: they are a group beside the run's own. Rows drawn from what a scan in stages
 * left out stand apart: they speak for all of it.
 */
function ascendingBounds(run) {
  if (!sortedBounds.has(run)) {
    const own = (values) => values.filter((_, row) => !(run.flags[row] & (HELD_OUT | DRAWN)));
    const upper = own(run.log_prob).sort();
    const stopped = run.flags.some((flags) => flags & 2);
    const bounds = () => own(run.log_prob.map((value, row) => (run.flags[row] & 2 ? -Infinity : value)));
    const drawn = run.log_prob.filter((_, row) => run.flags[row] & DRAWN).sort();
    sortedBounds.set(run, { lower: stopped ? bounds().sort() : upper, upper, drawn });
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

/**
 * The share of a run's rows at (n, p): `low` takes stopped rows as never coming, `high` as likely as their bounds. Of a
 * scan in stages it is the share of all windows, and `high` takes as many of those left out as the ones drawn allow.
 */
function sharesAt(run, n, p) {
  const { lower, upper, drawn } = ascendingBounds(run);
  const { windows, bounds } = run.left_out ?? { windows: 0, bounds: [0] };
  const hits = reaching(drawn, n, p);
  const total = lower.length + windows;
  return {
    low: (reaching(lower, n, p) + hits) / total,
    high: (reaching(upper, n, p) + windows * bounds[hits]) / total,
  };
}

/**
 * The layers of one run's curve: a line where the share is known, a band where stopped rows leave a range. Where windows
 * were left out there is both: the line is what was found.
 */
function curveOf(run, p, label, colour) {
  const shares = GENERATIONS.map((n) => ({ n, ...sharesAt(run, n, p) }));
  const isOpen = (place) => place >= 0 && place < shares.length && shares[place].low !== shares[place].high;
  const band = shares.filter((_, i) => isOpen(i - 1) || isOpen(i) || isOpen(i + 1)); // up to where it joins the line
  const layer = (kind, rows, data) => ({
    kind,
    label,
    colour,
    live: true,
    data: { x: rows.map(({ n }) => n), ...data },
    keyOf: (column, row) =>
      column === "x" ? null : `np/${run.key}/${rows[row].n}/${p}${column === "high" ? "/upper" : ""}`,
  });
  const line = layer("line", shares, { y: shares.map(({ low, high }) => (low === high || run.left_out ? low : null)) });
  if (!band.length) return [line];
  return [layer("band", band, { low: band.map(({ low }) => low), high: band.map(({ high }) => high) }), line];
}
