"""The empirical check of a finished run: generate from its prefixes and see how often its suffixes come."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rote.analysis.empirical import Agreement, agreement, smallest_of, spread_over
from rote.corpus.windows import windows
from rote.errors import InputError, RunError
from rote.extraction.generations import generations
from rote.models.base import GeneratingModel, LogitModel, ModelIdentity
from rote.scheme import GREEDY, Scheme
from rote.store.manifest import Source, refuse_other_model
from rote.store.open import open_run
from rote.store.run import StoredRun
from rote.tokens import Example


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


def check(
    folder: str | Path,
    model: LogitModel,
    *,
    scheme: str | None = None,
    samples: int = 1000,
    passages: int = 10,
    examples: Sequence[str] = (),
    keep: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Checked:
    """Generate `samples` outputs for passages of a finished run and compare with their p_z.

    `scheme` is the label of one of the run's schemes; its first if left out.

    The passages are the named `examples`, or at most `passages` spread over those whose p_z is between 1 / samples and
    1 - 1 / samples. The model must be the one the run was made with. `keep` outputs of each passage are returned.
    """
    run = open_run(folder)
    manifest, summary = run.manifest, run.summary
    if not isinstance(model, GeneratingModel):
        raise InputError("this model cannot generate by itself; the check needs one that transformers loads.")
    if samples < 1 or passages < 1:
        raise InputError("samples and passages must be at least 1.")
    refuse_other_model(
        manifest.model, model.identity(), str(folder), "fingerprint", "tokenizer", "bos_token",
        fix="Give the model (and --bos) that the run was made with.",
    )  # fmt: skip
    if not 0 <= seed < 2**40:
        raise InputError(f"seed must be a whole number from 0 to {2**40 - 1}, not {seed}.")
    label = manifest.schemes[0] if scheme is None else scheme
    if label not in manifest.schemes:
        raise InputError(f"{folder} has no scores under {label!r}; its schemes are: {'; '.join(manifest.schemes)}.")
    rows = run.rows(label)
    chosen = _chosen(rows, examples, passages, samples)
    made = _examples(run, model.tokenizer, chosen)
    tell = progress or (lambda done, total: None)
    results = []
    for number, (row, example) in enumerate(zip(chosen.iter_rows(named=True), made, strict=True)):
        hits, kept = 0, list[CheckedOutput]()
        for i, output in enumerate(
            generations(model, example, Scheme.parse(label), samples=samples, seed=seed + number)
        ):
            hits += output == example.suffix
            if i < keep:
                text = str(model.tokenizer.decode(list(output)))
                kept.append(CheckedOutput(text=text, same=output == example.suffix))
            tell(number * samples + i + 1, len(made) * samples)
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
        if chosen["stopped"].any():
            name = chosen.filter(pl.col("stopped"))["example_id"][0]
            raise InputError(f"example {name!r} was stopped early, so its p_z is only bounded; choose another.")
        return chosen
    if rows["scheme"][0] == str(GREEDY):
        raise InputError("under greedy decoding p_z is 0 or 1 and every generation is the same: name an --example.")
    whole = rows.filter(~pl.col("stopped"))
    picked = spread_over(whole["log_prob"].to_list(), passages, samples)
    if not picked:
        raise InputError(
            f"no example of this run has a p_z between {1 / samples:g} and {1 - 1 / samples:g}, where {samples} "
            "generations could tell something; take more --samples, or name an --example."
        )
    return whole[picked]


def _examples(run: StoredRun, tokenizer: Any, rows: pl.DataFrame) -> list[Example]:
    """The rows' examples: as stored, or cut from the text again, which must be the one that was scanned."""
    cut, text = run.manifest.windows, run.text
    if cut is None:
        stored = {entry.id: entry for entry in run.examples}
        return [Example(name, tuple(stored[name].prefix), tuple(stored[name].suffix)) for name in rows["example_id"]]
    if text is None:
        raise RunError(f"{run.folder / 'text.txt'} is gone; run the scan again to restore it.")
    examples = []
    for name, start in rows.select("example_id", "start").iter_rows():
        one = windows(text[start:], tokenizer, prefix=cut.prefix, suffix=cut.suffix, stride=len(text))[0]
        examples.append(Example(name, one.prefix, one.suffix))
    return examples
