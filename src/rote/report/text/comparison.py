"""A comparison of runs in words: tables and sentences that serve the terminal and the page alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rote.report.keys import derived, key_of, mark, number_in
from rote.report.text import numbers
from rote.report.text.near import near_caption, near_rows, verbatim_elsewhere
from rote.report.text.stages import compared_stages
from rote.store.comparison import (
    ComparedRun,
    ComparisonResult,
    Moved,
    MovedPassage,
    Pair,
    RunOfSet,
    VerbatimElsewhere,
)

QUOTE = 72  # characters of a suffix that the terminal shows
WIDE = 6  # more runs than this, and the terminal's fixed-set table leaves out the means


def headline(result: ComparisonResult) -> str:
    """What was compared, in one sentence."""
    examples, source = result.common_examples, numbers.name(result.source.name)
    runs = derived(len(result.runs), "comparison/runs", examples)
    if result.common_windows is not None:
        every = numbers.counted(result.common_windows, "window")
        return (
            f"{numbers.counted(runs, 'run')} over the same {every} of {source}, of which "
            f"{numbers.count(examples)} were scored in all."
        )
    return f"{numbers.counted(runs, 'run')} over the same {numbers.counted(examples, result.unit)} of {source}."


def notes(result: ComparisonResult) -> list[str]:
    """What a reader must know before taking the numbers at face value."""
    unit, remarks = result.unit, []
    if windows := result.windows:
        remarks.append(
            f"Windows of {numbers.count(windows.prefix)} + {numbers.length(windows.suffix, windows.unit)}, one every "
            f"{numbers.counted(windows.stride, 'character')}, matched by where they start."
        )
    if held_out := result.held_out_examples:
        remarks.append(
            f"{numbers.counted(held_out, 'held-out example')} left out; rote report compares each run with them."
        )
    if result.tokenizers_differ and result.by_characters:
        remarks.append(
            "The runs have different tokenizers, but their windows are measured in characters: prefixes and suffixes "
            "are the same words in every run, and runs are compared row by row."
        )
    elif result.tokenizers_differ:
        same = "at the same characters" if result.scanned else "with the same text"
        remarks.append(
            f"The runs have different tokenizers: their {unit}s start {same} but are cut into different tokens, so "
            "that prefixes and suffixes do not span the same characters. A p_z is over each model's own tokens."
        )
    if left_out := {key: count for key, count in result.unpaired.items() if count}:
        listed = _of_each(left_out.items(), unit)
        why = "not every run has them (dropped at the text's end)"
        if result.common_windows is not None:
            why = "not every run scored them (left out of a scan in stages, or dropped at the text's end)"
        remarks.append(f"Left out of everything but the first tables, because {why}: {listed}.")
    remarks += [compared_stages(run, result.tau) for run in result.runs if run.left_out]
    doubted: dict[float, list[tuple[str, int]]] = {}
    for run in result.runs:
        if count := run.rates.near_tau.count:
            tolerance = run.rates.near_tau.numeric_tolerance
            doubted.setdefault(tolerance, []).append((run.key, count))
    for tolerance, each in doubted.items():
        remarks.append(
            f"Within {numbers.setting(tolerance)} of log τ, perhaps on its other side in another correct computation: "
            f"{_of_each(each, unit)}."
        )
    for run in (run for run in result.runs if run.rates.bounded):
        early = "given up early as certain to end below their run's τ"
        why = early if run.model.served is None else numbers.bounded(run.model)
        which = _of_each([(run.key, run.rates.bounded)], unit)
        remarks.append(f"{why[0].upper()}{why[1:]}, so that only an upper bound on p_z is known: {which}.")
    for pair in result.pairs:
        if pair.undecided:
            remarks.append(
                f"{pair.first} against {pair.second}: {numbers.counted(pair.undecided, unit)} left out of what was "
                "gained and lost, as a server’s list leaves open whether they reach τ."
            )
    return remarks


def runs_table(result: ComparisonResult) -> list[list[str]]:
    """Which run is which."""
    rows = [["", "Run", "Model", "Scheme", "BOS"]]
    for run in result.runs:
        model = run.model
        names = [numbers.name(run.name), numbers.title(model), numbers.name(run.scheme)]
        rows.append([run.key, *names, f"{model.bos}: {numbers.bos_token(model)}"])
    return rows


def differing_table(result: ComparisonResult) -> list[list[str]]:
    """The settings in which the runs differ."""
    rows = [["Setting", *(run.key for run in result.runs)]]
    for field, values in result.differing.items():
        rows.append([field, *(_setting(values[run.key]) for run in result.runs)])
    return rows


def numbers_table(result: ComparisonResult, *, cost: bool = True) -> list[list[str]]:
    """Each run by itself, over all its own examples."""
    sampled = not result.scanned
    edits = sorted({run.near.tolerance for run in result.runs if run.near})
    thresholds = list(result.runs[0].coverage or ())
    rows = [
        ["", f"{result.unit.capitalize()}s", "Greedy", f"At τ = {numbers.setting(result.tau)}"]
        + (["95% interval"] if sampled else [])
        + ["At 0.0001", "Maximum"]
        + [f"Covered at {numbers.threshold(number_in(p))}" for p in thresholds]
        + [f"Within {numbers.counted(tolerance, 'edit')}" for tolerance in edits]
        + (["Time", "Token evaluations"] if cost else [])
    ]
    for run in result.runs:
        own = run.rates
        low, high = own.rate_at_tau.interval
        rows.append(
            [run.key, _rows(run), numbers.rate(own.greedy_rate), numbers.rate(own.rate_at_tau)]
            + ([f"{numbers.percent(low)} to {numbers.percent(high)}"] if sampled else [])
            + [numbers.rate(own.rate_at_1e_4), numbers.rate(own.maximum_rate)]
            + [f"{'≥ ' if run.left_out else ''}{numbers.covered(covered)}" for covered in (run.coverage or {}).values()]
            + [_within(run, tolerance) for tolerance in edits]
            + ([numbers.duration(run.seconds), numbers.count(run.token_evals)] if cost else [])
        )
    return rows


def _rows(run: ComparedRun) -> str:
    """How many rows a run has; of a scan in stages, of how many windows."""
    rows = numbers.count(run.examples)
    return f"{rows} of {numbers.count(run.staged.windows)}" if run.left_out and run.staged is not None else rows


def odds_tables(result: ComparisonResult) -> dict[float, list[list[str]]]:
    """For each p a table: which share of each run comes at least once in n generations."""
    cells = {run.key: {(cell.n, cell.p): numbers.rate(cell) for cell in run.rates.np_table} for run in result.runs}
    prompts = sorted({n for own in cells.values() for n, _ in own})
    chances = sorted({p for own in cells.values() for _, p in own})
    head = ["", *(f"n = {numbers.count(n)}" for n in prompts)]
    return {
        p: [head, *([key, *(own.get((n, p), numbers.MISSING) for n in prompts)] for key, own in cells.items())]
        for p in chances
    }


def odds_note(result: ComparisonResult) -> str:
    return (
        f"Share of each run's {result.unit}s whose suffix appears at least once in n generations with probability p "
        "or more."
    )


def pairs_table(result: ComparisonResult) -> list[list[str]]:
    """Every run against the first, at tau."""
    head = ["", "Gained", "Lost", "Both", "Neither", "Difference", "95% interval"]
    head += ["Median change of p_z", "From 0", "To 0", "0 in both", "Unknown"]
    return [head, *map(_pair_row, result.pairs)]


def _pair_row(pair: Pair) -> list[str]:
    moved = pair.log_prob
    return [
        pair.second,
        *map(numbers.count, (pair.gained, pair.lost, pair.both, pair.neither)),
        numbers.points(pair.difference),
        f"{numbers.points(pair.interval[0])} to {numbers.points(pair.interval[1])}",
        _median(moved),
        *map(numbers.count, (moved.appeared, moved.vanished, moved.zero, moved.unknown)),
    ]


def pairs_note(result: ComparisonResult) -> str:
    first, unit = result.runs[0].key, result.unit
    sample = (
        "It takes the windows as a random sample; these are all of the text's at this stride, and where they overlap "
        "they are not independent, so that it is too narrow."
        if result.scanned and result.common_windows is None
        else f"These are the {numbers.count(result.common_examples)} of {numbers.count(result.common_windows)} windows "
        "that were scored in all runs. Scans in stages score those that tile the text and those that their model may "
        "know: differences and intervals are of these windows, not of the text."
        if result.scanned
        else "It takes a document's examples together, and the documents as a random sample of a larger set."
        if any(pair.effective < pair.examples for pair in result.pairs)
        else "It takes the examples as a random sample of a larger set."
    )
    return (
        f"Gained: {unit}s that reach τ but do not in {first}; lost: the other way round. The interval is Newcombe's "
        f"for paired rates, in percentage points. {sample} The median change is over {unit}s with p_z above 0 in both "
        "runs; from 0, to 0 and 0 in both count the others, and unknown those of which one knows only an upper bound."
    )


def fixed_table(result: ComparisonResult, *, means: bool = True) -> list[list[str]]:
    """What each run makes of the sequences that one run, or all, can extract."""
    keys = [run.key for run in result.runs]
    rows = [["Extractable in", "Sequences", *keys]]
    for fixed in result.fixed_sets:
        cells = [_fixed_cell(fixed.runs[key], means) for key in keys]
        rows.append([fixed.reference or "all of them", numbers.count(fixed.examples), *cells])
    return rows


def near_tables(result: ComparisonResult, *, intervals: bool = True) -> list[tuple[str, list[list[str]]]]:
    """Near-verbatim bounds across runs, as (what it is, table)."""
    near, unit = result.near, result.unit
    if near is None:
        return []
    tables = [(near_caption(group, unit), near_rows(group)) for group in near.fixed]
    elsewhere: dict[str, dict[str, VerbatimElsewhere]] = {}
    for share in near.verbatim_elsewhere:
        elsewhere.setdefault(share.run, {})[share.other] = share
    if not elsewhere:
        return tables
    others = [run.key for run in result.runs if any(run.key in own for own in elsewhere.values())]
    rows = [["Unlocked in", f"{unit.capitalize()}s", *others]]
    for key, own in elsewhere.items():
        cells = [verbatim_elsewhere(own[other], intervals) if other in own else numbers.MISSING for other in others]
        rows.append([key, numbers.count(next(iter(own.values())).unlocked), *cells])
    sure = ", with 95% intervals" if intervals else ""
    return [
        *tables,
        (f"Of the {unit}s that only tolerance unlocks in one run, those that another has verbatim{sure}", rows),
    ]


def near_alone(result: ComparisonResult) -> str:
    """Which runs have bounds that can be compared with no other's; empty where there are none."""
    if not result.near or not (alone := result.near.alone):
        return ""
    return (
        f"No other run counts the same as near, under the same scheme, as {', '.join(alone)}; bounds are compared only "
        "between runs that do."
    )


