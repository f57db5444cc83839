// The cursor of the strips: what it says of the place it is on, and where pointer and keys move it.

const LEFT_OUT = " in scored windows; some were left out";
const NOT_CERTAIN = "not certain to reach τ";
const CERTAIN = " for certain";

/** The cell under the cursor: its characters, and the likeliest row that covers one of them, with where it does. */
function underCursor(strips) {
  const { view, at } = strips;
  const { run: place, column } = strips.canvases[strips.lane].dataset;
  const run = strips.runs[place];
  const { rows, values } = bestRows(run, column);
  const count = cellsOf(strips);
  const cell = Math.min(count - 1, Math.floor(((at - view.start) * count) / (view.end - view.start)));
  const start = Math.min(firstOf(view, cell, count), page.length - 1);
  const end = Math.max(firstOf(view, cell + 1, count), start + 1);
  let best = -1;
  let where = at;
  for (let c = start; c < end; c++) {
    if (rows[c] >= 0 && (best < 0 || values[rows[c]] > values[best])) [best, where] = [rows[c], c];
  }
  const isPartial = run.isLeftOut.subarray(start, end).includes(1);
  return { run, column, start, end, best, where, isPartial, reached: best >= 0 && values[best] >= FLOOR };
}

/** Says what is under the cursor. */
function tell(strips) {
  const { lanes, canvases, now } = strips;
  const { run, column, start, end, best, isPartial, reached } = underCursor(strips);
  const places = `Characters ${show.count(start)} to ${show.count(end)}, ${percentOfText(start)} of the text: `;
  now.replaceChildren(textOf("span", places, "place"));
  if (canvases.length > 1) now.prepend(textOf("bdi", `${canvases[strips.lane].previousElementSibling.textContent}. `));
  if (best < 0) now.append("not looked at, in no window’s suffix");
  else if (run.hasBounds && !reached) now.append(run.left_open ? NOT_CERTAIN : "below τ"); // no more is known
  else {
    const sure = run.hasBounds && run.left_open ? CERTAIN : "";
    now.append("up to ", probabilityOf(run, best, column), sure, isPartial ? LEFT_OUT : "");
  }
  lanes.setAttribute("aria-valuenow", String(strips.at));
  lanes.setAttribute("aria-valuetext", now.textContent);
}

function moveCursor({ canvases, cursor, view, at }) {
  const share = (at - view.start) / Math.max(1, view.end - view.start);
  cursor.hidden = share < 0 || share > 1;
  cursor.style.left = `calc(${canvases[0].offsetLeft}px + ${share} * ${canvases[0].clientWidth}px)`;
}

/** Puts the cursor on a character, and the stretch that is shown around it where it was outside. */
function moveTo(strips, character) {
  const { view } = strips;
  strips.at = Math.max(0, Math.min(page.length - 1, Math.round(character)));
  if (strips.at < view.start || strips.at >= view.end) {
    const size = view.end - view.start;
    showStretch(strips, strips.at - Math.floor(size / 2), size);
  }
  moveCursor(strips);
  tell(strips);
}

function moveToLane(strips, lane) {
  strips.lane = Math.max(0, Math.min(strips.canvases.length - 1, lane));
  tell(strips);
}

/** Shows `factor` times as many characters; the one under the cursor stays where it is. */
function zoom(strips, factor) {
  const { view, at } = strips;
  const least = Math.min(page.length, 40);
  const size = Math.max(least, Math.min(page.length, Math.round((view.end - view.start) * factor)));
  const share = (at - view.start) / (view.end - view.start);
  showStretch(strips, Math.round(at - (share >= 0 && share <= 1 ? share : 0.5) * size), size);
  tell(strips);
}

/** Shows `size` characters of the text, from `start` on where that is possible. */
function showStretch(strips, start, size) {
  const { view } = strips;
  view.start = Math.max(0, Math.min(page.length - size, start));
  view.end = view.start + size;
  redraw(strips);
}

function openHere(strips) {
  const { run, column, best, where } = underCursor(strips);
  strips.open(strips.runs.indexOf(run), column, best >= 0 ? where : strips.at);
}

function listenToStrips(strips) {
  const { lanes } = strips;
  lanes.addEventListener("pointermove", (event) => follow(strips, event));
  lanes.addEventListener("click", (event) => {
    follow(strips, event);
    openHere(strips);
  });
  lanes.addEventListener("keydown", (event) => {
    const act = keysOf(strips, event.shiftKey)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  lanes.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return; // a plain wheel scrolls the page
      event.preventDefault();
      zoom(strips, event.deltaY < 0 ? 0.8 : 1.25);
    },
    { passive: false },
  );
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom(strips, { in: 0.5, out: 2, all: Infinity }[button.dataset.zoom]));
  }
}

/** Moves the cursor to where the pointer is. */
function follow(strips, event) {
  const { canvases, view } = strips;
  const lane = canvases.findIndex((canvas) => event.clientY < canvas.getBoundingClientRect().bottom);
  strips.lane = lane < 0 ? canvases.length - 1 : lane;
  const box = canvases[0].getBoundingClientRect();
  const share = Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width));
  moveTo(strips, Math.floor(view.start + share * (view.end - view.start)));
}

/** What each key does; `fast`: an arrow key moves the cursor further. */
function keysOf(strips, fast) {
  const { at, view, lane } = strips;
  const step = Math.max(1, Math.round((view.end - view.start) / widthOf(strips))) * (fast ? 20 : 1);
  return {
    ArrowLeft: () => moveTo(strips, at - step),
    ArrowRight: () => moveTo(strips, at + step),
    Home: () => moveTo(strips, 0),
    End: () => moveTo(strips, page.length - 1),
    PageUp: () => moveTo(strips, at - 20 * step),
    PageDown: () => moveTo(strips, at + 20 * step),
    ArrowUp: () => moveToLane(strips, lane - 1),
    ArrowDown: () => moveToLane(strips, lane + 1),
    "+": () => zoom(strips, 0.5),
    "=": () => zoom(strips, 0.5),
    "-": () => zoom(strips, 2),
    Enter: () => openHere(strips),
  };
}
