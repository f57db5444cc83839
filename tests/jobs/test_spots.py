"""rote.spots: the hot-spots of a scan as a typed result, the same that the command line prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Run, RunError, Spots
from rote.analysis.coverage import hot_spots
from rote.store.files import plain
from tests.cli.command import rote_here


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"at": 0.9, "rank": "probability", "top": 1}, ["--at", "0.9", "--rank", "probability", "--top", "1"]),
        ({"span": "example", "body": "450:900"}, ["--span", "example", "--body", "450:900"]),
    ],
)
def test_the_result_is_what_the_command_line_prints(options: dict[str, Any], flags: list[str], known: Run) -> None:
    found = rote.spots(known, **options)
    assert isinstance(found, Spots)
    assert plain(found) == json.loads(rote_here("spots", known.folder, *flags, "--json").out)
    assert found.spots


def test_spots_say_where_and_how_likely(known: Run) -> None:
    found, text = rote.spots(known, at=0.3), known.text or ""
    expected = hot_spots(known.scores, len(text), 0.3)
    assert (found.hot_spots, found.characters) == (len(expected), sum(spot.characters for spot in expected))
    assert (found.source, found.model, found.scheme) == ("book.txt", "bundled", "temperature=1 top_k=40")
    assert (found.threshold, found.rank, found.span) == (0.3, "length", "suffix")
    for spot, own in zip(found.spots, expected, strict=True):
        assert (spot.start, spot.end, spot.log_prob, spot.example_id) == (
            own.start, own.end, own.log_prob, own.example_id,
        )  # fmt: skip
        assert spot.text == text[spot.start : spot.end]
        assert len(spot.text) == spot.characters
    assert rote.spots(known, at=1.0).spots == []


def test_a_run_is_given_as_a_handle_or_as_its_folder(known: Run) -> None:
    handle = rote.open(known.folder)
    assert isinstance(handle, Run)
    assert rote.spots(known) == rote.spots(handle) == rote.spots(known.folder) == rote.spots(str(known.folder))


def test_what_is_no_scan_has_no_spots(model: Any, tmp_path: Path) -> None:
    run = rote.score(model, [rote.Example("x", (5, 6), (7,))], out=tmp_path / "run")
    for given in (run, run.folder):
        with pytest.raises(RunError, match=r"run is a score run and has no text; give the folder of a rote scan\."):
            rote.spots(given)
    with pytest.raises(RunError, match="there is no folder"):
        rote.spots(tmp_path / "nowhere")
