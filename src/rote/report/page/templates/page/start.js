// Everything starts here, once the page is parsed: first what can be seen at the top, then the rest.

async function startPage() {
  const runs = [];
  for (const run of page.runs) {
    runs.push(await loadRun(run));
    await new Promise((done) => setTimeout(done)); // let the page paint between runs
  }
  const reader = startReader(runs);
  if (page.length !== null) {
    startStrips(runs, (run, column, character) => openPassage(reader, { run, column }, { character }));
  }
  drawFigures(JSON.parse(document.getElementById("rote-figures").textContent), runs);
  enhanceTables();
  startProbe();
  for (const element of document.querySelectorAll(".scroll, .passage-panel")) overflowing.observe(element);
  for (const button of document.querySelectorAll("[data-download]")) {
    if (button.dataset.download === "parquet" && page.table.blob === null) button.disabled = true;
    button.addEventListener("click", () => download(runs, button.dataset.download));
  }
  document.documentElement.dataset.ready = "yes";
}

startPage();
