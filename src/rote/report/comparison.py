"""A comparison of runs in words: tables and sentences that serve the terminal and the page alike, and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.report import show
from rote.report.page import environment
from rote.report.strip import strip

QUOTE = 72  # characters of a suffix that the terminal shows
WIDE = 6  # more runs than this, and the terminal's fixed-set table leaves out the means


def headline(result: Mapping[str, Any]) -> str:
    """What was compared, in one sentence."""
    unit, source = _unit(result), show.literal(result["source"]["name"])
    return (
        f"{show.counted(len(result['runs']), 'run')} over the same "
        f"{show.counted(result['common_examples'], unit)} of {source}."
    )


def notes(result: Mapping[str, Any]) -> list[str]:
    """What a reader must know before taking the numbers at face value."""
    unit, found = _unit(result), []
    if windows := result["windows"]:
        found.append(
            f"Windows of {windows['prefix']} + {show.counted(windows['suffix'], 'token')}, one every "
            f"{show.counted(windows['stride'], 'character')}, matched by where they start."
        )
    if held_out := result["held_out_examples"]:
        found.append(f"{show.counted(held_out, 'held-out example')} left out; rote report compares each run with them.")
    if result["tokenizers_differ"]:
        same = "at the same characters" if result["kind"] == "scan" else "with the same text"
        found.append(
            f"The runs have different tokenizers: their {unit}s start {same} but are cut into different tokens, so "
            "that prefixes and suffixes do not span the same characters. A p_z is over each model's own tokens."
        )
    if left_out := {key: count for key, count in result["unpaired"].items() if count}:
        listed = ", ".join(f"{count} of {key}" for key, count in left_out.items())
        found.append(
            f"{show.counted(sum(left_out.values()), unit)} that not every run has (dropped at the text's end) "
            f"{'is' if sum(left_out.values()) == 1 else 'are'} left out of everything but the first table: {listed}."
        )
    for run in result["runs"]:
        if near := run["rates"]["near_tau"]["count"]:
            found.append(
                f"In {run['key']}, {show.counted(near, unit)} within {run['rates']['near_tau']['numeric_tolerance']:g} "
                "of log τ may fall on the other side in another correct computation."
            )
        if stopped := run["rates"]["stopped"]:
            found.append(
                f"In {run['key']}, {show.counted(stopped, unit)} {'was' if stopped == 1 else 'were'} given up early as "
                "certain to end below its τ: only an upper bound on p_z is known there."
            )
    return found


def runs_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Which run is which."""
    rows = [["", "Run", "Model", "Scheme", "BOS"]]
    for run in result["runs"]:
        model = run["model"]
        bos = model["bos"] + (": none" if model["bos_token"] is None else f": token {model['bos_token']}")
        rows.append([run["key"], show.literal(run["name"]), show.literal(str(model["name"])), run["scheme"], bos])
    return rows


def differing_table(result: Mapping[str, Any]) -> list[list[str]]:
    """The settings in which the runs differ."""
    rows = [["Setting", *(run["key"] for run in result["runs"])]]
    for field, values in result["differing"].items():
        rows.append([field, *(_setting(values[run["key"]]) for run in result["runs"])])
    return rows


def numbers_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Each run by itself, over all its own examples."""
    sampled = result["kind"] != "scan"
    edits = sorted({run["near"]["tolerance"] for run in result["runs"] if run["near"]})
    thresholds = list(result["runs"][0]["coverage"] or ())
    rows = [
        ["", f"{_unit(result).capitalize()}s", "Greedy", f"At τ = {result['tau']:g}"]
        + (["95% interval"] if sampled else [])
        + ["At 0.0001", "Maximum"]
        + [f"Covered at {show.threshold(float(p))}" for p in thresholds]
        + [f"Within {show.counted(tolerance, 'edit')}" for tolerance in edits]
        + ["Time", "Token evaluations"]
    ]
    for run in result["runs"]:
        found = run["rates"]
        low, high = found["rate_at_tau"]["interval"]
        rows.append(
            [run["key"], show.count(run["examples"]), show.rate(found["greedy_rate"]), show.rate(found["rate_at_tau"])]
            + ([f"{show.percent(low)} to {show.percent(high)}"] if sampled else [])
            + [show.rate(found["rate_at_0.0001"]), show.rate(found["maximum_rate"])]
            + [show.percent(run["coverage"][p]["share"]) for p in thresholds]
            + [_within(run, tolerance) for tolerance in edits]
            + [show.duration(run["seconds"]), show.count(run["token_evals"])]
        )
    return rows


def pairs_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Every run against the first, at tau."""
    head = ["", "Gained", "Lost", "Both", "Neither", "Difference", "95% interval"]
    head += ["Median change of p_z", "From 0", "To 0", "0 in both", "Unknown"]
    return [
        head,
        *(
            [
                pair["second"],
                *(show.count(pair[name]) for name in ("gained", "lost", "both", "neither")),
                points(pair["difference"]),
                f"{points(pair['interval'][0])} to {points(pair['interval'][1])}",
                _median(pair["log_prob"]),
                *(show.count(pair["log_prob"][name]) for name in ("appeared", "vanished", "zero", "unknown")),
            ]
            for pair in result["pairs"]
        ),
    ]


