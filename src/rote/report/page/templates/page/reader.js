// The text itself, shaded as it comes into view, and the panel that shows one passage.

const UNSEEN = "This character lies in no window’s suffix, so nothing was measured here. A smaller stride leaves fewer such places.";

function startReader(runs) {
  const host = document.getElementById("page-text");
  if (!host) return null;
  const panel = document.getElementById("passage-panel"), said = document.getElementById("passage-said");
  const blocks = [...host.children];
  const starts = Int32Array.from(blocks, (block) => Number(block.dataset.at));
  const scanned = page.length !== null;
  const texts = new Map(); // block -> its characters, as code points
  const shaded = new Map(); // block -> the state it was shaded for
  let state = 0, current = null, shadedBy = { run: 0, column: "log_prob" };

  const characters = (block) => {
    if (!texts.has(block)) texts.set(block, Array.from(block.textContent));
    return texts.get(block);
  };
  const blockAt = (character) => {
    let low = 0, high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= character) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  const slice = (start, end) => {
    const parts = [];
    for (let b = blockAt(start); b < blocks.length && starts[b] < end; b++) {
      parts.push(characters(blocks[b]).slice(Math.max(0, start - starts[b]), end - starts[b]).join(""));
    }
    return parts.join("");
  };

  // The class of each character: its colour, and whether it belongs to the chosen passage.
  function classOf(block, run, column) {
    const first = Number(block.dataset.at);
    if (!scanned) {
      const row = Number(block.dataset.row), border = Number(block.dataset.suffix);
      const level = levelOf(logValue(run, column, row));
      const chosen = current && current.row === row ? " chosen" : "";
      return (k) => (k < border ? `prefix${chosen}` : `${level < 0 ? "" : `t${level}`}${chosen}`);
    }
    const { rows, levels } = bestRows(run, column);
    const own = current && current.run.start ? current : null;
    const [start, middle, end] = own ? [own.run.start, own.run.suffix_start, own.run.suffix_end].map((c) => c[own.row]) : [-1, -1, -1];
    return (k) => {
      const c = first + k, row = rows[c], level = row < 0 ? -1 : levels[row];
      const chosen = c < start || c >= end ? "" : c < middle ? " chosen-prefix" : " chosen";
      return (row < 0 ? "unseen" : level < 0 ? "" : `t${level}`) + chosen;
    };
  }

  function shade(block) {
    if (shaded.get(block) === state) return;
    shaded.set(block, state);
    const letters = characters(block), name = classOf(block, runs[shadedBy.run], shadedBy.column);
    const pieces = [];
    for (let k = 0, from = 0, own = name(0); k < letters.length; k++) {
      const next = k + 1 < letters.length ? name(k + 1) : null;
      if (next === own) continue;
      const text = letters.slice(from, k + 1).join("");
      pieces.push(own ? textOf("span", text, own.trim()) : text);
      (from = k + 1), (own = next);
    }
    block.replaceChildren(...pieces);
  }

  const visible = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) visible.add(entry.target), shade(entry.target);
      else visible.delete(entry.target);
    }
  }, { root: host, rootMargin: "600px 0px" });
  blocks.forEach((block) => watcher.observe(block));
  function reshade() {
    state++;
    visible.forEach(shade);
  }

  // Choosing: a click takes the likeliest row there, a selection the row that holds the most of it.
  function placeOf(node, offset) {
    const block = (node.nodeType === 3 ? node.parentElement : node)?.closest?.(".block");
    if (!block || !host.contains(block)) return null;
    const range = document.createRange();
    range.setStart(block, 0);
    range.setEnd(node, offset);
    return { block, at: Number(block.dataset.at) + Array.from(range.toString()).length };
  }
  function choose() {
    const selection = getSelection();
    if (!selection.rangeCount || !host.contains(selection.anchorNode)) return;
    const range = selection.getRangeAt(0);
    const from = placeOf(range.startContainer, range.startOffset), to = placeOf(range.endContainer, range.endOffset);
    if (!from) return;
    if (!scanned) return open(shadedBy.run, shadedBy.column, null, Number(from.block.dataset.row), false);
    if (!to || to.at <= from.at) return open(shadedBy.run, shadedBy.column, Math.min(from.at, page.length - 1), null, false);
    const row = overlapping(runs[shadedBy.run], from.at, to.at)[0];
    if (row === undefined) panel.replaceChildren(textOf("p", "No suffix covers any of this selection.", "caption"));
    else open(shadedBy.run, shadedBy.column, null, row, false);
  }
  host.addEventListener("mouseup", () => setTimeout(choose));
  host.addEventListener("keyup", (event) => event.shiftKey && setTimeout(choose));

  function scrollTo(character, row) {
    const block = scanned ? blocks[blockAt(character)] : blocks.find((b) => Number(b.dataset.row) === row);
    if (!block) return;
    const settle = (turn) => {
      shade(block);
      const mark = block.querySelector(".chosen") ?? (scanned ? rangeAt(block, character) : block);
      const away = mark.getBoundingClientRect().top - host.getBoundingClientRect().top - host.clientHeight / 3;
      host.scrollTop += away;
      if (turn < 4 && Math.abs(away) > 2) requestAnimationFrame(() => settle(turn + 1));
    };
    settle(0);
  }

  // The character as a range, for its place on the screen.
  function rangeAt(block, character) {
    const range = document.createRange(), walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    let left = characters(block).slice(0, character - Number(block.dataset.at)).join("").length;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (left < node.length) {
        range.setStart(node, left);
        range.setEnd(node, left + 1);
        return range;
      }
      left -= node.length;
    }
    return block;
  }

  // Show a row, or the likeliest row at a character; `jump` brings it into view.
  async function open(runIndex, column, character, row = null, jump = true) {
    const run = runs[runIndex];
    if (row === null) row = bestRows(run, column).rows[character];
    if (runIndex !== shadedBy.run || column !== shadedBy.column) setShading(runIndex, column);
    if (row < 0) {
      current = null;
      reshade();
      if (jump) scrollTo(character);
      panel.replaceChildren(textOf("p", UNSEEN, "caption"));
      said.replaceChildren(UNSEEN);
      return;
    }
    current = { run, row };
    reshade();
    if (jump) {
      scrollTo(scanned ? run.suffix_start[row] : 0, row);
      document.getElementById("reader").scrollIntoView({ block: "nearest" });
    }
    const details = await detailsOf(run, row);
    if (!current || current.run !== run || current.row !== row) return; // another was chosen meanwhile
    panel.replaceChildren(...passage(runs, run, row, details, textsOf(run, row)));
    said.replaceChildren(...passageTitle(run, row).childNodes, ": ", probabilityOf(run, row, "log_prob"));
  }

  function textsOf(run, row) {
    if (scanned) return [slice(run.start[row], run.suffix_start[row]), slice(run.suffix_start[row], run.suffix_end[row])];
    const block = blocks.find((b) => Number(b.dataset.row) === row);
    if (!block) return null;
    const letters = characters(block), border = Number(block.dataset.suffix);
    return [letters.slice(0, border).join(""), letters.slice(border).join("")];
  }

  function setShading(run, column) {
    shadedBy = { run, column };
    const runChoice = document.getElementById("reader-run"), columnChoice = document.getElementById("reader-column");
    if (runChoice) runChoice.value = String(run);
    if (columnChoice) columnChoice.value = column;
    reshade();
  }
  document.getElementById("reader-run")?.addEventListener("change", (event) => {
    const run = Number(event.target.value);
    setShading(run, runs[run].near ? shadedBy.column : "log_prob");
    if (current) openSame(run);
  });
  document.getElementById("reader-column")?.addEventListener("change", (event) => {
    const near = runs[shadedBy.run].near;
    setShading(shadedBy.run, near ? event.target.value : "log_prob");
  });
  // The same passage in another run: the row that starts at the same place.
  function openSame(run) {
    const row = sameRow(current.run, current.row, runs[run]);
    if (row >= 0) open(run, shadedBy.column, null, row, false);
  }

  // Previous and next: by rows of the table, in the order of the text or of the examples shown.
  const order = scanned ? null : blocks.map((block) => Number(block.dataset.row));
  function step(by) {
    const run = runs[shadedBy.run];
    if (!run.count) return;
    if (!current) return open(shadedBy.run, shadedBy.column, null, order ? order[0] : 0);
    const next = order ? order[order.indexOf(current.row) + by] : current.row + by;
    if (next !== undefined && next >= 0 && next < run.count) open(shadedBy.run, shadedBy.column, null, next);
  }
  for (const button of document.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => step(Number(button.dataset.step)));
  }
  const go = document.getElementById("reader-go");
  go.max = String((scanned ? page.length : runs[0].count) - 1);
  go.addEventListener("change", () => {
    const wanted = Number(go.value);
    if (go.value === "" || !go.checkValidity()) return go.reportValidity();
    if (scanned) open(shadedBy.run, shadedBy.column, wanted);
    else open(shadedBy.run, shadedBy.column, null, wanted);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-go]");
    if (link) open(shadedBy.run, shadedBy.column, Number(link.dataset.go));
    const rowLink = event.target.closest?.("[data-go-row]");
    if (rowLink) {
      const run = Number(rowLink.dataset.goRun ?? shadedBy.run); // a row of this run, where the link says so
      open(run, runs[run].near ? shadedBy.column : "log_prob", null, Number(rowLink.dataset.goRow));
    }
  });
  addEventListener("beforeprint", () => {
    if (document.getElementById("print-text").checked) blocks.forEach(shade);
  });
  document.getElementById("print-text").addEventListener("change", (event) => {
    document.getElementById("reader").classList.toggle("printed", event.target.checked);
  });
  return { open };
}

