// The text shaded as it comes into view: what is likely, what was not looked at, and the chosen passage.

/** Shades each block when it comes near what can be seen of the text. */
function shadeVisible(reader) {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          reader.visible.add(target);
          shade(reader, target);
        } else {
          reader.visible.delete(target);
        }
      }
    },
    { root: reader.host, rootMargin: "600px 0px" },
  );
  for (const block of reader.blocks) watcher.observe(block);
}

/** What was shaded holds no more: another passage was chosen, or another run. */
function reshade(reader) {
  reader.state++;
  for (const block of reader.visible) shade(reader, block);
}

/** Shades the text by a run and one of its columns, and lets the fields above it say so. */
function shadeBy(reader, run, column) {
  reader.shadedBy = { run, column };
  const runChoice = document.getElementById("reader-run");
  const columnChoice = document.getElementById("reader-column");
  if (runChoice) runChoice.value = String(run);
  if (columnChoice) columnChoice.value = column;
  reshade(reader);
}

/** Cuts a block into stretches of one class each. */
function shade(reader, block) {
  if (reader.shaded.get(block) === reader.state) return;
  reader.shaded.set(block, reader.state);
  const characters = charactersOf(reader, block);
  const classOf = reader.scanned ? textClasses(reader, block) : exampleClasses(reader, block);
  const pieces = [];
  let from = 0;
  let own = classOf(0);
  for (let k = 0; k < characters.length; k++) {
    const next = k + 1 < characters.length ? classOf(k + 1) : null;
    if (next === own) continue;
    const text = characters.slice(from, k + 1).join("");
    pieces.push(own ? textOf("span", text, own.trim()) : text);
    [from, own] = [k + 1, next];
  }
  block.replaceChildren(...pieces);
}

/** The class of each character of a text: its colour, and whether it belongs to the chosen passage. */
function textClasses(reader, block) {
  const { current, runs, shadedBy } = reader;
  const first = Number(block.dataset.at);
  const { rows, levels, unseen } = bestRows(runs[shadedBy.run], shadedBy.column);
  let [start, middle, end] = [-1, -1, -1];
  if (current && current.run.start) {
    const { run, row } = current;
    [start, middle, end] = [run.start[row], run.suffix_start[row], run.suffix_end[row]];
  }
  return (k) => {
    const c = first + k;
    const level = unseen[c] ? -1 : levels[rows[c]];
    const chosen = c < start || c >= end ? "" : c < middle ? " chosen-prefix" : " chosen";
    return (unseen[c] ? "unseen" : level < 0 ? "" : `t${level}`) + chosen;
  };
}

/** The same of an example, whose suffix has one colour. */
function exampleClasses(reader, block) {
  const { current, runs, shadedBy } = reader;
  const row = Number(block.dataset.row);
  const border = Number(block.dataset.suffix);
  const level = levelOf(shadedValue(runs[shadedBy.run], shadedBy.column, row));
  const chosen = current && current.row === row ? " chosen" : "";
  return (k) => (k < border ? `prefix${chosen}` : `${level < 0 ? "" : `t${level}`}${chosen}`);
}
