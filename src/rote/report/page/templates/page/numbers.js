// How numbers are shown: what rote/report/text/numbers.py prints, to the last character.
//
// Browser and Python differ in two ways. An exact half (0.125 to two digits) is rounded up here and to the even digit
// there; `fixed` and `general` do it as Python does. And the last bit of a logarithm or an exponential may differ from
// machine to machine, which shows only where a value lies within that bit of a border between two printed numbers.

const MISSING = "–";
const LEAST_FLOAT = -700; // exp of anything below leaves the range in which floats keep their precision
const NEARLY = Math.log(0.95);

/** Cuts exact decimal digits after `keep` characters; null unless exactly a half is cut off after an even digit. */
function evenHalf(digits, keep) {
  const head = digits.slice(0, keep).replace(/\.$/, "");
  return /^\.?50*$/.test(digits.slice(keep)) && /[02468]$/.test(head) ? head : null;
}

/** Python's f"{value:.{decimals}f}", for value >= 0. */
function fixed(value, decimals) {
  if (value >= 1e21) return `${BigInt(value)}${decimals ? `.${"0".repeat(decimals)}` : ""}`;
  const digits = value.toFixed(100);
  return evenHalf(digits, digits.length - 100 + decimals) ?? value.toFixed(decimals);
}

/** Python's f"{value:.{decimals}e}", for value >= 0. */
function exponential(value, decimals) {
  const [mantissa, exponent] = value.toExponential(100).split("e");
  const even = evenHalf(mantissa, decimals ? decimals + 2 : 1);
  const [shown, power] = even === null ? value.toExponential(decimals).split("e") : [even, exponent];
  return `${shown}e${signed(Number(power))}`;
}

/** Python's f"{value:.{digits}g}", for value >= 0. */
function general(value, digits) {
  if (value === Infinity) return "inf";
  const rounded = exponential(value, digits - 1);
  const [mantissa, power] = rounded.split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= digits) return `${trimmed(mantissa)}e${power}`;
  return trimmed(fixed(value, digits - 1 - exponent));
}

function trimmed(digits) {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
}

function signed(exponent) {
  return (exponent < 0 ? "-" : "+") + twoDigits(Math.abs(exponent));
}

function twoDigits(number) {
  return String(number).padStart(2, "0");
}