def moved_facts(passage: MovedPassage, *, gain: bool) -> list[tuple[str, str]]:
    """How a passage moved, as (name, value): its two p_z, by what factor, and whether it passed τ."""
    before, after = (
        ("at most " if stopped else "") + numbers.probability(-math.inf if log_prob is None else log_prob)
        for log_prob, stopped in zip(passage.log_prob, passage.bounded, strict=True)
    )
    facts = [("p_z", f"{before} to {after}")]
    if (change := passage.least_change) is not None:
        factor = mark(
            change, numbers.prompts(math.exp(change)) if change < 600 else numbers.scientific(change), "times"
        )
        least = "" if passage.exact else "at least "
        facts.append(("Change", f"{least}{factor} times {'as' if gain else 'less'} likely"))
    if passage.crossed:
        facts.append(("Threshold", "passes τ" if gain else "falls below τ"))
    return facts


@dataclass(frozen=True, slots=True)
class Listing:
    """The largest gains or losses of a pair: a title, what to say of `none`, and the passages with their facts."""

    title: str
    none: str
    passages: Sequence[tuple[MovedPassage, list[tuple[str, str]]]]


def listings(result: ComparisonResult) -> list[Listing]:
    """For each pair its largest gains, then its largest losses, if any were asked for."""
    unit = result.unit if result.common_windows is None else "window scored in all runs"
    return [_listing(pair, gain, unit) for pair in result.pairs if result.top for gain in (True, False)]


