// The heatmap strips: one canvas a lane, all over the same stretch of the text.

const BELOW_TAU = -1;
const NOT_LOOKED_AT = -2;

/** Draws the strips, and calls `open` with run, column and character where somebody chooses a place on one. */
function startStrips(runs, open) {
  const lanes = document.getElementById("lanes");
  if (!lanes) return;
  const strips = {
    runs,
    open,
    lanes,
    canvases: [...lanes.querySelectorAll("canvas")],
    now: document.getElementById("strip-now"),
    cursor: document.getElementById("lane-cursor"),
    view: { start: 0, end: page.length }, // the stretch of the text that is shown
    at: 0, // the character that the cursor is on
    lane: 0, // and its lane
    frame: 0,
    turn: 0,
  };
  listenToStrips(strips);
  new ResizeObserver(() => redraw(strips)).observe(lanes);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(strips));
  lanes.setAttribute("aria-valuemax", String(page.length - 1));
  tell(strips);
  redraw(strips);
}

/** Draws all lanes at the next frame. */
function redraw(strips) {
  cancelAnimationFrame(strips.frame);
  strips.turn++;
  const { turn } = strips;
  strips.frame = requestAnimationFrame(() => drawLanes(strips, turn));
}

/** Draws all lanes, unless they are to be drawn anew meanwhile; many of them each in a task of its own. */
async function drawLanes(strips, turn) {
  const { canvases, view } = strips;
  drawPlaces(view);
  moveCursor(strips);
  const palette = colours();
  for (const canvas of canvases) {
    if (turn !== strips.turn) return;
    drawLane(strips, canvas, palette);
    if (canvases.length > 2) await new Promise((done) => setTimeout(done));
  }
  strips.lanes.dataset.drawn = `${view.start}-${view.end}`;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const levels = Array.from({ length: LEVELS }, (_, level) => style.getPropertyValue(`--h${level}`).trim());
  return { levels, unseen: style.getPropertyValue("--unseen").trim() };
}

function drawLane(strips, canvas, palette) {
  const { rows, levels, unseen } = bestRows(strips.runs[canvas.dataset.run], canvas.dataset.column);
  const count = cellsOf(strips);
  canvas.width = count;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  let level = BELOW_TAU;
  let from = 0;
  const paint = (to) => {
    if (level === BELOW_TAU) return;
    context.fillStyle = level === NOT_LOOKED_AT ? palette.unseen : palette.levels[level];
    context.fillRect(from, 0, to - from, 1);
  };
  for (let x = 0; x < count; x++) {
    let highest = NOT_LOOKED_AT;
    const end = firstOf(strips.view, x + 1, count);
    for (let c = firstOf(strips.view, x, count); c < end; c++) {
      if (!unseen[c] && levels[rows[c]] > highest) highest = levels[rows[c]];
    }
    if (highest === level) continue;
    paint(x);
    [level, from] = [highest, x];
  }
  paint(count);
}

function widthOf(strips) {
  return Math.max(1, Math.round(strips.canvases[0].clientWidth));
}

/** How many cells a lane has: one for each pixel of the screen, but no more than there are characters. */
function cellsOf(strips) {
  const { start, end } = strips.view;
  return Math.max(1, Math.floor(Math.min(widthOf(strips) * Math.min(devicePixelRatio || 1, 2), end - start)));
}

/** The first character of a lane's cell. */
function firstOf(view, cell, count) {
  return view.start + Math.floor((cell * (view.end - view.start)) / count);
}

/** What stands below the lanes: places in the text, in characters and in percent. */
function drawPlaces(view) {
  const host = document.getElementById("strip-axis");
  host.replaceChildren();
  for (const share of [0, 20, 40, 60, 80, 100]) {
    const character = Math.round(view.start + (share * (view.end - view.start)) / 100);
    const tick = make("span");
    tick.style.left = `${share}%`;
    if (share === 0) tick.className = "from";
    if (share === 100) tick.className = "to";
    tick.append(textOf("b", show.count(character)), textOf("i", percentOfText(character)));
    host.append(tick);
  }
}

/** Where a character stands in the text, in percent. */
function percentOfText(character) {
  return `${((100 * character) / page.length).toFixed(1)}%`.replace(".0%", "%");
}
