"""Arguments of the wrong kind are refused by name, before anything is written, never by an error from the inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import InputError, ModelError, RoteError, Run, RunError

SMALL = rote.Windows(10, 5, 200)


@pytest.mark.parametrize("model", ["bundled", None, 5, Path("model")])
def test_what_is_no_model(model: Any, alice: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: rote.scan(model, alice[:500], windows=SMALL, out=tmp_path / "run"),
        lambda: rote.score(model, [{"prefix": [1], "suffix": [2]}], out=tmp_path / "run"),
        lambda: rote.rate(model, tmp_path, out=tmp_path / "run"),
        lambda: rote.sweep(model, alice[:500], prefixes=[5], out=tmp_path / "run"),
        lambda: rote.reconstruct(model, "Alice was", out=tmp_path / "run"),
        lambda: rote.verbatim(model, [{"prefix": [1], "suffix": [2]}]),
        lambda: rote.near_verbatim(model, [{"prefix": [1], "suffix": [2]}]),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"model must be a model that rote\.load gives, not"):
            call()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tau": None}, "tau must be a number, not None"),
        ({"tau": True}, "tau must be a number, not True"),
        ({"tau": "x"}, "tau must be a number, not 'x'"),
        ({"tau": 0}, r"tau must lie in \(0, 1\]"),
        ({"stop_early": "no"}, "stop_early must be True or False, not 'no'"),
        ({"near": True}, "near must be a rote.Near, or None, not True"),
        ({"near": {}}, "near must be a rote.Near, or None"),
        ({"windows": None}, "windows must be a rote.Windows, not None"),
        ({"name": 5}, "name must be a text, not 5"),
        ({"schemes": None}, "scheme"),
        ({"out": ""}, "out must be a path, not ''"),
        ({"out": 5}, "out must be a path, not 5"),
    ],
)
def test_what_is_no_option_of_a_scan(options: Any, problem: str, bundled: Any, alice: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        rote.scan(bundled, alice[:500], **{"windows": SMALL, "out": tmp_path / "run", **options})
    assert not (tmp_path / "run").exists()
    assert not Path("manifest.json").exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda: rote.Scheme(temperature="a"),  # type: ignore[arg-type]
        lambda: rote.Scheme(temperature=None),  # type: ignore[arg-type]
        lambda: rote.Scheme(temperature=True),
        lambda: rote.Scheme(top_p=True),
        lambda: rote.Scheme(min_p="0.05"),  # type: ignore[arg-type]
        lambda: rote.Near(gap=None),  # type: ignore[arg-type]
        lambda: rote.Near(width=None),  # type: ignore[arg-type]
        lambda: rote.Writing(length_penalty="x"),  # type: ignore[arg-type]
        lambda: rote.Writing(section_break="{number:d}"),
        lambda: rote.ModelOptions(device=None),  # type: ignore[arg-type]
        lambda: rote.ModelOptions(compile="x"),  # type: ignore[arg-type]
        lambda: rote.Scheme.parse("top_k=inf"),
        lambda: rote.Scheme.parse("top_k=nan"),
    ],
)
def test_what_is_no_value(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


def test_numbers_of_numpy_are_numbers() -> None:
    assert rote.Windows(np.int64(5), 6, 7) == rote.Windows(5, 6, 7)  # type: ignore[arg-type]
    made = rote.Scheme(np.float32(0.5), np.int64(5))  # type: ignore[arg-type]
    assert made == rote.Scheme(0.5, 5)
    assert (type(made.temperature), type(made.top_k)) == (float, int)


def test_a_tau_of_numpy_is_stored(bundled: Any, alice: str, tmp_path: Path) -> None:
    run = rote.scan(bundled, alice[:500], windows=SMALL, tau=np.float64(0.25), out=tmp_path / "run")
    assert rote.Run.open(run.folder).manifest.tau == 0.25


def test_models_that_cannot_be_loaded() -> None:
    for name in ("", " "):
        with pytest.raises(InputError, match="model is empty"):
            rote.load(name)
    with pytest.raises(InputError, match=r"options must be a rote\.ModelOptions"):
        rote.load("bundled", "cpu")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="there is no model at nowhere"):
        rote.load(Path("nowhere"))
    with pytest.raises(InputError, match="revision is for models of the hub"):
        rote.load("bundled", rote.ModelOptions(revision="x"))


def test_folders_of_the_wrong_kind(known: Run, tmp_path: Path) -> None:
    functions: list[Any] = [rote.spots, rote.show, rote.compare, rote.check, rote.longer, rote.open, rote.figures]
    functions.append(lambda given: rote.export(given, "csv"))
    for call in functions:
        for given in (None, 5):
            with pytest.raises(InputError, match="a folder that holds results is asked for, not"):
                call(given) if call is not rote.show else rote.show(given, at=5)
    for empty in (lambda: rote.show([], at=5), lambda: rote.compare([]), lambda: rote.figures([])):
        with pytest.raises(InputError, match="give at least one folder"):
            empty()
    (tmp_path / "prefix-5").mkdir()
    (tmp_path / "prefix-5" / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match="holds a sweep that is unfinished"):
        rote.open(tmp_path)
    with pytest.raises(RoteError, match="no example 'nobody'"):
        rote.check(known, examples="nobody")


def test_an_example_without_an_id_is_not_stored(bundled: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an example without an id"):
        rote.score(bundled, [rote.Example("", (1,), (2,))], out=tmp_path / "run")