// The row of another run that is the same passage: equal ids, which in a scan are equal starts.
function sameRow(run, row, other) {
  if (run === other) return row;
  if (run.ids || other.ids) return other.ids ? other.ids.indexOf(exampleId(run, row)) : -1;
  let low = 0, high = other.count - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (other.start[middle] < run.start[row]) low = middle + 1;
    else high = middle;
  }
  return other.start[low] === run.start[row] ? low : -1;
}

// Everything about one passage, as elements for the panel.
function passage(runs, run, row, details, texts) {
  const found = [passageTitle(run, row), passageFacts(run, row)];
  if (runs.length > 1) found.push(acrossRuns(runs, run, row));
  if (texts) {
    const quote = document.createElement("blockquote");
    quote.dir = "auto";
    quote.append(textOf("span", "Prefix: ", "aside"), textOf("span", texts[0], "prefix"), textOf("span", " Suffix: ", "aside"));
    quote.append(...(details ? tokenPieces(texts[1], details.tokens) : [textOf("mark", texts[1])]));
    found.push(quote);
    if (details) found.push(textOf("p", "The stronger a token’s colour, the likelier it is after all that stands before it.", "caption"));
  } else found.push(textOf("p", "The page has no room for this example’s text; examples.jsonl has it.", "caption"));
  if (!details) {
    const id = exampleId(run, row), kept = show.count(run.details.kept), all = show.count(run.count);
    found.push(textOf("p", `The page has room for the tokens of ${kept} of ${all} ${page.unit}s, the likeliest; rote show prints those of ${id}.`, "caption plain"));
    return found;
  }
  if (isStopped(run, row)) found.push(textOf("p", "Scoring stopped early, as this was certain to end below τ: later tokens have no probability.", "caption"));
  if (details.outputs.length) found.push(nearOutputs(run, row, texts ? texts[1] : "", details.outputs));
  found.push(tokenTable(run, row, texts ? Array.from(texts[1]) : null, details.tokens));
  return found;
}

