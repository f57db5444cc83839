// The columns and blocks that pack.py put into the page, unpacked when they are first needed.

const page = JSON.parse(document.getElementById("rote-data").textContent);

async function unpack(name, compressed = true) {
  const packed = atob(document.getElementById(`blob-${name}`).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  if (!compressed) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function loadRun(run) {
  for (const [name, { blob, type }] of Object.entries(run.columns)) {
    run[name] = columnOf(await unpack(blob), type, run.count);
  }
  if (run.left_out) {
    const { bounds, drawn } = run.left_out;
    run.left_out.bounds = columnOf(await unpack(bounds.blob), bounds.type, drawn + 1);
  }
  run.isLeftOut = new Uint8Array(page.length ?? 0); // of each character whether a window without a number covers it
  for (const [start, end] of run.unscored ?? []) run.isLeftOut.fill(1, start, end);
  run.blocks = new Map();
  run.best = {};
  run.near = "lower" in run;
  run.hasBounds = run.flags.some((flags) => flags & 2);
  return run;
}

/** Columns lie in planes: the first byte of every number, then the second of every one, and so on. */
function columnOf(bytes, type, count) {
  const kinds = { d4: Int32Array, f8: Float64Array, f4: Float32Array, u1: Uint8Array };
  const values = new kinds[type](count);
  const size = values.BYTES_PER_ELEMENT;
  const out = new Uint8Array(values.buffer);
  for (let plane = 0; plane < size; plane++) {
    const from = plane * count;
    for (let i = 0; i < count; i++) out[i * size + plane] = bytes[from + i];
  }
  if (type === "d4") for (let i = 1; i < count; i++) values[i] += values[i - 1];
  return type === "f4" ? Float64Array.from(values) : values;
}

/** One row's tokens and outputs, or null where the page has no room for them. */
async function detailsOf(run, row) {
  const place = Math.floor(row / run.details.block);
  const name = run.details.blobs[place];
  if (name === null) return null;
  if (!run.blocks.has(place)) run.blocks.set(place, readBlock(run, await unpack(name)));
  return run.blocks.get(place).get(row - place * run.details.block) ?? null;
}

/** The rows of a block, by their places in it: each with its tokens and its outputs. */
function readBlock(run, bytes) {
  const parts = partsOf(bytes, 8);
  const [places, counts, endCounts] = [shorts(parts[0]), varints(parts[1]), varints(parts[2])];
  const [lengths, low, high, ranks] = [varints(parts[3]), parts[4], parts[5], varints(parts[6])];
  const outputs = JSON.parse(new TextDecoder().decode(parts[7]));
  const rows = new Map();
  let token = 0;
  let piece = 0;
  places.forEach((place, row) => {
    const tokens = [];
    for (let i = 0; i < counts[row]; i++, token++) {
      tokens.push({ probability: run.details.palette[low[token] | (high[token] << 8)], rank: ranks[token], end: null });
    }
    let end = 0;
    for (let i = 0; i < endCounts[row]; i++, piece++) {
      end += lengths[piece];
      if (i < tokens.length) tokens[i].end = end;
    }
    rows.set(place, { tokens, outputs: outputs[row] ?? [] });
  });
  return rows;
}

/** A block's parts: their lengths stand before the first of them. */
function partsOf(bytes, count) {
  const header = new DataView(bytes.buffer, bytes.byteOffset);
  const parts = [];
  let at = 4 * count;
  for (let i = 0; i < count; i++) {
    const end = at + header.getUint32(4 * i, true);
    parts.push(bytes.subarray(at, end));
    at = end;
  }
  return parts;
}

function shorts(bytes) {
  return Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i] | (bytes[2 * i + 1] << 8));
}

/** Numbers of seven bits a byte, the lowest first; the eighth says that there are more. */
function varints(bytes) {
  const values = [];
  let value = 0;
  let factor = 1;
  for (const byte of bytes) {
    value += (byte & 127) * factor;
    if (byte & 128) {
      factor *= 128;
    } else {
      values.push(value);
      [value, factor] = [0, 1];
    }
  }
  return values;
}
