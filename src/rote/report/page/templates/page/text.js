// The text on the page: which characters stand in which of its blocks, and where a character or a row is found.
//
// Characters are code points, as in Python; what the browser counts are halves of them.

/** The characters of a block. */
function charactersOf(reader, block) {
  if (!reader.texts.has(block)) reader.texts.set(block, Array.from(block.textContent));
  return reader.texts.get(block);
}

/** The place of the block that holds a character. */
function blockAt(reader, character) {
  let [low, high] = [0, reader.blocks.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (reader.starts[middle] <= character) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The block that shows an example. */
function blockOfRow(reader, row) {
  return reader.blocks.find((block) => Number(block.dataset.row) === row);
}

/** The text from one character up to another. */
function textBetween(reader, start, end) {
  const { blocks, starts } = reader;
  const parts = [];
  for (let i = blockAt(reader, start); i < blocks.length && starts[i] < end; i++) {
    const characters = charactersOf(reader, blocks[i]);
    parts.push(characters.slice(Math.max(0, start - starts[i]), end - starts[i]).join(""));
  }
  return parts.join("");
}

/** The texts of a row's prefix and suffix, or null where the page has no room for them. */
function textsOf(reader, run, row) {
  if (reader.scanned) {
    const [start, middle, end] = [run.start[row], run.suffix_start[row], run.suffix_end[row]];
    return [textBetween(reader, start, middle), textBetween(reader, middle, end)];
  }
  const block = blockOfRow(reader, row);
  if (!block) return null;
  const characters = charactersOf(reader, block);
  const border = Number(block.dataset.suffix);
  return [characters.slice(0, border).join(""), characters.slice(border).join("")];
}

/** The block and the character that an end of a selection stands at, or null outside the text. */
function placeOf(reader, node, offset) {
  const block = (node.nodeType === 3 ? node.parentElement : node)?.closest?.(".block");
  if (!block || !reader.host.contains(block)) return null;
  const range = document.createRange();
  range.setStart(block, 0);
  range.setEnd(node, offset);
  return { block, at: Number(block.dataset.at) + Array.from(range.toString()).length };
}

/** A character of a block as a range, for its place on the screen. */
function rangeAt(reader, block, character) {
  const range = document.createRange();
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const before = charactersOf(reader, block).slice(0, character - Number(block.dataset.at));
  let left = before.join("").length;
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
