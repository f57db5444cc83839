// Axes of plots: where a value stands on one, and how it is printed.

/** An axis with its limits, and where values stand on it, between 0 and 1. */
function scaled(axis, values) {
  const log = axis.scale === "log";
  const [low, high] = axis.limits ?? extent(values, log);
  const change = log ? Math.log10 : (value) => value;
  const from = change(low);
  const span = change(high) - from || 1;
  return {
    ...axis,
    log,
    low,
    high,
    at: (value) => (change(value) - from) / span,
    back: (share) => (log ? 10 ** (from + share * span) : from + share * span),
  };
}

function extent(values, log) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (low === high) return log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  return [low, high];
}

/** How a value of an axis is printed as a result, and what `data-as` calls it. */
function valueText(axis, value) {
  if (value === null) return [MISSING, "number"];
  if (axis.format === "percent") return [show.percent(value), "percent"];
  if (axis.format === "count") return [show.count(value), "count"];
  if (axis.format === "probability") return [show.probability(Math.log(value)), "number"];
  return [show.number(value), "number"];
}