function passageTitle(run, row) {
  const title = document.createElement("h3");
  if (run.ids) title.append(textOf("bdi", exampleId(run, row)));
  if (run.suffix_start?.[row] >= 0) {
    title.append(run.ids ? ", characters " : "Characters ");
    for (const [name, between] of [["suffix_start", " to "], ["suffix_end", ""]]) {
      title.append(keyed("data", keyOf(run, row, name), "count", show.count(run[name][row]), run[name][row]), between);
    }
  }
  return title;
}

function passageFacts(run, row) {
  const list = document.createElement("dl");
  list.className = "facts";
  const add = (name, ...value) => {
    const item = document.createElement("div"), term = document.createElement("dt"), definition = document.createElement("dd");
    term.append(...[name].flat());
    definition.append(...value);
    item.append(term, definition);
    list.append(item);
    return item;
  };
  const logProb = run.log_prob[row], key = keyOf(run, row, "log_prob"), least = isStopped(run, row) && logProb > -Infinity ? "at least " : "";
  const symbol = document.createElement("i");
  symbol.textContent = "p";
  const subscript = textOf("sub", "z");
  add(["Probability ", symbol, subscript], probabilityOf(run, row, "log_prob")).className = "first";
  for (const chance of [0.5, 0.9, 0.999]) {
    const needed = keyed("data", key, `prompts for ${chance}`, show.promptsFor(logProb, chance), logProb);
    add(textOf("span", `Prompts for ${show.threshold(chance)}`, "plain"), least, needed);
  }
  add("Greedy decoding gives it", isGreedy(run, row) ? "yes" : "no");
  if (run.near) {
    const [low, high] = show.interval(run.lower[row], run.upper[row]).split(" to ");
    const bounds = [keyed("data", keyOf(run, row, "lower"), "number", low, run.lower[row])];
    if (high !== undefined) bounds.push(" to ", keyed("data", keyOf(run, row, "upper"), "number", high, run.upper[row]));
    add(textOf("span", `Within ${run.tolerance} ${run.tolerance === 1 ? "edit" : "edits"}`, "plain"), ...bounds);
    add("Verdict", verdictOf(run, row));
  }
  return list;
}

