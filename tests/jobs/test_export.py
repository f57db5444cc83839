"""Exports: every number and every text of a run comes back from every format, and the harness's files are its own."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import math
import os
import re
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import rote
from rote import GREEDY, InputError, Near, Run, RunError, Scheme
from rote.analysis.groups import sampled_rates, with_origin
from rote.jobs.export import Format, export
from rote.jobs.sweep import sweep
from rote.store.files import plain
from tests.cli.command import rote_here
from tests.corpus.corpora import write_jsonl, write_texts
from tests.fakes import OnlyScores
from tests.jobs.support import SIZES, files
from tests.seals import reseal

TABLES: tuple[Format, ...] = ("csv", "jsonl", "parquet")
FLOAT32 = ("token_log_probs", "base_log_probs", "margins")
LISTS = (*FLOAT32, "ranks", "token_ends", "lower_by_tolerance", "upper_by_tolerance", "candidates")
NEAR = ("lower", "upper", "verdict", "lower_by_tolerance", "upper_by_tolerance", "eos_mass", "estimate",
        "estimate_error", "greedy_distance", "near_token_evals", "candidates")  # fmt: skip
SAME = ("example_id", "scheme", "start", "suffix_start", "suffix_end", "bounded", "greedy", "repetitions", "split",
        "token_evals", "token_log_probs", "base_log_probs", "ranks", "margins", "token_ends")  # fmt: skip


@pytest.fixture(scope="module")
def runs(model: Any, bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each sort, in several shards."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [{"id": f"a{i}", "text": alice[3000 * i :][:600]} for i in range(1, 4)]
    rows += [{"id": f"g{i}", "text": gatsby[9000 * i :][:600]} for i in range(1, 4)]
    corpus = write_jsonl(folder / "corpus.jsonl", rows)
    unseen = write_texts(
        folder / "unseen", [{"id": f"{i}.txt", "text": gatsby[9000 * i + 4000 :][:600]} for i in (1, 2)]
    )
    drawn = rote.Draw(documents=6, examples=4, runs=2, prefix=8, suffix=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rote.jobs.engine.SHARD_FLOPS, "cpu", 1.0)
        schemes = [Scheme(), GREEDY, Scheme(0.7, None), Scheme(1.0, None, 0.9)]
        text = alice[3000:3700] + "\n=1+1 שלום 👩\u200d👧 \"x\",'y'\0\r\n" + gatsby[5000:5100]
        return {
            "schemes": rote.scan(model, text, out=folder / "schemes", schemes=schemes, windows=SIZES),
            "bounded": rote.scan(bundled, gatsby[5000:5800] + alice[3000:3300], out=folder / "bounded", stop_early=True,
                                 schemes=[Scheme(), Scheme(top_k=None)], windows=rote.Windows(8, 40, 10)),
            "near": rote.score(bundled, examples(bundled, alice), out=folder / "near", name="a b.jsonl",
                               near=Near(tolerance=2, budget=30, samples=5, gap=0.0, until="budget")),
            "drawn": rote.rate(bundled, corpus, out=folder / "drawn", held_out=unseen, draw=drawn),
        }  # fmt: skip


def examples(model: Any, alice: str) -> list[rote.Example]:
    found = rote.windows(alice[3000:4500], model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=25))
    kept = found[:40]
    extra = [
        {"split": "train", "repetitions": i, "note": "=x", "many": [i], "odd": i if i % 2 else str(i)}
        for i in range(40)
    ]
    return [rote.Example(f"@{i}", e.prefix, e.suffix, metadata=extra[i] if i % 3 else {}) for i, e in enumerate(kept)]


@pytest.fixture(params=["schemes", "bounded", "near", "drawn"])
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


# --- csv, jsonl, parquet


def read(path: Path, to: Format) -> list[dict[str, Any]]:
    """The rows of a file as a program without Rote reads them, lists as lists."""
    if to == "parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if to == "jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def same(found: Any, stored: Any, to: Format, *, float32: bool = False, outside: Any = None) -> bool:
    """Whether a value read back is the one that was stored; `outside` says that a null stands for -inf, not for inf."""
    if to == "csv":
        if stored is None:
            return bool(found == "")
        if isinstance(stored, str):
            return bool(found.removeprefix("'") == stored.replace("\0", "␀"))
        if isinstance(stored, bool):
            return bool(found == str(stored).lower())
        if isinstance(stored, float):
            return bool(float(found) == stored)
        return bool(int(found) == stored)
    if to == "jsonl" and isinstance(stored, float) and math.isinf(stored):
        return found is None and (stored < 0) == bool(outside)
    if float32 and stored is not None and found is not None:
        return bool(np.float32(found) == np.float32(stored))
    return bool(found == stored) and type(found) is type(stored)


def same_list(found: Any, stored: list[Any] | None, to: Format, name: str, outside: list[bool]) -> bool:
    if stored is None or to == "parquet":
        return same(found, stored, to) if stored is None else found == stored
    values = json.loads(found) if to == "csv" else found
    if name in FLOAT32:
        assert len(values) == len(stored)
        negative = outside if name == "margins" else [True] * len(stored)
        return all(
            same(one, two, "jsonl", float32=True, outside=out)
            for one, two, out in zip(values, stored, negative, strict=True)
        )
    return bool(values == stored)


@pytest.mark.parametrize("to", TABLES)
def test_every_row_comes_back(run: Run, to: Format, tmp_path: Path) -> None:
    written = export(run.folder, to, out=tmp_path / "table")
    assert written.files == (tmp_path / "table",)
    rows, stored, manifest = read(written.files[0], to), run.scores.to_dicts(), run.manifest
    assert written.rows == len(rows) == len(stored) > 0
    passages = run.texts
    for row, score in zip(rows, stored, strict=True):
        outside = [value == -math.inf for value in score["token_log_probs"]]
        for name in (*SAME, *(NEAR if manifest.near else ())):
            column = f"near_{name.removeprefix('near_')}" if name in NEAR else name
            if name in LISTS:
                assert same_list(row[column], score[name], to, name, outside), name
            else:
                assert same(row[column], score[name], to), name
        log_prob = score["log_prob"]
        known = not score["bounded"] or log_prob == -math.inf
        assert same(row["log_prob_upper"], log_prob, to, outside=True)
        assert same(row["log_prob"], log_prob if known else None, to, outside=True)
        # polars' exp and Python's may differ in the last bit
        assert float(row["p_z_upper"]) == pytest.approx(math.exp(log_prob), rel=1e-15)
        assert row["p_z"] == (row["p_z_upper"] if known else "" if to == "csv" else None)
        prefix, suffix = passages[score]
        assert same(row["prefix"], prefix, to)
        assert same(row["suffix"], suffix, to)
        assert same(row["model"], manifest.model.name, to)
        assert same(row["bos_token"], manifest.model.bos_token, to)
        for key, value in json.loads(score["metadata"]).items():
            if key not in ("split", "repetitions"):
                cell = row[f"metadata.{key}"]
                cell = json.loads(cell.removeprefix("'")) if key in ("many", "odd") else cell
                assert cell == value if key in ("many", "odd") else same(cell, value, to)


def test_the_runs_have_what_is_hard_to_write(runs: dict[str, Run]) -> None:
    scores = runs["schemes"].scores
    assert (scores["log_prob"] == -math.inf).any()
    assert scores["margins"].list.eval(pl.element() == math.inf).list.any().any()
    assert scores["token_log_probs"].list.eval(pl.element() == -math.inf).list.any().any()
    stopped = runs["bounded"].scores
    assert not stopped["bounded"].all()
    bounds = stopped.filter("bounded")["log_prob"]
    assert (bounds == -math.inf).any()
    assert (bounds > -math.inf).any()
    near = runs["near"].scores
    assert near["candidates"].list.len().max()
    assert near["estimate"].is_not_null().any()
    for run in runs.values():
        assert len(run.shards()) > 1


@pytest.mark.parametrize("to", [*TABLES, "lm-eval"])
def test_the_same_export_is_the_same_bytes(runs: dict[str, Run], to: Format, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        export(runs["near"].folder, to, out=tmp_path / name / "table")
    assert files(tmp_path / "one") == files(tmp_path / "two") != {}


def test_one_scheme(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["schemes"]
    export(run.folder, "jsonl", out=tmp_path / "all")
    export(run.folder, "jsonl", out=tmp_path / "greedy", scheme="greedy")
    rows = read(tmp_path / "all", "jsonl")
    assert read(tmp_path / "greedy", "jsonl") == [row for row in rows if row["scheme"] == "greedy"] != []
    with pytest.raises(InputError, match=r"has no scheme 'top_k=3'; it has 'temperature=1 top_k=40', 'greedy', "):
        export(run.folder, "csv", scheme="top_k=3")


def test_polars_and_pyarrow_read_the_types(runs: dict[str, Run], tmp_path: Path) -> None:
    for to in TABLES:
        export(runs["drawn"].folder, to, out=tmp_path / to)
    found = pl.read_parquet(tmp_path / "parquet")
    assert found.schema["metadata.run"] == pl.Int64
    assert found.schema["p_z"] == pl.Float64
    as_csv = pl.read_csv(tmp_path / "csv", infer_schema_length=None)
    assert as_csv.columns == found.columns == pl.read_ndjson(tmp_path / "jsonl").columns
    assert as_csv["log_prob"].to_list() == found["log_prob"].to_list()
    assert as_csv["suffix"].str.strip_prefix("'").to_list() == found["suffix"].to_list()


def test_progress_counts_rows(runs: dict[str, Run], tmp_path: Path) -> None:
    for to in (*TABLES, "lm-eval"):
        told: list[tuple[str, int, int]] = []
        export(runs["schemes"].folder, to, out=tmp_path / to, progress=lambda *each, told=told: told.append(each))
        total = runs["schemes"].scores.height
        assert told[-1] == ("exported", total, total)
        assert len(told) == len(runs["schemes"].shards())


# --- sweeps, comparisons, reconstructions


@pytest.fixture(scope="module")
def swept(model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    given = rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=200))
    sweep(model, given, out=folder, schemes=[Scheme(), Scheme(2.0, None)], prefixes=[4, 8], suffixes=[3, 6])
    return folder


@pytest.mark.parametrize("to", TABLES)
def test_a_sweep(swept: Path, to: Format, tmp_path: Path) -> None:
    points = json.loads((swept / "sweep.json").read_text())["points"]
    assert export(swept, to, out=tmp_path / "table").rows == len(points) == 8
    for row, point in zip(read(tmp_path / "table", to), points, strict=True):
        assert (row["scheme"], int(row["prefix"]), int(row["suffix"])) == (
            point["scheme"],
            point["prefix"],
            point["suffix"],
        )
        for name in ("greedy_rate", "rate_at_tau", "rate_at_1e_4", "maximum_rate"):
            rate, column = point["rates"][name], name.replace("1e_4", "0.0001")
            assert [float(row[f"{column}{end}"]) for end in ("", "_low", "_high")] == [rate["rate"], *rate["interval"]]
        cells = json.loads(row["np_table"]) if to == "csv" else row["np_table"]
        assert cells == point["rates"]["np_table"]
    assert export(swept, to, out=tmp_path / "other", scheme="temperature=2").rows == 4
    with pytest.raises(InputError, match=r"no scheme 'x'; it has 'temperature=1 top_k=40', 'temperature=2'"):
        export(swept, to, scheme="x")


@pytest.mark.parametrize("to", TABLES)
def test_a_comparison(runs: dict[str, Run], to: Format, tmp_path: Path) -> None:
    found = rote.compare([runs["schemes"].folder])
    found.write(tmp_path / "compared")
    stored = found.table.to_dicts()
    assert export(tmp_path / "compared", to).files == (tmp_path / f"compared/export.{to}",)
    for row, score in zip(read(tmp_path / f"compared/export.{to}", to), stored, strict=True):
        assert set(row) == set(score)
        for name, value in score.items():
            assert same(row[name], value, to, outside=True) or isinstance(value, float), name
            if isinstance(value, float) and to == "parquet":
                assert row[name] == value or (math.isnan(row[name]) and math.isnan(value))
    with pytest.raises(InputError, match="scheme does not apply"):
        export(tmp_path / "compared", to, scheme="greedy")


def test_what_has_no_rows_says_what_to_use_instead(swept: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="export one of its runs to lm-eval"):
        export(swept, "lm-eval")
    (tmp_path / "manifest.json").write_text('{"kind": "reconstruct"}')
    with pytest.raises(RunError, match=r"holds a reconstruction.*generated\.txt.*chunks\.jsonl.*diff\.jsonl"):
        export(tmp_path, "csv")


# --- lm-evaluation-harness


def exported(run: Run, out: Path, **options: Any) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """results_*.json and the samples of each task, found by their names as the harness's scripts find them."""
    written = export(run.folder, "lm-eval", out=out, **options)
    folder = out / run.manifest.model.name.replace("/", "__")
    assert {path.parent for path in written.files} == {folder}
    (path,) = folder.glob("results_*.json")
    samples = {}
    for each in folder.glob("samples_*.jsonl"):
        task = each.name[each.name.find("_") + 1 : each.name.rfind("_")]
        assert each.name[each.name.rfind("_") + 1 : -len(".jsonl")] == path.stem.removeprefix("results_")
        samples[task] = [json.loads(line) for line in each.read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(written.files) == len(samples) + 1
    return json.loads(path.read_text(encoding="utf-8")), samples


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tasks_of(run: Run) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each task's name and rows, spelled out."""
    manifest, rows = run.manifest, run.scores.to_dicts()
    for scheme in manifest.schemes:
        own = [row for row in rows if row["scheme"] == scheme]
        label = re.sub(r"[^A-Za-z0-9_]", "_", scheme)
        if manifest.sampling is not None:
            main = [row for row in own if json.loads(row["metadata"])["corpus"] == "main"]
            yield f"rote_corpus_{label}", main
            yield f"rote_unseen_{label}_held_out", [row for row in own if row not in main]
        else:
            yield f"rote_{manifest.source.name.removesuffix('.jsonl').replace(' ', '_')}_{label}", own


def test_the_harness_s_files(run: Run, tmp_path: Path) -> None:
    results, samples = exported(run, tmp_path)
    expected, manifest = dict(tasks_of(run)), run.manifest
    assert set(samples) == set(expected)
    for key in ("results", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "task_hashes"):
        assert set(results[key]) == set(expected), key
    passages = run.texts
    for task, rows in expected.items():
        assert [one["doc_id"] for one in samples[task]] == list(range(len(rows)))
        for one, row in zip(samples[task], rows, strict=True):
            prefix, suffix = passages[row]
            assert one["arguments"] == {"gen_args_0": {"arg_0": prefix, "arg_1": suffix}}
            assert (one["target"], one["filter"], one["doc"]["example_id"]) == (suffix, "none", row["example_id"])
            ((log_prob, greedy),) = one["filtered_resps"]
            assert one["resps"] == [[[log_prob, greedy]]]
            assert greedy == str(row["greedy"])
            if row["bounded"] and row["log_prob"] > -math.inf:
                assert (log_prob, one["doc"]["log_prob_upper"]) == ("nan", row["log_prob"])
            else:
                assert float(log_prob) == row["log_prob"]
            assert one["exact_match"] == row["greedy"]
            assert one["extractable"] == (row["log_prob"] >= math.log(manifest.tau))
            least = 0 if row["bounded"] else math.exp(row["log_prob"])
            bounds = [one[name] for name in (("p_z_lower", "p_z_upper") if manifest.stop_early else ("p_z", "p_z"))]
            assert bounds == pytest.approx([least, math.exp(row["log_prob"])], rel=1e-15)
            if manifest.near:
                assert (one["near_lower"], one["near_upper"]) == (row["lower"], row["upper"])
                assert one["near_extractable"] == (row["lower"] >= manifest.tau)
            assert one["prompt_hash"] == sha(prefix)
            assert one["target_hash"] == sha(suffix)
            assert one["doc_hash"] == sha(json.dumps(one["doc"], indent=2, ensure_ascii=False))
        hashes = "".join(one["doc_hash"] + one["prompt_hash"] + one["target_hash"] for one in samples[task])
        assert results["task_hashes"][task] == sha(hashes)
        metrics = samples[task][0]["metrics"]
        config, found = results["configs"][task], results["results"][task]
        assert [each["metric"] for each in config["metric_list"]] == metrics == list(results["higher_is_better"][task])
        assert config["output_type"] == "loglikelihood"
        assert config["metadata"]["scheme"] == rows[0]["scheme"]
        assert config["metadata"]["bos_token"] == manifest.model.bos_token
        assert found["sample_len"] == len(rows) == results["n-samples"][task]["effective"]
        for metric in metrics:
            values = [one[metric] for one in samples[task]]
            assert found[f"{metric},none"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert results["model_name"] == manifest.model.name


def test_standard_errors_where_they_are_true(runs: dict[str, Run], tmp_path: Path) -> None:
    def errors(name: str) -> dict[str, dict[str, Any]]:
        results, _ = exported(runs[name], tmp_path / name)
        return {
            task: {metric: value for metric, value in found.items() if "_stderr" in metric}
            for task, found in results["results"].items()
        }

    for found in errors("schemes").values():  # windows of one text are no sample of anything
        assert set(found.values()) == {"N/A"}
    (found,) = errors("near").values()
    p_z = [math.exp(row["log_prob"]) for row in runs["near"].scores.to_dicts()]
    assert found["p_z_stderr,none"] == pytest.approx(statistics.stdev(p_z) / math.sqrt(len(p_z)), rel=1e-12)
    drawn = errors("drawn")
    rows = with_origin(runs["drawn"].scores).filter(pl.col("corpus") == "main")
    rate = sampled_rates(rows).rate_at_tau
    assert 0 < rate.rate < 1
    assert rate.effective is not None
    expected = math.sqrt(rate.rate * (1 - rate.rate) / rate.effective)
    found = drawn["rote_corpus_temperature_1_top_k_40"]
    assert found["extractable_stderr,none"] == pytest.approx(expected, rel=1e-9)
    unseen = drawn["rote_unseen_temperature_1_top_k_40_held_out"]  # nothing is extracted: no scatter to go by
    assert unseen["extractable_stderr,none"] == "N/A"
    results, _ = exported(runs["drawn"], tmp_path / "again")
    intervals = results["configs"]["rote_corpus_temperature_1_top_k_40"]["metadata"]["intervals_95"]
    assert intervals["extractable"] == pytest.approx(rate.interval, rel=1e-12)


def test_intervals_of_a_served_run_take_in_what_is_left_open(
    bundled: Any, alice: str, gatsby: str, tmp_path: Path
) -> None:
    """From the lower end of the rate that is certain to the upper end of the one that may be, as in its summary."""
    served, scheme = OnlyScores(bundled, 3), Scheme(1.0, None, 0.9)
    rows = [{"id": f"a{i}", "text": alice[3000 * i :][:400]} for i in range(1, 4)]
    rows += [{"id": f"g{i}", "text": gatsby[9000 * i :][:400]} for i in range(1, 3)]
    draw = rote.Draw(documents=5, examples=3, runs=1, prefix=8, suffix=8)
    corpus = write_jsonl(tmp_path / "corpus.jsonl", rows)
    for run in (
        rote.score(served, examples(bundled, alice), out=tmp_path / "score", schemes=[scheme]),
        rote.rate(served, corpus, out=tmp_path / "rate", draw=draw, schemes=[scheme]),
    ):
        rates = run.finished.numbers.rates
        assert rates.rate_at_tau.rate < rates.rate_at_tau.rate_upper
        results, _ = exported(run, tmp_path / f"{run.folder.name} exported")
        (config,) = results["configs"].values()
        intervals = config["metadata"]["intervals_95"]
        assert intervals["extractable"] == pytest.approx(rates.rate_at_tau.interval, rel=1e-12)
        assert intervals["exact_match"] == pytest.approx(rates.greedy_rate.interval, rel=1e-12)


def test_one_task_of_several(runs: dict[str, Run], tmp_path: Path) -> None:
    results, samples = exported(runs["schemes"], tmp_path, scheme="greedy")
    assert list(results["results"]) == list(samples) == ["rote_text_greedy"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("org/model", "org__model"),
        ("/a/b c", "__a__b c"),
        ("..", "model"),
        ('a"<>:|?*[]b', "a__b"),
        ("x" * 300, "x" * 100),
    ],
)
def test_the_model_s_name_becomes_a_folder_s(name: str, folder: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run = Run(shutil.copytree(runs["bounded"].folder, tmp_path / "run"))
    manifest = plain(run.manifest)
    manifest["model"]["name"] = name
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    reseal(run.folder)
    written = export(run.folder, "lm-eval", out=tmp_path / "out")
    assert {path.parent for path in written.files} == {tmp_path / "out" / folder}


def test_a_source_s_name_becomes_a_file_s(runs: dict[str, Run], tmp_path: Path) -> None:
    run = Run(shutil.copytree(runs["bounded"].folder, tmp_path / "run"))
    manifest = plain(run.manifest)
    manifest["source"]["name"] = "漢" * 80 + "/../x.txt"
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    reseal(run.folder)
    written = export(run.folder, "lm-eval", out=tmp_path / "out")
    assert all(len(path.name.encode()) < 255 for path in written.files)
    assert {path.parent.parent for path in written.files} == {tmp_path / "out"}


# --- the command, and bad input


def test_the_command(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["schemes"].folder, tmp_path / "run"))
    before = files(folder)
    result = rote_here("export", folder, "--to", "csv")
    assert result.code == 0
    assert str(folder / "export.csv") in result.out
    assert f"{runs['schemes'].scores.height} rows" in result.out
    nul = sum("\0" in text for row in runs["schemes"].scores.to_dicts() for text in runs["schemes"].texts[row])
    assert f"{nul} NUL characters written as ␀" in result.err
    assert rote_here("export", folder, "--to", "lm-eval").code == 0
    assert {name for name in files(folder) if not name.startswith(("export.csv", "lm-eval/"))} == set(before)
    assert {name: content for name, content in files(folder).items() if name in before} == before


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--to", "xlsx"], 2, ["'--to'", "'xlsx' is not one of 'csv', 'jsonl', 'parquet', 'lm-eval', 'evidence'"]),
        (["--to", "csv", "--scheme", "top_k=1"], 1, ["has no scheme 'top_k=1'", "it has 'temperature=1 top_k=40'"]),
        (["--to", "csv", "--out", "."], 1, ["is a folder", "give the name of a file"]),
    ],
)
def test_bad_options(options: list[str], code: int, words: list[str], runs: dict[str, Run]) -> None:
    result = rote_here("export", runs["bounded"].folder, *options)
    assert result.code == code
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err


