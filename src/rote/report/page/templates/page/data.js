// The columns and blocks that pack.py put into the page, unpacked when they are first needed.

const page = JSON.parse(document.getElementById("rote-data").textContent);
const LEVELS = 12;
const FLOOR = Math.log(page.tau);
const VERDICTS = ["", "extractable", "not extractable", "undecided"];

async function unpack(name, compressed = true) {
  const packed = atob(document.getElementById(`blob-${name}`).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  if (!compressed) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Columns lie in planes: the first byte of every number, then the second of every one, and so on.
function columnOf(bytes, type, count) {
  const kinds = { d4: Int32Array, f8: Float64Array, f4: Float32Array, u1: Uint8Array };
  const values = new kinds[type](count);
  const size = values.BYTES_PER_ELEMENT, out = new Uint8Array(values.buffer);
  for (let plane = 0; plane < size; plane++) {
    for (let i = 0, from = plane * count; i < count; i++) out[i * size + plane] = bytes[from + i];
  }
  if (type === "d4") for (let i = 1; i < count; i++) values[i] += values[i - 1];
  return type === "f4" ? Float64Array.from(values) : values;
}

async function loadRun(run) {
  for (const [name, { blob, type }] of Object.entries(run.columns)) {
    run[name] = columnOf(await unpack(blob), type, run.count);
  }
  run.blocks = new Map();
  run.best = {};
  run.near = "lower" in run;
  run.stopsEarly = run.flags.some((flags) => flags & 2);
  return run;
}

const exampleId = (run, i) => (run.ids ? run.ids[i] : `w${run.start[i]}`);
const keyOf = (run, i, column) =>
  `${page.runs.length > 1 ? `runs/${run.key}/` : ""}scores/${exampleId(run, i)}/${run.scheme}/${column}`;
const isGreedy = (run, i) => (run.flags[i] & 1) === 1;
const isStopped = (run, i) => (run.flags[i] & 2) === 2;
const verdictOf = (run, i) => VERDICTS[(run.flags[i] >> 2) & 3];

// The logarithm of what a row is shaded by. A row that was stopped early has only an upper bound: below tau.
function logValue(run, column, i) {
  if (column === "lower") return Math.log(run.lower[i]);
  return isStopped(run, i) ? -Infinity : run.log_prob[i];
}

const levelOf = (logProb) =>
  !(logProb >= FLOOR) ? -1 : FLOOR < 0 ? Math.min(Math.trunc(LEVELS * (1 - logProb / FLOOR)), LEVELS - 1) : LEVELS - 1;

// For each character of the text the likeliest row whose suffix covers it, or -1: not looked at. Later fills win, so
// likelier rows go last.
function bestRows(run, column) {
  if (run.best[column]) return run.best[column];
  const values = new Float64Array(run.count);
  for (let i = 0; i < run.count; i++) values[i] = logValue(run, column, i);
  const order = Uint32Array.from(values.keys()).sort((a, b) => values[a] - values[b] || b - a);
  const rows = new Int32Array(page.length).fill(-1);
  for (const i of order) rows.fill(i, run.suffix_start[i], run.suffix_end[i]);
  const levels = new Int8Array(run.count);
  for (let i = 0; i < run.count; i++) levels[i] = levelOf(values[i]);
  return (run.best[column] = { rows, values, levels });
}

// One row's tokens and outputs, or null where the page has no room for them.
async function detailsOf(run, i) {
  const place = Math.floor(i / run.details.block);
  const name = run.details.blobs[place];
  if (name === null) return null;
  if (!run.blocks.has(place)) run.blocks.set(place, readBlock(run, await unpack(name)));
  return run.blocks.get(place).get(i - place * run.details.block) ?? null;
}

function readBlock(run, bytes) {
  const header = new DataView(bytes.buffer, bytes.byteOffset);
  let at = 8 * 4;
  const parts = [];
  for (let i = 0; i < 8; i++) parts.push(bytes.subarray(at, (at += header.getUint32(4 * i, true))));
  const places = shorts(parts[0]), counts = varints(parts[1]), endCounts = varints(parts[2]);
  const lengths = varints(parts[3]), low = parts[4], high = parts[5], ranks = varints(parts[6]);
  const outputs = JSON.parse(new TextDecoder().decode(parts[7]));
  const found = new Map();
  let token = 0, piece = 0;
  places.forEach((place, row) => {
    const tokens = [];
    for (let i = 0; i < counts[row]; i++, token++) {
      tokens.push({ probability: run.details.palette[low[token] | (high[token] << 8)], rank: ranks[token], end: null });
    }
    for (let i = 0, end = 0; i < endCounts[row]; i++, piece++) {
      end += lengths[piece];
      if (i < tokens.length) tokens[i].end = end;
    }
    found.set(place, { tokens, outputs: outputs[row] ?? [] });
  });
  return found;
}

const shorts = (bytes) => Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i] | (bytes[2 * i + 1] << 8));

function varints(bytes) {
  const values = [];
  let value = 0, factor = 1;
  for (const byte of bytes) {
    value += (byte & 127) * factor;
    if (byte & 128) factor *= 128;
    else (values.push(value), (value = 0), (factor = 1));
  }
  return values;
}

// Rows whose suffix overlaps [start, end): most characters first, then the likeliest.
function overlapping(run, start, end) {
  const found = [];
  for (let i = 0; i < run.count; i++) {
    const shared = Math.min(end, run.suffix_end[i]) - Math.max(start, run.suffix_start[i]);
    if (shared > 0) found.push([i, shared, logValue(run, "log_prob", i)]);
  }
  return found.sort((a, b) => b[1] - a[1] || b[2] - a[2] || a[0] - b[0]).map(([i]) => i);
}

function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function csvOf(runs) {
  const names = page.table.columns, lines = [names.join(",")];
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const words = (text) => (/^(?:'|[\s\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])/u.test(text) ? `'${text}` : text); // a spreadsheet would run it as a formula
  const cells = {
    run: (run) => run.key,
    example_id: (run, i) => words(exampleId(run, i)),
    split: (run, i) => words(run.split?.[i] ?? ""),
    scheme: (run) => run.scheme,
    greedy: (run, i) => isGreedy(run, i),
    stopped: (run, i) => isStopped(run, i),
    verdict: (run, i) => verdictOf(run, i),
    log_prob: (run, i) => (run.log_prob[i] === -Infinity ? "-inf" : run.log_prob[i]),
    ...Object.fromEntries(
      ["start", "suffix_start", "suffix_end"].map((name) => [name, (run, i) => (run[name]?.[i] >= 0 ? run[name][i] : "")]),
    ),
  };
  for (const run of runs) {
    for (let i = 0; i < run.count; i++) {
      lines.push(names.map((name) => quote(String(cells[name] ? cells[name](run, i) : (run[name]?.[i] ?? "")))).join(","));
    }
  }
  return lines.join("\n") + "\n";
}

async function download(runs, kind) {
  const name = document.title.split(":")[0].replace(/[^\p{L}\p{N}.-]+/gu, "-") || "rote";
  if (kind === "csv") save(`${name}.csv`, csvOf(runs), "text/csv");
  else save(`${name}.parquet`, await unpack(page.table.blob, false), "application/vnd.apache.parquet");
}
