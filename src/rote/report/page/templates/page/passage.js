// The panel that shows one passage: what is known of it, in all runs, its text and its tokens.

/** Everything about one passage, as elements for the panel. */
function passage(runs, run, row, details, texts) {
  const parts = [passageTitle(run, row), passageFacts(run, row)];
  if (runs.length > 1) parts.push(acrossRuns(runs, run, row));
  parts.push(...quotation(texts, details));
  if (!details) return [...parts, leftOut(run, row)];
  if (isBounded(run, row)) {
    const early = run.left_open
      ? `The ${run.left_open} leaves some tokens open: only an upper bound on this probability is known.`
      : "Scoring stopped early, as this was certain to end below τ: later tokens have no probability.";
    parts.push(textOf("p", early, "caption"));
  }
  if (details.outputs.length) parts.push(...nearOutputs(run, row, texts ? texts[1] : "", details.outputs));
  parts.push(tokenTable(run, row, texts ? Array.from(texts[1]) : null, details.tokens));
  return parts;
}

/** Where the passage stands, or which example it is. */
function passageTitle(run, row) {
  const title = make("h3");
  if (run.ids) title.append(textOf("bdi", exampleId(run, row)));
  if (run.suffix_start?.[row] >= 0) {
    const number = (name) => keyed("data", keyOf(run, row, name), "count", show.count(run[name][row]), run[name][row]);
    title.append(run.ids ? ", characters " : "Characters ", number("suffix_start"), " to ", number("suffix_end"));
  }
  return title;
}

function passageFacts(run, row) {
  const logProb = run.log_prob[row];
  const least = isBounded(run, row) && logProb > -Infinity ? "at least " : "";
  const symbol = [make("i", {}, "p"), make("sub", {}, "z")];
  const first = fact(["Probability ", ...symbol], probabilityOf(run, row, "log_prob"));
  first.className = "first";
  const needed = [0.5, 0.9, 0.999].map((chance) => {
    const prompts = show.promptsFor(logProb, chance);
    const number = keyed("data", keyOf(run, row, "log_prob"), `prompts for ${chance}`, prompts, logProb);
    return fact([textOf("span", `Prompts for ${show.threshold(chance)}`, "plain")], least, number);
  });
  const greedy = fact(["Greedy decoding gives it"], greedyOf(run, row));
  return make("dl", { class: "facts" }, first, ...needed, greedy, ...(run.near ? nearFacts(run, row) : []));
}

/** A line of the facts: `name` and `value` are texts and nodes. */
function fact(name, ...value) {
  return make("div", {}, make("dt", {}, ...name), make("dd", {}, ...value));
}

function nearFacts(run, row) {
  const number = (column, text) => keyed("data", keyOf(run, row, column), "number", text, run[column][row]);
  const [low, high] = show.bounds(run.lower[row], run.upper[row]);
  const bounds = [number("lower", low)];
  if (high !== null) bounds.push(" to ", number("upper", high));
  const edits = `Within ${run.tolerance} ${run.tolerance === 1 ? "edit" : "edits"}`;
  return [fact([textOf("span", edits, "plain")], ...bounds), fact(["Verdict"], verdictOf(run, row))];
}

/** The passage's probability in every run of a comparison. */
function acrossRuns(runs, chosen, row) {
  const lines = runs.map((run) => {
    const own = sameRow(chosen, row, run);
    const name = keyed("bdi", `comparison/runs/${page.runs.indexOf(run)}/name/label`, "text", run.name);
    const value = own < 0 ? MISSING : probabilityOf(run, own, "log_prob");
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "n" }, value));
  });
  return make("table", { class: "data" }, make("tbody", {}, ...lines));
}

/** The passage's text, with its tokens shaded where they are known. */
function quotation(texts, details) {
  if (!texts) return [textOf("p", "The page has no room for this example’s text; examples.jsonl has it.", "caption")];
  const [prefix, suffix] = texts;
  const quote = make(
    "blockquote",
    { dir: "auto" },
    textOf("span", "Prefix: ", "aside"),
    textOf("span", prefix, "prefix"),
    textOf("span", " Suffix: ", "aside"),
    ...(details ? tokenPieces(suffix, details.tokens) : [textOf("mark", suffix)]),
  );
  if (!details) return [quote];
  const legend = "The stronger a token’s colour, the likelier it is after all that stands before it.";
  return [quote, textOf("p", legend, "caption")];
}

/** What is said of a row whose tokens the page has no room for. */
function leftOut(run, row) {
  const [kept, all] = [show.count(run.details.kept), show.count(run.count)];
  const room = `The page has room for the tokens of ${kept} of ${all} ${page.unit}s, the likeliest`;
  return textOf("p", `${room}; rote show prints those of ${exampleId(run, row)}.`, "caption plain");
}