def _listing(pair: Pair, gain: bool, unit: str) -> Listing:
    passages, crossed = (pair.largest_gains, pair.gained) if gain else (pair.largest_losses, pair.lost)
    way = f"{pair.first} to {pair.second}"
    shown = derived(sum(passage.crossed for passage in passages), f"{key_of(crossed)}/listed", crossed)
    which = f"; first {numbers.count(shown)} of {numbers.count(crossed)} {'gained' if gain else 'lost'} at τ"
    return Listing(
        title=f"Largest {'gains' if gain else 'losses'}, {way}{which if shown else ''}",
        none=f"No {unit} that reaches τ becomes {'likelier' if gain else 'less likely'} from {way}.",
        passages=[(passage, moved_facts(passage, gain=gain)) for passage in passages],
    )


def comparison_lines(result: ComparisonResult) -> list[str]:
    """The comparison for a terminal, a line each, below its conclusion."""
    first = result.runs[0].key
    lines = [headline(result), *notes(result), "", *aligned(runs_table(result)), ""]
    if result.differing:
        lines += ["What differs", *aligned(differing_table(result)), ""]
    lines += ["Each run by itself", *aligned(numbers_table(result)), ""]
    lines += [odds_note(result), *_odds_lines(result), ""]
    lines += [
        f"Against {first}, at τ = {numbers.setting(result.tau)}",
        *aligned(pairs_table(result)),
        pairs_note(result),
        "",
    ]
    means = len(result.runs) <= WIDE
    what = "share extractable at τ" + (", mean p_z" if means else "")
    what += "" if result.common_windows is None else ", of the windows scored in all runs"
    lines += [f"Fixed sets: {what}", *aligned(fixed_table(result, means=means))]
    for caption, rows in near_tables(result, intervals=means):
        lines += ["", caption, *aligned(rows)]
    if alone := near_alone(result):
        lines += ["", alone]
    every = listings(result)
    if nothing := [listing.none for listing in every if not listing.passages]:
        lines += ["", *nothing]
    for listing in (listing for listing in every if listing.passages):
        lines += ["", listing.title]
        for passage, facts in listing.passages:
            words = ", ".join(value for _, value in facts)
            lines.append(f"  {numbers.literal(passage.example_id)}  {words}")
            lines.append(f"    {quote(passage.suffix)}")
    return lines


