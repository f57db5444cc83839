"""Tiny models that know texts by heart, and searches with odd settings: long readings, growing forks, little memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from rote import GREEDY, Example, Scheme
from rote.extraction.near import batches, fork
from rote.extraction.near.options import EosPolicy
from rote.extraction.near.results import NearVerbatim
from tests.extraction.near.searching import find_near
from tests.fakes import ReciteModel
from tests.reference import near as reference


@dataclass
class Recital:
    """A model, examples of which it knows some, and how to search; every output can be written out."""

    model: ReciteModel
    examples: list[Example]
    scheme: Scheme
    distance: str
    tolerance: int
    eos: EosPolicy
    settings: dict[str, int] = field(default_factory=dict)  # of the search's insides

    def __post_init__(self) -> None:
        bos = () if self.model.bos_id is None else (self.model.bos_id,)
        options = (self.scheme.temperature, self.scheme.top_k, self.scheme.top_p)
        self.trees = [
            reference.Tree(self.model.logits_after, bos + e.prefix, options, self.model.eos_ids, self.model.context)
            for e in self.examples
        ]

    def truths(self) -> list[list[float]]:
        return [
            reference.near_probabilities_of_many(tree, e.suffix, self.distance, self.eos, self.tolerance)
            for tree, e in zip(self.trees, self.examples, strict=True)
        ]

    def run(self, **options: Any) -> list[NearVerbatim]:
        with _inside(self.settings), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # budgets too small to begin
            return find_near(
                self.model, self.examples, self.scheme, distance=self.distance, tolerance=self.tolerance, eos=self.eos,
                **options,
            )  # fmt: skip


@contextmanager
def _inside(settings: dict[str, int]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(mock.patch.object(fork if hasattr(fork, name) else batches, name, value))
        yield


def schemes(vocabulary: int) -> st.SearchStrategy[Scheme]:
    temperature = st.sampled_from([0.6, 1.0, 1.7])
    k, p = st.integers(1, vocabulary), st.sampled_from([0.137, 0.611, 0.871, 0.983])
    return st.one_of(
        st.builds(Scheme, temperature=temperature, top_k=st.none()),
        st.builds(Scheme, temperature=temperature, top_k=k),
        st.builds(Scheme, temperature=temperature, top_k=st.none(), top_p=p),
        st.builds(Scheme, top_k=k, top_p=p),
        st.just(GREEDY),
    )


@st.composite
def recitals(draw: st.DrawFn, most: int = 3) -> Recital:
    """Up to 4096 outputs each. The first example is known by heart, the others well, a little, or not at all."""
    vocabulary = draw(st.sampled_from([2, 2, 3]))
    longest = draw(st.integers(4, 12 if vocabulary == 2 else 7))
    eos: EosPolicy = draw(st.sampled_from(["stop", "exclude", "ignore"]))
    eos_ids = draw(st.sampled_from([frozenset(), frozenset(), frozenset({0}), frozenset({vocabulary - 1})]))
    inside = [t for t in range(vocabulary) if eos == "ignore" or t not in eos_ids]
    examples, known = [], []
    for i in range(draw(st.integers(1, most))):
        length = longest if i == 0 else draw(st.integers(1, longest))
        body = draw(st.lists(st.sampled_from(inside), min_size=length - 1, max_size=length - 1))
        suffix = (*body, draw(st.integers(0, vocabulary - 1)))
        # No prompt is the beginning of another, so a model knows which text it is in.
        prefix = (*[0] * draw(st.integers(0, 1)), *(int(c) for c in f"{i + 4:b}"))
        examples.append(Example(f"e{i}", prefix, suffix))
        text = list(suffix)
        if draw(st.integers(0, 3)) == 0:  # what the model knows is not quite what is asked for
            text[draw(st.integers(0, length - 1))] = draw(st.integers(0, vocabulary - 1))
        known.append((prefix, tuple(text)))
    model = ReciteModel(
        known, vocabulary, seed=draw(st.integers(0, 10**6)), bos_id=draw(st.sampled_from([None, 0])),
        firmness=draw(st.sampled_from([0.0, 1.0, 2.5, 5.0])), grid=draw(st.sampled_from([0.1, 0.1, 1.0])),
        banned=draw(st.sampled_from([-1, -1, -1, 0])), eos_ids=eos_ids,
    )  # fmt: skip
    model.batch_tokens = draw(st.sampled_from([1, 8, 30, 200, 4096]))
    model.memory_positions = draw(st.sampled_from([60, 200, 100_000, 100_000]))
    settings = draw(
        st.fixed_dictionaries(
            {
                "FIRST": st.integers(1, 5), "GROWTH": st.integers(1, 4), "ROUND": st.integers(1, 9),
                "LISTED": st.sampled_from([1, 2, 64, 64, 64]), "SPARE": st.sampled_from([0, 8, 8]),
                "PACKED": st.sampled_from([1, 5, 64, 64]),
            }
        )
    )  # fmt: skip
    distances = ["levenshtein", "levenshtein", "hamming"]
    return Recital(
        model, examples, draw(schemes(vocabulary)), draw(st.sampled_from(distances)),
        draw(st.one_of(st.integers(0, 4), st.integers(0, longest + 1))), eos, settings,
    )  # fmt: skip
