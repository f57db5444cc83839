"""Prompts with their targets on Gemma 3 270M, and chats on SmolLM2 135M Instruct, against numbers made outside."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Scheme
from tests.real.fetch import fetch
from tests.reference import prompts, verbatim, wide

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PREAMBLE = "We the People of the United States, in Order to form a more perfect"
LINES: list[dict[str, Any]] = [
    {
        "id": "clean",
        "prompt": PREAMBLE,
        "target": " Union",
    },
    {
        "id": "space",
        "prompt": f"{PREAMBLE} ",
        "target": "Union",
    },
    {"id": "inside", "prompt": "We the People of the United Sta", "target": "tes, in Order to form"},
    {"id": "long", "prompt": "We the People", "target": " of the United States, in Order to form a more perfect Union"},
    {"id": "empty", "prompt": "", "target": "We the People"},
    {"id": "names", "prompt": "<bos>Hello<eos>", "target": "<start_of_turn>"},
    {"id": "canary", "prompt": "The code of locker 81 is", "target": " 4417-0098"},
]
SCHEMES = [Scheme(), Scheme(top_k=None)]


def split(prompt: str, target: str, tokenizer: Any) -> tuple[list[int], list[int], bool]:
    """By the texts of the tokens: Gemma's are words with ▁ for spaces, and say all of these texts."""
    whole = prompts.plain(prompt + target, tokenizer)
    for place in range(len(whole) + 1):
        said = "".join(tokenizer.convert_ids_to_tokens(whole[:place])).replace("▁", " ")
        if said == prompt:
            return whole[:place], whole[place:], True
    return prompts.plain(prompt, tokenizer), prompts.plain(target, tokenizer), False


def test_prompts_equal_an_outside_computation(tmp_path: Path) -> None:
    gemma: Any = rote.load(fetch("gemma3-270m"), rote.ModelOptions(device="cpu"))
    examples = tmp_path / "examples.jsonl"
    examples.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    run = rote.score(gemma, examples, schemes=SCHEMES, out=tmp_path / "run")
    rows = {(row["example_id"], row["scheme"]): row for row in run.scores.to_dicts()}
    stored = {entry.id: entry for entry in run.examples}
    for line in LINES:
        prefix, suffix, together = split(line["prompt"], line["target"], gemma.tokenizer)
        entry = stored[line["id"]]
        assert (entry.prefix, entry.suffix) == (prefix, suffix)
        assert entry.tokenised == ("together" if together else "apart")
        logits = verbatim.suffix_logits(gemma._model, prefix, suffix, 2)
        for scheme in SCHEMES:
            want, row = wide.log_p_z(logits, suffix, 1.0, scheme.top_k, None), rows[line["id"], str(scheme)]
            near_border = min(abs(margin) for margin in row["margins"]) < gemma.logit_tolerance
            assert row["log_prob"] == pytest.approx(want, abs=1e-3) or near_border
            assert math.isfinite(row["log_prob"]) or scheme.top_k
    assert {name for name, entry in stored.items() if entry.tokenised == "apart"} == {"space", "inside", "names"}
    assert run.manifest.source.apart == 3
    assert rows["clean", str(SCHEMES[0])]["log_prob"] > rows["space", str(SCHEMES[0])]["log_prob"]


def test_a_chat_equals_ids_put_together_by_hand(tmp_path: Path) -> None:
    smol: Any = rote.load(fetch("smollm2-135m-instruct"), rote.ModelOptions(device="cpu"))
    tokenizer = smol.tokenizer
    opened, closed = (tokenizer.convert_tokens_to_ids(name) for name in ("<|im_start|>", "<|im_end|>"))
    assert (opened, closed, smol.bos_id) == (1, 2, 1)

    def turn(role: str, content: str) -> list[int]:
        return [opened, *plain(f"{role}\n{content}"), closed, *plain("\n")]

    def plain(text: str) -> list[int]:
        return prompts.plain(text, tokenizer)

    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    hand = [*turn("system", system), *turn("user", "What is the capital of France?"), opened, *plain("assistant\n")]
    terse = [*turn("system", "Be terse."), *turn("user", "2+2?"), opened, *plain("assistant\n")]
    said = [plain("The capital of France is Paris."), plain("4")]
    lines: list[dict[str, Any]] = [
        {"prompt": "What is the capital of France?", "target": "The capital of France is Paris."},
        {"messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "2+2?"}], "target": "4"},
    ]
    run = rote.score(smol, lines, chat=True, out=tmp_path / "run")
    for entry, row, ids, suffix in zip(run.examples, run.scores.to_dicts(), (hand, terse), said, strict=True):
        assert ([smol.bos_id, *entry.prefix], entry.suffix) == (ids, suffix)
        logits = verbatim.suffix_logits(smol._model, ids, suffix, None)  # the template's BOS is the only one
        assert row["log_prob"] == pytest.approx(wide.log_p_z(logits, suffix, 1.0, 40, None), abs=1e-3)
    assert run.examples[0].prefix_text.endswith("<|im_start|>assistant\n")
    assert 0.03 < math.exp(run.scores["log_prob"][0]) < 0.3  # measured: 0.087
    assert run.manifest.chat is not None
    assert run.manifest.chat.sha256 == "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788"
