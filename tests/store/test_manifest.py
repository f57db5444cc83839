"""A folder that holds another run is refused, with the difference named and nothing touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Example, ModelOptions, Run, RunError, Scheme
from rote.models.base import ModelIdentity
from rote.store.files import FORMAT, digest
from rote.store.manifest import made_with, refuse_if_different, refuse_other_model
from tests import tiny
from tests.cli.command import rote_here
from tests.jobs.support import SIZES, files, same_table
from tests.report.runs import MODEL


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"windows": replace(SIZES, stride=20)}, "windows.stride"),
        ({"windows": replace(SIZES, prefix=9)}, "windows.prefix"),
        ({"windows": replace(SIZES, suffix=5)}, "windows.suffix"),
        ({"tau": 0.002}, "tau"),
        ({"schemes": [Scheme(top_k=39)]}, "schemes"),
        ({"schemes": [Scheme(temperature=1.0000001)]}, "schemes"),
        ({"schemes": [Scheme(top_p=0.9)]}, "schemes"),
        ({"schemes": [Scheme(), rote.GREEDY]}, "schemes"),
        ({"stop_early": True}, "stop_early"),
        ({"batch_size": 7}, "batch_size"),
    ],
)
def test_a_changed_option_is_refused_by_name(
    change: dict[str, Any], field: str, undisturbed: Run, model: Any, text: str
) -> None:
    options: dict[str, Any] = {"windows": SIZES} | change
    refused_unchanged(undisturbed, field, lambda: rote.scan(model, text, out=undisturbed.folder, **options))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bos": "never"}, "model.bos"),
        ({"dtype": "bfloat16"}, "model.dtype"),
    ],
)
def test_a_model_loaded_otherwise_is_refused_by_name(
    change: dict[str, Any], field: str, undisturbed: Run, tiny_folder: Path, text: str
) -> None:
    other = rote.load(tiny_folder, ModelOptions(device="cpu", **change))
    refused_unchanged(undisturbed, field, lambda: rote.scan(other, text, out=undisturbed.folder, windows=SIZES))


def test_a_model_of_another_revision_is_refused_by_name(undisturbed: Run, tiny_folder: Path, text: str) -> None:
    other = rote.load(tiny_folder, ModelOptions(device="cpu"))
    other.revision = "older"  # type: ignore[attr-defined]  # as a hub model has one: those on this machine have none
    refused_unchanged(
        undisturbed, "model.revision", lambda: rote.scan(other, text, out=undisturbed.folder, windows=SIZES)
    )


def test_batches_that_follow_from_another_memory_are_refused(
    undisturbed: Run, model: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU of another size: batch-mates decide the last digits."""
    fixed = rote.scan(model, text, out=tmp_path / "fixed", batch_size=7, windows=SIZES)
    assert (undisturbed.manifest.batch_tokens, fixed.manifest.batch_tokens) == (model.batch_tokens, None)
    monkeypatch.setattr(type(model), "batch_tokens", model.batch_tokens - 1)
    refused_unchanged(
        undisturbed, "batch_tokens", lambda: rote.scan(model, text, out=undisturbed.folder, windows=SIZES)
    )
    assert rote.scan(model, text, out=fixed.folder, batch_size=7, windows=SIZES)


def test_other_weights_are_refused(undisturbed: Run, text: str, tmp_path: Path) -> None:
    other = rote.load(tiny.save(tmp_path / "tiny", seed=1), ModelOptions(device="cpu"))
    refused_unchanged(
        undisturbed, "model.fingerprint", lambda: rote.scan(other, text, out=undisturbed.folder, windows=SIZES)
    )


def test_another_text_is_refused(undisturbed: Run, model: Any, text: str) -> None:
    refused_unchanged(
        undisturbed, "source.sha256", lambda: rote.scan(model, text[:-1] + "X", out=undisturbed.folder, windows=SIZES)
    )


def test_other_examples_are_refused(model: Any, tmp_path: Path) -> None:
    run = rote.score(model, [Example("x", (5, 6), (7,))], out=tmp_path / "run")
    for other in (
        Example("x", (5, 6), (8,)),
        Example("y", (5, 6), (7,)),
        Example("x", (5, 6), (7,), metadata={"a": 1}),
    ):
        refused_unchanged(run, "source.sha256", lambda other=other: rote.score(model, [other], out=run.folder))  # type: ignore[misc]


def refused_unchanged(run: Run, field: str, act: Callable[[], object]) -> None:
    before = files(run.folder)
    with pytest.raises(RunError, match=rf"(?m)^  {field}: the folder has .*, this command ") as error:
        act()
    assert "Choose another out, or delete the folder" in str(error.value)
    assert files(run.folder) == before


