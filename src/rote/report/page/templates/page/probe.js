// The passages of a probe: which model's answers are shown, which passages are left, and what was answered to a word.

function startProbe() {
  const section = document.getElementById("probed");
  if (!section) return;
  const articles = [...section.querySelectorAll("article.probed")];
  const fields = [...section.querySelectorAll("[data-probe]")];
  const apply = () => choosePassages(articles, fields, section.querySelector("[data-probe-count]"));
  for (const field of fields) field.addEventListener("change", apply);
  apply();
  startAnswers(section);
}

/** Shows the answers of one model, and of the passages those that fit all choices. */
function choosePassages(articles, fields, output) {
  const chosen = Object.fromEntries(fields.map((field) => [field.dataset.probe, field.value]));
  const target = chosen.target ?? "0";
  let left = 0;
  for (const article of articles) {
    const { label, flagged, outcomes } = article.dataset;
    const isFlagged = flagged.split(" ").includes(target) ? "yes" : "no";
    const fits =
      (!chosen.flagged || chosen.flagged === isFlagged) &&
      (!chosen.label || chosen.label === label) &&
      (!chosen.outcome || outcomes.split(" ").includes(`${target}:${chosen.outcome}`));
    article.hidden = !fits;
    left += fits;
    for (const own of article.querySelectorAll("[data-target]")) own.hidden = own.dataset.target !== target;
  }
  output.textContent = `${show.count(left)} of ${show.count(articles.length)} shown`;
}

/** Says beside a word what the table below its passage says of it. */
function startAnswers(section) {
  const tip = make("div", { class: "answer-tip", role: "tooltip", id: "answer-tip", hidden: "" });
  section.append(tip);
  const on = (event) => askedOf(event) && showAnswer(tip, askedOf(event));
  const off = (event) => askedOf(event) && hideAnswer(tip);
  for (const name of ["pointerover", "focusin"]) section.addEventListener(name, on);
  for (const name of ["pointerout", "focusout"]) section.addEventListener(name, off);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideAnswer(tip));
}

/** The word that something happens to, if it is one that was asked for. */
function askedOf(event) {
  return event.target.closest?.("a.asked");
}

function hideAnswer(tip) {
  tip.hidden = true;
  tip.closest("article")?.querySelector("[aria-describedby]")?.removeAttribute("aria-describedby");
}

function showAnswer(tip, word) {
  const row = document.getElementById(`answer-${word.dataset.answer}`);
  const heads = row.closest("table").tHead.rows[0].cells;
  const lines = [...row.cells].flatMap((cell, place) =>
    cell.textContent.trim() === "" ? [] : [textOf("dt", heads[place].textContent), toldOf(cell)],
  );
  tip.replaceChildren(make("dl", {}, ...lines));
  word.closest("article").append(tip);
  word.setAttribute("aria-describedby", "answer-tip");
  tip.hidden = false;
  const [around, at] = [tip.parentElement.getBoundingClientRect(), word.getBoundingClientRect()];
  tip.style.left = `${Math.max(0, Math.min(at.left - around.left, around.width - tip.offsetWidth))}px`;
  tip.style.top = `${at.bottom - around.top + 6}px`;
}

/** What a cell says, without its marks for the eye. */
function toldOf(cell) {
  const told = make("dd", {});
  told.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
  return told;
}
