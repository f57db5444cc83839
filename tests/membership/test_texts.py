"""All passes over texts, as rows, with a model that is certain: nothing is divided by nothing."""

from __future__ import annotations

import math
from typing import Any

from transformers import AutoTokenizer

from rote.membership.scores import BY_NAME
from rote.membership.texts import plan_of, read_rows
from rote.models.base import BUNDLED
from tests.membership.test_passes import Rows
from tests.reference import membership as reference


def test_a_model_that_is_certain_of_every_pass() -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(BUNDLED)
    (token,) = reference.tokens_of("x", tokenizer)
    model = Rows([300.0 if each == token else 0.0 for each in range(4096)])
    model.tokenizer = tokenizer
    texts = ["x"]
    plan = plan_of(model, texts, ["text 'a'"], reference=model, before=["x"], lowercase=True)
    (row,) = read_rows(plan, [0], lambda *what: None)
    numbers = {name: value for name, value in row.items() if isinstance(value, float)}
    assert {"loss", "lowercase_loss", "reference_loss", "prefixed_loss", "recall", "lowercase"} <= set(numbers)
    for name, value in numbers.items():
        assert value == (1 if name in ("perplexity", "recall", "lowercase") else 0), name
        assert math.copysign(1, value) == 1, f"{name} is -0.0"
    assert set(BY_NAME) - set(numbers) == {"best_window", "near_lower"}