def test_the_command_line_names_the_changed_option(tiny_folder: Path, text: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(text)
    command: list[str | Path] = [
        "scan",
        tmp_path / "book.txt",
        "--model",
        tiny_folder,
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    ]
    assert rote_here(*command, "--prefix", "8", "--suffix", "6").code == 0
    again = rote_here(*command, "--prefix", "8", "--suffix", "6", "--stride", "20")
    assert again.code == 1
    assert "windows.stride: the folder has 10, this command 20" in again.err
    assert "Choose another --out, or delete the folder" in again.err


def test_the_names_of_text_and_model_do_not_matter(
    undisturbed: Run, tiny_folder: Path, text: str, tmp_path: Path
) -> None:
    moved = shutil.copytree(tiny_folder, tmp_path / "moved")
    again = rote.scan(
        rote.load(moved, ModelOptions(device="cpu")), text, out=undisturbed.folder, name="renamed.txt", windows=SIZES
    )
    assert again.manifest.source.name == "text"


@pytest.mark.parametrize("name", ["text.txt", "summary.json", "report.html", "scores/000000.parquet"])
def test_files_that_belong_to_no_run_are_not_taken_over(name: str, model: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / "scores").mkdir()
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunError, match=rf"{name} is there already .* choose another out"):
        rote.scan(model, text, out=tmp_path, windows=SIZES)
    assert (tmp_path / name).read_text() == "precious"
    assert not (tmp_path / "manifest.json").exists()


def test_other_files_in_the_folder_are_left_alone(undisturbed: Run, model: Any, text: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.md").write_text("precious")
    same_table(rote.scan(model, text, out=folder, windows=SIZES), undisturbed)
    assert (folder / "notes.md").read_text() == "precious"


def test_what_a_manifest_holds(undisturbed: Run, model: Any, text: str) -> None:
    made = undisturbed.manifest
    assert (made.format, made.kind, made.tau) == (7, "scan", 0.001)
    assert FORMAT == 7
    assert (made.source.name, made.source.sha256, made.source.characters) == ("text", digest(text), len(text))
    assert made.model == model.identity()
    assert datetime.fromisoformat(made.created).utcoffset() == timedelta(0)
    assert made.versions == made_with()
    assert set(made.versions) == {"rote", "torch", "transformers", "python"}
    stored = json.loads((undisturbed.folder / "manifest.json").read_text())
    assert stored["format"] == 7
    assert stored["logit_tolerance"] == made.logit_tolerance == model.logit_tolerance
    assert not {"sampling", "sweep"} & stored.keys()  # what was not asked for is not named
    assert digest("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"


def test_another_model_is_refused_in_the_fields_that_matter() -> None:
    before = ModelIdentity(
        name="a", revision=None, fingerprint="1", parameters=1, dtype="float32", device="cpu", compiled=False,
        tokenizer=None, bos="auto", bos_token=None, bos_text=None, trust_remote_code=False, hashed="sampled",
    )  # fmt: skip
    now = replace(before, name="b", dtype="bfloat16")
    refuse_other_model(before, now, "folder", "fingerprint", fix="Take a.")
    for fields in (("dtype",), ("fingerprint", "dtype")):
        with pytest.raises(RunError, match=r"its dtype is 'float32', that of b is 'bfloat16'\. Take a\."):
            refuse_other_model(before, now, "folder", *fields, fix="Take a.")


def test_hashes_of_two_kinds_are_not_compared() -> None:
    before = replace(MODEL, hashed="whole")
    now = replace(before, hashed="sampled", fingerprint="2")
    with pytest.raises(RunError, match=r"by a whole hash of the weights, .* cannot be compared.*fingerprint='whole'"):
        refuse_other_model(before, now, "folder", "fingerprint", fix="")
    refuse_other_model(before, replace(now, fingerprint=before.fingerprint), "folder", "fingerprint", fix="")


def differing(stored: Any, asked: Any) -> list[str]:
    """What the refusal says, line by line; nothing where there is none."""
    try:
        refuse_if_different(stored, asked, "folder")
    except RunError as error:
        return [line.strip() for line in str(error).splitlines()[1:-1]]
    return []


def test_every_difference_is_named_and_nothing_else() -> None:
    stored = {"created": "1", "source": {"name": "a", "sha256": "x"}, "versions": {"python": "3.11", "rote": "1"}}
    same = {"created": "2", "source": {"name": "b", "sha256": "x"}, "versions": {"python": "3.12", "rote": "1"}}
    assert differing(stored, stored) == differing(stored, same) == []
    other = {**same, "versions": {"python": "3.12", "rote": "2"}, "source": {"name": "a", "sha256": "y"}}
    assert differing(stored, other) == [
        "source.sha256: the folder has 'x', this command 'y'",
        "versions.rote: the folder has '1', this command '2'",
    ]
    # Names that do not decide at their own place, elsewhere
    assert differing({"a": {"created": 1}, "name": 1}, {"a": {"created": 2}, "name": 2}) == [
        "a.created: the folder has 1, this command 2",
        "name: the folder has 1, this command 2",
    ]
    # What only one of the two has, and a mapping against something else
    assert differing({"a": 1}, {"b": {"c": 2, "d": None}}) == [
        "a: the folder has 1, this command 'nothing'",
        "b: the folder has 'nothing', this command c=2",
    ]
    assert differing({"a": {"b": 1}}, {"a": 1}) == ["a: the folder has b=1, this command 1"]


def test_long_values_are_cut_off() -> None:
    for length, shown in ((198, "'" + "x" * 198 + "'"), (199, "'" + "x" * 199 + "…"), (500, "'" + "x" * 199 + "…")):
        assert differing({"a": "x" * length}, {"a": 1}) == [f"a: the folder has {shown}, this command 1"]
