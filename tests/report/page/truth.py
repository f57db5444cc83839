"""What every number on a run's page should be: its files read anew, and what is computed, computed slowly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Protocol

import polars as pl

from rote.jobs.open import Run
from rote.report.figures.figure import Figure, as_json
from rote.report.figures.run import run_figures
from tests.reference.coverage import character_maximum, hot_spots, looked_at, runs
from tests.reference.rates import reaches

PARTS = 20
EVEN = math.log(0.5)


def visible(text: str) -> str:
    """As a page shows it: what is not seen or turns the writing as a mark, one for one."""
    pictures = {c: chr(0x2400 + ord(c)) for c in map(chr, range(32)) if c not in "\t\n\r"} | {"\x7f": "␡"}
    pictures |= dict(
        zip("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "↢↦↤⇢⇠↨⇛⇚⇨⇦⇹⇳", strict=True)
    )
    hidden = {*"\ufdd0\ufdd1\ufdd2", *map(chr, range(0x80, 0xA0)), *map(chr, range(0xD800, 0xE000))}
    shown = ["\ufffd" if c in hidden else pictures.get(c, c) for c in text]
    return "".join("␍" if c == "\r" and after != "\n" else c for c, after in zip(shown, [*shown[1:], ""], strict=True))


class Known(Protocol):
    """What is known of a page: all its numbers by key, its plots, and of its settings `schemes` and `near`.

    `prose`: patterns of this kind of page's words in which digits are no results.
    """

    prose: tuple[str, ...]

    @property
    def number(self) -> Callable[[str], Any]: ...

    @property
    def figures(self) -> Mapping[str, Figure]: ...

    @property
    def manifest(self) -> dict[str, Any]: ...


class Truth:
    """A run folder. `number(key)` is what stands under the key of a number on its page; KeyError: nothing does."""

    prose: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.files = {
            name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("manifest", "summary", "seal")
        }
        self.finished = Run(folder).finished
        self.manifest: dict[str, Any] = self.files["manifest"]
        self.summary: dict[str, Any] = self.files["summary"]
        self.scores = pl.read_parquet(folder / "scores" / "*.parquet")
        self.unscored: pl.DataFrame | None = None
        if (folder / "windows.parquet").is_file():  # a scan in stages: what it left out, and rows by their places
            self.scores = self.scores.sort("start", maintain_order=True)
            scored = set(self.scores["start"])
            places = pl.read_parquet(folder / "windows.parquet").rows(named=True)
            self.unscored = pl.DataFrame([place for place in places if place["start"] not in scored])
        self.scheme = self.manifest["schemes"][0]
        self.own = self.scores.filter(pl.col("scheme") == self.scheme)
        self.rows = self.own.to_dicts()
        self.found = self.summary["schemes"][self.scheme]
        self.number: Callable[[str], Any] = cache(self._number)

    def _number(self, key: str) -> Any:
        head, _, rest = key.partition("/")
        if head in self.files:
            found = inside(self.files[head], rest)
            return visible(found) if isinstance(found, str) else found
        return getattr(self, f"_{head}")(rest)

    def _scores(self, rest: str) -> Any:
        prefix = max((name for name in self.named if rest.startswith(name)), key=len)
        row, column = self.named[prefix], rest.removeprefix(prefix)
        if column == "suffix_start/place":
            return row["suffix_start"] / self.manifest["source"]["characters"]
        found = inside(row, column)
        return visible(found) if isinstance(found, str) else found

    @cached_property
    def named(self) -> dict[str, dict[str, Any]]:
        return {f"{visible(row['example_id'])}/{row['scheme']}/": row for row in self.scores.to_dicts()}

    # -- plots: their functions called anew, on what was read from disk

    @cached_property
    def figures(self) -> dict[str, Figure]:
        return {figure.name: figure for figure in run_figures(self.finished, self.own, self.unscored)}

    def _figures(self, rest: str) -> Any:
        return in_figures(self.figures, rest)

    def _np(self, rest: str) -> float:
        """At a slider's p: the share of rows that come in n generations; `upper`: stopped rows as likely as can be.

        Of drawn examples those of the corpus itself: the held-out ones are a group of their own. Of a scan in stages
        the share of all windows; `upper`: with as many of those left out as the ones drawn from them allow.
        """
        _, n, p, *upper = rest.split("/")
        rows = self.rows
        if "sampling" in self.manifest:
            rows = [row for row in rows if json.loads(row["metadata"])["corpus"] == "main"]
        values = [-math.inf if row["bounded"] and not upper else row["log_prob"] for row in rows]
        if "refined" not in self.manifest:
            return sum(reaches(value, int(n), float(p)) for value in values) / len(values)
        own = [(row["stage"], reaches(row["log_prob"], int(n), float(p))) for row in rows]
        audit, windows = self._refined
        found = sum(hit for stage, hit in own if stage != audit)
        hits, drawn = sum(hit for stage, hit in own if stage == audit), sum(stage == audit for stage, _ in own)
        left = windows - len(own) + drawn
        return (found + (min(left * at_most(hits, drawn), hits + left - drawn) if upper else hits)) / windows

    @property
    def _refined(self) -> tuple[int, int]:
        """Of a scan in stages: the audit's number among them, and how many windows there are in all."""
        return int(self.manifest["refined"]["closer"]) + 1, int(self.manifest["refined"]["windows"])

    def _staged(self, what: str) -> float:
        audit, windows = self._refined
        chosen: int = sum(row["stage"] != audit for row in self.rows)
        return {"share": len(self.rows) / windows, "chosen": chosen}[what]

    # -- what the page computes: each once more, the slow way

    @cached_property
    def lower(self) -> list[float]:
        return [-math.inf if row["bounded"] else row["log_prob"] for row in self.rows]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        return [(row["suffix_start"], row["suffix_end"]) for row in self.rows]

    @cached_property
    def best(self) -> list[float]:
        return character_maximum(self.spans, self.lower, self.manifest["source"]["characters"])

    @cached_property
    def seen(self) -> set[int]:
        return looked_at(self.spans)

    def _doubt(self, end: str) -> float:
        tolerance: float = self.found["rates"]["near_tau"]["numeric_tolerance"]
        least = EVEN + {"lower": tolerance, "upper": -tolerance}[end]
        return sum(value >= least for value in self.best) / len(self.seen)

    def _strip(self, what: str) -> float:
        reached = sum(value >= math.log(self.summary["tau"]) for value in self.best)
        counts = {"characters/all": len(self.best), "characters/seen": len(self.seen)}
        if self.unscored is not None:
            left = looked_at(self.unscored.select("suffix_start", "suffix_end").rows())
            below = {c for c, value in enumerate(self.best) if value < math.log(self.summary["tau"])}
            counts["characters/unseen"] = len(below & (left | ({*range(len(self.best))} - self.seen)))
        return {**counts, "share": reached / len(self.seen)}[what]

    def _parts(self, rest: str) -> float | None:
        part, what = rest.split("/")
        length, count = len(self.best), min(PARTS, len(self.best))
        start, end = int(part) * length // count, (int(part) + 1) * length // count
        own = self.best[start:end]
        reached = sum(value >= math.log(self.summary["tau"]) for value in own)
        seen = len(self.seen & {*range(start, end)})
        shares = {"from": start / length, "to": end / length, "share": reached / seen if seen else None}
        return {"start": start, "end": end, "highest": max(own), **shares}[what]

    @cached_property
    def hot(self) -> list[dict[str, Any]]:
        found = hot_spots(self.spans, self.lower, len(self.best), EVEN)
        return sorted(found, key=lambda spot: (spot["start"] - spot["end"], spot["start"]))

    def _spots(self, rest: str) -> float:
        rank, what = rest.split("/")
        spot = self.hot[int(rank)]
        more = {
            "place": spot["start"] / len(self.best),
            "characters": spot["end"] - spot["start"],
            "mean_log_prob": math.log(spot["mean_prob"]),
        }
        return {**spot, **more}[what]  # type: ignore[no-any-return]

    def _coverage(self, rest: str) -> int:
        threshold, what = rest.split("/")
        assert what == "longest_run"
        covered = [s for s, value in zip(self.spans, self.lower, strict=True) if value >= math.log(float(threshold))]
        return max(end - start for start, end in runs(covered, len(self.best)))

    def _longest(self, rest: str) -> int:
        threshold, what = rest.split("/")
        assert what == "characters"
        entry = self.found["longest"][threshold]
        return int(entry["suffix_end"] - entry["suffix_start"])

    def _cost(self, rest: str) -> float:
        column, what = rest.split("/")
        rows = self.own if column == "token_evals" else self.scores  # one verbatim pass, but a search for each scheme
        total: int = sum(rows[column].to_list())
        return {"total": total, "mean": total / self.own.height}[what]

    def _sample(self, rest: str) -> int:
        role, what = rest.split("/")
        drawn = [one for one in map(json.loads, self.own["metadata"]) if one["corpus"] == role]
        if what in ("examples", "runs"):
            return len(drawn) if what == "examples" else len({one["run"] for one in drawn})
        return sum(run[what] for run in self.manifest["sampling"]["corpora"][role]["runs"])

    def _passages(self, what: str) -> float:
        tau = math.log(self.summary["tau"])
        if what == "highest":
            return max(self.lower)
        taken: list[tuple[int, int]] = []
        for place in sorted(range(len(self.rows)), key=lambda i: -self.lower[i]):
            span = self.spans[place]
            free = all(end <= span[0] or start >= span[1] for start, end in taken if self.manifest["kind"] == "scan")
            if self.lower[place] >= tau and free:
                taken.append(span)
        return min(10, len(taken))

    def _groups(self, rest: str) -> Any:
        """Groups of repetitions put together by powers of two: 0, 1, 2 to 3, 4 to 7, ...; those that say none last.

        `all`: how many groups a headline has to choose from.
        """
        if rest == "all":
            splits = self.found.get("by_split") or []
            return len(splits) if len(splits) > 1 else len(self.found["by_repetitions"])
        kind, place, what = rest.split("/", 2)
        assert kind == "repetitions"
        named: dict[int | None, list[dict[str, Any]]] = {}
        for row in self.rows:
            times = row["repetitions"]
            power = times if times is None or times < 2 else max(2**i for i in range(64) if 2**i <= times)
            named.setdefault(power, []).append(row)
        order = sorted(named, key=lambda power: (power is None, power or 0))
        power, own = order[int(place)], named[order[int(place)]]
        tau = math.log(self.summary["tau"])
        hits = {
            "greedy_rate": sum(row["greedy"] for row in own),
            "rate_at_tau": sum(not row["bounded"] and row["log_prob"] >= tau for row in own),
        }
        found = {name: {"rate": hit / len(own), "interval": _wilson(hit, len(own))} for name, hit in hits.items()}
        last = {"repetitions": power, "repetitions/last": 2 * (power or 0) - 1, "examples": len(own)}
        return last[what] if what in last else inside(found, what)


