// The (n, p) arithmetic: what rote/odds.py computes.

/** The probability that at least one of n generations is the suffix. */
function atLeastOnce(pz, n) {
  if (n === 0 || pz === 0) return 0;
  if (n === 1 || pz === 1) return pz;
  return -Math.expm1(n * Math.log1p(-pz));
}

/** The smallest n with atLeastOnce(pz, n) >= atLeast; from 2**53 on only about. */
function queriesNeeded(pz, atLeast) {
  if (atLeast <= pz) return 1;
  if (pz === 0 || atLeast === 1) return Infinity;
  let high = Math.ceil(Math.log1p(-atLeast) / Math.log1p(-pz));
  if (high >= Number.MAX_SAFE_INTEGER) return high;
  // Rounding may put the quotient on either side of the crossing.
  let step = 1;
  let low = high;
  while (low > 0 && atLeastOnce(pz, low) >= atLeast) {
    [low, high] = [Math.max(low - step, 0), low];
    step *= 2;
  }
  while (atLeastOnce(pz, high) < atLeast) {
    [low, high] = [high, high + step];
    step *= 2;
  }
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (atLeastOnce(pz, middle) >= atLeast) high = middle;
    else low = middle;
  }
  return high;
}
