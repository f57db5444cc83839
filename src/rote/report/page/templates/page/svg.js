// Elements of pictures: shapes, text, and how wide a text is.

const SVG = "http://www.w3.org/2000/svg";

/** A new element of a picture, the last in `parent`. */
function add(parent, tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

/** Pixels as they are written into a path. */
function round(pixels) {
  return Math.round(pixels * 10) / 10;
}

/** Text in which p_z has its subscript. */
function svgText(parent, text, attributes) {
  const element = add(parent, "text", attributes);
  let lowered = false;
  plain(text)
    .split(P_Z)
    .forEach((part, place) => {
      if (place) {
        add(element, "tspan", { "font-style": "italic", ...(lowered ? { dy: -3 } : {}) }).textContent = "p";
        add(element, "tspan", { class: "subscript", dy: 3 }).textContent = "z";
        lowered = true;
      }
      if (!part) return;
      add(element, "tspan", lowered ? { dy: -3 } : {}).textContent = part;
      lowered = false;
    });
  return element;
}

/** Says how wide a text is in a font, in pixels. */
function measurer(font) {
  const pen = document.createElement("canvas").getContext("2d");
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      pen.font = font;
      known.set(text, pen.measureText(text.replace(P_Z, "pz")).width);
    }
    return known.get(text);
  };
}
