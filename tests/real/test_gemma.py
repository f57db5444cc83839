"""Gemma 3 270M, a real pretrained model with BOS and a vocabulary of 262,144, read from its GGUF file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.tolerance import compare

import rote
from rote import GREEDY, Example, Scheme, verbatim
from rote.models.fingerprint import fingerprint
from rote.models.huggingface import HuggingFaceModel
from rote.store.files import plain
from tests.real.fetch import fetch
from tests.reference import verbatim as reference
from tests.reference import wide

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

TAU = 1e-3
SCHEMES = [
    Scheme(),
    Scheme(temperature=0.7, top_k=None),
    Scheme(top_k=None, top_p=0.9),
    Scheme(top_k=40, top_p=0.9),
    GREEDY,
]
PREAMBLE = (
    "We the People of the United States, in Order to form a more perfect Union, establish Justice, insure domestic "
    "Tranquility, provide for the common defence, promote the general Welfare, and secure the Blessings of Liberty to "
    "ourselves and our Posterity, do ordain and establish this Constitution for the United States of America."
)
# Written for this test in 2026: no model of 2025 can have seen it.
NEWS = """\
The ferry company of Lower Marrow said on Tuesday that it would take its last diesel boat, the Patient Heron, out of
service before the herring return. Passengers on the morning crossing were given paper lanterns and a slice of rye cake,
and the captain, Odalys Brannigan-Wu, let eleven schoolchildren sound the horn one after another. The battery boat that
replaces it is nine metres shorter and, by the company's own figures, slower against the tide, which has angered the
glaziers who carry their panes across by hand.

A committee of beekeepers and tram drivers has recommended that the old pumping station at Quillfield be turned into a
library of seeds and spare parts. Its report, forty pages long and mostly about door hinges, asks the town for a loan of
two hundred and six thousand crowns and for the return of a brass barometer that went missing during the flood of 2024.
The mayor answered that she had never liked the barometer but would look in the cellar.