def pairs_note(result: Mapping[str, Any]) -> str:
    first, unit = result["runs"][0]["key"], _unit(result)
    sample = (
        "It takes the windows as a random sample; these are all of the text's at this stride, and where they overlap "
        "they are not independent, so that it is too narrow."
        if result["kind"] == "scan"
        else "It takes a document's examples together, and the documents as a random sample of a larger set."
        if any(pair["effective"] < pair["examples"] for pair in result["pairs"])
        else "It takes the examples as a random sample of a larger set."
    )
    return (
        f"Gained: {unit}s that reach τ but do not in {first}; lost: the other way round. The interval is Newcombe's "
        f"for paired rates, in percentage points. {sample} The median change is over {unit}s with p_z above 0 in both "
        f"runs; from 0, to 0 and 0 in both count the others, and unknown those given up early in one of the two."
    )


def fixed_table(result: Mapping[str, Any], *, means: bool = True) -> list[list[str]]:
    """What each run makes of the sequences that one run, or all, can extract."""
    keys = [run["key"] for run in result["runs"]]
    rows = [["Extractable in", "Sequences", *keys]]
    for fixed in result["fixed_sets"]:
        cells = [_fixed_cell(fixed["runs"][key], means) for key in keys]
        rows.append([fixed["reference"] or "all of them", show.count(fixed["examples"]), *cells])
    return rows


def near_lines(result: Mapping[str, Any]) -> list[str]:
    """Near-verbatim bounds across runs, in sentences."""
    near = result["near"]
    if near is None:
        return []
    unit, lines = _unit(result), []
    for group in near["fixed"]:
        parts = [
            f"{model['model']} {show.percent(model['near']['rate'])} "
            f"({show.percent(model['verbatim']['rate'])} verbatim, {show.count(model['undecided'])} undecided)"
            for model in group["models"]
        ]
        lines.append(f"Within {show.counted(group['tolerance'], 'edit')}, by the lower bound: {', '.join(parts)}.")
        if group["fixed_examples"]:
            means = [
                f"{model['model']} {_mean(model['fixed']['mean_lower'])} ({_mean(model['fixed']['mean_p_z'])} verbatim)"
                for model in group["models"]
            ]
            lines.append(
                f"Over the {show.counted(group['fixed_examples'], unit)} near-verbatim extractable in all of these, "
                f"the mean lower bound: {', '.join(means)}."
            )
    for found in near["verbatim_elsewhere"]:
        low, high = found["interval"]
        lines.append(
            f"Of {show.counted(found['unlocked'], unit)} that only tolerance unlocks in {found['run']}, "
            f"{found['other']} has {show.count(found['count'])} verbatim"
            + (
                f" ({show.percent(found['rate'])}, 95% interval {show.percent(low)} to {show.percent(high)})."
                if found["unlocked"]
                else "."
            )
        )
    if near["alone"]:
        lines.append(
            f"No other run counts the same as near, under the same scheme, as {', '.join(near['alone'])}; "
            "bounds are compared only between runs that do."
        )
    return lines


def moved_words(passage: Mapping[str, Any], *, gain: bool) -> str:
    """`0.0012 to 0.31, at least 258 times as likely, passes τ`."""
    before, after = (
        ("at most " if stopped else "") + show.probability(-math.inf if log_prob is None else log_prob)
        for log_prob, stopped in zip(passage["log_prob"], passage["stopped"], strict=True)
    )
    words = [f"{before} to {after}"]
    if passage["least_change"] is not None:
        factor = show.prompts(math.exp(passage["least_change"]))
        least = "" if passage["exact"] else "at least "
        words.append(f"{least}{factor} times {'as' if gain else 'less'} likely")
    if passage["crossed"]:
        words.append("passes τ" if gain else "falls below τ")
    return ", ".join(words)


