"""The same for the pages of comparisons, sweeps and reconstructions: what every number on them should be."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rote.report.figures.comparison import comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.member import member_figures
from rote.report.figures.probe import probe_figures
from rote.report.figures.reconstruction import reconstruction_figures
from rote.report.figures.submissions import score_figures
from rote.report.figures.sweep import sweep_figures
from rote.store.comparison import StoredComparison
from rote.store.membership import StoredMembership
from rote.store.probing import StoredProbe
from rote.store.reconstruction import StoredReconstruction
from rote.store.submissions import StoredScore
from rote.store.sweep import StoredSweep
from tests.report.page.truth import Truth, in_figures, inside, visible

SHOWN = 100
LONG = 80


class PageTruth(ABC):
    """A folder. `manifest` has what the words of its page are made of; `prose`: its numbers that are no results."""

    prose: tuple[str, ...] = ()

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.files = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}
        self.number: Callable[[str], Any] = cache(self._number)

    @property
    def manifest(self) -> dict[str, Any]:
        return {"schemes": [], "near": None}

    @cached_property
    def figures(self) -> dict[str, Figure]:
        return {figure.name: figure for figure in self._made()}

    @abstractmethod
    def _made(self) -> list[Figure]:
        """The figures of the page, made anew from what is stored."""

    def _number(self, key: str) -> Any:
        head, _, rest = key.partition("/")
        if head in self.files:
            found = self._stored(self.files[head], rest)
            return visible(found) if isinstance(found, str) else found
        return getattr(self, f"_{head}")(rest)

    def _stored(self, content: Any, rest: str) -> Any:
        return inside(content, rest)

    def _figures(self, rest: str) -> Any:
        return in_figures(self.figures, rest)


class ComparisonTruth(PageTruth):
    """A comparison of runs with one scheme each."""

    prose: tuple[str, ...] = (r"\b(From|from|To|to) 0\b", r"\b0 in both\b")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "comparison")
        self.result = self.files["comparison"]
        self.runs = {run["key"]: Truth(Path(run["folder"])) for run in self.result["runs"]}
        for run in self.runs.values():
            assert run.summary["tau"] == self.result["tau"]

    @property
    def manifest(self) -> dict[str, Any]:
        searches = [run["near"] for run in self.result["runs"] if run["near"]]
        return {"schemes": [run["scheme"] for run in self.result["runs"]], "near": searches[0] if searches else None}

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.runs["A"].rows

    def _made(self) -> list[Figure]:
        stored = StoredComparison(self.folder)
        return comparison_figures(stored.result, {key: run.own for key, run in self.runs.items()})

    def _stored(self, content: Any, rest: str) -> Any:
        if rest.endswith("/name/label"):
            run = content["runs"][int(rest.split("/")[1])]
            return f"{run['key']} {Path(run['folder']).name}"
        if rest.endswith(("/examples/first", "/examples/second")):
            pair = content["pairs"][int(rest.split("/")[1])]
            return (pair["both"] + pair["lost" if rest.endswith("first") else "gained"]) / pair["examples"]
        if rest.startswith("pairs/") and rest.endswith("/listed"):
            _, pair, which, _ = rest.split("/")
            moved = "largest_gains" if which == "gained" else "largest_losses"
            return sum(passage["crossed"] for passage in content["pairs"][int(pair)][moved])
        found = inside(content, rest)
        return -math.inf if found is None and "/log_prob/" in rest else found

    def _runs(self, rest: str) -> Any:
        key, _, own = rest.partition("/")
        return self.runs[key].number(own)

    def _np(self, rest: str) -> Any:
        return self.runs[rest.partition("/")[0]].number(f"np/{rest}")


class SweepTruth(PageTruth):
    prose: tuple[str, ...] = (
        r"^95%, Wilson, taking",
        r"^Intervals: 95%, Wilson, taking",
        r"\b[Ii]n 100\b",
        r"^Cost, prefix-\d+$",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "sweep")

    @property
    def manifest(self) -> dict[str, Any]:
        return {"schemes": [point["scheme"] for point in self.files["sweep"]["points"]], "near": None}

    def _made(self) -> list[Figure]:
        return sweep_figures(StoredSweep(self.folder).result)

    def _runs(self, rest: str) -> Any:
        part, _, own = rest.partition("/")
        return Truth(self.folder / part).number(own)


class ScoreTruth(PageTruth):
    prose: tuple[str, ...] = (r"^95% Wilson intervals, taking",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "score")

    def _made(self) -> list[Figure]:
        return score_figures(StoredScore(self.folder).result)

    def _levels(self, rest: str) -> int:
        """Numbers of errors that a table has columns for: 1, 2, 5, 10 and so on."""
        assert rest.strip("0") in ("1", "2", "5")
        return int(rest)

    def _none(self, rest: str) -> float:
        assert rest == "recall"
        return 0.0


class MemberTruth(PageTruth):
    """`rows`: what is stored of each text, in order."""

    prose: tuple[str, ...] = (
        r"Min-K%(\+\+)? \d+",
        r"\b\d+% (least likely tokens|smallest z-scores)",
        r"with probability 1/2",
        r"\(p below 5%\)",
        r"^(5|25|75|95)%$",
        r"^95% interval$",
        r"TPR at 0?\.?1% FPR",
        r"needs 1(00|,000) non-members",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "manifest", "summary", "seal")
        self.stored = StoredMembership(folder)
        self.rows = self.stored.scores.to_dicts()

    def _made(self) -> list[Figure]:
        view = self.stored.view
        return member_figures(view.manifest, view.summary, view.rows)

    def _rows(self, rest: str) -> Any:
        if rest in ("count", "listed"):
            return len(self.rows) if rest == "count" else 300
        place, _, column = rest.partition("/")
        found = self.rows[int(place)][column]
        return visible(found) if isinstance(found, str) else found

    def _shaded(self, what: str) -> int:
        return {"count": min(60, len(self.rows)), "tokens": 500}[what]

    def _evaluation(self, what: str) -> int:
        assert what == "scores"
        others = ("combined", "blind", "random", "majority")
        return sum(row["name"] not in others for row in self.files["summary"]["evaluation"]["rows"])


class ProbeTruth(PageTruth):
    """`questions`, `chosen` and `verdicts`: their rows, in order; `texts` too."""

    prose: tuple[str, ...] = (
        r"Min-K%(\+\+)? \d+",
        r"with probability 1/2",
        r"^95% interval$",
        r"with 95% intervals",
        r"[Aa]n interval that holds 0\b",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "manifest", "summary", "seal")
        self.stored = StoredProbe(folder)
        self.texts = list(self.stored.texts.values())
        self.tables = {name: getattr(self.stored, name).to_dicts() for name in ("questions", "chosen", "verdicts")}

    def _made(self) -> list[Figure]:
        return probe_figures(self.stored.view)

    def _texts(self, rest: str) -> Any:
        if rest in ("count", "listed"):
            return len(self.texts) if rest == "count" else 300
        place, _, field = rest.partition("/")
        text = self.texts[int(place)]
        found = len(text.text) if field == "characters" else getattr(text, field)
        return visible(found) if isinstance(found, str) else found

    def _shown(self, what: str) -> int:
        assert what == "count"
        return min(60, len(self.texts))

    def _limits(self, what: str) -> int:
        return {"text": 4000}[what]

    def _targets(self, what: str) -> int:
        assert what == "more"
        return len(self.files["manifest"]["targets"]) - 4

    def _questions(self, rest: str) -> Any:
        place, _, column = rest.partition("/")
        row = self.tables["questions"][int(place)]
        return len(row["answer"]) if column == "length" else row[column]

    def _chosen(self, rest: str) -> Any:
        place, _, column = rest.partition("/")
        return self.tables["chosen"][int(place)][column]

    def _verdicts(self, rest: str) -> Any:
        place, _, column = rest.partition("/")
        return self.tables["verdicts"][int(place)][column]

    def _base(self, rest: str) -> int:
        """Passages that were not seen, among those that the first method of a target was judged on."""
        target, what = rest.split("/")
        assert what == "unseen"
        return int(self._evaluation(target)["non_members"])

    def _evaluations(self, rest: str) -> int:
        target, what = rest.split("/")
        own = self._evaluation(target)
        if what == "texts":
            return int(own["members"] + own["non_members"])
        assert what == "methods"
        return len({row["name"] for row in self.tables["verdicts"] if row["target"] == int(target)})

    def _evaluation(self, target: str) -> dict[str, Any]:
        (own,) = [one for one in self.files["summary"]["evaluations"] if one["target"] == int(target)]
        return own  # type: ignore[no-any-return]

    def _probed(self, rest: str) -> int:
        place, what = rest.split("/")
        assert what == "asked"
        return int(sum(self.files["summary"]["probed"][int(place)]["outcomes"].values()))

    def _spent(self, rest: str) -> float:
        summary = self.files["summary"]
        if rest.endswith("/expected"):
            own = summary["spent"][int(rest.split("/")[0])]
            pairs = [one for one in summary["estimates"] if (one["role"], one["model"]) == (own["role"], own["model"])]
            return float(sum(one["cost"] for one in pairs if one["cost"] is not None))
        return float(sum(one[rest] or 0 for one in summary["spent"]))


class ReconstructionTruth(PageTruth):
    prose: tuple[str, ...] = (r"A matching ratio is 2 M / T", r"about 0\.02 in words and to 0\.9 in TF-IDF")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "manifest", "summary")
        self.summary = self.files["summary"]
        lines = folder / "diff.jsonl"
        self.pieces = [json.loads(line) for line in lines.read_text("utf-8").splitlines()] if lines.is_file() else []

    def _made(self) -> list[Figure]:
        stored = StoredReconstruction(self.folder)
        return reconstruction_figures(stored.manifest, stored.summary)

    def _stored(self, content: Any, rest: str) -> Any:
        if rest.endswith("/word/place"):
            found = self.summary["similarity"]
            return found["first_difference"]["word"] / found["truth_words"]
        return inside(content, rest)

    def _diff(self, rest: str) -> int:
        line, side, what = rest.split("/")
        first, last = self.pieces[int(line)][side]
        return int({"0": first, "left_out": last - first - LONG}[what])

    def _differences(self, what: str) -> int:
        assert what == "listed"
        assert self.summary["similarity"]["differences"] > SHOWN
        return SHOWN

    def _tenths(self, rest: str) -> float:
        """Parts of equal length, counted anew from the alignment."""
        tenth, what = rest.split("/")
        total = max(piece["truth"][1] for piece in self.pieces)
        assert total >= 100
        first, last = (total * (10 * place) // 100 for place in (int(tenth), int(tenth) + 1))
        same = {w for piece in self.pieces if piece["kind"] == "equal" for w in range(*piece["truth"])}
        share = sum(word in same for word in range(first, last)) / (last - first)
        return float({"first": first, "last": last, "share": share}[what])

    def _written(self, what: str) -> int:
        assert what == "tokens"
        chunks = (self.folder / "chunks.jsonl").read_text("utf-8").splitlines()
        return sum(len(json.loads(chunk)["tokens"]) for chunk in chunks)

    def _cost(self, what: str) -> float:
        evals = self.summary["token_evals"]
        return float({"each": evals / self._written("tokens"), "times": self.summary["sliding_evals"] / evals}[what])

    def _context(self, what: str) -> int:
        assert what == "read"
        return int(self.files["manifest"]["context_tokens"] - self.files["manifest"]["step"])

    def _breaks(self, what: str) -> int:
        assert what == "skipped"
        return sum(one["skipped"] for one in self.summary["breaks"])
