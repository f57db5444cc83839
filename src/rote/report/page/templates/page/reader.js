// The text and the panel beside it: choosing a passage, with the pointer, the fields or a link, and showing it.

const UNSEEN =
  "This character lies in no window’s suffix, so nothing was measured here. A smaller stride leaves fewer such places.";

/** What shows the text, or null where the page has none. */
function startReader(runs) {
  const host = document.getElementById("page-text");
  if (!host) return null;
  const blocks = [...host.children];
  const reader = {
    runs,
    host,
    panel: document.getElementById("passage-panel"),
    said: document.getElementById("passage-said"),
    blocks,
    starts: Int32Array.from(blocks, (block) => Number(block.dataset.at)),
    scanned: page.length !== null,
    texts: new Map(), // block -> its characters
    visible: new Set(), // blocks that are to be shaded
    shaded: new Map(), // block -> the state it was shaded for
    state: 0,
    current: null, // the chosen passage: its run and row
    shadedBy: { run: 0, column: "log_prob" },
  };
  shadeVisible(reader);
  host.addEventListener("mouseup", () => setTimeout(() => chooseSelected(reader)));
  host.addEventListener("keyup", (event) => event.shiftKey && setTimeout(() => chooseSelected(reader)));
  listenToChoices(reader);
  listenToSteps(reader);
  listenToLinks(reader);
  listenToPrinting(reader);
  return reader;
}

/** Shows a row of a run, or the likeliest row at a character; `jump` brings it into view. */
async function openPassage(reader, { run: place, column }, { character, row: given = null, jump = true }) {
  const { runs, scanned, shadedBy } = reader;
  const run = runs[place];
  const row = given ?? bestRows(run, column).rows[character];
  if (place !== shadedBy.run || column !== shadedBy.column) shadeBy(reader, place, column);
  reader.current = row < 0 ? null : { run, row };
  reshade(reader);
  if (row < 0) {
    if (jump) scrollToPassage(reader, character);
    reader.panel.replaceChildren(textOf("p", UNSEEN, "caption"));
    reader.said.replaceChildren(UNSEEN);
    return;
  }
  if (jump) {
    scrollToPassage(reader, scanned ? run.suffix_start[row] : 0, row);
    document.getElementById("reader").scrollIntoView({ block: "nearest" });
  }
  const details = await detailsOf(run, row);
  if (reader.current?.run !== run || reader.current.row !== row) return; // another was chosen meanwhile
  reader.panel.replaceChildren(...passage(runs, run, row, details, textsOf(reader, run, row)));
  reader.said.replaceChildren(...passageTitle(run, row).childNodes, ": ", probabilityOf(run, row, "log_prob"));
}

/** Brings a passage into the upper third; blocks change their heights while they are shaded, so it may take turns. */
function scrollToPassage(reader, character, row) {
  const { host, blocks, scanned } = reader;
  const block = scanned ? blocks[blockAt(reader, character)] : blockOfRow(reader, row);
  if (!block) return;
  const settle = (turn) => {
    shade(reader, block);
    const mark = block.querySelector(".chosen") ?? (scanned ? rangeAt(reader, block, character) : block);
    const away = mark.getBoundingClientRect().top - host.getBoundingClientRect().top - host.clientHeight / 3;
    host.scrollTop += away;
    if (turn < 4 && Math.abs(away) > 2) requestAnimationFrame(() => settle(turn + 1));
  };
  settle(0);
}

/** Choosing in the text: a click takes the likeliest row there, a selection the row that holds the most of it. */
function chooseSelected(reader) {
  const { runs, host, scanned, shadedBy } = reader;
  const selection = getSelection();
  if (!selection.rangeCount || !host.contains(selection.anchorNode)) return;
  const range = selection.getRangeAt(0);
  const from = placeOf(reader, range.startContainer, range.startOffset);
  const to = placeOf(reader, range.endContainer, range.endOffset);
  if (!from) return;
  const open = (what) => openPassage(reader, shadedBy, { ...what, jump: false });
  if (!scanned) {
    open({ row: Number(from.block.dataset.row) });
  } else if (!to || to.at <= from.at) {
    open({ character: Math.min(from.at, page.length - 1) });
  } else {
    const [row] = overlapping(runs[shadedBy.run], from.at, to.at);
    if (row === undefined) {
      reader.panel.replaceChildren(textOf("p", "No suffix covers any of this selection.", "caption"));
    } else {
      open({ row });
    }
  }
}

/** The fields that say by which run and by which of its columns the text is shaded. */
function listenToChoices(reader) {
  const { runs } = reader;
  document.getElementById("reader-run")?.addEventListener("change", (event) => {
    const run = Number(event.target.value);
    shadeBy(reader, run, columnIn(reader, run));
    if (!reader.current) return;
    const row = sameRow(reader.current.run, reader.current.row, runs[run]);
    if (row >= 0) openPassage(reader, reader.shadedBy, { row, jump: false });
  });
  document.getElementById("reader-column")?.addEventListener("change", (event) => {
    const { run } = reader.shadedBy;
    shadeBy(reader, run, runs[run].near ? event.target.value : "log_prob");
  });
}

/** The column that another run is shaded by: the same, where it has it. */
function columnIn(reader, run) {
  return reader.runs[run].near ? reader.shadedBy.column : "log_prob";
}

/** The buttons for the previous and the next row, and the field for a place to go to. */
function listenToSteps(reader) {
  const { runs, scanned } = reader;
  for (const button of document.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => stepBy(reader, Number(button.dataset.step)));
  }
  const go = document.getElementById("reader-go");
  go.max = String((scanned ? page.length : runs[0].count) - 1);
  go.addEventListener("change", () => {
    const wanted = Number(go.value);
    if (go.value === "" || !go.checkValidity()) go.reportValidity();
    else openPassage(reader, reader.shadedBy, scanned ? { character: wanted } : { row: wanted });
  });
}

/** Goes on by rows of the table, in the order of the text or of the examples shown. */
function stepBy(reader, by) {
  const { runs, blocks, scanned, current, shadedBy } = reader;
  const { count } = runs[shadedBy.run];
  if (!count) return;
  const order = scanned ? null : blocks.map((block) => Number(block.dataset.row));
  if (!current) {
    openPassage(reader, shadedBy, { row: order ? order[0] : 0 });
    return;
  }
  const next = order ? order[order.indexOf(current.row) + by] : current.row + by;
  if (next !== undefined && next >= 0 && next < count) openPassage(reader, shadedBy, { row: next });
}

/** Links anywhere on the page that lead to a character, or to a row. */
function listenToLinks(reader) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-go]");
    if (link) openPassage(reader, reader.shadedBy, { character: Number(link.dataset.go) });
    const rowLink = event.target.closest?.("[data-go-row]");
    if (!rowLink) return;
    const run = Number(rowLink.dataset.goRun ?? reader.shadedBy.run); // a row of this run, where the link says so
    openPassage(reader, { run, column: columnIn(reader, run) }, { row: Number(rowLink.dataset.goRow) });
  });
}

/** The text is printed where that is wanted, and then all of it is shaded. */
function listenToPrinting(reader) {
  const wanted = document.getElementById("print-text");
  window.addEventListener("beforeprint", () => {
    if (wanted.checked) for (const block of reader.blocks) shade(reader, block);
  });
  wanted.addEventListener("change", () => {
    document.getElementById("reader").classList.toggle("printed", wanted.checked);
  });
}
