"""What a near-verbatim search is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import iter_modules
from typing import Annotated, Literal, get_args

from rote.errors import InputError, argument
from rote.extraction.near import distances as package
from rote.options import Option, Seed, refuse_idle, require_known, require_number, require_whole, settle

Method = Literal["fork", "beam", "sample"]
Until = Literal["worthwhile", "decision", "budget"]
Variant = Literal["closing", "pruned", "baseline"]
EosPolicy = Literal["stop", "exclude", "ignore"]
"""`stop`: an output ends with EOS, which is its last token. `exclude`: outputs with EOS before the suffix's length do
not count. `ignore`: EOS is a token like any other."""

MOST_EDITS = (1 << 12) - 1


def distances() -> list[str]:
    """The names of all distances, each of which is a module of `rote.extraction.near.distances`."""
    return sorted((module.name for module in iter_modules(package.__path__)), reverse=True)


@dataclass(frozen=True, slots=True)
class Near:
    """What near-verbatim extraction counts as near, and how it is searched for.

    `method`: "fork" (one teacher-forced pass gives bounds, forks tighten them), "beam" (`variant`, `width`) or "sample"
    (Monte Carlo: unbiased, with an interval instead of bounds; `samples` of them, or as many as `budget` pays for).
    `budget` is the most token evaluations per example, by default what a beam of `width` costs; a search ends earlier
    once its bounds are `gap` apart, with `until="decision"` once it is certain whether tau is reached, and with
    `until="worthwhile"` (fork) once nothing that is left promises to close a thousandth of tau. With "fork", `samples`
    adds an unbiased estimate: samples drawn from what the search left open, on top of the budget.
    """

    distance: Annotated[str, Option("How edits are counted.", choices=distances)] = "levenshtein"
    tolerance: Annotated[int, Option("Edits (in tokens) that still count.")] = 5
    method: Annotated[Method, Option("How to search.")] = "fork"
    budget: Annotated[
        int | None,
        Option(
            "Token evaluations per example; prefix + suffix - 1 is one pass.",
            default="what a beam costs",
        ),
    ] = None
    eos: Annotated[EosPolicy, Option("EOS ends an output; outputs that end early do not count; EOS is a token.")] = (
        "stop"
    )
    gap: Annotated[float, Option("Enough once the bounds are this close.")] = 0.01
    until: Annotated[Until, Option("Go on while it pays, until it is certain at tau, or to the budget.")] = "worthwhile"
    variant: Annotated[Variant, Option("Of a beam; pruned and baseline are as published.")] = "closing"
    width: Annotated[int, Option("Of a beam.")] = 20
    samples: Annotated[
        int | None,
        Option("Of method sample; with fork: for an estimate on top of the bounds.", default="1000 with method sample"),
    ] = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        require_known("distance", self.distance, distances())
        for name, known in (("method", Method), ("eos", EosPolicy), ("until", Until), ("variant", Variant)):
            require_known(name, getattr(self, name), get_args(known))
        settle(self, "tolerance", require_whole("tolerance", self.tolerance, 0, MOST_EDITS))
        for name, least in (("budget", 0), ("width", 1), ("samples", 1), ("seed", 0)):
            if getattr(self, name) is not None or name in ("width", "seed"):
                settle(self, name, require_whole(name, getattr(self, name), least))
        settle(self, "gap", require_number("gap", self.gap))
        if not 0 <= self.gap < 1:
            raise InputError(f"{argument('gap')} must lie in [0, 1), not {self.gap}.")
        if self.samples is not None and self.method == "beam":
            raise InputError(
                f"{argument('samples')} go with {argument('method', 'sample')} or {argument('method', 'fork')}, "
                f"not with {argument('method', 'beam')}."
            )
        if self.budget is not None and self.samples is not None and self.method == "sample":
            raise InputError(
                f"{argument('method', 'sample')} takes a number of {argument('samples')} or a {argument('budget')} "
                "for them, not both."
            )
        beam = argument("method", "beam")
        refuse_idle(self, "variant", self.method == "beam", beam)
        refuse_idle(self, "width", self.method == "beam" or (self.method == "fork" and self.budget is None), beam)
        refuse_idle(self, "seed", self.method == "sample" or self.samples is not None, argument("samples"))


NearIf = Annotated[Near | None, Option("Also bound the probability of outputs a few edits away.")]
"""Near-verbatim extraction, where it is asked for."""