def listings(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each pair the largest gains and losses: a title, what to say of none, and the passages."""
    found, unit = [], _unit(result)
    for pair in result["pairs"]:
        for name, gain in (("largest_gains", True), ("largest_losses", False)):
            way = f"{pair['first']} to {pair['second']}"
            passages = [{**passage, "words": moved_words(passage, gain=gain)} for passage in pair[name]]
            crossed, shown = pair["gained" if gain else "lost"], sum(p["crossed"] for p in passages)
            which = f"; first {show.count(shown)} of {show.count(crossed)} {'gained' if gain else 'lost'} at τ"
            found.append(
                {
                    "title": f"Largest {'gains' if gain else 'losses'}, {way}{which if shown else ''}",
                    "none": f"No {unit} that reaches τ becomes {'likelier' if gain else 'less likely'} from {way}.",
                    "passages": passages,
                }
            )
    return found


def comparison_lines(result: Mapping[str, Any]) -> list[str]:
    """The comparison for a terminal, a line each."""
    first = result["runs"][0]["key"]
    lines = [headline(result), *notes(result), "", *aligned(runs_table(result)), ""]
    if result["differing"]:
        lines += ["What differs", *aligned(differing_table(result)), ""]
    lines += ["Each run by itself", *aligned(numbers_table(result)), ""]
    lines += [f"Against {first}, at τ = {result['tau']:g}", *aligned(pairs_table(result)), pairs_note(result), ""]
    means = len(result["runs"]) <= WIDE
    what = "share extractable at τ" + (", mean p_z" if means else "")
    lines += [f"Fixed sets: {what}", *aligned(fixed_table(result, means=means))]
    if near := near_lines(result):
        lines += ["", "Near-verbatim", *near]
    found = listings(result)
    if nothing := [listing["none"] for listing in found if not listing["passages"]]:
        lines += ["", *nothing]
    for listing in filter(lambda listing: listing["passages"], found):
        lines += ["", listing["title"]]
        for passage in listing["passages"]:
            lines.append(f"  {show.literal(passage['example_id'])}  {passage['words']}")
            lines.append(f"    {quote(passage['suffix'])}")
    return lines


def render_comparison(result: Mapping[str, Any], best: Mapping[str, NDArray[np.float64]]) -> str:
    """The comparison as one self-contained HTML page. `best`: each run's largest log p_z per character of the text."""
    strips = [
        {"key": run["key"], "name": show.literal(run["name"]), "strip": strip(best[run["key"]], tau=result["tau"])}
        for run in result["runs"]
        if run["key"] in best
    ]
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            source_name=show.literal(result["source"]["name"]),
            headline=headline(result),
            tau=f"{result['tau']:g}",
            notes=notes(result),
            runs=runs_table(result),
            differing=differing_table(result) if result["differing"] else None,
            numbers=numbers_table(result),
            first=result["runs"][0]["key"],
            pairs=pairs_table(result),
            pairs_note=pairs_note(result),
            fixed=fixed_table(result),
            near=near_lines(result),
            strips=strips,
            listings=listings(result),
            literal=show.literal,
            place=lambda passage: _place(passage, result["kind"]),
        )
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of text, columns one under the other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def quote(text: str, length: int = QUOTE) -> str:
    """The beginning of a text on one line."""
    line = " ".join(show.literal(text).split())
    return f"“{line}”" if len(line) <= length else f"“{line[:length].rstrip()} …”"


def points(difference: float) -> str:
    """A difference of shares, in percentage points."""
    value = 100 * difference
    return "0" if value == 0 else f"{value:+.{1 if abs(value) >= 9.95 else 2}f}"


def _unit(result: Mapping[str, Any]) -> str:
    return show.unit(result)


def _setting(value: Any) -> str:
    text = show.MISSING if value is None else show.literal(str(value))
    return f"{text[:16]}…" if len(text) == 32 and text.isalnum() else text


def _within(run: Mapping[str, Any], tolerance: int) -> str:
    near = run["near"]
    if not near or near["tolerance"] != tolerance:
        return show.MISSING
    undecided = near["rate"]["undecided"]
    return show.percent(near["rate"]["probabilistic"]["rate"]) + (
        f" ({show.count(undecided)} undecided)" if undecided else ""
    )


def _median(moved: Mapping[str, Any]) -> str:
    if moved["median_difference"] is None:
        return show.MISSING
    value = moved["median_difference"]
    return f"× {math.exp(value):.3g}" if abs(value) < 600 else f"× {show.scientific(value)}"


def _fixed_cell(found: Mapping[str, Any], means: bool) -> str:
    share = show.percent(found["extractable"]["rate"])
    if not means or found["mean_p_z"] is None:
        return share
    low, high = found["mean_p_z"], found["mean_p_z_upper"]
    return f"{share}, {_mean(low) if high - low < 1e-12 else show.interval(low, high)}"


def _mean(value: float | None) -> str:
    return show.MISSING if value is None else show.probability(math.log(value) if value > 0 else -math.inf)


def _place(passage: Mapping[str, Any], kind: str) -> str:
    name = "" if kind == "scan" else show.literal(passage["example_id"])
    if passage["suffix_start"] is None:
        return name
    where = f"characters {show.count(passage['suffix_start'])} to {show.count(passage['suffix_end'])}"
    return f"{name}, {where}" if name else where.capitalize()
