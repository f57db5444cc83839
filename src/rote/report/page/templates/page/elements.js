// Elements of the page: numbers with their keys, sentences with their marks, and what scrolls.

// What keys.py puts around a number in a sentence: where it comes from, what is shown of it, itself, how it is printed.
const MARKED =
  /\ufdd0([^\ufdd0-\ufdd2]*)\ufdd1([^\ufdd0-\ufdd2]*)\ufdd1([^\ufdd0-\ufdd2]*)\ufdd1([^\ufdd0-\ufdd2]*)\ufdd2/g;
const P_Z = /(?<![\w/.-])p_z(?![\w/-]|\.\w)/g;

// What scrolls must be within reach of the keyboard, and only then is it a stop on the way.
const overflowing = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
    if (scrolls) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

/** A new element; `content` are texts and nodes. */
function make(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

/** A new element that holds a text; `name`: its class. */
function textOf(tag, text, name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

/**
 * A <data> element (or another tag) that shows a result number and says where it comes from, as the <data> elements
 * that Python writes do. `how` says what is shown of the number at `key`; `value` is that number.
 */
function keyed(tag, key, how, text, value = "") {
  const element = document.createElement(tag);
  if (element.tagName === "DATA") element.setAttribute("value", value);
  element.dataset.key = key;
  element.dataset.as = how;
  element.textContent = text;
  return element;
}

/** A sentence without its marks. */
function plain(text) {
  return text.replace(MARKED, "$4");
}

/** A sentence as nodes: numbers with their keys, p_z with its subscript, no line break in `τ = 0.001`. */
function typeset(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(MARKED)) {
    const [whole, key, how, value, shown] = match;
    const element = keyed(how === "text" || how === "title" ? "bdi" : "data", key, how, shown, value);
    if (how === "text" || how === "title") element.replaceChildren(...words(shown));
    nodes.push(...words(text.slice(end, match.index)), element);
    end = match.index + whole.length;
  }
  return [...nodes, ...words(text.slice(end))];
}

function words(text) {
  const nodes = [];
  text
    .replace(/(^|\s|\()([τpn]) ([=≥]) (?=\d)/g, "$1$2\u00a0$3\u00a0")
    .split(P_Z)
    .forEach((part, place) => {
      if (place) nodes.push(make("i", {}, "p"), make("sub", {}, "z"));
      if (part) nodes.push(part);
    });
  return nodes;
}
