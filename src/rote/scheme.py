"""Decoding schemes: what they are, how they are written and what they do, in words. The arithmetic is `decoding`'s."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated

from rote.errors import InputError, argument
from rote.options import Option, require_number, require_whole, settle, whole

TOP_K = 40
FORM = "as in top_k=5,40  or  temperature=0.7,1 top_k=40  or  greedy"


@dataclass(frozen=True, slots=True)
class Scheme:
    """How the next token is drawn.

    Logits are divided by `temperature`; `top_k` keeps every token whose logit is at least the k-th largest (ties at
    rank k are all kept, so the support may hold more than k tokens); `top_p` keeps the smallest set of most likely
    tokens whose probability, among what top-k left, sums to at least p (equal probabilities enter lower id first);
    `min_p` keeps what is at least so likely, relative to the most likely token; what is kept is renormalised.
    `temperature=0` is greedy: the argmax, ties to the lowest id. None leaves a step out.
    """

    temperature: Annotated[float, Option("Sampling temperature; 0 is greedy.")] = 1.0
    top_k: Annotated[int | None, Option("Keep the k most likely tokens (ties kept); 0 keeps all.", none="0")] = TOP_K
    top_p: Annotated[float | None, Option("Then keep the smallest set with this probability.")] = None
    min_p: Annotated[float | None, Option("Then keep what is at least so likely, relative to the likeliest.")] = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            if getattr(self, name) is not None or name == "temperature":
                settle(self, name, require_number(name, getattr(self, name)))
        if not (math.isfinite(self.temperature) and (self.temperature >= 1e-6 or self.temperature == 0)):
            raise InputError(
                f"{argument('temperature')} must be 0 (greedy) or a number of at least 1e-6, not {self.temperature}."
            )
        if self.greedy and self.top_k == TOP_K:  # the default, which means nothing here
            settle(self, "top_k", None)
        if self.greedy and (self.top_k, self.top_p, self.min_p) != (None, None, None):
            raise InputError(
                f"{argument('temperature', 0)} is greedy decoding, to which {argument('top_k')}, {argument('top_p')} "
                f"and {argument('min_p')} do not apply; leave them out, or give a temperature above 0."
            )
        if self.top_k is not None and (not whole(self.top_k) or self.top_k < 1):
            raise InputError(
                f"{argument('top_k')} must be a whole number of at least 1, not {self.top_k!r}; "
                f"{argument('top_k', None)} keeps the whole vocabulary."
            )
        if self.top_k is not None:
            settle(self, "top_k", require_whole("top_k", self.top_k))
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise InputError(f"{argument(name)} must lie in (0, 1], not {share}.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def nucleus(self) -> bool:
        """Whether top-p leaves anything out."""
        return self.top_p is not None and self.top_p < 1

    def doubt(self, logit_tolerance: float) -> float:
        """How far apart a token's log-prob may be in two correct computations, if its support is the same in both.

        Logits that differ by so much move it by at most twice that: its own, and what all are divided by.
        """
        return 2 * logit_tolerance / (self.temperature or 1)

    def __str__(self) -> str:
        """Its label, by which runs know it: `Scheme.parse` gives back the same scheme."""
        if self.greedy:
            return "greedy"
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return " ".join(f"{name}={_exactly(value)}" for name, value in named if value is not None)

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """The scheme that a label stands for: `greedy`, or `temperature=1 top_k=40`. What is not named is left out."""
        schemes = cls.parse_all(text)
        if len(schemes) != 1:
            raise InputError(f"{text!r} stands for {len(schemes)} schemes, and one is asked for.")
        return schemes[0]

    @classmethod
    def parse_all(cls, text: str) -> list[Scheme]:
        """The schemes that `temperature=0.7,1 top_k=40` stands for: one of each value. top_k=0 keeps the vocabulary."""
        if text.strip() == "greedy":
            return [GREEDY]
        known = [field.name for field in fields(cls)]
        values: dict[str, list[float]] = {}
        for part in text.split():
            name, _, numbers = part.partition("=")
            if name in values:
                raise InputError(f"the scheme {text!r} has {name} twice; write several values with commas, {FORM}.")
            try:
                values[name] = [float(number) for number in numbers.split(",")]
            except ValueError:
                name = ""
            if name not in known:
                raise InputError(f"the scheme {text!r} is not understood; write it {FORM}.")
        if not values:
            raise InputError(f"the scheme {text!r} is not understood; write it {FORM}.")
        return [cls._of(dict(zip(values, choice, strict=True)), text) for choice in product(*values.values())]

    @classmethod
    def _of(cls, given: dict[str, float], text: str) -> Scheme:
        top_k = given.get("top_k", 0.0)
        if not math.isfinite(top_k) or top_k < 0 or top_k != int(top_k):
            raise InputError(f"the scheme {text!r}: top_k is a whole number, or 0 to keep all.")
        if given.get("temperature") == 0:
            raise InputError(f"the scheme {text!r}: temperature 0 is greedy decoding; write greedy.")
        rest = {name: value for name, value in given.items() if name != "top_k"}
        return cls(top_k=int(top_k) or None, **rest)

    def explain(self) -> str:
        """What it does, as a sentence."""
        if self.greedy:
            return "Greedy: the most likely token at every step (ties go to the lowest token id)."
        steps = [f"Logits divided by temperature {_exactly(self.temperature)}"]
        if self.top_k is not None:
            steps.append(f"the {self.top_k} most likely tokens kept (every token that ties at the last place too)")
        if self.top_p is not None:
            steps.append(
                f"then the smallest set of most likely tokens kept whose probability reaches {_exactly(self.top_p)}"
            )
        if self.min_p is not None:
            steps.append(
                f"then every token kept that is at least {_exactly(self.min_p)} times as likely as the likeliest"
            )
        if len(steps) == 1:
            steps.append("every token of the vocabulary kept")
        return ", ".join(steps) + "; the next token is drawn from what is kept, renormalised."

    def check(self, vocabulary: int) -> None:
        if self.top_k is not None and self.top_k > vocabulary:
            raise InputError(
                f"{argument('top_k', self.top_k)} is larger than the model's vocabulary of {vocabulary} tokens; choose "
                f"a smaller {argument('top_k')}, or {argument('top_k', None)} to keep the whole vocabulary."
            )


def _exactly(number: float) -> str:
    """As few digits as tell it from every other number: a scheme's label is how runs know it."""
    if isinstance(number, int):
        return str(number)
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


GREEDY = Scheme(temperature=0)

Schemes = Scheme | str | Iterable[Scheme | str]
"""One scheme or several, as schemes or as their labels."""


def label_of(scheme: Scheme | str) -> str:
    """How runs know a scheme that may be written shorter; what is no scheme stays as it is."""
    try:
        return str(Scheme.parse(scheme) if isinstance(scheme, str) else scheme)
    except InputError:
        return str(scheme)


def as_schemes(given: Schemes) -> tuple[Scheme, ...]:
    """All of them, each once."""
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    schemes: list[Scheme] = []
    for one in several:
        if not isinstance(one, Scheme | str):
            raise InputError(f"a scheme is a rote.Scheme or its label, {FORM}, not {type(one).__name__}.")
        schemes += Scheme.parse_all(one) if isinstance(one, str) else [one]
    if not schemes:
        raise InputError("give at least one decoding scheme.")
    twice = next((scheme for i, scheme in enumerate(schemes) if scheme in schemes[:i]), None)
    if twice is not None:
        raise InputError(f"the scheme {twice} is asked for twice; name each once.")
    return tuple(schemes)
