"""Every result number on a page has a key, and is what stands under that key in the run's files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Example, Run
from rote.report.keys import MARKS
from tests.cli.command import rote_here
from tests.corpus.corpora import write_jsonl
from tests.fakes import OnlyScores
from tests.report.page.browser import browser, opened
from tests.report.page.displayed import agrees, decimal
from tests.report.page.pagetruth import ComparisonTruth
from tests.report.page.truth import Known, Truth, visible
from tests.report.stages import staged

__all__ = ["browser"]

# Where digits are no results: foreign text, numbering, scales, and what a control is set to.
PLACES = (
    ".block", "#passage-panel blockquote", ".passages blockquote", ".difference", "td.words",  # the text itself
    "code", "time", "#passage-panel h3 > bdi",  # tokens, when the run was begun, an example's name
    ".rank", ".tokens td:first-child",  # numbering
    "svg text", "#strip-axis", ".legend-ticks", ".plot-axis",  # scales
    ".place", "#strip-now > bdi",  # where the pointer is, and on which strip
    "option", ".plot-tools output", ".table-tools output",  # the choice, the slider, the filter
    ".plot-legend > li > span", ".tip-name",  # the name of the curve that the slider chooses: `p = 50%`
)  # fmt: skip
PROSE = (
    r"\b95% (Wilson )?intervals?\b",
    r"\b95% confidence\b",
    r"\(one-sided, 95%\)",
    r"even odds \(p ≥ 50%\)",
    r"at least 50% per generation",
    r"coverage at 50% would be",
    r"a probability of at least 50%\. Highest:",
    r"(^|\b)[Aa]t 0\.0001\b",
    r"\babove 0\b",
    r"every one has probability 0 under this scheme",
    r"a rate of 0% or 100% (cannot|hides|that)",
    r"At a rate of 0% or 100% that",
    r"Prompts for (50%|90%|99\.9%)",
    r"with n − 1\.",
    r"An upper bound of 1 means",
    r"counted from 0\b",
    r"code points from 0\.",
    r"SHA-256",
    r"stands for U\+[0-9A-F]{4}\b",
    r"(logits turned to float32,|;) sums in float64",
    r"^The server’s list of \d+ log-probs leaves some tokens open",
)

COLLECT = """(scope) => {
  const root = document.querySelector(scope), found = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, host = node.parentElement;
    if (!/\\d/.test(node.data) || host.closest("script, style, noscript, [hidden], [data-key], PLACES")) continue;
    found.push({ text: node.data, plot: host.closest(".tip") && host.closest("figure.plot").dataset.figure });
  }
  const keyed = [...root.querySelectorAll("[data-key]")].map((element) => ({
    key: element.dataset.key, how: element.dataset.as, text: element.textContent, value: element.getAttribute("value"),
    drawn: element.closest(".canvas") !== null,
  }));
  return { loose: found, keyed };
}""".replace("PLACES", ", ".join(PLACES))


@pytest.fixture(scope="module")
def folders(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small run of every kind."""
    root = tmp_path_factory.mktemp("runs")
    hot = rote.Scheme(temperature=1.5, top_k=None)  # what the model knows comes out with all sorts of probabilities
    mixed = alice[3000:5500] + gatsby[5000:6500] + alice[9000:10500]
    every = {stride: rote.Windows(stride=stride) for stride in (50, 90, 130, 150, 180)}
    near = rote.Near(tolerance=2, budget=200, samples=10, gap=0.0, until="budget")
    both, some = alice[3000:3900] + gatsby[5000:5400], [(100, 400), (900, 1000)]
    made = [
        rote.scan(
            bundled, mixed, out=root / "scan", name="a 1<b> book.txt", windows=every[90], schemes=[rote.Scheme(), hot]
        ),
        rote.scan(bundled, mixed, out=root / "bounded", windows=every[130], schemes=[hot], tau=0.01, stop_early=True),
        rote.scan(bundled, both, out=root / "near", windows=every[180], schemes=[hot], near=near),
        rote.scan(bundled, gatsby[5000:6000], out=root / "nothing", windows=every[150]),
        rote.scan(bundled, mixed, out=root / "within", windows=every[50], within=some),
        _in_another_form(bundled, alice, root / "forms"),
        _scored(bundled, root / "score", hot),
        _rated(bundled, alice, gatsby, root),
        staged(bundled, alice, gatsby, root / "staged"),
        staged(bundled, alice, gatsby, root / "begun", stop=True),
        _served(bundled, alice, gatsby, root / "served"),
    ]
    return {run.folder.name: run.folder for run in made}