In the second round of the island chess league, Tamsin Okwuosa-Reed, aged fourteen, beat the postmaster with a queen
sacrifice that three engines had called a blunder. She said afterwards that she had seen it in a dream about umbrellas.
The postmaster asked for a rematch on a warmer day; the league's treasurer has set it for the ninth of November 2026, in
the fish hall, weather and mackerel permitting.
"""


@pytest.fixture(scope="module")
def path() -> Path:
    return fetch("gemma3-270m")


@pytest.fixture(scope="module")
def gemma(path: Path) -> Any:
    return rote.load(path, rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def preamble(gemma: Any) -> Example:
    return rote.windows(PREAMBLE, gemma.tokenizer, rote.Windows(prefix=25, suffix=25))[0]


def some_windows(gemma: Any, gatsby: str, *, suffix: int) -> list[Example]:
    """Windows the model knows well, a little, and not at all: probabilities large, tiny, and zero."""
    parts = [("c", PREAMBLE, 60, 2), ("g", gatsby[30_000:32_000], 600, 3), ("n", NEWS, 700, 2)]
    return [
        Example(f"{name}{window.id}", window.prefix, window.suffix)
        for name, text, stride, count in parts
        for window in rote.windows(text, gemma.tokenizer, rote.Windows(prefix=25, suffix=suffix, stride=stride))[:count]
    ]


def test_the_file_is_understood(gemma: Any, path: Path) -> None:
    assert (gemma.vocabulary, gemma.context_length, gemma.bos_id) == (262_144, 32_768, 2)
    assert gemma.eos_ids == {1}
    assert len(gemma.tokenizer) <= gemma.vocabulary
    identity = gemma.identity()
    assert (identity.name, identity.dtype, identity.parameters) == (str(path), "float32", 268_098_176)
    # Only suffix positions pay for the head: [positions, vocabulary] would be a gigabyte for 1,000 positions.
    states = gemma.hidden(torch.tensor([[2, 1882, 506]]))
    assert states.shape == (1, 3, 640)
    assert gemma.head(states[0]).shape == (3, 262_144)


def test_text_survives_the_tokenizer(gemma: Any, gatsby: str) -> None:
    for text in (PREAMBLE, gatsby[:2000], "naïve — 東京 🙂\r\n\tend"):
        ids = gemma.tokenizer.encode(text, add_special_tokens=False)
        assert gemma.tokenizer.decode(ids) == text


def test_bos_is_fed_once(gemma: Any, preamble: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[list[int]] = []
    hidden = gemma.hidden

    def listen(tokens: torch.Tensor) -> torch.Tensor:
        fed.extend(tokens.tolist())
        states: torch.Tensor = hidden(tokens)
        return states

    monkeypatch.setattr(gemma, "hidden", listen)
    result = verbatim(gemma, [preamble])[0]
    assert fed == [[2, *preamble.prefix, *preamble.suffix[:-1]]]
    assert fed[0].count(2) == 1
    assert result.token_evals == 25 + 25 - 1  # BOS is not counted


def test_bos_decides_the_number(gemma: Any, preamble: Example) -> None:
    without = HuggingFaceModel(gemma._model, gemma.tokenizer, bos="never")
    got = {"once": verbatim(gemma, [preamble])[0].log_prob, "none": verbatim(without, [preamble])[0].log_prob}
    prefix, suffix = list(preamble.prefix), list(preamble.suffix)
    want = {}
    for name, before in (("none", []), ("once", [2]), ("twice", [2, 2])):
        rows = reference.suffix_logits(gemma._model, before + prefix, suffix, None)
        want[name] = wide.log_p_z(rows, suffix, 1.0, 40, None)
    assert got["once"] == pytest.approx(want["once"], abs=1e-4)
    assert got["none"] == pytest.approx(want["none"], abs=1e-4)
    assert abs(want["once"] - want["none"]) > 0.1
    assert abs(want["once"] - want["twice"]) > 0.01


def test_agrees_with_float64_from_raw_logits(gemma: Any, gatsby: str) -> None:
    examples = some_windows(gemma, gatsby, suffix=12)
    results = iter(verbatim(gemma, examples, SCHEMES))
    finite: Counter[Scheme] = Counter()
    border = 0
    for example in examples:
        rows = reference.suffix_logits(gemma._model, list(example.prefix), list(example.suffix), gemma.bos_id)
        for scheme in SCHEMES:
            got = next(results)
            want = wide.log_p_z(rows, list(example.suffix), scheme.temperature, scheme.top_k, scheme.top_p)
            finite[scheme] += math.isfinite(want)
            if got.log_prob != want and abs(got.log_prob - want) > 1e-4:
                # Allowed only where a token stands on the border of the support.
                assert (np.abs(got.margins) < gemma.logit_tolerance).any(), (example.id, str(scheme), got.log_prob)
                border += 1
    assert border <= 1
    assert all(finite[scheme] for scheme in SCHEMES)


def test_min_p_agrees_with_float64_from_raw_logits(gemma: Any, gatsby: str) -> None:
    schemes = [
        Scheme(top_k=None, min_p=0.05),
        Scheme(0.7, None, None, 0.01),
        Scheme(top_k=40, min_p=0.02),
        Scheme(1.3, 40, 0.9, 0.1),
    ]
    examples = some_windows(gemma, gatsby, suffix=12)
    results = iter(verbatim(gemma, examples, schemes))
    seen: Counter[str] = Counter()
    for example in examples:
        rows = reference.suffix_logits(gemma._model, list(example.prefix), list(example.suffix), gemma.bos_id)
        for scheme in schemes:
            got, options = next(results), (scheme.temperature, scheme.top_k, scheme.top_p, scheme.min_p)
            assert scheme.min_p is not None
            for t, (row, token) in enumerate(zip(rows, example.suffix, strict=True)):
                above = row - row.max() - scheme.temperature * math.log(scheme.min_p)
                if min(np.abs(above).min(), abs(got.margins[t])) < gemma.logit_tolerance:
                    seen["border"] += 1  # it, or a token that would share its probability
                    continue
                want = wide.log_prob(row, token, *options)
                seen["inside" if math.isfinite(want) else "outside"] += 1
                assert got.token_log_probs[t] == pytest.approx(want, abs=1e-4), (example.id, str(scheme), t)
    assert seen["inside"] > 100
    assert seen["outside"] > 50
    assert seen["border"] < 0.05 * seen.total()


def test_batch_mates_do_not_change_a_number(gemma: Any, alice: str, gatsby: str) -> None:
    examples = some_windows(gemma, gatsby, suffix=12)
    for way, found in compare(gemma, examples, alice).items():
        print(way, found)
        assert found.logit < gemma.logit_tolerance / 2
        assert found.widest < gemma.logit_tolerance
        assert found.token < gemma.logit_tolerance
        assert found.suffix < 1e-3
        assert found.exempt < 0.03 * found.tokens


def test_the_preamble_is_extracted(preamble: Example, gemma: Any) -> None:
    result = verbatim(gemma, [preamble])[0]  # measured: 0.1022
    assert 0.05 < result.prob < 0.2
    assert result.greedy
    assert PREAMBLE[preamble.suffix_start : preamble.suffix_end].endswith(" and our Posterity,")


def test_near_the_preamble(preamble: Example, gemma: Any) -> None:
    """Keys are kept (sliding windows and all), searches agree with the scorer, and edits hold mass of their own."""
    assert type(gemma.memory(8)).__name__ == "KeyMemory"
    p_z = verbatim(gemma, [preamble])[0].prob
    forks, beams = (
        rote.near_verbatim(gemma, [preamble], near=near)[0]
        for near in (
            rote.Near(budget=120, gap=0.0, until="budget"),
            rote.Near(method="beam", variant="pruned", width=3, gap=0.0, until="budget"),
        )
    )
    assert forks.by_tolerance[0][0] == pytest.approx(p_z, rel=1e-3)
    assert beams.by_tolerance[0][0] <= p_z * 1.001
    assert 2 * p_z < forks.lower <= forks.upper
    assert beams.lower <= forks.upper
    scored = [c for c in forks.candidates if c.log_prob is not None]
    outputs = [Example(str(i), preamble.prefix, c.tokens) for i, c in enumerate(scored)]
    for candidate, found in zip(scored, verbatim(gemma, outputs), strict=True):
        assert candidate.log_prob == pytest.approx(found.log_prob, abs=1e-3)


def test_text_newer_than_the_model_is_not_extracted(gemma: Any) -> None:
    examples = rote.windows(NEWS, gemma.tokenizer, rote.Windows(prefix=25, suffix=25, stride=50))
    assert len(examples) > 20
    results = verbatim(gemma, examples)
    assert max(result.prob for result in results) < TAU
    assert not any(result.greedy for result in results)
    early = verbatim(gemma, examples, tau=TAU)
    assert all(result.bounded or result.prob < TAU for result in early)
    assert sum(result.token_evals for result in early) < 0.9 * sum(result.token_evals for result in results)


def test_the_fingerprint_is_the_weights_alone(gemma: Any, path: Path, tmp_path: Path) -> None:
    assert gemma.identity().fingerprint == "4c77a078dc13ea2b27fded6c62993860"
    elsewhere = tmp_path / "renamed.gguf"
    elsewhere.symlink_to(path)
    assert fingerprint([elsewhere]) == gemma.identity().fingerprint


def test_the_command_line_gives_the_same_number(gemma: Any, preamble: Example, path: Path, tmp_path: Path) -> None:
    examples, out = tmp_path / "examples.jsonl", tmp_path / "run"
    examples.write_text(json.dumps({"id": "preamble", "text": PREAMBLE}) + "\n")
    command = [sys.executable, "-m", "rote.cli", "score", str(examples), "--model", str(path), "--out", str(out)]
    options = ["--prefix", "25", "--suffix", "25", "--device", "cpu", "--json"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["model"] == plain(gemma.identity())  # another process, the same weights, tokenizer and BOS
    assert summary["schemes"]["temperature=1 top_k=40"]["rates"]["rate_at_tau"]["count"] == 1
    row = rote.Run.open(out).scores.row(0, named=True)
    assert row["example_id"] == "preamble"
    assert row["log_prob"] == pytest.approx(verbatim(gemma, [preamble])[0].log_prob, abs=1e-4)
    assert row["greedy"]
    assert (out / "report.html").is_file()
