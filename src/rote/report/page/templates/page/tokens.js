// The tokens of a passage: as pieces of its suffix, and in a table.

/**
 * The suffix cut into its tokens, each shaded by its own probability, here in equal steps from 0 to 1: single tokens
 * would all look likely on a logarithmic scale. A token may hold no whole character.
 */
function tokenPieces(suffix, tokens) {
  const characters = Array.from(suffix);
  const pieces = [];
  let from = 0;
  tokens.forEach((token, i) => {
    if (token.end === null || token.end <= from) return;
    const piece = textOf("span", characters.slice(from, token.end).join(""), "token");
    const probability = parseFloat(token.probability); // NaN: a served model's list leaves it open
    if (probability >= 0) piece.classList.add(`t${Math.min(Math.floor(probability * LEVELS), LEVELS - 1)}`);
    piece.dataset.token = String(i + 1);
    pieces.push(piece);
    from = token.end;
  });
  if (from < characters.length) pieces.push(textOf("span", characters.slice(from).join(""), "token"));
  return pieces;
}

/** Every token with its probability and rank; `characters`: those of the suffix, or null where they are not known. */
function tokenTable(run, row, characters, tokens) {
  const heads = ["No.", "Token", "Probability", "Rank"].map((name) => {
    const cell = textOf("th", name, name === "Token" ? "" : "n");
    cell.scope = "col";
    return cell;
  });
  let from = 0;
  const lines = tokens.map((token, i) => {
    const text = characters && token.end !== null ? characters.slice(from, token.end).join("") : null;
    from = token.end ?? from;
    return tokenLine(run, row, token, i, text);
  });
  const table = make(
    "table",
    { class: "data tokens" },
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...lines),
  );
  const scroll = make("div", { class: "scroll" }, table);
  overflowing.observe(scroll);
  return make("details", {}, textOf("summary", "Token by token"), scroll);
}

function tokenLine(run, row, token, i, text) {
  const { probability, rank, end } = token;
  const shown = text ? textOf("code", visibleSpaces(text)) : end === null ? MISSING : "part of a character";
  const key = keyOf(run, row, `token_log_probs/${i}`);
  return make(
    "tr",
    {},
    make("td", { class: "n" }, textOf("span", String(i + 1), "plain")),
    make("td", {}, shown),
    make("td", { class: "n" }, keyed("data", key, "probability", probability, probability)),
    make("td", { class: "n" }, keyed("data", keyOf(run, row, `ranks/${i}`), "count", rankText(run, rank), rank)),
  );
}

/** A rank, as far as a served model's list tells it. */
function rankText(run, rank) {
  if (rank === 0) return "not told";
  return run.listed !== null && rank === run.listed + 1 ? `> ${show.count(run.listed)}` : show.count(rank);
}

function visibleSpaces(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣");
}