NASTY = (
    "a/b/temperature=1.5/ \"double\" 'single'", "<b>bold</b> &amp; 12%",
    "p_z at τ = 5, nul \0 marks \ufdd0\ufdd1\ufdd2\r\n", "שלום 7 \U0001f407 \u202eturned\ra",
)  # fmt: skip


def _in_another_form(model: Any, alice: str, out: Path) -> Run:
    """A text that was normalised, but not enough, cut by characters."""
    text = alice[3000:5000].replace("\n", "\r\n").replace(" ", " \u00ad")
    cut = rote.Windows(120, 100, 150, "characters")
    run = rote.scan(model, text, out=out, windows=cut, normalise=["line-ends", "wrap-72"])
    assert run.summary.variants
    return run


def _scored(model: Any, out: Path, scheme: rote.Scheme) -> Run:
    """Examples of two splits and of more repetitions than are listed one by one; some ids could break a key."""
    lines = (Path(__file__).parents[2] / "training/ladder.jsonl").read_text("utf-8").splitlines()[::6]
    examples = []
    for place, one in enumerate(map(json.loads, lines)):
        name = NASTY[place // 10] if place % 10 == 9 else one["id"]
        metadata = {**one["metadata"], "repetitions": place if place else None}
        examples.append(Example(name, tuple(one["prefix"]), tuple(one["suffix"][:20]), metadata=metadata))
    return rote.score(model, examples, out=out, name="ladder.jsonl", schemes=[scheme])


def _rated(model: Any, alice: str, gatsby: str, root: Path) -> Run:
    known = [{"id": f"alice-{i}", "text": alice[i : i + 900], "repetitions": 150} for i in range(3000, 9000, 900)]
    short = [{"id": f"short-{i}", "text": gatsby[i : i + 500], "repetitions": 0} for i in range(5000, 7000, 500)]
    unseen = [{"id": f"gatsby-{i}", "text": gatsby[i : i + 900]} for i in range(9000, 14000, 900)]
    corpus, held_out = write_jsonl(root / "corpus.jsonl", known + short), write_jsonl(root / "unseen.jsonl", unseen)
    return rote.rate(
        model, corpus, out=root / "rate", held_out=held_out, draw=rote.Draw(documents=5, examples=3, runs=2)
    )


def _served(model: Any, alice: str, gatsby: str, out: Path) -> Run:
    """A list of few log-probs leaves some windows open."""
    cut, schemes = rote.Windows(prefix=8, suffix=10, stride=30), [rote.Scheme(top_k=None, top_p=0.9), rote.Scheme()]
    text = alice[3000:3600] + gatsby[5000:5400]
    return rote.scan(OnlyScores(model, 3), text, out=out, windows=cut, schemes=schemes)


KINDS = ("scan", "bounded", "near", "nothing", "within", "forms", "score", "rate", "staged", "begun", "served")


def problems(page: Any, truth: Known, scope: str = "body") -> list[str]:
    """What is wrong with the numbers of an open page, or of a part of it."""
    found = page.evaluate(COLLECT, scope)
    loose = [one["text"] for one in found["loose"] if not (one["plot"] and _on_an_axis(one, truth))]
    wrong = [f"no key: {text.strip()!r}" for text in loose if re.search(r"\d", _without_prose(text, truth))]
    return wrong + [f"{said}: {one}" for one in found["keyed"] if (said := _mistake(one, truth))]


def _on_an_axis(one: dict[str, Any], truth: Known) -> bool:
    """Whether a plot names an axis or a place along it: a group's name, or how many generations."""
    figure = truth.figures[one["plot"]]
    if figure.name == "prompts":
        return one["text"].replace(",", "") in {f"{10 ** (i / 20):.0f}" for i in range(141)}
    return one["text"] in (*figure.x.names, *figure.y.names, figure.x.label, figure.y.label)


def _without_prose(text: str, truth: Known) -> str:
    text = text.replace("\u00a0", " ")
    for pattern in (*PROSE, *truth.prose, *_settings(truth)):
        text = re.sub(pattern, "", text)
    return text


def _settings(truth: Known) -> Iterator[str]:
    """Words that a run's own settings are put in."""
    for scheme in truth.manifest["schemes"]:
        parts = dict(part.split("=") for part in scheme.split())
        yield rf"divided by temperature {re.escape(parts['temperature'])},"
        if "top_k" in parts:
            yield rf"the {parts['top_k']} most likely tokens kept"
        if "top_p" in parts:
            yield rf"whose probability reaches {re.escape(parts['top_p'])};"
    if near := truth.manifest["near"]:
        yield rf"^Within {near['tolerance']} edits$"
    if sampling := truth.manifest.get("sampling"):
        yield rf"^Run [1-{sampling['runs']}]$"


def _mistake(one: dict[str, Any], truth: Known) -> str:
    """What is wrong with one element that has a key; nothing if it is right."""
    key, how, text = one["key"], one["how"], one["text"].replace("\u00a0", " ")
    try:
        number = truth.number(key)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        return f"nothing under this key ({error!r})"
    if how == "text":
        return "" if _same_text(text, str(number)) else f"it is {number!r}"
    if how == "colour":
        right = _coloured(text, truth, key, number)
    elif how == "number" and (ends := _ends(truth, key)):
        right = _bound(text, *ends, is_lower=key.endswith(("/lower", "/mean_p_z")))
    else:
        right = agrees(text, how, number, digits=6 if "/table/" in key or key.startswith("manifest/") else 3)
    if not right:
        return f"it is {number!r}"
    return _value_mistake(one, number)


def _same_text(shown: str, truth: str) -> bool:
    """Names and captions; p_z is set with a subscript, and a hash may be cut short."""
    shown, truth = (" ".join(text.replace("p_z", "pz").replace("\u00a0", " ").split()) for text in (shown, truth))
    return agrees(shown, "text", truth)


def _coloured(text: str, truth: Known, key: str, share: float) -> bool:
    """What a colour stands for: its share of the way along the logarithmic scale of the plot's colours."""
    axis = truth.figures[key.split("/")[1]].colour
    assert axis is not None
    assert axis.limits is not None
    low, high = axis.limits
    return agrees(text, "count" if axis.format == "count" else "number", low ** (1 - share) * high**share)


def _ends(truth: Known, key: str) -> tuple[float, float] | None:
    """Both ends of what is printed as an interval, or as one number where they are one."""
    base, end = key.rsplit("/", 1)
    if end in ("lower", "upper"):
        return truth.number(f"{base}/lower"), truth.number(f"{base}/upper")
    if "/fixed_sets/" not in key:
        return None
    means = truth.number(f"{base}/mean_p_z"), truth.number(f"{base}/mean_p_z_upper")
    return means if means[1] - means[0] >= 1e-12 else None


def _bound(text: str, lower: float, upper: float, *, is_lower: bool) -> bool:
    """Bounds are rounded away from each other, except that tiny ones have two digits, and equal ones are one number."""
    number = lower if is_lower else upper
    value, _ = decimal(text)
    if 0 < number < 0.001:
        return agrees(text, "number", number, digits=2)
    if upper - lower <= 1e-9 and 0 < lower < 0.9995:
        return agrees(text, "number", number)
    if is_lower:
        return value <= number < value + 0.001 if number < 1 else text == "1"
    return value - 0.001 < number <= value if number < 0.999 else text == "1"


def _value_mistake(one: dict[str, Any], number: Any) -> str:
    """The element's machine-readable value: the number itself, of one that the run stores to the last bit."""
    given = one["value"]
    if given is None or (given == "" and one["drawn"]):
        return ""
    if given == "":
        return "it has no value"
    if given == one["text"] and re.search("/(token_log_probs|candidates)/", one["key"]):
        return ""  # the script has these as they are printed
    shown = int(given) if re.fullmatch(r"-?\d+", given) else float(given.replace("Infinity", "inf"))
    stored = one["key"].startswith(("summary/", "manifest/", "scores/"))
    same = shown == number if stored else math.isclose(shown, number, rel_tol=1e-12)
    return "" if same else f"its value is {given}"


@contextmanager
def page_of(browser: Any, path: Path) -> Iterator[Any]:
    with opened(browser, path, viewport={"width": 1280, "height": 900}) as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws every plot
        yield page


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_key_and_is_what_the_run_holds(browser: Any, folders: dict[str, Path], kind: str) -> None:
    truth = Truth(folders[kind])
    with page_of(browser, folders[kind] / "report.html") as page:
        assert problems(page, truth) == []
        assert problems_of_passages(page, truth) == set()
        assert problems_of_plots(page, truth) == set()
        if truth.manifest["kind"] == "scan":
            assert problems_of_strips(page, truth) == set()


def test_so_has_every_number_of_a_comparison_of_scans_in_stages(
    browser: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    path = rote.compare([folders["begun"], folders["staged"]], out=tmp_path).write(tmp_path)
    truth = ComparisonTruth(path.parent)
    with page_of(browser, path) as page:
        assert problems(page, truth) == []
        assert problems_of_plots(page, truth) == set()
        assert problems_of_strips(page, truth) == set()


def test_so_has_every_number_of_a_comparison_with_rows_left_open(
    browser: Any, folders: dict[str, Path], bundled: Any, tmp_path: Path
) -> None:
    run = Run(folders["served"])
    (scheme, *_), cut = run.manifest.schemes, rote.Windows(prefix=8, suffix=10, stride=30)
    here = rote.scan(bundled, run.text or "", out=tmp_path / "here", windows=cut, schemes=[scheme])
    served = rote.scan(OnlyScores(bundled, 3), run.text or "", out=tmp_path / "served", windows=cut, schemes=[scheme])
    path = rote.compare([here, served]).write(tmp_path / "compared")
    truth = ComparisonTruth(path.parent)
    with page_of(browser, path) as page:
        assert "left open by a server’s list and not counted here" in page.inner_text("main")
        assert problems(page, truth) == []
        assert problems_of_plots(page, truth) == set()
        assert problems_of_strips(page, truth) == set()


def problems_of_passages(page: Any, truth: Truth) -> set[str]:
    """The same for the panel, with one passage after another in it."""
    count, wrong = len(truth.rows), set()
    rows = {0, 1, count // 2, count - 1} | set([i for i, row in enumerate(truth.rows) if row["bounded"]][:2])
    for row in sorted(rows):
        page.evaluate(
            "(row) => { const b = document.createElement('button'); b.dataset.goRow = row; document.body.append(b);"
            " document.getElementById('passage-panel').textContent = ''; b.click(); b.remove(); }",
            row,
        )
        page.wait_for_selector("#passage-panel .tokens tbody tr", state="attached")
        wrong |= set(problems(page, truth, "#passage-panel"))
        assert page.locator("#passage-panel [data-key]").count() > 10
    return wrong


def problems_of_plots(page: Any, truth: Known) -> set[str]:
    """The same for what plots say of the values that arrow keys reach."""
    wrong, said = set(), 0
    for name in page.eval_on_selector_all("figure.plot", "all => all.map((e) => e.id)"):
        page.focus(f"#{name} svg[role=application]")
        for key in ("Home", "ArrowRight", "End", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowLeft"):
            page.keyboard.press(key)
            if page.is_visible(f"#{name} .tip"):
                said += 1
                wrong |= {f"{name}: {one}" for one in problems(page, truth, f"#{name} .tip")}
    assert said > 5
    return wrong


def problems_of_strips(page: Any, truth: Known) -> set[str]:
    """The same for what the strips say of the place under the cursor."""
    wrong = set()
    page.focus("#lanes")
    for key in ("Home", "PageDown", "PageDown", "PageDown", "ArrowDown", "PageDown", "End"):
        page.keyboard.press(key)
        wrong |= set(problems(page, truth, "#strip-now"))
    return wrong


ROWS = """(section) => [...document.querySelectorAll(`section[aria-labelledby=${section}] .data tr`)].map((row) =>
  [...row.cells].map((cell) => [...cell.querySelectorAll("[data-key]")].map((element) => element.dataset.key)))"""


def test_numbers_stand_beside_what_they_are_of(browser: Any, folders: dict[str, Path]) -> None:
    truth = Truth(folders["scan"])
    with page_of(browser, folders["scan"] / "report.html") as page:
        for section in ("coverage", "longest"):
            _, *rows = page.evaluate(ROWS, section)
            assert len(rows) == 4
            for ((own,), *cells), threshold in zip(rows, ("0.01", "0.1", "0.5", "0.75"), strict=True):
                assert own == f"summary/schemes/{truth.scheme}/{section}/{threshold}"
                keys = [key for cell in cells for key in cell]
                assert len(keys) >= 5
                assert all(f"{section}/{threshold}/" in key for key in keys)
        (_, *columns), *rows = page.evaluate(ROWS, "prompts")[: 1 + len(truth.found["rates"]["np_table"]) // 4]
        for (n,), *cells in rows:
            for (p,), (cell, *_) in zip(columns, cells, strict=True):
                found = truth.number(f"{cell.removesuffix('/rate')}/n"), truth.number(f"{cell.removesuffix('/rate')}/p")
                assert found == (truth.number(n), truth.number(p))
        names = page.eval_on_selector_all(
            ".card", "all => all.map((e) => [e.querySelector('dt'), e.querySelector('dd')].map((e) => e.innerHTML))"
        )
        shares = [(name, value) for name, value in names if "Coverage" in name]
        assert len(shares) == 4
        for name, value in shares:
            (threshold,) = re.findall(r'data-key="([^"]*)"', name)
            assert f'data-key="{threshold}/share_of_looked_at"' in value
        _, *rows = page.evaluate(ROWS, "spots")
        starts = page.eval_on_selector_all("[data-go]", "all => all.map((e) => Number(e.dataset.go))")
        assert starts == [truth.number(f"spots/{place}/start") for place in range(len(rows))]


def test_an_example_in_the_table_is_the_row_that_its_button_opens(browser: Any, folders: dict[str, Path]) -> None:
    truth = Truth(folders["score"])
    with page_of(browser, folders["score"] / "report.html") as page:
        rows = page.evaluate(ROWS, "listed")[1:]
        places = page.eval_on_selector_all("[data-go-row]", "all => all.map((e) => Number(e.dataset.goRow))")
        order = sorted(range(len(truth.rows)), key=lambda i: (-truth.rows[i]["log_prob"], i))
        assert places[: len(rows)] == order
        for place, ((name,), *cells) in zip(order, rows, strict=True):
            base = f"scores/{visible(truth.rows[place]['example_id'])}/{truth.scheme}"
            assert name == f"{base}/example_id"
            known = [key for key in ("repetitions", "split") if truth.rows[place][key] is not None]
            columns = ["log_prob", "log_prob", *known]
            assert [key for cell in cells for key in cell] == [f"{base}/{column}" for column in columns]


def test_no_mark_reaches_a_terminal(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        said = rote_here("report", folder)
        assert said.code == 0
        assert not set(MARKS) & set(said.out + said.err)
        assert "data-key" not in said.out
    assert not set(MARKS) & set(rote_here("spots", folders["scan"]).out)


# What is done to a page, and what is then said of it.
MUTATIONS = (
    ("</main>", "<p>The rate is 12.3%.</p></main>", "no key: 'The rate is 12.3%.'"),
    ("</main>", "<p>95% interval 3 to 4</p></main>", "no key: '95% interval 3 to 4'"),
    (r'(/rates/rate_at_1e_4/count" data-as="count">)[\d,]+', r"\g<1>7", "/rates/rate_at_1e_4/count"),
    (r'(/rates/rate_at_tau/rate" data-as="percent">\d+)\.\d', r"\1.9", "/rates/rate_at_tau/rate"),
    (r'value="[^"]*"( data-key="[^"]*/maximum_rate/rate")', r'value="0.123"\1', "its value is 0.123"),
    (r'data-key="[^"]*/greedy_rate/rate"', 'data-key="summary/nothing"', "nothing under this key"),
    (r'(data-key="manifest/model/name" data-as="text">)', r"\g<1>not the ", "it is 'bundled'"),
    (r'(data-key="manifest/windows/stride" data-as="count">)90', r"\g<1>91", "it is 90"),
    (r'(data-key="spots/0/characters" data-as="count">)', r"\g<1>9", "spots/0/characters"),
    (r'(data-key="parts/3/share" data-as="percent">)', r"\g<1>1", "parts/3/share"),
    (r'(data-key="scores/[^"]*/log_prob" data-as="probability">0.)', r"\g<1>0", "'how': 'probability'"),
    (r'(data-key="scores/[^"]*/log_prob" data-as="prompts for 0.9">)', r"\g<1>1", "'how': 'prompts for 0.9'"),
    (r'(data-key="figures/histogram/caption" data-as="text">)', r"\g<1>9", "figures/histogram/caption"),
    (r'(data-key="figures/prompts/table/share/7" data-as="number">0.)', r"\g<1>1", "figures/prompts/table/share/7"),
)  # fmt: skip


def test_this_test_finds_what_is_wrong(browser: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    html = (folders["scan"] / "report.html").read_text("utf-8")
    for old, new, _ in MUTATIONS:
        html, times = re.subn(old, new, html, count=1)
        assert times == 1, old
    (tmp_path / "report.html").write_text(html, "utf-8")
    with page_of(browser, tmp_path / "report.html") as page:
        wrong = problems(page, Truth(folders["scan"]))
    assert len(wrong) == len(MUTATIONS), wrong
    for _, _, said in MUTATIONS:
        assert sum(said in one for one in wrong) == 1, (said, wrong)
