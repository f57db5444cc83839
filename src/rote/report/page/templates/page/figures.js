// The plots of a page: which there are, and when each is drawn.

const BEFORE = "600px"; // so far below the window a plot is drawn already

// Plots that are to be drawn.
const waiting = [];

/** Draws every <figure class="plot"> of the page, each when it comes near the window, all before printing. */
function drawFigures(figures, runs) {
  const plots = plotsOf(figures, runs);
  drawWhenNear(plots);
  window.addEventListener("beforeprint", () => {
    for (const plot of plots.values()) if (!plot.drawn) draw(plot);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") plots.forEach(hideTip);
  });
}

/** The plots that are to be drawn, by the elements that they are drawn in. */
function plotsOf(figures, runs) {
  const plots = new Map();
  for (const element of document.querySelectorAll("figure.plot[data-figure]")) {
    const figure = figures[element.dataset.figure];
    const canvas = element.querySelector(".canvas");
    if (!figure || !canvas) continue;
    const plot = {
      figure,
      layersNow: () => figure.layers,
      before: [], // what must be done before it is drawn
      element,
      canvas,
      width: 0,
      drawn: false,
      waiting: false,
    };
    canvas.style.minHeight = `${heightOf(canvas.clientWidth) + 2 * LINE}px`;
    const isWhole = runs.length && runs.every((run) => !run.total); // else the rows here are but some of a run's
    if (figure.name === "prompts" && isWhole) choosePrompts(plot, runs);
    plots.set(canvas, plot);
  }
  return plots;
}

/** Draws each plot when it comes near the window, and anew whenever its width has changed. */
function drawWhenNear(plots) {
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(target);
      if (Math.abs(target.clientWidth - plot.width) >= 1) drawSoon(plot);
    }
  });
  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        resized.observe(target);
        drawSoon(plots.get(target));
      }
    },
    { rootMargin: BEFORE },
  );
  for (const canvas of plots.keys()) near.observe(canvas);
}

/** Each plot is drawn in a task of its own, so that the page answers in between. */
function drawSoon(plot) {
  if (plot.waiting) return;
  plot.waiting = true;
  waiting.push(plot);
  if (waiting.length === 1) setTimeout(drawNext);
}

function drawNext() {
  const plot = waiting[0];
  if (plot.waiting && plot.before.length) {
    plot.before.shift()();
  } else {
    waiting.shift();
    if (plot.waiting) draw(plot);
  }
  if (waiting.length) setTimeout(drawNext);
}
