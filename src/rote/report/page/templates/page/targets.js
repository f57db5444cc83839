// The values of a plot that can be pointed at, and which one pointer or arrow keys mean.

const PREFERRED = ["interval", "points", "bars", "cells", "line", "step", "band"];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Every value that can be pointed at, in the order of layers and, within one, from left to right. Where a line runs
 * through the dots of another layer of its colour, the dot alone counts: it knows more.
 */
function targetsOf(plot) {
  const order = plot.layers
    .map((layer, index) => ({ layer, index }))
    .filter(({ layer }) => PREFERRED.includes(layer.kind))
    .sort((a, b) => rankOf(a.layer) - rankOf(b.layer));
  const taken = new Map(); // place -> the layer that has a value there
  return order.flatMap(({ layer, index }) => {
    const own = targetsIn(plot, layer, index).filter((target) => {
      const place = `${seriesClass(layer)} ${Math.round(target.x)} ${Math.round(target.y)}`;
      const isFree = (taken.get(place) ?? index) === index;
      if (isFree) taken.set(place, index);
      return isFree;
    });
    return own.sort((a, b) => a.x - b.x || b.y - a.y);
  });
}

/** A curve of a chosen p comes first. */
function rankOf(layer) {
  return PREFERRED.indexOf(layer.kind) - (layer.live ? PREFERRED.length : 0);
}

/** The values of one layer: where each stands, and of bars and cells the box it fills. */
function targetsIn(plot, layer, index) {
  const { px, py, bottom } = plot.area;
  const targets = [];
  const place = (row, x, y, box) => targets.push({ layer, index, row, x, y, ...(box ? { box } : {}) });
  if (layer.kind === "bars") {
    eachRow(layer, ["x0", "x1", "y"], (row, x0, x1, y) => {
      place(row, (px(x0) + px(x1)) / 2, py(y), [px(x0), py(y), px(x1), bottom]);
    });
  } else if (layer.kind === "cells") {
    eachRow(layer, ["x0", "x1", "y0", "y1"], (row, x0, x1, y0, y1) => {
      place(row, (px(x0) + px(x1)) / 2, (py(y0) + py(y1)) / 2, [px(x0), py(y1), px(x1), py(y0)]);
    });
  } else if (layer.kind === "band") {
    eachRow(layer, ["x", "low", "high"], (row, x, low, high) => place(row, px(x), py(high)));
  } else {
    eachRow(layer, ["x", "y"], (row, x, y) => place(row, px(x), py(y)));
  }
  return targets;
}

/** The value that the pointer means: the bar above or below it, the cell around it, or the nearest point. */
function nearest(plot, x, y) {
  let best = null;
  let least = Infinity;
  for (const target of plot.targets) {
    if (target.box) {
      const [left, top, right, bottom] = target.box;
      if (x < left || x > right || (target.layer.kind === "cells" && (y < top || y > bottom))) continue;
      if (least > 12 ** 2) [best, least] = [target, 12 ** 2]; // a dot close by comes first
      continue;
    }
    const distance = (target.x - x) ** 2 + (target.y - y) ** 2;
    if (distance < least) [best, least] = [target, distance];
  }
  return best;
}

/** The value that a key leads to; null where it leads nowhere, undefined where the key means nothing here. */
function stepTo(plot, key) {
  const { targets, current } = plot;
  if (!(key in ARROWS) && key !== "Home" && key !== "End") return undefined;
  if (!targets.length) return null;
  if (!current) return targets[0];
  const own = targets.filter((target) => target.index === current.index);
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  const [right, down] = ARROWS[key];
  if (right && current.layer.kind !== "cells") return own[own.indexOf(current) + right] ?? null;
  return beside(targets, current, right, down);
}

/** The nearest value on one side; above and below a curve, that of another curve. */
function beside(targets, current, right, down) {
  const within = current.layer.kind === "cells" || current.layer.kind === "points";
  let best = null;
  let least = Infinity;
  for (const target of targets) {
    if (target.index === current.index && !within) continue;
    const along = right ? (target.x - current.x) * right : (target.y - current.y) * down;
    const across = right ? Math.abs(target.y - current.y) : Math.abs(target.x - current.x);
    if (along < 0.5 || along + 8 * across >= least) continue;
    [best, least] = [target, along + 8 * across];
  }
  return best;
}
