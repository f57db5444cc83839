"""What a search reads is guesswork that no bound rests on, but it decides which numbers a budget buys.

A run folder is continued by whatever version of Rote is at hand, so the guesses may not change unnoticed. Whoever
changes them on purpose says so in the changelog and writes the numbers anew: `python -m
tests.extraction.near.test_frozen`.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rote import Example, Scheme
from rote.extraction.near import batches
from rote.extraction.near.results import NearVerbatim
from tests.extraction.near.searching import find_near
from tests.fakes import ReciteModel

FROZEN = Path(__file__).parent / "frozen.json"

VOCABULARY, LENGTH = 12, 16
SEARCHES: dict[str, dict[str, Any]] = {
    "first pass": {"budget": 19},
    "fork": {"budget": 60},
    "fork, longer": {"budget": 300},
    "fork, Hamming": {"budget": 120, "distance": "hamming"},
    "fork, top-p": {"budget": 120, "scheme": Scheme(temperature=1.2, top_k=None, top_p=0.93)},
    "fork, all tokens": {"budget": 150, "scheme": Scheme(temperature=0.9, top_k=None)},
    "fork, few tokens listed": {"budget": 150, "scheme": Scheme(temperature=1.3, top_k=None), "LISTED": 2, "SPARE": 0},
    "fork, early ends left out": {"budget": 120, "eos": "exclude"},
    "fork, worthwhile": {"budget": 600, "until": "worthwhile", "tau": 0.3},
    "fork, decision": {"budget": 600, "until": "decision", "tau": 0.5},
    "fork, no tolerance": {"budget": 120, "tolerance": 0},
    "fork, wide tolerance": {"budget": 120, "tolerance": 6},
    "fork, samples": {"budget": 40, "samples": 200, "seed": 4},
    "samples": {"method": "sample", "samples": 300, "seed": 2},
    "closing beam": {"method": "beam", "width": 6},
    "closing beam, few tokens listed": {
        "method": "beam",
        "width": 4,
        "scheme": Scheme(top_k=None),
        "LISTED": 2,
        "SPARE": 0,
    },
    "pruned beam": {"method": "beam", "width": 6, "variant": "pruned"},
    "baseline beam": {"method": "beam", "width": 6, "variant": "baseline"},
}


def searched(name: str) -> list[NearVerbatim]:
    """Six texts, known from hardly to firmly; the last two are not quite what the model knows."""
    rng = np.random.default_rng(7)
    texts, examples = [], []
    for i in range(6):
        prefix = (i, *rng.integers(1, VOCABULARY, 3).tolist())
        suffix = tuple(rng.integers(1, VOCABULARY, LENGTH).tolist())
        known = list(suffix)
        if i == 4:
            del known[5]
        if i == 5:
            known[3:3] = [1, 2]
        texts.append((prefix, tuple(known)))
        examples.append(Example(f"text {i}", prefix, suffix))
    options = {"scheme": Scheme(top_k=5), "tolerance": 3, **SEARCHES[name]}
    inside = {key: options.pop(key) for key in ("LISTED", "SPARE") if key in options}
    found = []
    for example, firmness in zip(examples, (1.0, 2.0, 3.5, 5.0, 4.0, 4.0), strict=True):
        model = ReciteModel(texts, VOCABULARY, firmness=firmness, reach=3, eos_ids=frozenset({0}), bos_id=3)
        with mock.patch.multiple(batches, **inside) if inside else nullcontext():
            found += find_near(model, [example], **options)
    return found


def numbers(result: NearVerbatim) -> dict[str, Any]:
    return {
        "bounds": [[float(f"{end:.9g}") for end in bounds] for bounds in result.by_tolerance],
        "token_evals": result.token_evals,
        "estimate": None if result.estimate is None else float(f"{result.estimate.mean:.9g}"),
        "candidates": [
            [
                list(c.tokens),
                c.distance,
                *(None if p is None else float(f"{p:.6g}") for p in (c.log_prob, c.set_log_prob)),
            ]
            for c in result.candidates[:4]
        ],
    }


def close(got: Any, want: Any) -> bool:
    if isinstance(want, float):
        return got == pytest.approx(want, abs=1e-6)  # type: ignore[no-any-return]
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(close(got[key], want[key]) for key in want)
    if isinstance(want, list):
        return len(got) == len(want) and all(map(close, got, want))
    return bool(got == want)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_budget_buys_what_it_bought(name: str) -> None:
    frozen = json.loads(FROZEN.read_text())[name]
    for result, want in zip(searched(name), frozen, strict=True):
        assert close(numbers(result), want), (result.example_id, numbers(result), want)


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps([numbers(r) for r in searched(name)])}" for name in SEARCHES]
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
