"""rote verify: what is accepted, what is refused, and that refusing rests on computing again."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote import InputError, ModelOptions, Near, Run, RunError, Windows
from rote.analysis.agreement import Limit, limit, row_agreement, wrong_at_most
from rote.jobs import engine
from rote.jobs.evidence import Evidence
from rote.models.base import BUNDLED
from rote.store.files import digest
from tests.cli.command import rote_here
from tests.jobs.support import SIZES
from tests.seals import reseal

LIKELY: dict[str, Any] = {"schemes": ["temperature=0.7", "temperature=1 top_k=40"], "tau": 1e-60}


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, alice: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over 116 windows under two schemes."""
    model = rote.load(tiny_folder, ModelOptions(device="cpu"))
    made = tmp_path_factory.mktemp("verified") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        return rote.scan(model, alice[3000:4200], windows=SIZES, out=made, batch_size=7, **LIKELY).folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "run"))


def edit_shard(path: Path, change: Any) -> None:
    """Write a shard anew with its rows changed, as a forger who knows the format would."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path, compression="zstd")


def edit_json(path: Path, change: Any) -> None:
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def forge(folder: Path) -> None:
    """Let summary and seal follow from what the folder now holds."""
    reseal(folder)
    from rote.store.run import finish

    run = Run(folder)
    finish(folder, run.summary)


def made_again(run: Run, again: Run) -> None:
    """The same rows from the same manifest; another process may cut other shards."""
    assert again.scores.equals(run.scores)
    own: dict[str, Any] = {"created": "", "shards": 0, "shard_examples": 0}
    assert replace(again.manifest, **own) == replace(run.manifest, **own)


def names(result: Any, passed: bool) -> list[str]:
    return [finding.name for finding in result.findings if finding.passed is passed]


# --- accepted


def test_a_run_as_it_was_is_verified(copy: Path) -> None:
    result = rote.verify(copy)
    assert result.verified
    assert names(result, True) == ["seal", "text", "rows", "summary"]
    assert "whether the rows are right was not tried" in result.verdict
    assert result.seal == Run(copy).seal.id
    written = json.loads((copy / "verification.json").read_text())
    assert (written["verified"], written["verdict"], written["format"]) == (True, result.verdict, 7)
    assert rote.verify(Run(copy)).verified  # what was written is not sealed


def test_rows_are_scored_again_with_other_threads_and_batches(copy: Path, tiny_folder: Path) -> None:
    try:
        model = rote.load(tiny_folder, ModelOptions(device="cpu", threads=2))
        result = rote.verify(copy, model, sample=40, seed=1)
    finally:
        torch.set_num_threads(1)
    assert result.verified, result
    found = result.rescored
    assert found is not None
    assert (found.drawn, found.seed, found.examples, found.drawn_wrong) == (40, 1, 116, 0)
    assert 0 < found.strongest <= 20
    assert found.tokens == (found.drawn + found.strongest) * SIZES.suffix
    assert found.mean_difference < found.limit == 3 * found.measured
    assert found.wrong_at_most == pytest.approx(1 - 0.05 ** (1 / 40))
    assert "at most 7.22% of all windows are wrong, with 95% confidence" in result.verdict
    again = rote.verify(copy, rote.load(tiny_folder, ModelOptions(device="cpu", dtype="bfloat16")), every=True)
    assert again.verified
    assert again.rescored is not None
    assert again.rescored.mean_difference > found.limit  # it was another computation
    assert again.rescored.wrong_at_most == 0
    assert "all windows, 116 in number" in again.verdict


def test_examples_and_searches_are_scored_again(bundled: Any, alice: str, tmp_path: Path) -> None:
    examples = rote.windows(alice[3000:3300], bundled.tokenizer, Windows(20, 8, 30))
    for number, near in enumerate(
        (Near(tolerance=1, samples=50), Near(method="sample", samples=50), Near(method="beam", width=3, tolerance=2))
    ):
        run = rote.score(bundled, examples, near=near, out=tmp_path / str(number), tau=1e-30)
        result = rote.verify(run, bundled)
        assert result.verified, result.findings
        assert names(result, True) == ["seal", "examples", "rows", "summary", "model", "scores"]
        assert result.rescored is not None
        assert result.rescored.near is not None
        assert result.rescored.near.searches == len(examples)
        assert result.rescored.near.candidates > 0 or near.method == "sample"
        assert result.rescored.near.estimates == (0 if near.method == "beam" else len(examples))
    listed = tmp_path / "0/scores/000000.parquet"

    def likelier(rows: list[dict[str, Any]]) -> None:
        own = next(c for c in rows[1]["candidates"] if c["log_prob"] is not None)
        own["log_prob"] += 0.01
        rows[2].update(lower=0.999, upper=1.0)  # more than there is
        rows[2]["lower_by_tolerance"][-1], rows[2]["upper_by_tolerance"][-1] = 0.999, 1.0
        rows[3]["estimate"] = 0.1

    edit_shard(listed, likelier)
    forge(tmp_path / "0")
    refused = rote.verify(tmp_path / "0", bundled)
    assert refused.rescored is not None
    assert [row.example_id for row in refused.rescored.wrong] == [examples[i].id for i in (2, 3, 1)]
    problems = [row.problem for row in refused.rescored.wrong]
    assert "do not meet" in problems[0]
    assert "its estimate is 0.1" in problems[1]
    assert "a listed output" in problems[2]


def test_stopped_rows_are_held_against_their_bounds(bundled: Any, alice: str, gatsby: str, tmp_path: Path) -> None:
    text = alice[3000:3500] + gatsby[20_000:23_000]
    run = rote.scan(
        bundled, text, windows=Windows(20, 20, 40), schemes="temperature=1", stop_early=True, out=tmp_path / "run"
    )
    assert run.scores["bounded"].any()
    assert rote.verify(run, bundled).verified
    cut = Windows(20, 20, 40)
    true = {
        e.example_id: e.log_prob
        for e in rote.verbatim(bundled, rote.windows(text, bundled.tokenizer, cut), "temperature=1")
    }

    def lower(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["bounded"] and true[row["example_id"]] > -200)
        row["log_prob"] = true[row["example_id"]] - 1

    edit_shard(run.shards()[-1], lower)
    forge(run.folder)
    assert "above the bound" in rote.verify(run.folder, bundled).verdict


# --- refused


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("manifest.json", lambda content: content.update(tau=0.5)),
        ("summary.json", lambda content: content.update(examples=7)),
        ("scores/000001.parquet", lambda rows: rows[0].update(log_prob=-0.1)),
    ],
)
def test_what_was_changed_is_named(copy: Path, name: str, change: Any, tiny_folder: Path) -> None:
    (edit_shard if name.endswith("parquet") else edit_json)(copy / name, change)
    result = rote.verify(copy)
    assert not result.verified
    assert names(result, False) == ["seal"]
    assert f"{name} is not what was sealed" in result.verdict
    assert json.loads((copy / "verification.json").read_text())["verified"] is False


def test_a_summary_that_does_not_follow_from_the_rows_is_found_though_sealed(copy: Path) -> None:
    edit_json(copy / "summary.json", lambda content: content.update(token_evals=content["token_evals"] + 1))
    reseal(copy)
    assert "summary.json does not follow from the rows: token_evals differs" in rote.verify(copy).verdict
    assert Run(copy).summary.token_evals != json.loads((copy / "summary.json").read_text())["token_evals"]


def raise_all(row: dict[str, Any]) -> None:
    for name in ("token_log_probs", "base_log_probs"):
        row[name] = [value / 2 for value in row[name]]
    row["log_prob"] = float(np.sum(np.float32(row["token_log_probs"]), dtype=np.float64))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda row: row.update(log_prob=row["log_prob"] + 1), "is not the sum of its tokens'"),
        (lambda row: row.update(log_prob=0.5), "is not the sum of its tokens'"),
        (lambda row: row.update(greedy=True, ranks=[2] * len(row["ranks"])), "is called greedy and is not"),
        (lambda row: row.update(example_id="w7"), "are not those of"),
        (lambda row: row.update(scheme="temperature=9"), "are not those of"),
        (lambda row: row.update(margins=row["margins"][:-1]), "not one number of each kind"),
        (lambda row: row.update(bounded=True), "stopped early in a run that stops none"),
        (lambda row: row.update(suffix_start=row["suffix_start"] + 1), "has another place than under"),
        (lambda row: row.update(token_ends=[1] * len(row["token_ends"])), "has another place than under"),
    ],
)
def test_rows_that_do_not_add_up_are_found_without_a_model(copy: Path, change: Any, problem: str) -> None:
    edit_shard(copy / "scores/000001.parquet", lambda rows: change(rows[4]))
    reseal(copy)
    result = rote.verify(copy)
    assert "rows" in names(result, False)
    assert problem in result.verdict


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (raise_all, "its tokens differ by"),
        (lambda row: row.update(greedy=True, ranks=[1] * len(row["ranks"])), "its tokens have other ranks"),
        (lambda row: row.update(margins=[5.0] * len(row["margins"])), "from the border of the support"),
    ],
)
def test_one_forged_row_is_found_by_scoring_all_again(copy: Path, tiny_folder: Path, change: Any, problem: str) -> None:
    edit_shard(copy / "scores/000001.parquet", lambda rows: [change(row) for row in both(rows, 4)])
    forge(copy)
    assert rote.verify(copy).verified  # it adds up
    result = rote.verify(copy, rote.load(tiny_folder, ModelOptions(device="cpu")), every=True)
    assert names(result, False) == ["scores"]
    assert problem in result.verdict
    assert result.rescored is not None
    assert (result.rescored.drawn_wrong, result.rescored.wrong_at_most) == (1, None)


def both(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """The rows of one window under both schemes."""
    return [row for row in rows if row["example_id"] == rows[number]["example_id"]]


def shorten(rows: list[dict[str, Any]], tokens: int) -> None:
    for row in both(rows, 4):
        for name in ("token_log_probs", "base_log_probs", "ranks", "margins"):
            row[name] = row[name][:tokens]
        row["log_prob"] = float(np.sum(np.float32(row["token_log_probs"]), dtype=np.float64))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: shorten(rows, 0), "has no tokens"),
        (lambda rows: shorten(rows, 1), "a row's tokens do not end where its suffix does"),
        (lambda rows: [row.update(token_ends=[1] * 6) for row in both(rows, 4)], "do not end where its suffix does"),
        (lambda rows: [row.update(split="train") for row in rows], "belongs to a group"),
        (lambda rows: [rows.remove(row) for row in both(rows, 4)], "not the windows at every 10 characters"),
    ],
)
def test_rows_that_no_scan_could_have_are_found_without_a_model(copy: Path, change: Any, problem: str) -> None:
    edit_shard(copy / "scores/000001.parquet", change)
    reseal(copy)
    result = rote.verify(copy)
    assert names(result, False) == ["rows"]
    assert problem in result.verdict


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda manifest: manifest["windows"].update(stride=5), "not the windows at every 5 characters"),
        (lambda manifest: manifest["source"].update(characters=9000), "the manifest says 9000 characters"),
        (lambda manifest: manifest.update(logit_tolerance=1e9), "may move by 1e+09, not 0.0005"),
        (lambda manifest: manifest["model"].update(parameters=70_000_000_000), "its parameters differs"),
        (lambda manifest: manifest["source"].update(normalised=[{"step": "bom", "places": 3}]), "in so many places"),
    ],
)
def test_a_manifest_that_says_something_else_is_found(copy: Path, tiny_folder: Path, change: Any, problem: str) -> None:
    edit_json(copy / "manifest.json", change)
    forge(copy)
    result = rote.verify(copy, rote.load(tiny_folder, ModelOptions(device="cpu")), sample=5)
    assert not result.verified
    assert problem in result.verdict


def test_windows_left_out_and_called_dropped_are_found_with_the_model(copy: Path, tiny_folder: Path) -> None:
    edit_shard(copy / "scores/000001.parquet", lambda rows: [rows.remove(row) for row in both(rows, 4)])
    edit_json(copy / "manifest.json", lambda manifest: manifest.update(dropped=manifest["dropped"] + 1))
    forge(copy)
    assert rote.verify(copy).verified  # by the files alone nothing is wrong
    found = rote.verify(copy, rote.load(tiny_folder, ModelOptions(device="cpu")), sample=5)
    assert "the text is not cut into the windows that the run has" in found.verdict


def test_examples_told_otherwise_than_they_are_are_found(tiny_folder: Path, alice: str, tmp_path: Path) -> None:
    model = rote.load(tiny_folder, ModelOptions(device="cpu"))
    lines = [{"id": str(i), "text": alice[3000 + 50 * i :][:200], "split": "train"} for i in range(3)]
    run = rote.score(model, lines, prefix=8, suffix=6, out=tmp_path / "run", **LIKELY)
    assert rote.verify(run, model).verified
    shard, stored = run.shards()[0], (run.folder / "examples.jsonl").read_text()
    edit_shard(shard, lambda rows: [row.update(split="held-out") for row in rows])
    forge(run.folder)
    assert "has other metadata than the example" in rote.verify(run.folder).verdict
    edit_shard(shard, lambda rows: [row.update(split="train") for row in rows])
    first = json.loads(stored.splitlines()[0])["suffix_text"]
    (run.folder / "examples.jsonl").write_text(stored.replace(json.dumps(first)[1:-1], " 12 Elm Street", 1))
    text = digest((run.folder / "examples.jsonl").read_text())
    edit_json(run.folder / "manifest.json", lambda manifest: manifest["source"].update(text_sha256=text))
    forge(run.folder)
    assert "its text is not what its tokens say" in rote.verify(run.folder, model).verdict


def test_the_result_is_written_over_nothing_else(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for out in (copy / "summary.json", tmp_path / "mine.txt", tmp_path, tmp_path / "nowhere" / "x.json"):
        with pytest.raises(InputError, match="out"):
            rote.verify(copy, out=out)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    for _ in range(2):
        assert rote.verify(copy, out=tmp_path / "found.json").verified


def test_a_sibling_of_the_model_is_found_though_its_fingerprint_is_forged(
    bundled: Any, alice: str, gatsby: str, tmp_path: Path
) -> None:
    """After one step of training at a small rate, say. The worst case that a tolerance allows for would pass it."""
    from transformers import AutoModelForCausalLM

    trained = AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32, use_safetensors=True)
    batch = torch.tensor(
        [e.prefix for e in rote.windows(gatsby[50_000:51_000], bundled.tokenizer, Windows(stride=300))]
    )
    trained(input_ids=batch, labels=batch).loss.backward()
    torch.optim.AdamW(trained.parameters(), lr=1e-6).step()
    sibling = Path(shutil.copytree(BUNDLED, tmp_path / "sibling"))
    trained.save_pretrained(sibling)
    other = rote.load(sibling, ModelOptions(device="cpu"))
    text = alice[3000:3600] + gatsby[20_000:20_800]
    run = rote.scan(other, text, windows=Windows(stride=60), out=tmp_path / "run")
    honest = rote.verify(run, bundled)
    assert names(honest, False)[0] == "model"
    assert "its fingerprint differs" in honest.verdict
    assert rote.verify(run, other).verified

    edit_json(
        run.folder / "manifest.json", lambda m: m["model"].update(fingerprint=bundled.fingerprint, name="bundled")
    )
    forge(run.folder)
    result = rote.verify(run.folder, bundled)
    assert names(result, False) == ["scores"]
    assert result.rescored is not None
    assert result.rescored.mean_difference > result.rescored.limit
    largest = max(
        abs(a - b)
        for a, b in zip(run.scores["log_prob"], rote.scan(
            bundled, text, windows=Windows(stride=60), out=tmp_path / "right").scores["log_prob"], strict=True)
    )  # fmt: skip
    assert largest < 2 * bundled.logit_tolerance * 50, "a tolerance for the worst case would have passed it"


def test_another_tokenizer_or_bos_is_named(copy: Path, tiny_folder: Path) -> None:
    edit_json(copy / "manifest.json", lambda manifest: manifest["model"].update(tokenizer="0" * 32))
    forge(copy)
    assert "its tokenizer differs" in rote.verify(copy, rote.load(tiny_folder, ModelOptions(device="cpu"))).verdict


def test_what_cannot_be_asked(copy: Path, tiny_folder: Path, tmp_path: Path) -> None:
    model = rote.load(tiny_folder, ModelOptions(device="cpu"))
    with pytest.raises(InputError, match="without model nothing can be scored again"):
        rote.verify(copy, sample=5)
    with pytest.raises(InputError, match="exclude each other"):
        rote.verify(copy, model, sample=5, every=True)
    with pytest.raises(InputError, match="sample"):
        rote.verify(copy, model, sample=0)
    with pytest.raises(RunError, match="no run folder and no file"):
        rote.verify(tmp_path / "nowhere")
    (tmp_path / "a.txt").write_text("no evidence")
    with pytest.raises(RunError, match="cannot be unpacked"):
        rote.verify(tmp_path / "a.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "run"]
    with pytest.raises(RunError, match=r"has no manifest\.json"):
        rote.verify(tmp_path)


# --- a file of evidence


def test_evidence_is_one_file_that_verifies_and_can_be_made_again(
    copy: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    packed = rote.export(copy, "evidence", out=tmp_path / "case.zip").files[0]
    (copy / "report.html").write_text("a page that says something else")
    assert rote.export(copy, "evidence").files == (copy / "evidence.zip",)
    assert (copy / "evidence.zip").read_bytes() == packed.read_bytes()
    with zipfile.ZipFile(packed) as file:
        inside = set(file.namelist())
        page, told = file.read("run/report.html").decode(), file.read("README.md").decode()
        file.extractall(tmp_path / "unpacked")
    sealed = Run(copy).seal
    assert inside == {"README.md", "environment.json", "reproduce.py", "run/report.html", "run/seal.json"} | {
        f"run/{name}" for name in sealed.files
    }
    assert sealed.id in page
    assert sealed.id in told
    assert "does not prove who made it" in told
    result = rote.verify(packed, rote.load(tiny_folder, ModelOptions(device="cpu")), sample=10)
    assert result.verified
    assert json.loads((tmp_path / "case.verification.json").read_text())["seal"] == sealed.id
    done = subprocess.run(
        [sys.executable, "reproduce.py", str(tiny_folder)], cwd=tmp_path / "unpacked", capture_output=True, check=True
    )
    assert not done.stdout
    made_again(Run(copy), Run(tmp_path / "unpacked/again"))


def test_evidence_of_examples_can_be_made_again(tiny_folder: Path, alice: str, tmp_path: Path) -> None:
    model = rote.load(tiny_folder, ModelOptions(device="cpu"))
    nowhere: dict[str, Any] = {"start": None, "suffix_start": None, "suffix_end": None}
    examples = [replace(e, metadata={"split": "train", "place": [e.start]}, **nowhere)
                for e in rote.windows(alice[3000:3100], model.tokenizer, SIZES)]  # fmt: skip
    run = rote.score(model, examples, near=Near(tolerance=1, budget=40), out=tmp_path / "run", **LIKELY)
    packed = rote.export(run, "evidence").files[0]
    shutil.unpack_archive(packed, tmp_path / "unpacked")
    subprocess.run([sys.executable, "reproduce.py", str(tiny_folder)], cwd=tmp_path / "unpacked", check=True)
    made_again(run, Run(tmp_path / "unpacked/again"))


def test_evidence_that_was_cut_off_or_leads_elsewhere_is_refused(copy: Path, tmp_path: Path) -> None:
    packed = rote.export(copy, "evidence").files[0]
    whole = packed.read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="cannot be unpacked"):
        rote.verify(tmp_path / "cut.zip")
    with zipfile.ZipFile(tmp_path / "escape.zip", "w") as file:
        file.writestr("../escaped.txt", "x")
    with pytest.raises(RunError, match="lead out of it"):
        rote.verify(tmp_path / "escape.zip")
    assert not (tmp_path / "escaped.txt").exists()
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a.txt", "x")
    with pytest.raises(RunError, match="holds no run"):
        rote.verify(tmp_path / "other.zip")
    with zipfile.ZipFile(packed) as file, zipfile.ZipFile(tmp_path / "edited.zip", "w") as edited:
        for name in file.namelist():
            data = file.read(name)
            edited.writestr(name, data.replace(b"1e-60", b"1e-50") if name == "run/manifest.json" else data)
    assert "manifest.json is not what was sealed" in rote.verify(tmp_path / "edited.zip").verdict
    for name in ("reproduce.py", "README.md", "run/report.html"):
        with zipfile.ZipFile(packed) as file, zipfile.ZipFile(tmp_path / "beside.zip", "w") as edited:
            for each in file.namelist():
                edited.writestr(each, b"something else" if each == name else file.read(each))
        assert f"{name} is not what Rote makes of this run" in rote.verify(tmp_path / "beside.zip").verdict
    shutil.copy(packed, tmp_path / "more.zip")
    with zipfile.ZipFile(tmp_path / "more.zip", "a") as file:
        file.writestr("run/more.txt", "x")
    assert "run/more.txt does not belong there" in rote.verify(tmp_path / "more.zip").verdict
    with zipfile.ZipFile(tmp_path / "more.zip", "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("run/summary.json", "{}")
    with pytest.raises(RunError, match=r"holds run/summary\.json twice"):
        rote.verify(tmp_path / "more.zip")
    assert not Evidence(tmp_path / "edited.zip").intact
    edit_json(copy / "summary.json", lambda content: content.update(tau=0.5))
    with pytest.raises(RunError, match="not what was sealed"):
        rote.export(copy, "evidence")


def test_the_command_says_its_verdict_and_ends_with_it(copy: Path, tiny_folder: Path) -> None:
    good = rote_here("verify", copy, "--model", tiny_folder, "--sample", "30", "--device", "cpu")
    assert (good.code, good.err) == (0, "")
    assert good.out.startswith("Nothing has changed since the run was sealed")
    assert "does not prove who made it" in good.out.replace("\n", " ")
    as_json = rote_here("verify", copy, "--json")
    assert (as_json.code, json.loads(as_json.out)["verified"]) == (0, True)
    edit_json(copy / "manifest.json", lambda content: content.update(tau=0.5))
    for more in ((), ("--model", "nowhere/to/be/found"), ("--json",)):  # no model is loaded for it
        bad = rote_here("verify", copy, *more)
        assert (bad.code, bad.err) == (1, "")
        assert "manifest.json is not what was sealed" in bad.out.replace("\n", " ")
    assert rote_here("report", copy).code == 1


# --- what it rests on


@given(st.integers(1, 2000))
def test_how_many_may_be_wrong(clean: int) -> None:
    share = wrong_at_most(clean)
    assert (1 - share) ** clean == pytest.approx(0.05)  # so many clean ones would be drawn so seldom
    assert wrong_at_most(200) == pytest.approx(0.0149, abs=5e-5)
    assert wrong_at_most(0) == 1


def test_a_limit_for_every_pair_of_types_and_for_no_other() -> None:
    types = ("float32", "bfloat16", "float16")
    every = {(one, two): limit(one, two) for one in types for two in types}
    assert all(isinstance(found, Limit) for found in every.values())
    assert all(found == every[two, one] for (one, two), found in every.items())
    assert limit("float32", "float8") is None


@given(
    st.lists(st.floats(-30, 0), min_size=1, max_size=60), st.data(), st.sampled_from([1e-5, 1e-3, 1e-2])
)  # fmt: skip
def test_rows_agree_up_to_the_limit(stored: list[float], data: st.DataObject, expected: float) -> None:
    size, limits = len(stored), Limit(expected)
    noise = data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size))
    margins = [1.0] * size
    small = [value + limits.of_a_row * 0.9 * each / size for value, each in zip(stored, noise, strict=True)]
    assert row_agreement(stored, small, limits, margins=margins).problem is None
    shifted = [value + 1.1 * limits.of_a_row for value in stored]
    assert "differ by" in (row_agreement(stored, shifted, limits, margins=margins).problem or "")
    assert row_agreement(stored, shifted, limits, margins=margins, sharpness=size + 2.0).problem is None
    far = [*stored[:-1], float("-inf")]
    assert "possible in one" in (row_agreement(stored, far, limits, margins=margins, border=0.5).problem or "")
    assert row_agreement(stored, far, limits, margins=margins, border=1.5).problem is None
    longer = row_agreement(stored, [*stored, -1.0], limits, margins=[*margins, 1.0])
    assert (longer.problem, longer.mean, longer.tokens) == (None, 0.0, size)


@pytest.mark.parametrize("impossible", [False, True])
def test_a_token_that_a_list_left_open_is_no_finding(impossible: bool) -> None:
    """Neither in what is stored nor in what is scored again; what both tell is compared all the same."""
    known = [-0.5, -math.inf if impossible else -2.0, -1.0]
    left_open, limits, margins = [-0.5, math.nan, -1.0], Limit(1e-5), [1.0] * 3
    for stored, now in ((known, left_open), (left_open, known), (left_open, left_open)):
        found = row_agreement(stored, now, limits, margins=margins)
        assert (found.problem, found.mean, found.tokens) == (None, 0.0, 2)
    other = row_agreement(left_open, [-0.5, -2.0, -1.5], limits, margins=margins)
    assert "differ by" in (other.problem or "")
    crossed = row_agreement(left_open, [-0.5, math.nan, -math.inf], limits, margins=margins)
    assert crossed.problem == "token 3 is possible in one of the two alone"
