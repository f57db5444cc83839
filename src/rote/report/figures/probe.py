"""The plots of a probe: hit rates, precision and recall of methods, what they flagged in common, targets, letters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl

from rote.odds import wilson
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import rule, sentences
from rote.report.figures.member import CHOSEN as SCORES
from rote.report.keys import plain
from rote.report.text import numbers
from rote.report.text.probe import OUTCOMES, title_of
from rote.store.member import Measured
from rote.store.probe import Judged, Positions, Probed, ProbeEvaluation, ProbeManifest, ProbeSummary
from rote.store.probing import ProbeView

PROBE_FIGURES = {
    "hits": "texts with labels or repetitions",
    "methods": "texts with labels",
    "overlap": "texts with labels",
    "targets": "several targets",
    "outcomes": "questions for words",
    "positions": "DE-COP",
}
"""Every figure that a probe can have, and what it needs."""

MOST = 6
"""Methods that a plot has a series for."""

COMBINATIONS = 12
"""Of methods that flagged a passage, that are drawn: those with the most passages."""

SHARE = "The share of answers that named the word, or the letter, with 95% intervals."

SPREAD = 0.6
"""Of the room of a category, that its series take together."""


def probe_figures(view: ProbeView) -> list[Figure]:
    manifest, summary = view.manifest, view.summary
    first = next((one for one in summary.evaluations if one.target == 0), None)
    figures = [
        _hits(manifest, summary),
        *([] if first is None else [_methods(first, manifest), _overlap(first, manifest)]),
        _targets(manifest, summary),
        _outcomes(manifest, summary),
        _positions(manifest, summary.positions),
    ]
    return [figure for figure in figures if figure is not None]


def made(manifest: ProbeManifest, target: int | None = 0) -> str:
    """What was asked: the end of every caption."""
    names = [plain(numbers.title(one)) for one in manifest.targets]
    asked = ", ".join(names) if target is None else names[target]
    several = target is None and len(names) > 1
    judged = "Answers are matched by the rule of the run."
    return f"{'Models' if several else 'Model'} {asked}, temperature {manifest.temperature:g}. {judged}"


def _shown(summary: ProbeSummary, target: int = 0) -> list[Probed]:
    """Methods with a hit rate."""
    return [one for one in summary.probed if one.target == target and one.hit_rate is not None][:MOST]


def _beside(place: int, of: int, width: float = SPREAD) -> float:
    """Where in its category a series stands."""
    return 0.0 if of == 1 else width * (place / (of - 1) - 0.5)


def _series(places: Sequence[float], found: Sequence[Measured], label: str, colour: int) -> Layer:
    data = pl.DataFrame(
        {
            "x": list(places), "y": [one.value for one in found], "low": [one.interval[0] for one in found],
            "high": [one.interval[1] for one in found],
        },
        schema=dict.fromkeys(("x", "y", "low", "high"), pl.Float64),
    )  # fmt: skip
    return Layer("interval", data, label, colour)


def _of_prefix(shown: Sequence[Probed]) -> str:
    return "Of prefix completion, the mean share of what follows." if any(one.value == "words" for one in shown) else ""


def _row(one: Measured) -> dict[str, float]:
    return {"hit_rate": one.value, "interval_low": one.interval[0], "interval_high": one.interval[1]}


# --- hit rates


def _hits(manifest: ProbeManifest, summary: ProbeSummary) -> Figure | None:
    first = [one for one in summary.probed if one.target == 0]
    known = [one for one in first if one.by_repetitions][:MOST]
    if known:
        return _by_repetitions(known, manifest)
    labelled = [one for one in first if one.by_label][:MOST]
    return _by_label(labelled, manifest) if labelled else None


def _by_repetitions(known: Sequence[Probed], manifest: ProbeManifest) -> Figure:
    counts = sorted({step.repetitions for one in known for step in one.by_repetitions or ()})
    unseen = [one.by_label["non-member"] for one in known if one.by_label and "non-member" in one.by_label]
    with_base = len(unseen) == len(known) and 0 not in counts
    layers, rows = [], []
    for colour, one in enumerate(known):
        steps = {step.repetitions: step.hit_rate for step in one.by_repetitions or ()}
        own = [(counts.index(times) + with_base, rate) for times, rate in steps.items()]
        own += [(0, unseen[colour])] if with_base else []
        own.sort()
        beside = _beside(colour, len(known))
        layers.append(_series([at + beside for at, _ in own], [rate for _, rate in own], title_of(one.name), colour))
        rows += [
            {"method": title_of(one.name), "repetitions": _often(at, counts, with_base), **_row(rate)}
            for at, rate in own
        ]
    names = (*(["not seen"] if with_base else []), *(f"{times:,}" for times in counts))
    base = " Those of passages that were not seen are on the left." if with_base else ""
    return Figure(
        name="hits",
        title="Hit rate by how often passages were seen",
        caption=sentences(f"{SHARE}{base}", _of_prefix(known), made(manifest)),
        x=Axis("Times seen", "category", "count", (-0.5, len(names) - 0.5), names),
        y=Axis("Hit rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows, schema_overrides={"repetitions": pl.Int64}),
    )


def _often(at: int, counts: Sequence[int], with_base: bool) -> int | None:
    return None if with_base and at == 0 else counts[at - with_base]


def _by_label(known: Sequence[Probed], manifest: ProbeManifest) -> Figure:
    labels = list(dict.fromkeys(label for one in known for label in one.by_label or ()))
    layers, rows = [], []
    for colour, label in enumerate(labels):
        own = [
            (place, one.by_label[label]) for place, one in enumerate(known) if one.by_label and label in one.by_label
        ]
        beside = _beside(colour, len(labels), 0.3)
        layers.append(
            _series([place + beside for place, _ in own], [rate for _, rate in own], f"{label.capitalize()}s", colour)
        )
        rows += [{"method": title_of(known[place].name), "label": label, **_row(rate)} for place, rate in own]
    return Figure(
        name="hits",
        title="Hit rate by label",
        caption=sentences(SHARE, _of_prefix(known), made(manifest)),
        x=_categories([title_of(one.name) for one in known]),
        y=Axis("Hit rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows),
    )


def _categories(names: Sequence[str], label: str = "") -> Axis:
    return Axis(label, "category", limits=(-0.5, len(names) - 0.5), names=tuple(names))


# --- against labels


def _methods(evaluation: ProbeEvaluation, manifest: ProbeManifest) -> Figure:
    scores = {f"member:{name}" for name in SCORES}
    left = ("member:", "random", "majority")
    shown = [row for row in evaluation.rows if row.name in scores or not row.name.startswith(left)]
    chance = next((row.precision for row in evaluation.rows if row.name == "random"), None)
    layers, rows = [], []
    for colour, (what, beside) in enumerate((("precision", -0.1), ("recall", 0.1))):
        own = [(place, found) for place, row in enumerate(shown) if (found := _measure(row, what)) is not None]
        layers.append(_series([place + beside for place, _ in own], [one for _, one in own], what.capitalize(), colour))
        rows += [
            {"method": title_of(shown[place].name), "of": what, "value": one.value, "interval_low": one.interval[0],
             "interval_high": one.interval[1]}
            for place, one in own
        ]  # fmt: skip
    names = [title_of(row.name) for row in shown]
    right = len(names) - 0.5
    line = () if chance is None else (rule(-0.5, chance.value, right, chance.value, "Precision at random"),)
    return Figure(
        name="methods",
        title="Precision and recall of every method",
        caption=sentences(
            f"On the same {numbers.counted(evaluation.members, 'member')} and "
            f"{numbers.counted(evaluation.non_members, 'non-member')}, at thresholds that were not chosen on them, "
            "with 95% intervals. Where nothing is flagged there is no precision.",
            made(manifest),
        ),
        x=_categories(names),
        y=Axis("Precision, recall", limits=(0.0, 1.0)),
        layers=(*layers, *line),
        table=pl.DataFrame(rows),
    )


def _measure(row: Judged, what: str) -> Measured | None:
    return row.precision if what == "precision" else row.recall


def _overlap(evaluation: ProbeEvaluation, manifest: ProbeManifest) -> Figure | None:
    found = sorted(evaluation.overlap, key=lambda one: -one.flagged)
    if not found:
        return None
    shown = found[:COMBINATIONS]
    short = _short({name for one in found for name in one.methods})
    names = [" + ".join(short[name] for name in one.methods) for one in shown]
    layers = []
    for colour, (what, values) in enumerate(
        (("All", [one.flagged for one in shown]), ("Of these, seen", [one.right for one in shown]))
    ):
        left = -0.35 + 0.35 * colour
        data = pl.DataFrame(
            {
                "x0": [place + left for place in range(len(shown))],
                "x1": [place + left + 0.33 for place in range(len(shown))],
                "y": [float(value) for value in values],
            },
            schema=dict.fromkeys(("x0", "x1", "y"), pl.Float64),
        )
        layers.append(Layer("bars", data, what, colour))
    more = "" if len(found) <= COMBINATIONS else "The combinations with the most passages; the table has all."
    return Figure(
        name="overlap",
        title="Passages by which methods flagged them",
        caption=sentences(
            "Each passage is counted once: by all methods that flagged it and no others. Beside all of them, those "
            "that were seen.",
            more,
            made(manifest),
        ),
        x=_categories(names),
        y=Axis("Passages", format="count", limits=(0.0, float(max(one.flagged for one in shown)) * 1.05)),
        layers=tuple(layers),
        table=pl.DataFrame(
            [
                {
                    "methods": " + ".join(title_of(name) for name in one.methods), "passages": one.flagged,
                    "seen": one.right,
                }
                for one in found
            ]
        ),
    )  # fmt: skip


def _short(names: set[str]) -> dict[str, str]:
    """What methods are called where there is little room: without how their words were filtered, if that is clear."""
    bare = {name: title_of(name.partition("+")[0]) for name in names}
    return bare if len(set(bare.values())) == len(names) else {name: title_of(name) for name in names}


# --- targets


def _targets(manifest: ProbeManifest, summary: ProbeSummary) -> Figure | None:
    if len(manifest.targets) < 2:
        return None
    names = [one.name for one in _shown(summary)]
    if not names:
        return None
    sizes = [None if one.model is None else one.model.parameters for one in manifest.targets]
    known = [float(size) for size in sizes if size]
    by_size = len(set(known)) == len(sizes)
    layers, rows = [], []
    for colour, name in enumerate(names):
        own = [(one.target, one.hit_rate) for one in summary.probed if one.name == name and one.hit_rate is not None]
        own.sort(key=lambda pair: known[pair[0]] if by_size else pair[0])
        places = [known[at] if by_size else at + _beside(colour, len(names)) for at, _ in own]
        found = [rate for _, rate in own]
        layers.append(_series(places, found, title_of(name), colour))
        if by_size:
            layers.append(Layer("line", layers[-1].data.select("x", "y"), "", colour))
        rows += [
            {"target": plain(numbers.title(manifest.targets[at])), "parameters": sizes[at], "method": title_of(name),
             **_row(rate)}
            for at, rate in own
        ]  # fmt: skip
    titles = [plain(numbers.title(one)) for one in manifest.targets]
    x = _categories(titles)
    if by_size:
        x = Axis("Parameters", "log", "count", (min(known) / 1.5, max(known) * 1.5))
    return Figure(
        name="targets",
        title="Hit rate by model size" if by_size else "Hit rate by model",
        caption=sentences(SHARE, made(manifest, None)),
        x=x,
        y=Axis("Hit rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows, schema_overrides={"parameters": pl.Int64}),
    )


# --- how questions ended


def _outcomes(manifest: ProbeManifest, summary: ProbeSummary) -> Figure | None:
    shown = [one for one in _shown(summary) if sum(one.outcomes.values()) and one.method != "decop"]
    if not shown:
        return None
    layers, rows = [], []
    width = 0.8 / len(shown)
    for colour, one in enumerate(shown):
        counts = [one.outcomes.get(name, 0) for name in OUTCOMES]
        asked = sum(counts)
        left = [place - 0.4 + width * colour for place in range(len(counts))]
        data = pl.DataFrame(
            {
                "x0": left, "x1": [at + 0.92 * width for at in left], "y": [count / asked for count in counts],
            },
            schema=dict.fromkeys(("x0", "x1", "y"), pl.Float64),
        )  # fmt: skip
        layers.append(Layer("bars", data, title_of(one.name), colour))
        rows += [
            {"method": title_of(one.name), "outcome": name, "questions": count, "share": count / asked}
            for name, count in zip(OUTCOMES, counts, strict=True)
        ]
    return Figure(
        name="outcomes",
        title="How questions ended",
        caption=sentences("Shares of the questions of each method, by their outcome.", made(manifest)),
        x=_categories([name.capitalize() for name in OUTCOMES]),
        y=Axis("Share of questions", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows),
    )


def _positions(manifest: ProbeManifest, found: Sequence[Positions]) -> Figure | None:
    if not found:
        return None
    letters = list(found[0].letters)
    layers, rows = [], []
    series = list(_picked(found, manifest))
    for colour, (what, one, shares) in enumerate(series):
        beside = _beside(colour, len(series), 0.4)
        layers.append(_series([place + beside for place in range(len(letters))], shares, what, colour))
        rows += [
            {
                "target": plain(numbers.title(manifest.targets[one.target])), "letter": letter, "of": what,
                "share": share.value, "interval_low": share.interval[0], "interval_high": share.interval[1],
            }
            for letter, share in zip(letters, shares, strict=True)
        ]  # fmt: skip
    right = len(letters) - 0.5
    even = 1 / len(letters)
    return Figure(
        name="positions",
        title="DE-COP: which letter was picked",
        caption=sentences(
            "How often each letter was picked, of all answers that named one, and how often the original was picked "
            "where it stood there, with 95% Wilson intervals. The original stands equally often at each letter.",
            made(manifest, None),
        ),
        x=_categories(letters, "Letter"),
        y=Axis("Share", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(-0.5, even, right, even, "Equally often")),
        table=pl.DataFrame(rows),
    )


def _picked(found: Sequence[Positions], manifest: ProbeManifest) -> Iterator[tuple[str, Positions, list[Measured]]]:
    """(what, of which target, the share of each letter)."""
    for one in found[: MOST // 2]:
        of = "" if len(found) == 1 else f", {plain(numbers.title(manifest.targets[one.target]))}"
        answers = sum(one.letters.values())
        yield f"Picked{of}", one, [_share(count, answers) for count in one.letters.values()]
        yield f"Original picked there{of}", one, [_share(one.right[name], one.asked[name]) for name in one.letters]


def _share(count: int, total: int) -> Measured:
    if not total:
        return Measured(value=math.nan, interval=[math.nan, math.nan])
    return Measured(value=count / total, interval=list(wilson(count, total)))
