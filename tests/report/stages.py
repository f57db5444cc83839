"""Small scans in stages: of a text that is known in its middle, whole or stopped, and made of chance."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import rote
from rote import Run
from rote.analysis.narrow import narrowed
from rote.analysis.refine import tiles
from rote.analysis.summary import THRESHOLDS, summarise
from rote.store.run import Passages, RunView
from rote.store.stages import Refined
from tests.report.runs import manifest

HOT = rote.Scheme(temperature=1.5, top_k=None)  # what the model knows comes out with all sorts of probabilities


class Stopped(Exception):
    pass


def staged(model: Any, alice: str, gatsby: str, out: Path, *, stop: bool = False) -> Run:
    """A scan whose stages leave about half of the windows out."""

    def ended(run: Run) -> None:
        if stop:
            raise Stopped

    text = gatsby[20_000:22_000] + alice[3000:3500] + gatsby[40_000:42_000]
    windows, refine = rote.Windows(prefix=10, suffix=25, stride=20), rote.Refine(audit=10)
    try:
        run = rote.scan(
            model, text, out=out, name="half known.txt", windows=windows, schemes=[HOT], refine=refine, on_stage=ended
        )
    except Stopped:
        run = Run(out)
        run.report()
    assert run.complete != stop
    assert run.view.left_out is not None
    return run


SCHEME = "temperature=1 top_k=40"
TEXT = ("It was the best of times 🐇, it was the worst of times,\nit was the age of wisdom. " * 40)[:2900]


def by_chance(seed: int, *, audited: bool = True, text: str = TEXT) -> RunView:
    """A scan in stages, made of chance, known in some places; not audited, it was stopped after the first stage."""
    chance, closer = random.Random(seed), 3
    places, end = [], 0
    for start in range(0, len(text) - 200, 17):
        end = max(end, start + 40 + chance.randrange(30, 120))
        places.append({"start": start, "suffix_start": start + 40, "suffix_end": end})
    known = {chance.randrange(0, len(places) - 10) for _ in range(3)}
    rows = [_row(chance, place, any(i - 10 < one <= i for one in known)) for i, place in enumerate(places)]
    stages = [chance.choice((None, None, 1, 2, closer + 1)) if audited else None for _ in rows]
    for i in (*tiles(pl.DataFrame(places)).tolist(), *range(40, 52)):  # of these, a stretch was looked at in full
        stages[i] = 0
    scored = [{**row, "stage": stage} for row, stage in zip(rows, stages, strict=True) if stage is not None]
    scores = pl.DataFrame(scored, schema=SCHEMA, infer_schema_length=None)
    refined = Refined(
        audit=sum(stage == closer + 1 for stage in stages) or 10, audit_seed=0, windows=len(rows), closer=closer
    )
    plain = manifest(scores, characters=len(text), schemes=[SCHEME])
    own = replace(plain, refined=refined, shards=None)
    return RunView(
        manifest=own,
        summary=summarise(own, narrowed([scores], own, THRESHOLDS), [], None, None, refined.stages if audited else 1),
        folder=Path("run"),
        scores=scores,
        texts=Passages(text),
        places=pl.DataFrame(places),
    )


def _row(chance: random.Random, place: dict[str, int], known: bool) -> dict[str, Any]:
    tokens = [chance.uniform(-1.5, 0) if known else chance.uniform(-6, 0) for _ in range(4)]
    return {
        "example_id": f"w{place['start']}",
        "scheme": SCHEME,
        **place,
        "log_prob": sum(tokens),
        "greedy": known and chance.random() < 0.7,
        "bounded": False,
        "token_evals": chance.randrange(50, 100),
        "token_log_probs": tokens,
        "base_log_probs": tokens,
        "ranks": [1, 2, 1, 1],
        "margins": [1.0] * 4,
        "token_ends": [5, 10, 15, place["suffix_end"] - place["suffix_start"]],
        "repetitions": None,
        "split": None,
        "metadata": "{}",
    }


SCHEMA: dict[str, Any] = {
    "example_id": pl.String, "scheme": pl.String, "start": pl.Int64, "suffix_start": pl.Int64, "suffix_end": pl.Int64,
    "log_prob": pl.Float64, "greedy": pl.Boolean, "bounded": pl.Boolean, "token_evals": pl.Int32,
    "token_log_probs": pl.List(pl.Float64), "base_log_probs": pl.List(pl.Float64), "ranks": pl.List(pl.Int32),
    "margins": pl.List(pl.Float64), "token_ends": pl.List(pl.Int32), "repetitions": pl.Int64, "split": pl.String,
    "metadata": pl.String, "stage": pl.Int32,
}  # fmt: skip


def colours(run: RunView) -> list[float | None]:
    """One character at a time: its largest log p_z, or None where it is grey."""
    tau, left = math.log(run.summary.tau), run.left_out
    assert left is not None
    rows, gone = run.rows.rows(named=True), left.rows(named=True)
    shown: list[float | None] = []
    for c in range(run.length):
        covering = [row["log_prob"] for row in rows if row["suffix_start"] <= c < row["suffix_end"]]
        unknown = any(one["suffix_start"] <= c < one["suffix_end"] for one in gone)
        best = max(covering, default=None)
        shown.append(None if best is None or (unknown and best < tau) else best)
    return shown
