// Ticks of axes: which values get one, and how it is printed.

const GAP = 12; // least space between two tick labels
const NARROW = 56; // a name needs more than this to be broken into lines

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/**
 * The ticks of an axis that is `length` pixels long: value, at (0 to 1) and label lines, none overlapping another.
 * `room(lines)`: the pixels that a label takes along the axis; `every`: there is about one tick in so many.
 */
function ticksOf(axis, length, room, every = 45) {
  if (axis.scale === "category") return categoryTicks(axis, length, room);
  const marks = (axis.marks ?? []).map(([value, label]) => ({ value, at: axis.at(value), lines: [label] }));
  const beyond = marks.length ? Math.max(...marks.map((mark) => mark.at)) : -Infinity;
  const isFree = (tick) =>
    marks.every((mark) => Math.abs(mark.at - tick.at) * length >= (room(mark.lines) + room(tick.lines)) / 2 + GAP / 2);
  let ticks = [];
  for (let fewer = 0; fewer < 20; fewer++) {
    const values = axis.log
      ? decades(axis, 1 + fewer)
      : steps(axis, Math.max(1, Math.min(8, Math.floor(length / every)) - fewer));
    ticks = values
      .map((value) => ({ value, at: axis.at(value), lines: [tickLabel(axis, value)] }))
      .filter((tick) => tick.at > -1e-6 && tick.at < 1 + 1e-6 && tick.at > beyond + 1e-6 && isFree(tick));
    if (areApart(ticks, length, room)) break;
  }
  return [...marks, ...ticks];
}

function areApart(ticks, length, room) {
  const isApart = (one, next) => (next.at - one.at) * length >= (room(one.lines) + room(next.lines)) / 2 + GAP;
  return ticks.every((tick, i) => !i || isApart(ticks[i - 1], tick));
}

/** Nice values within a linear axis, `step` apart, where step is 1, 2 or 5 times a power of ten. */
function steps(axis, most) {
  const span = axis.high - axis.low;
  const whole = axis.format === "count" ? 1 : 0;
  let power = 10 ** Math.floor(Math.log10(span / most));
  if (!(power > 0)) power = 1;
  const step = Math.max(
    [1, 2, 5, 10].map((factor) => factor * power).find((one) => span / one <= most * 1.0001) ?? 10 * power,
    whole,
  );
  const values = [];
  for (let i = Math.ceil(axis.low / step - 1e-9); i <= axis.high / step + 1e-9; i++) {
    values.push(Number((i * step).toPrecision(12)));
  }
  return values;
}

/** Powers of ten within a logarithmic axis, every `stride`-th; 2 and 5 times them too where there are fewer than two. */
function decades(axis, stride) {
  const first = Math.ceil(Math.log10(axis.low) - 1e-9);
  const last = Math.floor(Math.log10(axis.high) + 1e-9);
  const values = [];
  const start = axis.format === "count" ? first : last - Math.floor((last - first) / stride) * stride; // with 1 in it
  for (let power = start; power <= last; power += stride) values.push(Number(`1e${power}`));
  if (values.length > 1 || stride > 1) return values;
  for (let power = first - 1; power <= last; power++) {
    for (const factor of [2, 5]) {
      const value = Number(`${factor}e${power}`);
      if (value >= axis.low && value <= axis.high) values.push(value);
    }
  }
  return values.sort((a, b) => a - b);
}

/** A tick's label: a place on the scale, not a result, so short and without a key. */
function tickLabel(axis, value) {
  if (axis.format === "percent") return `${show.number(Number((100 * value).toPrecision(12)))}%`;
  if (axis.format === "count") return value < 0 ? `−${countLabel(-value)}` : countLabel(value);
  return axis.log && (value < 0.99e-4 || value >= 1e6) ? powerLabel(value) : show.number(value);
}

function countLabel(value) {
  const millions = value / 1e6;
  return millions >= 1 && Number(millions.toPrecision(3)) === millions ? show.prompts(value) : show.count(value);
}

/** 0.00002 as `2×10⁻⁵`. */
function powerLabel(value) {
  const power = Math.floor(Math.log10(value) + 1e-9);
  const factor = Math.round(value / 10 ** power);
  const raised = [...String(power)].map((digit) => SUPERSCRIPTS[digit]).join("");
  return factor === 1 ? `10${raised}` : `${factor}×10${raised}`;
}

/** A tick for each name: its label broken into lines, cut off where even that does not fit, or only every so many. */
function categoryTicks(axis, length, room) {
  const slot = length / Math.max(axis.high - axis.low, 1) - GAP / 2;
  const stride = Math.max(
    1,
    Math.ceil(Math.min(30, Math.max(...axis.names.map((name) => room([name])))) / Math.max(slot, 1)),
  );
  const ticks = [];
  for (let place = 0; place < axis.names.length; place += stride) {
    const [name, width] = [axis.names[place], slot * stride];
    // Where a name would be cut to pieces, its first word says more: of a run that is its letter.
    const lines =
      width < NARROW
        ? wrapped(name.split(" ")[0], width, (text) => room([text]), 1)
        : wrapped(name, width, (text) => room([text]), 3);
    ticks.push({ value: place, at: axis.at(place), lines });
  }
  return ticks;
}

/** A text in lines no wider than `width`, broken at spaces or, where there are none, anywhere; cut off after `most`. */
function wrapped(text, width, measure, most) {
  const lines = [];
  let line = "";
  for (let piece of text.split(/(?<=[\s\-_/])/)) {
    if (line && measure((line + piece).trimEnd()) > width) {
      lines.push(line.trimEnd());
      line = "";
    }
    while (piece.length > 1 && measure(piece.trimEnd()) > width) {
      let keep = piece.length - 1;
      while (keep > 1 && measure(piece.slice(0, keep)) > width) keep--;
      lines.push(piece.slice(0, keep));
      piece = piece.slice(keep);
    }
    line += piece;
  }
  if (line.trimEnd()) lines.push(line.trimEnd());
  if (lines.length <= most) return lines.length ? lines : [""];
  let last = lines[most - 1];
  while (last.length > 1 && measure(`${last}…`) > width) last = last.slice(0, -1);
  return [...lines.slice(0, most - 1), `${last}…`];
}
