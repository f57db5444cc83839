from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import Draw, Example, Near, Run, Writing
from rote.corpus.bench import Guess, write_guesses, write_ids
from rote.jobs import engine
from tests.jobs.support import HOSTILE, MARKUP, SIZES
from tests.report.members import membership
from tests.report.probes import probe
from tests.seals import unfinish

DRAW = Draw(documents=4, examples=3, runs=2, prefix=8, suffix=6)
WRITING = Writing(tokens=60, step=5, beams=1, context_tokens=30)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return rote.load(tiny_folder, rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def text(alice: str) -> str:
    return alice[3000:4200]  # about 115 windows: four shards


@pytest.fixture
def undisturbed(model: Any, text: str, tmp_path: Path) -> Run:
    run = rote.scan(model, text, out=tmp_path / "undisturbed", windows=SIZES)
    assert len(run.shards()) == 4
    return run


@pytest.fixture(scope="module")
def known(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A scan of a passage that the bundled model knows between two that it does not."""
    text = gatsby[20_000:20_400] + alice[3000:3500] + gatsby[30_000:30_400]
    folder = tmp_path_factory.mktemp("known") / "book"
    return rote.scan(bundled, text, out=folder, name="book.txt", windows=rote.Windows(prefix=20, suffix=10, stride=20))


@pytest.fixture(scope="module")
def results(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of every public result, by its kind; whatever in it comes from outside would like to be markup."""
    folder = tmp_path_factory.mktemp("results") / MARKUP
    folder.mkdir()
    (folder / f"{MARKUP} model").symlink_to(tiny_folder)
    (folder / f"{MARKUP} truth.txt").write_text(f"{HOSTILE[:50]} was read by nobody {MARKUP} and so on {HOSTILE}")
    lines = [json.dumps({"id": f"{MARKUP}{i}", "text": HOSTILE[50 * i :][:300]}) for i in range(4)]
    (folder / f"{MARKUP}.jsonl").write_text("\n".join(lines))
    model = rote.load(folder / f"{MARKUP} model", rote.ModelOptions(device="cpu"))
    cut = rote.windows(HOSTILE, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=100))
    examples = [Example(f"{MARKUP}{i}", e.prefix, e.suffix, metadata={MARKUP: MARKUP}) for i, e in enumerate(cut)]
    near = Near(tolerance=1, budget=20)
    likely: dict[str, Any] = {"schemes": ["temperature=1", "temperature=0.7"], "tau": 1e-60}
    options = {"name": MARKUP, **likely}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        scan = rote.scan(model, HOSTILE, windows=SIZES, out=folder / "scan", **options)
        other = rote.scan(model, HOSTILE, windows=SIZES, out=folder / MARKUP, name=MARKUP, tau=1e-60)
        score = rote.score(model, examples, near=near, out=folder / "score", **options)
        rate = rote.rate(model, folder / f"{MARKUP}.jsonl", draw=DRAW, out=folder / "rate", **likely)
    sweep = rote.sweep(model, examples, prefixes=[4, 8], suffixes=[3, 6], out=folder / "sweep", **options)
    compared = rote.compare([scan, other], out=folder / "compared")
    written = rote.reconstruct(
        model, HOSTILE[:50], truth=folder / f"{MARKUP} truth.txt", writing=WRITING, name=MARKUP, out=folder / "written"
    )
    write_ids(folder / f"{MARKUP}.npy", np.array([[1, 2], [3, 4]]))
    write_guesses(folder / f"{MARKUP}.csv", [Guess(0, (1, 2)), Guess(1, (1, 2))])
    rote.bench.score(folder / f"{MARKUP}.csv", answers=folder / f"{MARKUP}.npy", out=folder / "bench")
    for name, done in (("scan", scan), ("written", written)):
        shutil.copytree(done.folder, folder / f"unfinished {name}")
        unfinish(folder / f"unfinished {name}")
    return {
        "model": model,
        "scan": scan,
        "score": score,
        "rate": rate,
        "unfinished run": rote.open(folder / "unfinished scan"),
        "sweep": sweep,
        "comparison": compared,
        "saved comparison": rote.open(folder / "compared"),
        "reconstruction": written,
        "unfinished reconstruction": rote.open(folder / "unfinished written"),
        "bench score": rote.open(folder / "bench"),
        "membership": rote.open(membership(folder / "membership", ids=[f"{MARKUP}{i}" for i in range(9)]).folder),
        "probe": rote.open(probe(folder / "probe", texts=6, ids=[MARKUP], answers=[MARKUP], warnings=[MARKUP]).folder),
        "spots": rote.spots(scan, at=1e-30, top=2),
        "no spots": rote.spots(scan, at=1.0),
        "checked": rote.check(score, model, examples=[f"{MARKUP}0", f"{MARKUP}1"], samples=3),
        "passage": rote.show(score, example=f"{MARKUP}0"),
        "passage in two runs": rote.show([scan, other], at=500),
        "doctor": rote.Doctor({"rote": "0", MARKUP: MARKUP}),
        "verbatim": rote.verbatim(model, examples, ["temperature=1", "greedy"]),
        "near-verbatim": rote.near_verbatim(model, examples, "temperature=1", near=near),
    }
