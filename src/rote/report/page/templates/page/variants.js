// Outputs near a suffix, as word differences from it.

const SET_NOTE = "The end of such an example is filled in from the text: the model need not write that one.";

/** A list of outputs, each with its edits and probability, and what it has in place of the suffix. */
function nearOutputs(run, row, suffix, outputs) {
  const label = "Outputs near the suffix, heaviest first";
  const items = outputs.map((output) => {
    const shown = make("p", { class: "difference", dir: "auto" });
    for (const [kind, text] of differences(suffix, output[4])) {
      shown.append(kind === "same" ? text : textOf(kind, text));
    }
    return make("li", {}, outputLabel(run, row, output), shown);
  });
  const list = make("ol", { class: "variants", "aria-label": label }, ...items);
  return outputs.some(isExample) ? [list, textOf("p", SET_NOTE, "caption")] : [list];
}

/** Whether an output only stands for others: its own probability is not known. */
function isExample([, , own, together]) {
  return own === null && together !== null;
}

/** How far an output is, and how likely: by itself, with all that begin like it, or only as an example of these. */
function outputLabel(run, row, [place, edits, own, together]) {
  const number = (column, how, text, value) =>
    keyed("data", keyOf(run, row, `candidates/${place}/${column}`), how, text, value);
  const label = make("p", {}, number("distance", "count", show.count(edits), edits), edits === 1 ? " edit" : " edits");
  const itself = own === null ? null : number("log_prob", "probability", own, own);
  const all = together === null ? null : number("set_log_prob", "probability", together, together);
  if (itself) label.append(", probability ", itself);
  if (itself && all) label.append(", with all that begin alike and count ", all);
  if (!itself && all) {
    label.append(", an example of outputs that begin alike and all count, together probability ", all);
  }
  return label;
}

/** A word difference by longest common subsequence: ["same" | "del" | "ins", text], deletions before insertions. */
function differences(before, after) {
  const [a, b] = [wordsOf(before), wordsOf(after)];
  const common = commonLengths(a, b);
  const pieces = [];
  let [removed, added] = ["", ""];
  const flush = () => {
    if (removed) pieces.push(["del", removed]);
    if (added) pieces.push(["ins", added]);
    [removed, added] = ["", ""];
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      flush();
      if (pieces.length && pieces.at(-1)[0] === "same") pieces.at(-1)[1] += a[i];
      else pieces.push(["same", a[i]]);
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && common(i + 1, j) >= common(i, j + 1))) {
      removed += a[i++];
    } else {
      added += b[j++];
    }
  }
  flush();
  return pieces;
}

function wordsOf(text) {
  return text.match(/\s+|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu) ?? [];
}

/** How long the longest common subsequence is of what follows in `a` from i on and in `b` from j on. */
function commonLengths(a, b) {
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const common = (i, j) => lengths[i * width + j];
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? common(i + 1, j + 1) + 1 : Math.max(common(i + 1, j), common(i, j + 1));
    }
  }
  return common;
}
