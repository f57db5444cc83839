// Tables that can be sorted by any of their columns and searched.

const SIZES = { "%": 0.01, million: 1e6, billion: 1e9, trillion: 1e12 };

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

/** Makes every <table class="data sortable"> sortable, and searchable where it has `data-filter`, the field's label. */
function enhanceTables() {
  for (const table of document.querySelectorAll("table.data.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase(), shown: true }));
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].filter((cell) => cell.tagName === "TH");
    for (const head of heads) addSortButton(table, heads, head, rows);
    if (table.dataset.filter !== undefined) addFilter(table, heads, rows);
  }
}

function addSortButton(table, heads, head, rows) {
  const column = head.cellIndex;
  const button = make("button", { type: "button", class: "sort" });
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const values = columnValues(rows, column);
    // Of numbers the largest come first: that is what people look for.
    const first = values.numeric ? "descending" : "ascending";
    const other = values.numeric ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const one of heads) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    sortRows(table.tBodies[0], rows, values, order);
  });
}

/** For each row what its cell of a column is sorted by: a number where all that are there are numbers, else text. */
function columnValues(rows, column) {
  const cells = rows.map(({ row }) => row.cells[column]);
  const numbers = cells.map(numberOf);
  const texts = cells.map((cell) => cell.textContent.trim());
  const numeric =
    numbers.some((value) => value !== null) && numbers.every((value, i) => value !== null || isBlank(texts[i]));
  return { numeric, of: new Map(rows.map((row, i) => [row, numeric ? numbers[i] : texts[i]])) };
}

function isBlank(text) {
  return text === "" || text === MISSING;
}

/** Equal rows keep their order; rows without a value come last, whichever the order. */
function sortRows(body, rows, { numeric, of }, order) {
  const sign = order === "ascending" ? 1 : -1;
  const missing = (row) => (numeric ? of.get(row) === null : isBlank(of.get(row)));
  const compare = numeric ? (a, b) => of.get(a) - of.get(b) || 0 : (a, b) => collator.compare(of.get(a), of.get(b));
  const sorted = [...rows].sort((a, b) => missing(a) - missing(b) || sign * compare(a, b));
  body.append(...sorted.map(({ row }) => row));
}

/** The number that a cell shows: `data-sort`, the value of its <data>, or what its text begins with; null if none. */
function numberOf(cell) {
  const given = cell.dataset.sort ?? cell.querySelector("data")?.getAttribute("value");
  if (given) return Number(given);
  return leadingNumber(cell.textContent.trim());
}

function leadingNumber(text) {
  const match = /^[<≥≈]?\s*([-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|million|billion|trillion)?/.exec(text);
  return match ? Number(match[1].replaceAll(",", "").replace("−", "-")) * (SIZES[match[2]] ?? 1) : null;
}

/** The probability that a cell shows, where its number may be the logarithm of one. */
function probabilityIn(cell) {
  const value = numberOf(cell);
  const data = cell.querySelector("data");
  const isLog =
    value !== null &&
    cell.dataset.sort === undefined &&
    data?.getAttribute("value") &&
    data.dataset.as === "probability";
  return isLog ? Math.exp(value) : value;
}

/** Puts above a table a field that keeps only rows with a text, one for a least probability, and how many are left. */
function addFilter(table, heads, rows) {
  const search = make("input", { type: "search" });
  const output = make("output", {});
  const tools = make(
    "div",
    { class: "table-tools noprint" },
    make("label", {}, make("span", {}, table.dataset.filter || "Find"), search),
  );
  const head = heads.find((one) => one.dataset.minimum !== undefined);
  let least = null;
  if (head) {
    least = make("input", { type: "number", min: 0, max: 1, step: "any", inputmode: "decimal" });
    const name = [...head.querySelector(".sort").childNodes].map((node) => node.cloneNode(true));
    tools.append(make("label", {}, make("span", {}, ...name, " at least"), least));
    for (const one of rows) one.probability = probabilityIn(one.row.cells[head.cellIndex]);
  }
  tools.append(output);
  const apply = () => {
    const wanted = search.value.toLowerCase();
    const minimum = least && !Number.isNaN(least.valueAsNumber) ? least.valueAsNumber : null;
    let left = 0;
    for (const one of rows) {
      const shown =
        one.text.includes(wanted) && (minimum === null || (one.probability !== null && one.probability >= minimum));
      if (shown !== one.shown) one.row.hidden = !shown;
      one.shown = shown;
      left += shown;
    }
    output.textContent = `${show.count(left)} of ${show.count(rows.length)} ${rows.length === 1 ? "row" : "rows"}`;
  };
  for (const field of [search, least]) field?.addEventListener("input", apply);
  apply();
  (table.closest(".scroll") ?? table).before(tools);
}