function acrossRuns(runs, chosen, row) {
  const table = document.createElement("table"), body = document.createElement("tbody");
  table.className = "data";
  for (const run of runs) {
    const own = sameRow(chosen, row, run), line = document.createElement("tr"), name = document.createElement("th");
    name.scope = "row";
    name.append(keyed("bdi", `comparison/runs/${page.runs.indexOf(run)}/name/label`, "text", run.name));
    const value = document.createElement("td");
    value.className = "n";
    value.append(own < 0 ? "–" : probabilityOf(run, own, "log_prob"));
    line.append(name, value);
    body.append(line);
  }
  table.append(body);
  return table;
}

// The suffix cut into its tokens, each shaded by its own probability, here in equal steps from 0 to 1: single tokens
// would all look likely on a logarithmic scale. A token may hold no whole character.
function tokenPieces(suffix, tokens) {
  const letters = Array.from(suffix), pieces = [];
  let from = 0;
  tokens.forEach((token, i) => {
    if (token.end === null || token.end <= from) return;
    const piece = textOf("span", letters.slice(from, token.end).join(""), "token");
    piece.classList.add(`t${Math.min(Math.floor(parseFloat(token.probability) * LEVELS), LEVELS - 1)}`);
    piece.dataset.token = String(i + 1);
    pieces.push(piece);
    from = token.end;
  });
  if (from < letters.length) pieces.push(textOf("span", letters.slice(from).join(""), "token"));
  return pieces;
}

function tokenTable(run, row, letters, tokens) {
  const details = document.createElement("details"), scroll = document.createElement("div");
  details.append(textOf("summary", "Token by token"));
  const table = document.createElement("table"), head = document.createElement("tr"), body = document.createElement("tbody");
  table.className = "data tokens";
  for (const name of ["No.", "Token", "Probability", "Rank"]) {
    const cell = textOf("th", name, name === "Token" ? "" : "n");
    cell.scope = "col";
    head.append(cell);
  }
  let from = 0;
  tokens.forEach((token, i) => {
    const line = document.createElement("tr"), cells = Array.from({ length: 4 }, () => document.createElement("td"));
    const text = letters && token.end !== null ? letters.slice(from, token.end).join("") : null;
    cells[0].append(textOf("span", String(i + 1), "plain"));
    cells[1].append(text ? textOf("code", visibleSpaces(text)) : token.end === null ? MISSING : "part of a character");
    cells[2].append(keyed("data", keyOf(run, row, `token_log_probs/${i}`), "probability", token.probability, token.probability));
    cells[3].append(keyed("data", keyOf(run, row, `ranks/${i}`), "count", show.count(token.rank), token.rank));
    cells.forEach((cell, k) => (cell.className = k === 1 ? "" : "n"));
    line.append(...cells);
    body.append(line);
    from = token.end ?? from;
  });
  const top = document.createElement("thead");
  top.append(head);
  table.append(top, body);
  scroll.className = "scroll";
  scroll.append(table);
  overflowing.observe(scroll);
  details.append(scroll);
  return details;
}

const visibleSpaces = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣");

function nearOutputs(run, row, suffix, outputs) {
  const list = document.createElement("ol");
  list.className = "variants";
  list.setAttribute("aria-label", "Outputs near the suffix, heaviest first");
  for (const [place, edits, probability, ofSet, text] of outputs) {
    const item = document.createElement("li"), label = document.createElement("p"), shown = document.createElement("p");
    const base = `candidates/${place}/`;
    label.append(keyed("data", keyOf(run, row, `${base}distance`), "count", show.count(edits), edits), edits === 1 ? " edit" : " edits");
    if (probability !== null) {
      const column = ofSet ? "set_log_prob" : "log_prob";
      label.append(", probability ", keyed("data", keyOf(run, row, base + column), "probability", probability, probability));
      if (ofSet) label.append(" with all outputs that begin like it");
    }
    shown.className = "difference";
    shown.dir = "auto";
    for (const [kind, words] of differences(suffix, text)) shown.append(kind === "same" ? words : textOf(kind, words));
    item.append(label, shown);
    list.append(item);
  }
  return list;
}

// A word difference by longest common subsequence: ["same" | "del" | "ins", text] pieces, deletions before insertions.
function differences(before, after) {
  const words = (text) => text.match(/\s+|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu) ?? [];
  const a = words(before), b = words(after), width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const pieces = [];
  let removed = "", added = "";
  const flush = () => {
    if (removed) pieces.push(["del", removed]);
    if (added) pieces.push(["ins", added]);
    removed = added = "";
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      flush();
      if (pieces.length && pieces.at(-1)[0] === "same") pieces.at(-1)[1] += a[i];
      else pieces.push(["same", a[i]]);
      i++, j++;
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) removed += a[i++];
    else added += b[j++];
  }
  flush();
  return pieces;
}
