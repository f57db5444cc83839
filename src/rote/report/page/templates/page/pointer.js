// What a plot listens to: the pointer, and the arrow keys.

function listen(plot) {
  const { svg } = plot;
  let asked = null;
  const look = () => {
    const { left, right, top, bottom } = plot.area;
    const box = svg.getBoundingClientRect();
    const [x, y] = [
      ((asked.clientX - box.left) * plot.width) / box.width,
      ((asked.clientY - box.top) * plot.width) / box.width,
    ];
    asked = null;
    const inside = x > left - 10 && x < right + 10 && y > top - 10 && y < bottom + 10;
    const target = inside ? nearest(plot, x, y) : null;
    if (target) showTip(plot, target);
    else hideTip(plot);
  };
  const move = (event) => {
    if (asked === null) requestAnimationFrame(() => asked && look());
    asked = event;
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", (event) => {
    asked = null;
    if (event.pointerType === "mouse") hideTip(plot);
  });
  svg.addEventListener("focus", () => {
    plot.tip.setAttribute("aria-live", "polite");
    if (svg.matches(":focus-visible") && plot.targets.length && !plot.current) showTip(plot, plot.targets[0]);
  });
  svg.addEventListener("blur", () => {
    plot.tip.removeAttribute("aria-live");
    hideTip(plot);
  });
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = stepTo(plot, event.key);
    if (target === undefined) return;
    event.preventDefault();
    if (target) showTip(plot, target);
  });
}
