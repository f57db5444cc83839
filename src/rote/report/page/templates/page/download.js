// The table of all rows, saved as a file.

// What a cell holds, where that is not the number of the column itself.
const CELLS = {
  run: (run) => run.key,
  example_id: (run, row) => harmless(exampleId(run, row)),
  split: (run, row) => harmless(run.split?.[row] ?? ""),
  scheme: (run) => run.scheme,
  greedy: (run, row) => (isGreedyOpen(run, row) ? "" : isGreedy(run, row)),
  bounded: isBounded,
  verdict: verdictOf,
  log_prob: (run, row) => (run.log_prob[row] === -Infinity ? "-inf" : run.log_prob[row]),
  start: (run, row) => placeIn(run.start, row),
  suffix_start: (run, row) => placeIn(run.suffix_start, row),
  suffix_end: (run, row) => placeIn(run.suffix_end, row),
};

async function download(runs, kind) {
  const name = document.title.split(":")[0].replace(/[^\p{L}\p{N}.-]+/gu, "-") || "rote";
  if (kind === "csv") save(`${name}.csv`, csvOf(runs), "text/csv");
  else save(`${name}.parquet`, await unpack(page.table.blob, false), "application/vnd.apache.parquet");
}

function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function csvOf(runs) {
  const names = page.table.columns;
  const lines = [names.join(",")];
  for (const run of runs) {
    for (let row = 0; row < run.count; row++) {
      const cells = names.map((name) => (CELLS[name] ? CELLS[name](run, row) : (run[name]?.[row] ?? "")));
      lines.push(cells.map((cell) => quoted(String(cell))).join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

/** A place in the text; of examples that stand in none it is empty. */
function placeIn(column, row) {
  return column?.[row] >= 0 ? column[row] : "";
}

/** A text that a spreadsheet would run as a formula, kept from it. */
function harmless(text) {
  return /^(?:'|[\s\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])/u.test(text) ? `'${text}` : text;
}

function quoted(text) {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