def test_a_format_that_is_none(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="to must be csv, jsonl, parquet, lm-eval or evidence, not 'xlsx'"):
        export(runs["bounded"], "xlsx", out=tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["manifest.json", "text.txt", "scores/000000.parquet", "summary.json", "seal.json"])
def test_nothing_of_the_run_is_written_over(name: str, runs: dict[str, Run]) -> None:
    folder = runs["bounded"].folder
    before = files(folder)
    with pytest.raises(InputError, match=f"{name} is a file of .* itself; choose another"):
        export(folder, "parquet", out=folder / name)
    assert files(folder) == before


@pytest.mark.parametrize("to", [*TABLES, "lm-eval"])
def test_no_folder_is_made_on_the_way(to: Format, runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(f"there is no folder {tmp_path / 'typo'}. Make it first")):
        export(runs["bounded"].folder, to, out=tmp_path / "typo" / "table")
    assert not list(tmp_path.iterdir())


def test_no_other_run_s_file_is_written_over(runs: dict[str, Run], swept: Path) -> None:
    run, other = runs["bounded"].folder, runs["schemes"].folder
    export(other, "csv")
    for folder, name in ((other, "export.csv"), (other, "summary.json"), (other, "report.html"), (swept, "sweep.json")):
        before = files(folder)
        with pytest.raises(InputError, match=f"{name} is a file of .*{folder.name} itself; choose another"):
            export(run, "csv", out=folder / name)
        assert files(folder) == before
    with pytest.raises(InputError, match=r"is among the scores of .*; choose another"):
        export(run, "parquet", out=other / "scores" / "999999.parquet")
    with pytest.raises(InputError, match=r"schemes is the folder of a run; choose another, such as .*schemes/lm-eval"):
        export(run, "lm-eval", out=other)
    (other / "export.csv").unlink()