function grouped(digits) {
  return digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

function isMissing(value) {
  return value === null || value === undefined || Number.isNaN(value);
}

/** A probability below 0.001 in two digits, rounded down (`away` -1) or up (1). */
function tiny(value, away) {
  const shown = exponential(value, 1);
  const [digits, exponent] = shown.split("e");
  let tenths = Math.round(10 * Number(digits));
  let power = Number(exponent);
  if ((Number(shown) - value) * away < 0) tenths += away;
  if (tenths === 9) [tenths, power] = [99, power - 1];
  if (tenths === 100) [tenths, power] = [10, power + 1];
  return `${(tenths / 10).toFixed(1)}e${signed(power)}`;
}

const show = {
  /** 1234567 as `1,234,567`. */
  count(number) {
    return isMissing(number) ? MISSING : grouped(fixed(number, 0));
  },

  /** A share as a percentage of about three digits; only exactly 0 and exactly 1 print as 0% and 100%. */
  percent(share) {
    if (isMissing(share)) return MISSING;
    const value = 100 * share;
    if (value === 0 || value === 100) return `${fixed(value, 0)}%`;
    if (value >= 99.95) return `${fixed(Math.floor(value * 1000) / 1000, 3)}%`;
    if (value < 0.001) return `${exponential(value, 1)}%`;
    return `${fixed(value, value >= 9.995 ? 1 : value >= 0.1 ? 2 : 4)}%`;
  },

  /** A chosen threshold, printed as chosen: 0.001 is `0.1%`. */
  threshold(share) {
    return `${general(100 * share, 6)}%`;
  },

  /** A number as it is, in up to six digits. */
  number(value) {
    if (isMissing(value)) return MISSING;
    return value < 0 ? `-${general(-value, 6)}` : general(value, 6);
  },

  /** exp(logProb) in about three digits, from 1 down to far below the smallest float. */
  probability(logProb) {
    if (isMissing(logProb)) return MISSING;
    if (logProb === -Infinity) return "0";
    if (logProb >= 0) return "1";
    const value = Math.exp(logProb);
    if (value >= 0.9995) {
      // three digits would say 1, which is a claim of certainty
      const digits = Math.min(Math.ceil(-Math.log10(-Math.expm1(logProb))), 6);
      return fixed(Math.min(Math.floor(value * 10 ** digits), 10 ** digits - 1) / 10 ** digits, digits);
    }
    return value >= 0.001 ? general(value, 3) : show.scientific(logProb);
  },

  /** exp(logValue) as `3.1e-07`, also where it is far outside the range of floats. */
  scientific(logValue) {
    if (!Number.isFinite(logValue)) return MISSING;
    let exponent = Math.floor(logValue / Math.LN10);
    let mantissa = Math.exp(logValue - exponent * Math.LN10);
    if (mantissa >= 9.95) [exponent, mantissa] = [exponent + 1, mantissa / 10];
    return `${fixed(mantissa, 1)}e${signed(exponent)}`;
  },

  /** A number of prompts: `1.03`, `1,400`, `2.1 million`, `4.2e+31`. */
  prompts(number) {
    if (number >= 999.5e12) return show.scientific(Math.log(number));
    for (const [size, name] of [
      [1e12, "trillion"],
      [1e9, "billion"],
      [1e6, "million"],
    ]) {
      if (number >= 0.9995 * size) return `${general(number / size, 3)} ${name}`;
    }
    return number < 9.95 && !Number.isInteger(number) ? fixed(number, 2) : grouped(fixed(number, 0));
  },

  /** Fewest generations that show the suffix at least once with probability `atLeast`. */
  promptsFor(logProb, atLeast) {
    if (logProb > LEAST_FLOAT) return show.prompts(queriesNeeded(Math.exp(logProb), atLeast));
    return logProb === -Infinity ? "never" : show.scientific(Math.log(-Math.log1p(-atLeast)) - logProb);
  },

  /** Mean number of generations up to and including the first that is the suffix: 1 / p_z. */
  expectedPrompts(logProb) {
    if (logProb > LEAST_FLOAT) return show.prompts(Math.exp(-logProb));
    return logProb === -Infinity ? "never" : show.scientific(-logProb);
  },

  /** How often the suffix comes out: `1 in 32 prompts`, or `75% of prompts`. */
  oneIn(logProb) {
    if (logProb >= NEARLY) return logProb >= 0 ? "every prompt" : "nearly every prompt";
    if (logProb > Math.log(0.5)) return `${fixed(100 * Math.exp(logProb), 0)}% of prompts`;
    return `1 in ${show.expectedPrompts(logProb)} prompts`;
  },

  /** Two bounds on a probability, rounded away from each other: what is printed holds too. */
  interval(lower, upper) {
    const [low, high] = show.bounds(lower, upper);
    return high === null ? low : `${low} to ${high}`;
  },

  /** The two printed bounds of `interval`; the second is null where one number says both. */
  bounds(lower, upper) {
    if (lower >= upper - 1e-9 && lower > 0 && lower < 0.9995) return [show.probability(Math.log(lower)), null];
    let low = fixed(lower, 0);
    if (lower >= 0.001 && lower < 1) low = fixed(Math.floor(lower * 1000) / 1000, 3);
    else if (lower > 0 && lower < 1) low = tiny(lower, -1);
    let high = upper > 0 ? tiny(upper, 1) : "0";
    if (upper >= 0.001 && upper < 0.999) high = fixed(Math.ceil(upper * 1000) / 1000, 3);
    else if (upper >= 0.999) high = "1";
    return [low, high];
  },

  duration(seconds) {
    if (isMissing(seconds)) return MISSING;
    if (seconds < 59.95) return `${fixed(seconds, 1)} s`;
    const whole = Number(fixed(seconds, 0));
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${twoDigits(whole % 60)} s`;
    return `${grouped(String(Math.floor(whole / 3600)))} h ${twoDigits(Math.floor((whole % 3600) / 60))} min`;
  },
};
