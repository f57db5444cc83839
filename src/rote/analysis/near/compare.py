"""Near-verbatim results beside one another: searches, models, Monte Carlo against a bound, distance against BLEU.

Tables that are compared must hold the same examples under the same scheme; their order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rote.analysis.near.table import TAU, Array, NearTable, column, count_true, mean, near_table, share_of
from rote.analysis.rates import log_prob_bounds
from rote.errors import InputError, counted
from rote.odds import wilson
from rote.store.comparison import NearFixed, NearModel, NearOfSet, VerbatimInLarger

Name = TypeVar("Name", bound=Hashable)

BLEU = 0.75


def tolerance_matrix(runs: Mapping[int | str, pl.DataFrame], *, tau: float = TAU) -> pl.DataFrame:
    """Searches of several tolerances, each filtered to every tolerance up to its own.

    A key is the tolerance that its search ran with, or a name, such as that of a search that does not prune. One row
    per run and filter tolerance: the extractable `count` and `rate`, and the total `mass`, the sum of the lower bounds.
    """
    rows = []
    for run, near in _aligned(runs, tau).items():
        if isinstance(run, int) and near.ids and near.tolerances[-1] != run:
            raise InputError(f"the run under tolerance {run} has bounds up to tolerance {near.tolerances[-1]}.")
        for tolerance in near.tolerances:
            lower = near.lower[:, tolerance]
            count = count_true(lower >= tau)
            own = (str(run), near.tolerances[-1], tolerance, count, count / len(near.ids), float(lower.sum()))
            rows.append(own)
    integers = {"run_tolerance": pl.Int64, "filter_tolerance": pl.Int64, "count": pl.Int64}
    schema = {"run": pl.String, **integers, "rate": pl.Float64, "mass": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def width_table(runs: Mapping[int, tuple[pl.DataFrame, float | None]], *, tau: float = TAU) -> pl.DataFrame:
    """What wider beams bring and cost: for each width, a table and the seconds it took (None where not known).

    One row per width and tolerance: the extractable `count` and `rate`, the mean lower bound of all (`mean_lower`) and
    of the extractable (`mean_extractable`, `sd_extractable` over n - 1), and of the whole run, at every tolerance, the
    total `token_evals` and the `seconds`.
    """
    rows = []
    for width, near in _aligned({width: table for width, (table, _) in runs.items()}, tau).items():
        table, seconds = runs[width]
        evals = int(column(table, "near_token_evals").cast(pl.Int64).sum())
        for tolerance in near.tolerances:
            lower = near.lower[:, tolerance]
            chosen = lower[lower >= tau]
            spread = float(chosen.std(ddof=1)) if chosen.size > 1 else None
            measured = (chosen.size, chosen.size / lower.size, mean(lower), mean(chosen), spread)
            rows.append((width, tolerance, *measured, evals, seconds))
    means = dict.fromkeys(("rate", "mean_lower", "mean_extractable", "sd_extractable"), pl.Float64)
    schema = {"width": pl.Int64, "tolerance": pl.Int64, "count": pl.Int64, **means}
    return pl.DataFrame(rows, schema={**schema, "token_evals": pl.Int64, "seconds": pl.Float64}, orient="row")


def compare_fixed(models: Mapping[str, pl.DataFrame], *, reference: str | None = None, tau: float = TAU) -> NearFixed:
    """Models over the same examples, and over a fixed set of them: those extractable by `reference`, or else by all.

    A larger set may hide that the same examples grow likelier; the fixed set shows it. For each model: the verbatim
    and the near-verbatim `Share`, how many are undecided, and under `fixed` the counts, mean p_z, and mean and median
    lower bound within the fixed set.
    """
    tables = _aligned(models, tau)
    if reference is not None and reference not in tables:
        raise InputError(f"the reference model {reference!r} is not among the models: {', '.join(map(repr, tables))}.")
    reached = {name: near.tolerances for name, near in tables.items()}
    if len(set(reached.values())) > 1:
        listed = ", ".join(f"{name!r} to {len(each) - 1}" for name, each in reached.items())
        raise InputError(f"the models were searched to different tolerances: {listed}.")
    size = len(next(iter(tables.values())).ids) if tables else 0
    chosen = [near.extractable for name, near in tables.items() if reference in (None, name)]
    fixed = np.logical_and.reduce(chosen) if chosen else np.zeros(0, dtype=np.bool_)
    return NearFixed(
        examples=size,
        tolerance=len(next(iter(reached.values()))) - 1 if size else None,
        tau=tau,
        reference=reference,
        fixed_examples=count_true(fixed),
        models=[_compared(name, near, fixed) for name, near in tables.items()],
    )


def verbatim_in_larger(small: pl.DataFrame, large: pl.DataFrame, *, tau: float = TAU) -> VerbatimInLarger:
    """Of the examples that only tolerance unlocks for the small model, how many the large one has verbatim.

    A `Share` of the unlocked, with their number and the ids. The large model's table needs no near-verbatim columns.
    """
    first, second = _same_examples({"small": small, "large": large}).values()
    near = near_table(first, tau)
    if second["bounded"].any():
        raise InputError(
            "of some examples in the large model's table only an upper bound is known; score it without stopping "
            "early, or from longer lists of a served model."
        )
    unlocked = near.extractable & ~near.verbatim
    both = unlocked & (log_prob_bounds(second)[1] >= math.log(tau))
    count = count_true(both)
    ids = [near.ids[i] for i in np.flatnonzero(both).tolist()]
    share = share_of(count, count, count_true(unlocked))
    return VerbatimInLarger(**vars(share), unlocked=count_true(unlocked), example_ids=ids)


def convergence(
    hits: Sequence[Sequence[int]],
    *,
    sizes: Sequence[int] | None = None,
    bound: float | None = None,
    band: tuple[float, float] = (0.025, 0.975),
) -> dict[str, Any]:
    """Monte Carlo replicates as their samples grow, against a lower bound.

    Each replicate is a list of outcomes, 0 or 1; or, where `sizes` is given, of hits among its first sizes[i] samples.
    `curve` is a table: `samples` of each replicate, `mean` estimate, `low` and `high` quantiles (`band`) over
    replicates, `pooled_low` and `pooled_high`, the Wilson interval of all samples together. `captured` is the bound
    as a share of the last mean. `needed` says how many samples the bound (without one: the last mean) asks for.
    """
    counts, at = _growing(hits, sizes)
    shares = counts / at
    pooled = [wilson(int(n), int(m) * len(counts)) for n, m in zip(counts.sum(axis=0), at, strict=True)]
    low, high = np.quantile(shares, band, axis=0)
    last = float(shares[:, -1].mean())
    columns = {"samples": at, "mean": shares.mean(axis=0), "low": low, "high": high}
    ends = {"pooled_low": [low for low, _ in pooled], "pooled_high": [high for _, high in pooled]}
    return {
        "curve": pl.DataFrame({**columns, **ends}),
        "replicates": len(counts),
        "mean": last,
        "bound": bound,
        "captured": bound / last if bound is not None and last > 0 else None,
        "needed": samples_needed(last if bound is None else bound),
    }


def samples_needed(p: float, *, delta: float = 0.05, eta: float = 0.1) -> dict[str, float]:
    """How many samples an event of probability p asks of plain Monte Carlo; whole numbers, inf for p = 0.

    `detection`: to see it at least once except with probability delta. `relative_error`: for a standard error of eta
    times p.
    """
    if not (0 <= p <= 1 and 0 < delta < 1 and eta > 0):
        raise InputError(f"p must lie in [0, 1], delta in (0, 1), eta above 0; not {p}, {delta} and {eta}.")
    detection = 1.0 if p == 1 else math.inf if p == 0 else math.log(1 / delta) / -math.log1p(-p)
    error = (1 - p) / p / eta**2 if p > 0 else math.inf
    return {"detection": max(float(np.ceil(detection)), 1.0), "relative_error": max(float(np.ceil(error)), 1.0)}


def overlap(
    outputs: pl.DataFrame, *, tolerance: int = 5, bleu: float = BLEU, tau: float = TAU
) -> dict[str, dict[str, Any]]:
    """Two notions of nearness over the same outputs: distance <= tolerance, and BLEU at or above a threshold.

    `outputs` has a row per finished output: example_id, log_prob, distance, bleu (0 to 1). Result, for "both",
    "distance_only", "bleu_only" and "neither": the `outputs` and their total `mass`, and the `examples` whose mass of
    near outputs reaches tau by both notions (not necessarily through the same outputs), one, or neither.
    """
    for name in ("example_id", "log_prob", "distance", "bleu"):
        if column(outputs, name).null_count():
            raise InputError(f"an output of the table has no {name}; every output needs one.")
    mass = pl.col("log_prob").exp()
    near, similar = pl.col("distance") <= tolerance, pl.col("bleu") >= bleu
    marked = outputs.select("example_id", mass=mass, near=near, similar=similar)
    masses = [pl.col("mass").filter(pl.col(name)).sum().ge(tau).alias(name) for name in ("near", "similar")]
    examples = marked.group_by("example_id", maintain_order=True).agg(masses)
    cells = {
        "both": (True, True),
        "distance_only": (True, False),
        "bleu_only": (False, True),
        "neither": (False, False),
    }
    result = {}
    for name, (by_distance, by_bleu) in cells.items():
        inside = (pl.col("near") == by_distance) & (pl.col("similar") == by_bleu)
        own = marked.filter(inside)
        result[name] = {
            "outputs": own.height,
            "mass": float(own["mass"].sum()),
            "examples": examples.filter(inside).height,
        }
    return result


def _same_examples(tables: Mapping[Name, pl.DataFrame]) -> dict[Name, pl.DataFrame]:
    """The tables, sorted by example; refuses those that differ in their examples or their scheme."""
    ordered: dict[Name, pl.DataFrame] = {}
    first: Name | None = None
    for name, table in tables.items():
        log_prob_bounds(table)
        twice = table["example_id"].filter(table["example_id"].is_duplicated())
        if len(twice):
            raise InputError(f"example {twice[0]!r} stands more than once in the table of {name!r}.")
        ordered[name] = table.sort("example_id")
        if first is None:
            first = name
            continue
        for one, other in ((first, name), (name, first)):
            extra = sorted(set(ordered[one]["example_id"]) - set(ordered[other]["example_id"]))
            if extra:
                raise InputError(
                    f"{other!r} lacks {counted(len(extra), 'example')} that {one!r} has, such as {extra[0]!r}; "
                    "compare tables of the same examples."
                )
        if table.height and ordered[first]["scheme"][0] != table["scheme"][0]:
            schemes = f"'{ordered[first]['scheme'][0]}' and '{table['scheme'][0]}'"
            raise InputError(f"{first!r} and {name!r} were decoded by different schemes: {schemes}.")
    return ordered


def _aligned(tables: Mapping[Name, pl.DataFrame], tau: float) -> dict[Name, NearTable]:
    return {name: near_table(table, tau) for name, table in _same_examples(tables).items()}


def _compared(model: str, near: NearTable, fixed: Any) -> NearModel:
    total = len(near.ids)
    verbatim, certain = count_true(near.verbatim), count_true(near.extractable)
    undecided = count_true(near.undecided)
    lower = near.lower[fixed, -1]
    return NearModel(
        model=model,
        verbatim=share_of(verbatim, verbatim, total),
        near=share_of(certain, certain + undecided, total),
        undecided=undecided,
        fixed=NearOfSet(
            verbatim=count_true(near.verbatim & fixed),
            near=count_true(near.extractable & fixed),
            mean_p_z=mean(near.p_z[fixed]),
            mean_lower=mean(lower),
            median_lower=float(np.median(lower)) if lower.size else None,
        ),
    )


def _growing(hits: Sequence[Sequence[int]], sizes: Sequence[int] | None) -> tuple[Array, Any]:
    """Hits so far, a row per replicate and a column per number of samples; and those numbers."""
    lengths = {len(replicate) for replicate in hits}
    if len(lengths) != 1 or lengths == {0}:
        raise InputError("convergence needs at least one replicate, and replicates of one length of at least 1.")
    given = np.asarray(hits, dtype=np.float64)
    if sizes is not None:
        at = np.asarray(sizes, dtype=np.int64)
        if at.size != given.shape[1] or at[0] < 1 or (np.diff(at) <= 0).any():
            raise InputError("sizes are numbers of samples: ascending, at least 1, one for each count of hits.")
        if (np.diff(given, axis=1, prepend=0) < 0).any() or (given > at).any():
            raise InputError("hits among growing samples may not fall, and are at most as many as the samples.")
        return given, at
    if not np.isin(given, (0, 1)).all():
        raise InputError("an outcome is 0 or 1; give counts of hits together with sizes.")
    total = given.shape[1]
    steps = [step * 10**power for power in range(len(str(total))) for step in (1, 2, 5)]
    at = np.asarray([*(step for step in steps if step < total), total], dtype=np.int64)
    return given.cumsum(axis=1)[:, at - 1], at
