"""rote.longer: longer windows where a scan has hot-spots, with the scan's own model or a given one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import rote
from rote import InputError, Run, RunError

LONGER: dict[str, Any] = {"prefix": 10, "suffix": 30, "stride": 20}


def test_without_a_model_the_scan_s_own_is_loaded(known: Run, bundled: Any, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    found = rote.longer(known, **LONGER, out=tmp_path / "own", progress=lambda *what: told.append(what))
    given = rote.longer(known.folder, bundled, **LONGER, out=tmp_path / "given")
    assert found is not None
    assert given is not None
    assert [what for what in told if what[0] == "loaded"] == [("loaded", 0, 1), ("loaded", 1, 1)]
    assert_frame_equal(found.scores, given.scores, check_exact=True)
    assert found.manifest.model == known.manifest.model
    assert (found.manifest.schemes, found.manifest.tau) == (known.manifest.schemes, known.manifest.tau)
    cut = found.manifest.windows
    assert cut is not None
    assert (cut.prefix, cut.suffix, cut.stride) == (10, 30, 20)
    spots = rote.spots(known)
    assert all(any(spot.start <= at < spot.end for spot in spots.spots) for at in found.scores["suffix_start"])


def test_without_hot_spots_there_is_nothing_to_score(
    known: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "load_model", None)  # whoever loads a model, fails
    assert rote.longer(known, **LONGER, at=1.0, out=tmp_path / "run") is None
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_looked_at_again_is_refused(known: Run, bundled: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="beside prefix=10, suffix=502 is the largest that fits"):
        rote.longer(known, bundled, prefix=10, suffix=510, out=tmp_path / "run")
    with pytest.raises(InputError, match="no window at stride=100000 has its suffix start in a hot-spot"):
        rote.longer(known, bundled, prefix=10, suffix=30, stride=100_000, out=tmp_path / "run")
    scored = rote.score(bundled, [rote.Example("x", (5, 6), (7,))], out=tmp_path / "scored")
    with pytest.raises(RunError, match="is a score run and has no text"):
        rote.longer(scored)
    assert not (tmp_path / "run").exists()
