"""Runs with more rows than are kept in memory: every number, figure and sentence is what it is of any other run."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rote
from rote.cli.screen import print_summary
from rote.jobs.open import Run
from tests.analysis.test_narrow import same
from tests.jobs.support import SIZES

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def real(model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Real runs, of several shards each."""
    folder = tmp_path_factory.mktemp("real")
    windows = rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=60))
    groups = [{"split": ("train", "test")[i % 2], "repetitions": i % 3} for i in range(len(windows))]
    examples = [rote.Example(e.id, e.prefix, e.suffix, metadata=own) for e, own in zip(windows, groups, strict=True)]
    two = [rote.Scheme(top_k=40), rote.Scheme(temperature=0.5, top_k=None)]
    return {
        "scan": rote.scan(model, text, out=folder / "scan", windows=SIZES, schemes=two),
        "early": rote.scan(model, text, out=folder / "early", windows=SIZES, stop_early=True),
        "stages": rote.scan(model, text, out=folder / "stages", windows=SIZES, refine=rote.Refine(audit=5)),
        "near": rote.score(model, examples, out=folder / "near", near=rote.Near(tolerance=1), schemes=two),
    }


@pytest.mark.parametrize("name", ["scan", "early", "stages", "near"])
def test_a_real_run_comes_to_the_same(real: dict[str, Run], name: str) -> None:
    run = real[name]
    same(run.scores, list(Run(run.folder).parts()), run.manifest)
    same(run.scores, [run.scores], run.manifest)


@pytest.mark.parametrize("name", ["scan", "early", "near"])
def test_a_run_too_large_to_keep_shows_and_exports_the_same(
    real: dict[str, Run], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = Run(real[name].folder)
    monkeypatch.setattr("rote.store.parts.KEPT", 0)
    large = Run(real[name].folder)
    assert (kept.scores.height, large.kept) == (large.table.height, False)
    assert large.summary == kept.summary
    assert not {"token_log_probs", "ranks", "candidates"} & set(large.table.columns)
    numbers = [0, 3, kept.rows(kept.manifest.schemes[0]).height - 1]
    for scheme in kept.manifest.schemes:
        assert large.in_full(numbers, scheme).equals(kept.rows(scheme)[numbers])
    example = kept.scores["example_id"][5]
    assert rote.show(large, example=example) == rote.show(kept, example=example)
    assert large.frame().equals(kept.frame())


@pytest.mark.parametrize("name", ["scan", "near"])
def test_the_figures_and_the_screen_of_a_run_too_large_to_keep_are_the_same(
    real: dict[str, Run], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def shown(run: Run, out: Path) -> tuple[str, dict[str, bytes]]:
        screen = io.StringIO()
        print_summary(run, Console(file=screen, width=100))
        drawn = run.figures(out=out)
        return screen.getvalue(), {path.name: path.read_bytes() for path in drawn.folder.iterdir()}

    kept = shown(Run(real[name].folder), tmp_path / "kept")
    monkeypatch.setattr("rote.store.parts.KEPT", 0)
    assert shown(Run(real[name].folder), tmp_path / "large") == kept


def test_nothing_reads_a_run_too_large_to_keep_all_at_once(
    real: dict[str, Run], model: Any, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither what scores it, tries its text in other forms, sums it up and writes its page, nor what shows a row."""
    spoiled = text.replace(", ", ",  ")
    kept = rote.scan(model, spoiled, out=tmp_path / "kept", windows=SIZES)
    assert kept.summary.variants
    monkeypatch.setattr("rote.store.parts.KEPT", 0)
    large = rote.scan(model, spoiled, out=tmp_path / "large", windows=SIZES)
    assert large.summary.variants == kept.summary.variants
    again = Run(real["scan"].folder)
    example = again.table["example_id"][5]
    assert again.left_out(example) is None
    rote.show(again, example=example)
    for run in (large, again):
        assert not run.kept
        assert "scores" not in vars(run), "all of its rows are in memory"


@pytest.mark.parametrize("name", ["scan", "near"])
def test_a_page_carries_some_rows_and_says_so(
    real: dict[str, Run], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = real[name].report().read_text()
    monkeypatch.setattr("rote.store.parts.KEPT", 0)
    monkeypatch.setattr("rote.report.page.carried.SOME", 4)
    large = Run(real[name].folder)
    page = large.report().read_text()
    real[name].report()
    data = json.loads(re.search(r'id="rote-data">(.*?)</script>', page, re.S).group(1))  # type: ignore[union-attr]
    (run,) = data["runs"]
    rows = large.summary.examples
    assert run["total"] == rows
    assert 4 <= run["count"] < rows
    assert run["details"]["kept"] == run["count"]
    assert data["length"] is None
    words = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert f"This run is too large for a page: of its {rows}" in words
    left = f"{rows - run['count']} {large.finished.unit}s of {rows} left out here."
    assert f"the likeliest come first. {left} " in words
    assert "the table for download has all" not in words
    assert "too large for a page" not in whole
    for shown in (
        r'<dl class="provenance">.*?</dl>',
        r"<caption>Share of the.*?</table>",
        r"<caption>Runs of char.*?<tr",
    ):
        of_both = [re.search(shown, each, re.S) for each in (page, whole)]
        assert str(of_both[0] and of_both[0].group()) == str(of_both[1] and of_both[1].group())
