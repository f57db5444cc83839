"""The empirical check of a finished run: generate from its prefixes and see how often its suffixes come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl

from rote.analysis.empirical import Agreement, agreement, smallest_of, spread_over
from rote.errors import InputError, argument
from rote.extraction.generations import generations
from rote.frames import FrameKind, frame_of
from rote.jobs.open import RunLike, as_run
from rote.models.base import GeneratingModel, ModelIdentity, ServedGenerator, TokenModel
from rote.options import Option, require_whole
from rote.progress import Progress, quiet
from rote.report.text.cards import checked_card, checked_headline
from rote.scheme import GREEDY, Scheme, label_of
from rote.store.manifest import Source, refuse_other_model


@dataclass(frozen=True, kw_only=True)
class CheckedOutput:
    """A generation, and whether it is the suffix."""

    text: str
    same: bool


@dataclass(frozen=True, kw_only=True)
class CheckedPassage(Agreement):
    """One passage: where it stands, how its p_z and the generations agree, and some of these."""

    example_id: str
    start: int | None
    suffix_start: int | None
    suffix_end: int | None
    outputs: list[CheckedOutput]
    seed: int


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What generating from a run's prefixes came to.

    `outside_interval` passages have their p_z outside the 95% interval of the generated share. The smallest p-value of
    all would be so small with probability `smallest_of_all`, were every p_z right.
    """

    source: Source
    model: ModelIdentity
    scheme: str
    logit_tolerance: float
    passages: list[CheckedPassage]
    outside_interval: int
    smallest_p_value: float
    smallest_of_all: float
    outputs: int

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per passage."""
        left_out = ("attempts", "outputs")
        rows = [{name: value for name, value in vars(p).items() if name not in left_out} for p in self.passages]
        return frame_of(rows, kind)

    def __repr__(self) -> str:
        return f"<{checked_headline(len(self.passages), self.outside_interval)}>"

    def _repr_html_(self) -> str:
        return checked_card({p.example_id: p for p in self.passages}, self.scheme, self.outside_interval)


def check(
    run: Annotated[RunLike, Option("A finished run folder.")],
    model: TokenModel | None = None,
    *,
    scheme: Annotated[str | None, Option("Which of the run's schemes, as it names it.", default="its first")] = None,
    samples: Annotated[int, Option("Generations per passage.")] = 1000,
    passages: Annotated[int, Option("How many passages, spread over the range of p_z.")] = 10,
    examples: Annotated[
        Sequence[str], Option("Check this example instead. Repeat it for more.", "--example", default="none")
    ] = (),
    show: Annotated[int, Option("Give so many generations of each passage.")] = 0,
    seed: Annotated[int, Option("Of the first passage; the next ones count up.")] = 0,
    progress: Progress | None = None,
) -> Checked:
    """Generate `samples` outputs for passages of a finished run and compare with their p_z.

    `scheme` is the label of one of the run's schemes. The passages are the named `examples`, or at most `passages`
    spread over those whose p_z is between 1 / samples and 1 - 1 / samples; behind a server that takes texts alone,
    those whose prefix it reads as the tokens that it was cut into. The model must be the one the run was made
    with; left out, it is loaded from where it was. `show` outputs of each passage are returned.
    """
    given = as_run(run)
    manifest, summary = given.manifest, given.summary
    examples = [examples] if isinstance(examples, str) else list(examples)
    for name, number in (("samples", samples), ("passages", passages)):
        require_whole(name, number)
    require_whole("show", show, 0)
    require_whole("seed", seed, 0, 2**40 - 1)
    label = manifest.schemes[0] if scheme is None else label_of(scheme)
    if label not in manifest.schemes:
        schemes = "; ".join(manifest.schemes)
        raise InputError(
            f"{argument('scheme')}: {given.folder} has no scores under {scheme!r}; its schemes are: {schemes}."
        )
    tell = progress or quiet
    if model is None:
        tell("loaded", 0, 1)
        model = given.load_model()
        tell("loaded", 1, 1)
    if not isinstance(model, GeneratingModel):
        raise InputError("this model cannot generate by itself; the check needs one that transformers loads.")
    refuse_other_model(
        manifest.model, model.identity(), str(given.folder), "fingerprint", "tokenizer", "bos_token", "served",
        fix=f"Give the {argument('model')} that the run was made with, and load it with the same bos.",
    )  # fmt: skip
    rows = given.rows(label)
    if told := next(filter(None, map(given.left_out, examples)), None):
        raise InputError(told)
    chosen = _chosen(rows, examples, passages, samples)
    made = given.cut(chosen, model.tokenizer)
    if isinstance(model, ServedGenerator):
        while not examples and (odd := model.unwritable(made)):  # as good as any other passage, but for that
            rows = rows.filter(~pl.col("example_id").is_in(odd))
            chosen = _chosen(rows, examples, passages, samples)
            made = given.cut(chosen, model.tokenizer)
        model.refuse_writing(made, [Scheme.parse(label)])
    results = []
    for number, (row, example) in enumerate(zip(chosen.iter_rows(named=True), made, strict=True)):
        hits, kept = 0, list[CheckedOutput]()
        for i, output in enumerate(
            generations(model, example, Scheme.parse(label), samples=samples, seed=seed + number)
        ):
            hits += output == example.suffix
            if i < show:
                text = str(model.tokenizer.decode(list(output)))
                kept.append(CheckedOutput(text=text, same=output == example.suffix))
            tell("generated", number * samples + i + 1, len(made) * samples)
        p_z = math.exp(row["log_prob"])
        results.append(
            CheckedPassage(
                example_id=row["example_id"],
                start=row["start"],
                suffix_start=row["suffix_start"],
                suffix_end=row["suffix_end"],
                **vars(agreement(p_z, hits, samples)),
                outputs=kept,
                seed=seed + number,
            )
        )
    p_values = [result.p_value for result in results]
    return Checked(
        source=manifest.source,
        model=manifest.model,
        scheme=label,
        logit_tolerance=summary.logit_tolerance,
        passages=results,
        outside_interval=sum(not r.interval[0] <= r.p_z <= r.interval[1] for r in results),
        smallest_p_value=min(p_values),
        smallest_of_all=smallest_of(p_values),
        outputs=len(results) * samples,
    )


def _chosen(rows: pl.DataFrame, asked: Sequence[str], passages: int, samples: int) -> pl.DataFrame:
    if asked:
        for name in asked:
            if name not in rows["example_id"]:
                raise InputError(f"the run has no example {name!r}; the first is {rows['example_id'][0]!r}.")
        chosen = rows.filter(pl.col("example_id").is_in(list(asked)))
        if chosen["bounded"].any():
            name = chosen.filter(pl.col("bounded"))["example_id"][0]
            raise InputError(f"of the p_z of example {name!r} only an upper bound is known; choose another.")
        return chosen
    if rows["scheme"][0] == str(GREEDY):
        raise InputError(
            f"under greedy decoding p_z is 0 or 1 and every generation is the same: name some {argument('examples')}."
        )
    whole = rows.filter(~pl.col("bounded"))
    picked = spread_over(whole["log_prob"].to_list(), passages, samples)
    if not picked:
        raise InputError(
            f"no example of this run has a p_z between {1 / samples:g} and {1 - 1 / samples:g}, where {samples} "
            f"generations could tell something; take more {argument('samples')}, or name some {argument('examples')}."
        )
    return whole[picked]
