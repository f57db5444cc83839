// The heatmap strips: one canvas a lane, all over the same stretch of the text, with one cursor.

function startStrips(runs, open) {
  const lanes = document.getElementById("lanes");
  if (!lanes) return null;
  const canvases = [...lanes.querySelectorAll("canvas")];
  const now = document.getElementById("strip-now"), cursor = document.getElementById("lane-cursor");
  const view = { start: 0, end: page.length };
  let at = 0, lane = 0;

  const width = () => Math.max(1, Math.round(canvases[0].clientWidth));
  const pixels = () => Math.min(width() * Math.min(devicePixelRatio || 1, 2), view.end - view.start);
  const edge = (x, count) => view.start + Math.floor((x * (view.end - view.start)) / count);

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const found = Array.from({ length: LEVELS }, (_, level) => style.getPropertyValue(`--h${level}`).trim());
    return Object.assign(found, { unseen: style.getPropertyValue("--unseen").trim() });
  }

  function draw(canvas, palette) {
    const run = runs[canvas.dataset.run], { rows, levels } = bestRows(run, canvas.dataset.column);
    const count = Math.max(1, Math.floor(pixels()));
    canvas.width = count;
    canvas.height = 1;
    const context = canvas.getContext("2d");
    let level = -1, from = 0; // -1: below tau, -2: not looked at
    const paint = (to) => {
      if (level === -1) return;
      context.fillStyle = level === -2 ? palette.unseen : palette[level];
      context.fillRect(from, 0, to - from, 1);
    };
    for (let x = 0; x < count; x++) {
      let highest = -2;
      for (let c = edge(x, count), end = edge(x + 1, count); c < end; c++) {
        if (rows[c] >= 0 && levels[rows[c]] > highest) highest = levels[rows[c]];
      }
      if (highest === level) continue;
      paint(x);
      (level = highest), (from = x);
    }
    paint(count);
  }

  function axis() {
    const host = document.getElementById("strip-axis");
    host.replaceChildren();
    for (const share of [0, 20, 40, 60, 80, 100]) {
      const character = Math.round(view.start + (share * (view.end - view.start)) / 100);
      const tick = document.createElement("span");
      tick.style.left = `${share}%`;
      if (share === 0) tick.className = "from";
      if (share === 100) tick.className = "to";
      tick.append(textOf("b", show.count(character)), textOf("i", place(character)));
      host.append(tick);
    }
  }

  let frame = 0, pending = 0;
  function redraw() {
    cancelAnimationFrame(frame);
    const turn = ++pending;
    frame = requestAnimationFrame(async () => {
      axis();
      moveCursor();
      const palette = colours();
      for (const canvas of canvases) {
        if (turn !== pending) return;
        draw(canvas, palette);
        if (canvases.length > 2) await new Promise((done) => setTimeout(done));
      }
      lanes.dataset.drawn = `${view.start}-${view.end}`;
    });
  }

  // What a pixel of the lane stands for: its characters, and the likeliest row that covers one of them.
  function under(laneIndex, character) {
    const canvas = canvases[laneIndex], run = runs[canvas.dataset.run];
    const { rows, values } = bestRows(run, canvas.dataset.column);
    const count = Math.max(1, Math.floor(pixels()));
    const x = Math.min(count - 1, Math.floor(((character - view.start) * count) / (view.end - view.start)));
    const start = Math.min(edge(x, count), page.length - 1), end = Math.max(edge(x + 1, count), start + 1);
    let best = -1, where = character;
    for (let c = start; c < end; c++) {
      if (rows[c] >= 0 && (best < 0 || values[rows[c]] > values[best])) (best = rows[c]), (where = c);
    }
    return { run, column: canvas.dataset.column, start, end, best, where, reached: best >= 0 && values[best] >= FLOOR };
  }

  function tell() {
    const { run, column, start, end, best, reached } = under(lane, at);
    const places = `Characters ${show.count(start)} to ${show.count(end)}, ${place(start)} of the text: `;
    now.replaceChildren(textOf("span", places, "place"));
    if (canvases.length > 1) now.prepend(textOf("bdi", `${canvases[lane].previousElementSibling.textContent}. `));
    if (best < 0) now.append("not looked at, in no window’s suffix");
    else if (run.stopsEarly && !reached) now.append("below τ"); // of windows given up early no more is known
    else now.append("up to ", probabilityOf(run, best, column));
    lanes.setAttribute("aria-valuenow", String(at));
    lanes.setAttribute("aria-valuetext", now.textContent);
  }

  function moveCursor() {
    const share = (at - view.start) / Math.max(1, view.end - view.start);
    cursor.hidden = share < 0 || share > 1;
    cursor.style.left = `calc(${canvases[0].offsetLeft}px + ${share} * ${canvases[0].clientWidth}px)`;
  }

  function moveTo(character) {
    at = Math.max(0, Math.min(page.length - 1, Math.round(character)));
    if (at < view.start || at >= view.end) {
      const size = view.end - view.start;
      view.start = Math.max(0, Math.min(page.length - size, at - Math.floor(size / 2)));
      view.end = view.start + size;
      redraw();
    }
    moveCursor();
    tell();
  }

  function zoom(factor) {
    const least = Math.min(page.length, 40);
    const size = Math.max(least, Math.min(page.length, Math.round((view.end - view.start) * factor)));
    const share = (at - view.start) / (view.end - view.start);
    const start = Math.round(at - (share >= 0 && share <= 1 ? share : 0.5) * size);
    view.start = Math.max(0, Math.min(page.length - size, start));
    view.end = view.start + size;
    redraw();
    tell();
  }

  const characterOf = (event) => {
    const box = canvases[0].getBoundingClientRect();
    const share = Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width));
    return Math.floor(view.start + share * (view.end - view.start));
  };
  const laneOf = (event) => {
    const found = canvases.findIndex((canvas) => event.clientY < canvas.getBoundingClientRect().bottom);
    return found < 0 ? canvases.length - 1 : found;
  };
  const openHere = () => {
    const { run, column, best, where } = under(lane, at);
    open(runs.indexOf(run), column, best >= 0 ? where : at);
  };

  lanes.addEventListener("pointermove", (event) => {
    lane = laneOf(event);
    moveTo(characterOf(event));
  });
  lanes.addEventListener("click", (event) => {
    lane = laneOf(event);
    moveTo(characterOf(event));
    openHere();
  });
  lanes.addEventListener("keydown", (event) => {
    const step = Math.max(1, Math.round((view.end - view.start) / width())) * (event.shiftKey ? 20 : 1);
    const keys = {
      ArrowLeft: () => moveTo(at - step), ArrowRight: () => moveTo(at + step),
      Home: () => moveTo(0), End: () => moveTo(page.length - 1),
      PageUp: () => moveTo(at - 20 * step), PageDown: () => moveTo(at + 20 * step),
      ArrowUp: () => ((lane = Math.max(0, lane - 1)), tell()),
      ArrowDown: () => ((lane = Math.min(canvases.length - 1, lane + 1)), tell()),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Enter: openHere,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  lanes.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25);
  }, { passive: false });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom({ in: 0.5, out: 2, all: Infinity }[button.dataset.zoom]));
  }
  new ResizeObserver(redraw).observe(lanes);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  lanes.setAttribute("aria-valuemax", String(page.length - 1));
  tell();
  redraw();
  return { moveTo };
}

// What scrolls must be within reach of the keyboard, and only then is it a stop on the way.
const overflowing = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
    if (scrolls) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

// Where a character stands in the text, in percent.
const place = (character) => `${((100 * character) / page.length).toFixed(1)}%`.replace(".0%", "%");

function textOf(tag, text, name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

// A row's probability as a keyed number, and what kind of bound it is where it is one.
function probabilityOf(run, i, column) {
  const found = document.createElement("span");
  if (column === "lower") {
    const [low] = show.bounds(run.lower[i], 1); // rounded down: no more is claimed than was found
    found.append(keyed("data", keyOf(run, i, "lower"), "number", low, run.lower[i]));
    found.append(run.sampled ? " (lower end of the interval)" : " (certified)");
    return found;
  }
  if (isStopped(run, i) && run.log_prob[i] > -Infinity) found.append("at most ");
  found.append(keyed("data", keyOf(run, i, "log_prob"), "probability", show.probability(run.log_prob[i]), run.log_prob[i]));
  return found;
}