def in_figures(figures: Mapping[str, Figure], rest: str) -> Any:
    """What stands under the key of a number in a plot, its legend or its table."""
    name, _, where = rest.partition("/")
    figure = figures[name]
    if where == "left_out":
        return figure.table.height - 200
    if where.startswith("table/"):
        column, row = where.removeprefix("table/").rsplit("/", 1)
        found = figure.table[column][int(row)]
        return visible(found) if isinstance(found, str) else found
    if where.startswith("layers/") and not where.endswith("/label"):
        _, layer, column, row = where.split("/")
        return figure.layers[int(layer)].data[column][int(row)]
    return inside(as_json(figure), where)


def inside(content: Any, rest: str) -> Any:
    """What stands at a path; of a list its length, and of a mapping, or of none, the number that it is named after."""
    name = within = ""
    while rest:
        within = "list" if isinstance(content, list) else "mapping"
        if isinstance(content, list):
            name, _, rest = rest.partition("/")
            content = content[int(name)]
            continue
        name = max((one for one in content if rest == one or rest.startswith(f"{one}/")), key=len)
        content, rest = content[name], rest.removeprefix(name).removeprefix("/")
    if isinstance(content, Mapping) or (content is None and within == "mapping" and name[:1].isdigit()):
        return float(name)
    return len(content) if isinstance(content, list) else content


def at_most(hits: int, draws: int) -> float:
    """The largest share of which as few hits still come in 5% of all such draws."""
    low, high = hits / max(draws, 1), 1.0
    for _ in range(200):
        middle = (low + high) / 2
        as_few = sum(math.comb(draws, i) * middle**i * (1 - middle) ** (draws - i) for i in range(hits + 1))
        low, high = (middle, high) if as_few > 0.05 else (low, middle)
    return high if draws else 1.0


def _wilson(hits: int, total: int) -> list[float]:
    z = NormalDist().inv_cdf(0.975)
    middle = (hits + z * z / 2) / (total + z * z)
    reach = z / (total + z * z) * math.sqrt(hits * (total - hits) / total + z * z / 4)
    return [max(0.0, middle - reach) if hits else 0.0, min(1.0, middle + reach) if hits < total else 1.0]
