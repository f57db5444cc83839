"""Comparing run folders: what is refused, what is said to differ, and what is written."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rote
from rote import Example, InputError, Near, Run, RunError, Scheme
from rote.jobs.compare import compare
from rote.jobs.show import show, token_texts
from rote.report.page.layout import script
from rote.report.text import numbers
from rote.report.text.comparison import comparison_lines
from rote.report.text.method import method as run_method
from rote.report.text.words import summary_lines
from rote.store.files import plain
from tests import tiny
from tests.jobs.support import SIZES, files
from tests.seals import reseal

SCHEMES = [Scheme(), Scheme(0.5, top_k=5)]


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Another model with another tokenizer: it has no merges, so it needs more tokens for a text."""
    folder = tiny.save(tmp_path_factory.mktemp("models") / "other", seed=1)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"] = content["model"]["merges"][:500]
    path.write_text(json.dumps(content))
    return rote.load(folder, rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def folders(model: Any, other_model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rote.scan(model, text, out=folder / "plain", windows=SIZES)
    rote.scan(model, text, out=folder / "schemes", schemes=SCHEMES, windows=SIZES)
    rote.scan(model, text, out=folder / "bounded", stop_early=True, windows=SIZES)
    rote.scan(model, text, out=folder / "bounds", schemes=[Scheme(top_k=None)], stop_early=True, windows=SIZES)
    rote.scan(other_model, text, out=folder / "other", windows=SIZES)
    rote.scan(model, text, out=folder / "coarse", windows=rote.Windows(prefix=8, suffix=6, stride=20))
    rote.scan(model, text[:-1], out=folder / "shorter", windows=SIZES)
    return folder


def test_the_same_run_twice_differs_in_nothing(folders: Path) -> None:
    found = compare([folders / "plain", folders / "bounded"]).result
    assert list(found.differing) == ["stop_early"]
    (pair,) = found.pairs
    assert (pair.gained, pair.lost, pair.difference) == (0, 0, 0.0)
    stopped = Run.open(folders / "bounded").scores["bounded"].sum()
    assert pair.log_prob.unknown == stopped > 0
    said = [line for line in comparison_lines(found) if line.startswith("Given up early")]
    assert [line.endswith(f": {stopped} windows of B.") for line in said] == [True]


def test_numbers_are_those_of_the_summaries(folders: Path) -> None:
    sides = [
        s for names in (["plain", "schemes"], ["schemes"]) for s in compare([folders / n for n in names]).result.runs
    ]
    assert {side.scheme for side in sides} == set(map(str, SCHEMES))
    for side in sides:
        summary = Run.open(side.folder).summary
        assert side.rates == summary.schemes[side.scheme].rates
        assert side.coverage == summary.schemes[side.scheme].coverage
        assert side.token_evals == summary.token_evals


def test_schemes_of_one_run_are_compared(folders: Path) -> None:
    found = compare([folders / "schemes"])
    assert [side.scheme for side in found.result.runs] == [str(scheme) for scheme in SCHEMES]
    assert list(found.result.differing) == ["scheme"]
    rows = Run.open(folders / "schemes").scores
    for key, scheme in zip("AB", SCHEMES, strict=True):
        own = rows.filter(pl.col("scheme") == str(scheme))
        assert found.table[f"log_prob_{key}"].to_list() == own["log_prob"].to_list()


def test_tokenizers_may_differ_over_one_text(folders: Path) -> None:
    found = compare([folders / "plain", folders / "other"])
    assert found.result.tokenizers_differ
    assert found.result.unpaired["B"] > 0 == found.result.unpaired["A"]  # shorter tokens, shorter windows
    assert found.result.common_examples == found.table.height
    lines = comparison_lines(found.result)
    assert any("different tokenizers" in line for line in lines)
    left_out = found.result.unpaired["B"]
    said = [line for line in lines if line.startswith("Left out of everything but the first table")]
    assert [line.endswith(f": {left_out} windows of B.") for line in said] == [True]
    assert found.table["start"].to_list() == Run.open(folders / "plain").scores["start"].to_list()


def test_windows_by_characters_are_the_same_for_every_tokenizer(
    model: Any, other_model: Any, text: str, tmp_path: Path
) -> None:
    cut = rote.Windows(60, 40, 50, "characters")
    runs = [
        rote.scan(each, text, out=tmp_path / name, windows=cut, near=Near(tolerance=1, budget=400))
        for each, name in ((model, "one"), (other_model, "two"))
    ]
    places = [run.scores.select("example_id", "start", "suffix_start", "suffix_end").rows() for run in runs]
    assert places[0] == places[1] != []
    lengths = [run.scores["ranks"].list.len().to_list() for run in runs]
    assert lengths[0] != lengths[1]
    assert len(set(lengths[0])) > 1
    found = compare(runs)
    assert found.result.tokenizers_differ
    assert not any(found.result.unpaired.values())
    lines = comparison_lines(found.result)
    assert any(line.startswith("Windows of 60 + 40 characters, one every 50 characters") for line in lines)
    assert any("the same words in every run, and runs are compared row by row" in line for line in lines)
    assert not any("do not span the same characters" in line for line in lines)
    assert "compared row by row" in found.page()
    said = "\n".join(summary_lines(runs[0].view))
    assert "of up to 60 characters" in said or "with up to 60 characters" in said
    method = dict(run_method(runs[0].view))
    assert re.search(
        r"60 characters of prefix, then 40 characters of suffix.*but apart in \d+ windows?", method["Windows"]
    )
    example = places[0][3][0]
    assert [each.tokens_unknown for each in show(runs, example=example).runs] == [None, None]


def test_runs_after_other_steps_are_not_the_same_passages(model: Any, text: str, tmp_path: Path) -> None:
    crlf = text.replace("\n", "\r\n")
    plain_run = rote.scan(model, crlf, out=tmp_path / "as-it-is", windows=SIZES)
    normalised = rote.scan(model, crlf, out=tmp_path / "normalised", windows=SIZES, normalise=["line-ends"])
    with pytest.raises(
        InputError, match=r"source.normalised: .*as-it-is has nothing, .*normalised has \['line-ends'\]"
    ):
        compare([plain_run, normalised])


def test_every_differing_field_is_named(folders: Path) -> None:
    with pytest.raises(InputError, match="did not measure the same passages") as refusal:
        compare([folders / "plain", folders / "coarse", folders / "shorter"])
    message = str(refusal.value)
    assert f"windows.stride: {folders / 'plain'} has 10, {folders / 'coarse'} has 20" in message
    assert f"source.sha256: {folders / 'plain'} has" in message
    assert message.count("\n  ") == 2


def test_what_cannot_be_compared_at_all(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = folders / "plain"
    with pytest.raises(InputError, match="at least two runs"):
        compare([one])
    with pytest.raises(InputError, match="given twice"):
        compare([one, folders / "schemes" / ".." / "plain"])
    with pytest.raises(InputError, match="top must be a whole number of at least 0, not -1"):
        compare([one, folders / "other"], top=-1)
    with pytest.raises(InputError, match="tau must lie in"):
        compare([one, folders / "other"], tau=2.0)
    with pytest.raises(InputError, match=r"bounds: whether \d+ of \d+ rows reach 1e-30"):
        compare([one, folders / "bounds"], tau=1e-30)
    monkeypatch.setattr("rote.jobs.compare.MOST", 2)
    with pytest.raises(InputError, match="at most 2 runs"):
        compare([one, folders / "schemes"])
    monkeypatch.setattr("rote.store.files.FORMAT", 99)
    with pytest.raises(RunError, match=r"seal\.json has format 7, but this version of Rote reads format 99"):
        compare([one, folders / "other"])
    shutil.copytree(one, tmp_path / "unsealed")
    (tmp_path / "unsealed/seal.json").unlink()  # as in earlier formats
    with pytest.raises(RunError, match=r"manifest\.json has format 7, but this version of Rote reads format 99"):
        compare([tmp_path / "unsealed", folders / "other"])


def test_unfinished_runs_are_refused(folders: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_bytes((folders / "plain/manifest.json").read_bytes())
    with pytest.raises(RunError, match="unfinished"):
        compare([folders / "plain", broken])


def test_texts_that_were_changed_are_refused(model: Any, text: str, tmp_path: Path) -> None:
    """What is shown must be what was measured."""
    run = rote.scan(model, text[:300], out=tmp_path / "run", windows=SIZES)
    (run.folder / "text.txt").write_text(text[:300].upper())
    with pytest.raises(RunError, match=r"text\.txt is not what was sealed"):
        show([run.folder], example="w0")
    reseal(run.folder)
    with pytest.raises(RunError, match=r"text\.txt is not the text that was scored"):
        show([run.folder], example="w0")
    scored = rote.score(model, [Example("a", (5, 6), (7, 8))], out=tmp_path / "scored")
    (scored.folder / "examples.jsonl").write_text("{")
    with pytest.raises(RunError, match=r"examples\.jsonl is not what was sealed"):
        show([scored.folder], example="a")
    reseal(scored.folder)
    with pytest.raises(RunError, match=r"examples\.jsonl does not hold the examples that were scored"):
        show([scored.folder], example="a")
    manifest = plain(run.manifest)
    del manifest["schemes"]
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"manifest\.json is not what was sealed"):
        show([run.folder], example="w0")
    reseal(run.folder)
    with pytest.raises(
        RunError, match=r"manifest\.json is damaged: Object missing required field `schemes`\. Make the"
    ):
        show([run.folder], example="w0")


def test_what_is_written(folders: Path, tmp_path: Path) -> None:
    found = compare([folders / "plain", folders / "other"])
    page = found.write(tmp_path / "out")
    assert set(files(tmp_path / "out")) == {
        "comparison.json", "differences.parquet", "differences.csv", "report.html", "seal.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "out/comparison.json").read_text()) == plain(found.result)
    stored = pl.read_parquet(tmp_path / "out/differences.parquet")
    assert stored.equals(found.table)
    assert pl.read_csv(tmp_path / "out/differences.csv").height == stored.height
    text = Run.open(folders / "plain").text or ""
    assert all(text[a:b] == s for a, b, s in stored.select("suffix_start", "suffix_end", "suffix").iter_rows())
    html = page.read_text()
    assert html.count("<canvas ") == 2
    assert html.count(script()) == 1
    assert "http://" not in html.replace(script(), "").replace("http-equiv", "")
    with pytest.raises(RunError, match="holds a run"):
        found.write(folders / "plain")


def test_foreign_text_cannot_break_the_page(model: Any, tmp_path: Path) -> None:
    examples = [Example("<script>alert(1)</script>", (5, 6, 7), (8, 9)), Example("b", (5, 6), (7, 8))]
    for name, scheme in (("a", Scheme()), ("b", Scheme(top_k=4096))):
        rote.score(model, examples, out=tmp_path / name, name="<b>x</b>", schemes=[scheme], tau=1e-30)
    found = compare([tmp_path / "a", tmp_path / "b"])
    html = found.write(tmp_path / "out").read_text()
    assert found.result.pairs[0].gained == 2  # what top-k cuts off comes out without it
    assert "<script>" not in html.replace(f"<script>{script()}</script>", "")
    assert "<b>x</b>" not in html


def test_examples_under_other_tokens_must_be_the_same_text(model: Any, other_model: Any, tmp_path: Path) -> None:
    def run(name: str, loaded: Any, *texts: str) -> Path:
        cut = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"][:12] for text in texts]
        examples = [Example(f"e{i}", tuple(ids[:6]), tuple(ids[6:])) for i, ids in enumerate(cut)]
        return rote.score(loaded, examples, out=tmp_path / name).folder

    texts = ["Alice was beginning to get very tired of sitting", "by her sister on the bank, and of having nothing"]
    one, two = run("one", model, *texts), run("two", other_model, *texts)
    assert compare([one, two]).result.common_examples == 2
    with pytest.raises(InputError, match=r"source\.sha256"):
        compare([one, run("changed", other_model, texts[0], texts[1].replace("her", "his"))])
    with pytest.raises(InputError, match=r"source\.sha256"):
        compare([one, run("same tokenizer", model, texts[1], texts[0])])


def test_near_runs(model: Any, text: str, tmp_path: Path) -> None:
    near, text = Near(tolerance=1, budget=40, gap=0.0, until="budget"), text[:200]
    rote.scan(model, text, out=tmp_path / "plain", windows=SIZES)
    rote.scan(model, text, out=tmp_path / "one", near=near, windows=SIZES)
    rote.scan(model, text, out=tmp_path / "two", near=replace(near, budget=60), windows=SIZES)
    found = compare([tmp_path / "plain", tmp_path / "one", tmp_path / "two"]).result
    assert found.differing["near.budget"] == {"A": None, "B": 40, "C": 60}
    assert found.near is not None
    (group,) = found.near.fixed
    assert [entry.model for entry in group.models] == ["B", "C"]
    assert found.near.verbatim_elsewhere == []  # the same weights
    assert found.runs[1].token_evals == Run.open(tmp_path / "one").scores["near_token_evals"].sum()
    lines = comparison_lines(found)
    at = lines.index("Within 1 edit, by the lower bound")
    assert lines[at + 1].split() == ["Near-verbatim", "Verbatim", "Undecided"]
    for line, entry in zip(lines[at + 2 :], group.models, strict=False):
        shares = [numbers.percent(share.rate or 0.0) for share in (entry.near, entry.verbatim)]
        assert None not in (entry.near.rate, entry.verbatim.rate)
        assert line.split() == [entry.model, *shares, str(entry.undecided)]


def test_the_np_table_of_every_run_is_printed(folders: Path) -> None:
    found = compare([folders / "plain", folders / "bounded", folders / "bounds"]).result
    lines = comparison_lines(found)
    at = next(i for i, line in enumerate(lines) if line.startswith("Share of each run's windows whose suffix appears"))
    head, *rows = (re.split(r"  +", line.strip()) for line in lines[at + 1 : at + 14])
    assert head == ["p", *(f"n = {n:,}" for n in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000))]
    cells = {(run.key, cell.p, cell.n): numbers.rate(cell) for run in found.runs for cell in run.rates.np_table}
    printed = {(key, float(p.rstrip("%")) / 100, 10**i): cell for key, p, *own in rows for i, cell in enumerate(own)}
    assert printed == cells


# --- one passage


def test_a_passage_by_its_id_has_what_the_table_has(folders: Path) -> None:
    run = Run.open(folders / "plain")
    row = run.scores.row(7, named=True)
    (shown,) = show([folders / "plain"], example=row["example_id"]).runs
    assert [token.rank for token in shown.tokens] == row["ranks"]
    assert [token.probability for token in shown.tokens] == [math.exp(p) for p in row["token_log_probs"]]
    assert "".join(token.text or "?" for token in shown.tokens) == shown.suffix
    assert shown.suffix == (run.text or "")[row["suffix_start"] : row["suffix_end"]]
    assert shown.p_z == pytest.approx(math.exp(row["log_prob"]))


def test_a_passage_by_place_is_the_likeliest_that_covers_it(folders: Path) -> None:
    rows = Run.open(folders / "plain").scores
    covering = rows.filter((pl.col("suffix_start") <= 500) & (pl.col("suffix_end") > 500))
    found = show([folders / "plain", folders / "schemes"], at=500)
    best = covering.filter(pl.col("log_prob") == covering["log_prob"].max())
    assert found.example_id in best["example_id"].to_list()
    assert [entry.key for entry in found.runs] == ["A", "B", "C"]


def test_a_passage_by_quotation(folders: Path) -> None:
    text = Run.open(folders / "plain").text or ""
    found = show([folders / "plain"], quote=text[600:612])
    assert "all of the quotation's 12 characters" in found.chosen
    assert text[600:612] in found.runs[0].suffix
    long = show([folders / "plain"], quote=text[600:700])
    assert "of the quotation's 100 characters" in long.chosen
    at_the_start = text[:9]
    assert text.count(at_the_start) == 1
    with pytest.raises(InputError, match="in no window's suffix"):
        show([folders / "plain"], quote=at_the_start)
    wrapped = next(text[i - 12 : i + 12] for i in range(100, len(text)) if text[i] == "\n" and text[i + 1] != "\n")
    with pytest.raises(InputError, match=r"exactly as typed. At character \d+ it has"):
        show([folders / "plain"], quote=" ".join(wrapped.split()))
    with pytest.raises(InputError, match="check the wording"):
        show([folders / "plain"], quote="no such words")


def test_a_passage_that_some_runs_lack(folders: Path) -> None:
    last = Run.open(folders / "other").scores.row(-1, named=True)
    with pytest.raises(InputError, match=f"plain has no example '{last['example_id']}'"):
        show([folders / "other", folders / "plain"], example=last["example_id"])
    at = last["suffix_end"] - 1
    assert len(show([folders / "other"], at=at).runs) == 1
    with pytest.raises(InputError, match="no window's suffix covers"):  # none that both have
        show([folders / "other", folders / "plain"], at=at)
    assert len(show([folders / "other", folders / "plain"], at=at - 20).runs) == 2


def test_without_its_tokenizer_a_passage_has_no_token_texts(model: Any, text: str, tmp_path: Path) -> None:
    run = rote.scan(model, text[:300], out=tmp_path / "run", windows=SIZES)
    manifest = plain(run.manifest)
    for change, reason in (
        ({"tokenizer": "0" * 32}, "no longer the one"),
        ({"name": "no/such"}, "not on this machine"),
    ):
        (run.folder / "manifest.json").write_text(json.dumps({**manifest, "model": {**manifest["model"], **change}}))
        reseal(run.folder)
        (shown,) = show([run.folder], example="w0").runs
        assert reason in (shown.tokens_unknown or "")
        assert {token.text for token in shown.tokens} == {None}
        assert len(shown.tokens) == SIZES.suffix


def test_a_token_that_is_part_of_a_character_has_a_name(model: Any) -> None:
    ids = model.tokenizer("a 🐇 b", add_special_tokens=False)["input_ids"]
    texts = token_texts(model.tokenizer, ids[:1], ids[1:])
    assert len(texts) == len(ids) - 1
    assert all(texts)
    assert not any("\ufffd" in piece for piece in texts)