def test_only_what_is_called_an_export_is_written_over(runs: dict[str, Run], tmp_path: Path) -> None:
    run, mine = runs["bounded"].folder, tmp_path / "results.csv"
    mine.write_text("kept")
    with pytest.raises(InputError, match=r"results\.csv is there already; choose another name, or delete it first"):
        export(run, "csv", out=mine)
    assert mine.read_text() == "kept"
    for _ in range(2):  # the same command again
        assert export(run, "csv").files == (run / "export.csv",)
        assert export(run, "csv", out=tmp_path / "export.csv").rows


def test_folders_that_cannot_be_exported(runs: dict[str, Run], tmp_path: Path) -> None:
    nowhere = rote_here("export", tmp_path / "nowhere", "--to", "csv")
    assert f"there is no folder {tmp_path / 'nowhere'}; give the one that a finished run was written to." in nowhere.err
    assert "has no manifest.json, so it is not a run folder" in rote_here("export", tmp_path, "--to", "csv").err
    run = Run(shutil.copytree(runs["schemes"].folder, tmp_path / "run"))
    shard = run.shards()[1]
    content = shard.read_bytes()
    text = run.folder / "text.txt"
    moved = text.rename(tmp_path / "text.txt")
    with pytest.raises(RunError, match=r"text\.txt is gone, and the seal of .* names it\. Put the right file back"):
        export(run.folder, "jsonl")
    reseal(run.folder)
    with pytest.raises(RunError, match=r"cannot read .*text\.txt"):
        export(run.folder, "jsonl")
    moved.rename(text)
    shard.write_bytes(content[:-50])
    with pytest.raises(RunError, match=r"000001\.parquet is not what was sealed.* delete it and run the command"):
        export(run.folder, "csv")
    reseal(run.folder)
    with pytest.raises(RunError, match=r"000001\.parquet is damaged"):
        export(run.folder, "csv")
    assert not list(run.folder.glob(".*part"))
    assert not (run.folder / "export.csv").exists()
    shard.unlink()
    with pytest.raises(
        RunError, match=r"000001\.parquet is gone, and the seal of .* names it\. Put the right file back"
    ):
        export(run.folder, "csv")
    reseal(run.folder)
    with pytest.raises(RunError, match="unfinished"):
        export(run.folder, "csv")


@pytest.mark.parametrize("to", [*TABLES, "lm-eval"])
def test_a_full_disk_leaves_nothing_behind(
    to: Format, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*No space left on device"):
        export(runs["bounded"].folder, to, out=tmp_path / "out")
    assert files(tmp_path) == {}