class TableLine(str):
    """A row of a table as a line of text; its cells are for a window that is too narrow for the line."""

    cells: tuple[str, ...]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of text, columns one under the other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        line = TableLine("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        line.cells = tuple(row)
        lines.append(line)
    return lines


def quote(text: str, length: int = QUOTE) -> str:
    """The beginning of a text on one line."""
    line = " ".join(numbers.literal(text).split())
    return f"“{line}”" if len(line) <= length else f"“{line[:length].rstrip()} …”"


def _odds_lines(result: ComparisonResult) -> list[str]:
    """The (n, p) tables as one: runs with the same p stand together."""
    tables = odds_tables(result)
    head = ["", "p", *next(iter(tables.values()))[0][1:]]
    each = ([row[0], numbers.threshold(p), *row[1:]] for p, rows in tables.items() for row in rows[1:])
    return aligned([head, *each])


def _of_each(counts: Iterable[tuple[str, int]], unit: str) -> str:
    """`3 windows of A, 5 of B`."""
    return ", ".join(
        f"{numbers.count(count) if i else numbers.counted(count, unit)} of {key}"
        for i, (key, count) in enumerate(counts)
    )


def _setting(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return numbers.MISSING if value is None else str(value)
    if isinstance(value, (int, float)):
        return numbers.setting(value)
    text = numbers.literal(str(value))
    return mark(value, f"{text[:16]}…" if len(text) == 32 and text.isalnum() else text, "text")


def _within(run: ComparedRun, tolerance: int) -> str:
    near = run.near
    if not near or near.tolerance != tolerance:
        return numbers.MISSING
    undecided = near.rate.undecided
    return numbers.percent(near.rate.probabilistic.rate) + (
        f" ({numbers.count(undecided)} undecided)" if undecided else ""
    )


def _median(moved: Moved) -> str:
    value = moved.median_difference
    if value is None:
        return numbers.MISSING
    return "× " + mark(value, f"{math.exp(value):.3g}" if abs(value) < 600 else numbers.scientific(value), "factor")


def _fixed_cell(own: RunOfSet, means: bool) -> str:
    reach, low, high = own.extractable, own.mean_p_z, own.mean_p_z_upper
    share = numbers.percents(reach.rate, reach.rate_upper)
    if not means or low is None or high is None:
        return share
    return f"{share}, {numbers.chance(low) if high - low < 1e-12 else numbers.interval(low, high)}"
