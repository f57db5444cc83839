"""The command line: what it prints, and every way to misuse it with the one line that it answers."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import rote
from rote import Run
from rote.cli.main import BY_NAME
from rote.corpus.formats import write_examples
from rote.store.files import plain
from tests import tiny
from tests.cli.command import Result, rote_here, rote_process
from tests.cli.test_errors import not_in_python_s_words
from tests.conftest import ROOT

ALL_GOOD = ("--prefix", "8", "--suffix", "6", "--stride", "50", "--device", "cpu")


@pytest.fixture
def book(alice: str, tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(alice[3000:4000])
    return path


@pytest.fixture
def model_copy(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def refused(result: Result, *words: str) -> None:
    """One line that says what is wrong and what to do; no number printed, no traceback."""
    assert result.code == 1
    assert result.out == ""
    lines = result.err.strip().splitlines()
    assert len(lines) == 1, result.err
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    if "could not load the model" not in lines[0]:  # for reasons in transformers' words
        not_in_python_s_words("scan", lines[0])


# --- texts


def test_empty_text(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    refused(rote_here("scan", tmp_path / "empty.txt"), "empty.txt is empty", "Give a file with text")


def test_binary_file(tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(b"%PDF-1.7\n\0\0\1\2")
    refused(rote_here("scan", tmp_path / "book.pdf"), "book.pdf is not a text file: byte 9 is NUL", "UTF-8")


def test_text_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes("naïve".encode("latin-1"))
    refused(rote_here("scan", tmp_path / "book.txt"), "book.txt is not UTF-8", "0xEF", "iconv")


def test_missing_text(tmp_path: Path) -> None:
    refused(rote_here("scan", tmp_path / "nowhere.txt"), "nowhere.txt: there is no such file", "Check the path")


@pytest.mark.parametrize("text", ["Alice was beginning to get very tired", "one two three", "x"])
def test_text_shorter_than_a_window(text: str, tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text(text)
    result = rote_here("scan", tmp_path / "short.txt", "--model", tiny_folder, "--out", tmp_path / "run")
    refused(result, "short.txt is too short", "50 + 50 tokens", f"{len(text)} character", "--prefix")
    assert not (tmp_path / "run").exists()


# --- models


def scan(book: Path, model: Path | str, *options: str) -> Result:
    return rote_here("scan", book, "--model", model, "--out", book.parent / "run", *ALL_GOOD, *options)


def test_missing_model(book: Path) -> None:
    refused(scan(book, "nobody/no-such-model"), "could not load the model 'nobody/no-such-model'", "existing model")


def test_folder_without_a_model(book: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(scan(book, tmp_path / "empty"), "has no config.json", "check the path")


def test_file_that_is_no_model(book: Path) -> None:
    refused(scan(book, book), "book.txt is a file, not a model", "a .gguf file")


def test_missing_gguf_file(book: Path, tmp_path: Path) -> None:
    refused(scan(book, tmp_path / "x.gguf"), "there is no GGUF file at", "x.gguf", "check the path")


def test_gguf_file_that_is_none(book: Path, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"something else")
    refused(scan(book, tmp_path / "x.gguf"), "could not load the model", "x.gguf")


def test_tokenizer_of_another_model(book: Path, model_copy: Path) -> None:
    path = model_copy / "tokenizer.json"
    settings = json.loads(path.read_text())
    settings["model"]["vocab"] |= {f"word{i}": tiny.VOCABULARY + i for i in range(100)}
    path.write_text(json.dumps(settings))
    refused(scan(book, model_copy), "ids up to 4195", "vocabulary ends at 4095", "belongs to another model")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_truncated_model_file(name: str, book: Path, model_copy: Path) -> None:
    path = model_copy / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(scan(book, model_copy), f"could not load the model '{model_copy}'")


def test_weights_of_another_shape(book: Path, model_copy: Path) -> None:
    path = model_copy / "config.json"
    path.write_text(path.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))
    result = scan(book, model_copy)
    assert result.code == 1
    assert f"error: could not load the model '{model_copy}'" in result.err
    assert "Traceback" not in result.err


def test_weights_that_are_not_numbers(book: Path, tmp_path: Path) -> None:
    folder = tiny.copy_bundled(tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.3.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    refused(scan(book, folder), "logits are NaN or infinite at example 'w0'", "Check the weights")


def test_bos_always_without_a_bos_token(book: Path, model_copy: Path) -> None:
    tiny.without_bos(model_copy)
    refused(scan(book, model_copy, "--bos", "always"), "has no BOS token", "use --bos auto or never")


# --- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stride", "0"], ["--stride must be a whole number of at least 1, not 0"]),
        (["--prefix", "0"], ["--prefix must be a whole number of at least 1, not 0"]),
        (["--suffix", "-3"], ["--suffix must be a whole number of at least 1, not -3"]),
        (["--temperature", "-1"], ["--temperature must be 0 (greedy) or a number of at least 1e-6", "-1"]),
        (["--temperature", "nan"], ["--temperature must be 0 (greedy) or a number of at least 1e-6", "nan"]),
        (["--top-k", "4097"], ["--top-k 4097 is larger than the model's vocabulary of 4096", "--top-k 0 to keep"]),
        (["--top-k", "-1"], ["--top-k must be a whole number of at least 1, not -1; --top-k 0 keeps the whole"]),
        (["--top-p", "0"], ["--top-p must lie in (0, 1], not 0"]),
        (["--temperature", "0", "--top-k", "5"], ["--temperature 0 is greedy", "--top-k", "leave them out"]),
        (
            ["--temperature", "0", "--top-k", "40"],
            ["--top-k 40 changes nothing beside --temperature 0", "leave it out"],
        ),
        (["--temperature", "0", "--top-p", "0.9"], ["--temperature 0 is greedy", "--top-p", "leave them out"]),
        (["--tau", "0"], ["--tau must lie in (0, 1], not 0"]),
        (["--tau", "1.5"], ["--tau must lie in (0, 1], not 1.5"]),
        (["--stop-early", "--tau", "0.5"], ["with --stop-early, --tau must be at most 0.01"]),
        (["--batch-size", "0"], ["--batch-size must be a whole number of at least 1, not 0"]),
        (["--batch-size", "many"], ["--batch-size many: give 'auto' or a whole number of at least 1"]),
        (["--device", "abacus"], ["--device must be auto, cpu, cuda, cuda:N or mps, not 'abacus'"]),
        (["--device", "cpu:x"], ["--device must be auto, cpu, cuda, cuda:N or mps, not 'cpu:x'"]),
        (
            ["--device-map", "round"],
            ["--device-map must be auto, balanced, balanced_low_0 or sequential, not 'round'."],
        ),
    ],
    ids=" ".join,
)
def test_impossible_option(options: list[str], words: list[str], book: Path, tiny_folder: Path) -> None:
    refused(scan(book, tiny_folder, *options), *words)
    assert not (book.parent / "run").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tolerance", "-1"], ["--tolerance must be a whole number from 0 to 4095, not -1"]),
        (["--tolerance", "100"], ["every output is near enough to the suffix of example", "tolerance below that"]),
        (["--variant", "pruned"], ["--variant changes nothing here; it goes with --method beam"]),
        (["--budget", "99", "--width", "5"], ["--width changes nothing here; it goes with --method beam"]),
        (["--seed", "7"], ["--seed changes nothing here; it goes with --samples"]),
        (["--samples", "5", "--seed", "-1"], ["--seed must be a whole number of at least 0, not -1"]),
        (
            ["--method", "sample", "--budget", "99", "--samples", "5"],
            ["a number of --samples or a --budget for them, not both"],
        ),
        (["--method", "sample", "--budget", "9"], ["--budget 9: so many token evaluations do not pay for one sample"]),
        (["--method", "beam", "--width", "90", "--budget", "99"], ["do not cover a beam of 90; give at least"]),
        (["--budget", "12"], ["--budget 12: so many token evaluations do not cover the first pass; give at least 13"]),
        (["--width", "0"], ["--width must be a whole number of at least 1, not 0"]),
        (["--samples", "0"], ["--samples must be a whole number of at least 1, not 0"]),
        (
            ["--method", "beam", "--samples", "5"],
            ["--samples go with --method sample or --method fork, not with --method beam"],
        ),
        (["--gap", "1"], ["--gap must lie in [0, 1), not 1"]),
        (["--stop-early"], ["near-verbatim extraction needs every example in full; it cannot stop early"]),
    ],
    ids=" ".join,
)
def test_impossible_option_of_near(options: list[str], words: list[str], book: Path, tiny_folder: Path) -> None:
    refused(scan(book, tiny_folder, "--near", *options), *words)
    assert not (book.parent / "run").exists()


@pytest.mark.parametrize(
    ("options", "known"),
    [
        (["--dtype", "int4"], ["auto", "float32", "bfloat16", "float16"]),
        (["--bos", "sometimes"], ["auto", "always", "never"]),
        (["--near", "--distance", "cosine"], ["levenshtein", "hamming"]),
        (["--near", "--eos", "maybe"], ["stop", "exclude", "ignore"]),
        (["--near", "--method", "guess"], ["fork", "beam", "sample"]),
        (["--near", "--method", "beam", "--variant", "wide"], ["closing", "pruned", "baseline"]),
        (["--near", "--until", "dawn"], ["worthwhile", "decision", "budget"]),
    ],
    ids=" ".join,
)
def test_choice_that_is_none(options: list[str], known: list[str], book: Path, tiny_folder: Path) -> None:
    """The parser knows the choices: it names the option and all of them."""
    result = scan(book, tiny_folder, *options)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err
    option, value = options[-2:]
    assert f"Invalid value for '{option}'" in result.err
    assert f"'{value}' is not one of {', '.join(map(repr, known))}." in result.err
    assert not (book.parent / "run").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tolerance", "3"), ("distance", "hamming"), ("budget", "99"), ("method", "beam"), ("variant", "pruned"),
        ("width", "5"), ("samples", "10"), ("eos", "ignore"), ("gap", "0"), ("until", "budget"), ("seed", "0"),
    ],
)  # fmt: skip
def test_options_of_near_need_near(option: str, value: str, book: Path, tiny_folder: Path) -> None:
    refused(scan(book, tiny_folder, f"--{option}", value), f"--{option} is an option of --near; give --near as well")
    assert not (book.parent / "run").exists()


@pytest.mark.parametrize("device", ["cuda", "cuda:99", "mps"])
def test_device_that_is_not_there(device: str, book: Path, tiny_folder: Path) -> None:
    import torch

    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if here.get(device):
        pytest.skip(f"this machine has {device}")
    refused(scan(book, tiny_folder, "--device", device), f"--device {device} was asked for, but")


def test_windows_longer_than_the_context(alice: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(alice[:3500])
    options: list[str | Path] = ["--prefix", "600", "--stride", "100", "--device", "cpu", "--out", tmp_path / "run"]
    result = rote_here("scan", tmp_path / "book.txt", *options)
    refused(result, "600 + 50 tokens takes 650 positions", "the model's context of 512", "use a smaller --prefix")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["scan", "sweep", "rate"])
def test_they_are_refused_before_the_first_is_cut(command: str, bundled: Any, tmp_path: Path) -> None:
    """Cutting windows of 5,000 tokens out of a book took five minutes, and then not one could be read."""
    (tmp_path / "book.txt").write_text("word " * 200_000)
    book, out = tmp_path / "book.txt", tmp_path / "run"
    calls: dict[str, Callable[[], Any]] = {
        "scan": lambda: rote.scan(bundled, book, windows=rote.Windows(prefix=5000), out=out),
        "sweep": lambda: rote.sweep(bundled, book, prefixes=[10, 5000], out=out),
        "rate": lambda: rote.rate(bundled, tmp_path, draw=rote.Draw(prefix=5000), out=out),
    }
    began = time.perf_counter()
    with pytest.raises(rote.InputError, match=r"5000 .* more than the model's context of 512; use a smaller prefix"):
        calls[command]()
    assert time.perf_counter() - began < 1
    assert not out.exists()


def test_folder_that_cannot_be_written(book: Path, tiny_folder: Path) -> None:
    result = rote_here("scan", book, "--model", tiny_folder, "--out", book / "run", *ALL_GOOD)
    refused(result, f"cannot make the folder {book / 'run'}: Not a directory", "Choose another --out")


def test_words_where_numbers_belong(book: Path) -> None:
    result = rote_here("scan", book, "--stride", "often")
    assert result.code == 2
    assert "--stride" in result.err
    assert "Traceback" not in result.err


# --- examples


def score(path: Path, model: Path, *options: str) -> Result:
    return rote_here("score", path, "--model", model, "--out", path.parent / "run", "--device", "cpu", *options)


def test_broken_line(tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text('{"prefix": [1, 2], "suffix": [3]}\n{"prefix": [1, 2], "suffix": [3\n')
    refused(score(path, tiny_folder), "examples.jsonl, line 2: not JSON", "one JSON object a line")


def test_missing_examples(tiny_folder: Path, tmp_path: Path) -> None:
    refused(score(tmp_path / "nowhere.jsonl", tiny_folder), "nowhere.jsonl: there is no such file", "Check the path")


@pytest.mark.parametrize("token", [tiny.VOCABULARY, 1 << 40])
def test_ids_beyond_the_vocabulary(token: int, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps({"id": "odd", "prefix": [1, 2], "suffix": [3, token]}))
    refused(score(path, tiny_folder), f"example 'odd' has token id {token}", "0 to 4095", "Tokenise it again")


def test_text_example_that_is_too_short(tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text('{"text": "Alice was beginning"}')
    refused(score(path, tiny_folder), "line 1", "prefix 50 + suffix 50 need 100", "--prefix")


def test_examples_of_any_length(bundled: Any, tmp_path: Path) -> None:
    """Token ids are used as they are; --prefix and --suffix are for texts."""
    path = tmp_path / "examples.jsonl"
    path.write_text(
        '{"id": "ids", "prefix": [5, 6, 7], "suffix": [8, 9], "repetitions": 3}\n'
        + json.dumps({"text": "Alice was beginning to get very tired of sitting by her sister on the bank. " * 8})
    )
    result = rote_here("score", path, "--device", "cpu", "--out", tmp_path / "run", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["examples"] == 2
    assert [len(ranks) for ranks in Run.open(tmp_path / "run").scores["ranks"]] == [2, 50]


# --- what is printed


def test_loading_draws_no_bars_of_other_libraries(bundled: Any, book: Path) -> None:
    path = tiny.write_gguf(book.parent / "tiny.gguf", tiny.build("llama", tie_word_embeddings=False), bundled.tokenizer)
    with rote_process("scan", book, "--model", path, "--out", book.parent / "run", *ALL_GOOD) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "%|" not in err


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rote.cli", "scan", str(tmp_path / "nowhere.txt")]
    plain, debug = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=False) for more in ([], ["--debug"])
    )
    assert plain.returncode == debug.returncode == 1
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.stderr.splitlines()[-1].startswith("rote.errors.InputError: ")


def test_scan_and_report(bundled: Any, alice: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(alice[20_000:21_500])
    out = tmp_path / "run"
    result = rote_here("scan", tmp_path / "book.txt", "--stride", "100", "--device", "cpu", "--out", out)
    assert result.code == 0, result.err
    text = rote.windows(alice[20_000:21_500], bundled.tokenizer, rote.Windows(stride=100))
    assert f"{len(text)} of {len(text)} windows (100%) count as extracted" in result.out
    for name in ("rates", "coverage", "scheme", "bos", "uncertainty", "cost", "report"):
        assert re.search(rf"^{name} ", result.out, re.MULTILINE)
    assert {p.name for p in out.iterdir()} == {
        ".lock", "manifest.json", "report.html", "scores", "seal.json", "summary.json", "text.txt"
    }  # fmt: skip

    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    again = rote_here("report", out)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(result.out)
    tables = again.out.removeprefix(result.out)
    for title in ("Windows that come at least once in n generations", "12 of 12 windows with p_z of 0.0001 or more"):
        assert title in tables
    assert (out / "report.html").read_bytes() == page

    machine = rote_here("report", out, "--json")
    assert json.loads(machine.out) == json.loads((out / "summary.json").read_text())


def test_near(tmp_path: Path) -> None:
    lines = (ROOT / "training/ladder.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(lines[i] for i in (0, 132, 153, 239)), encoding="utf-8")
    out = tmp_path / "run"
    options = ["--near", "--budget", "160", "--tolerance", "3", "--samples", "20", "--device", "cpu"]
    result = rote_here("score", tmp_path / "some.jsonl", "--out", out, *options)
    assert result.code == 0, result.err
    assert re.search(r"^near +within 3 edits \(levenshtein\), 3 examples reach", result.out, re.MULTILINE)
    assert "for near-verbatim search" in result.out

    run = Run.open(out)
    wanted = {"tolerance": 3, "budget": 160, "samples": 20, "gap": 0.01, "until": "worthwhile", "method": "fork"}
    assert wanted.items() <= plain(run.manifest.near).items()
    rows = run.scores.to_dicts()
    for row in rows:
        assert len(row["lower_by_tolerance"]) == len(row["upper_by_tolerance"]) == 4
        assert math.exp(row["log_prob"]) - 1e-6 <= row["lower"] <= row["upper"] <= 1
        assert row["estimate"] >= row["lower"] - 1e-9
        assert row["greedy_distance"] in range(5)
    assert [row["verdict"] for row in rows] == ["undecided", "extractable", "extractable", "extractable"]
    assert all(row["candidates"] for row in rows[1:])
    (numbers,) = json.loads((out / "summary.json").read_text())["schemes"].values()
    assert numbers["near"]["verdicts"] == {"extractable": 3, "not extractable": 0, "undecided": 1}

    page = (out / "report.html").read_text(encoding="utf-8")
    assert ">Near-verbatim</h2>" in page
    assert "<del>" in page
    again = rote_here("report", out)
    assert again.code == 0
    assert again.out.startswith(result.out)
    changed = rote_here("score", tmp_path / "some.jsonl", "--out", out, *options, "--seed", "1")
    assert changed.code == 1
    assert "near.seed: the folder has 0, this command 1" in changed.err


def test_near_scan_by_beam(book: Path, tiny_folder: Path) -> None:
    options = ["--near", "--method", "beam", "--variant", "baseline", "--width", "2", "--tolerance", "1"]
    result = scan(book, tiny_folder, *options)
    assert result.code == 0, result.err
    assert re.search(r"^near .* \(beam\)\.$", result.out, re.MULTILINE)
    scores = Run.open(book.parent / "run").scores
    assert scores["near_token_evals"].max() == 8 + 5 * 2
    assert not scores["lower"].has_nulls()


def test_schemes_from_options(book: Path, tiny_folder: Path) -> None:
    for options, scheme in [
        ([], "temperature=1 top_k=40"),
        (["--top-k", "0"], "temperature=1"),
        (["--temperature", "0.7", "--top-p", "0.9", "--top-k", "5"], "temperature=0.7 top_k=5 top_p=0.9"),
        (["--temperature", "0"], "greedy"),
        (["--temperature", "0", "--top-k", "0"], "greedy"),
    ]:
        shutil.rmtree(book.parent / "run", ignore_errors=True)
        result = scan(book, tiny_folder, *options, "--json")
        assert list(json.loads(result.out)["schemes"]) == [scheme]


def test_written_examples_can_be_scored(bundled: Any, alice: str, tmp_path: Path) -> None:
    examples = rote.windows(alice[:1500], bundled.tokenizer, rote.Windows(stride=300))
    write_examples(tmp_path / "examples.jsonl", examples)
    result = rote_here("score", tmp_path / "examples.jsonl", "--device", "cpu", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    found = Run.open(tmp_path / "run").scores
    assert found["log_prob"].to_list() == [r.log_prob for r in rote.verbatim(bundled, examples)]
    assert f"{len(examples)} of {len(examples)} examples can be extracted" in result.out


def test_the_default_folder_is_named_after_text_and_model(
    book: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(book.parent)
    result = rote_here("scan", book, "--model", tiny_folder, *ALL_GOOD)
    assert result.code == 0
    assert (book.parent / "runs" / "book-tiny" / "report.html").is_file()


def test_doctor() -> None:
    found = json.loads(rote_here("doctor", "--json").out)
    assert found["rote"] == rote.__version__
    assert "cpu" in found["devices"]
    assert re.search(r"p_z = 0\.\d+ ", found["bundled model"])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name.removeprefix("extra ") for name in found if name.startswith("extra ")} == set(declared)
    for extra in declared:
        assert found[f"extra {extra}"] == "installed" or f"pip install 'rote[{extra}]'" in found[f"extra {extra}"]
    assert "bundled model" in rote_here("doctor").out


def test_doctor_without_torch() -> None:
    with rote_process("doctor", "--json", before="import sys; sys.modules['torch'] = None") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    found = json.loads(out)
    assert found["devices"].startswith("unknown: torch is missing")
    assert found["devices"].endswith("pip install torch")
    assert found["bundled model"].startswith("not tried: ")


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rote.jobs.doctor.installed", lambda name: None)
    monkeypatch.setattr("rote.jobs.doctor.try_bundled", lambda: "not tried")
    found = json.loads(rote_here("doctor", "--json").out)
    assert found["torch"] == "missing: pip install torch"
    assert found["extra bleu"] == "missing sacrebleu: pip install 'rote[bleu]'"


def test_every_extra_is_of_use() -> None:
    """What doctor tells people to get is imported somewhere, and is what pyproject.toml gets them."""
    from rote.jobs.doctor import EXTRAS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() == EXTRAS.keys()
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for extra, packages in EXTRAS.items():
        wanted = {re.split("[<>=]", requirement)[0] for requirement in extras[extra]}
        assert set(packages) <= wanted
        if extra != "dev":
            modules = [name.replace("-", "_") for name in packages]
            assert all(re.search(rf"(import|from) {name}\b", source) for name in modules), extra


def test_help_and_version() -> None:
    assert rote_here("--version").out == f"rote {rote.__version__}\n"
    listed = re.findall(r"^│ (\w+) +\w", rote_here("--help").out, re.MULTILINE)
    assert listed == list(dict.fromkeys(command.split()[0] for command in BY_NAME))
    for command in BY_NAME:
        page = rote_here(*command.split(), "--help")
        assert page.code == 0
        assert f"Example: rote {command}" in page.out
