"""Whether a text would be extracted if it looked otherwise: a sample of a scan's windows, tried after other steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.variants import affected, spread
from rote.corpus.normalise import EXACT, LINES, QUOTES, Normalised, normalised, ordered
from rote.corpus.windows import cut_windows, plain_backend
from rote.errors import InputError
from rote.models.base import ScoringModel, SuffixScorer
from rote.options import BatchSize
from rote.progress import Progress
from rote.scheme import Scheme
from rote.store.files import FORMAT
from rote.store.run import StoredRun, add_found
from rote.store.variants import Trial, Variants
from rote.tokens import Example

SAMPLE = 40
"""Windows that steps are tried on, at most."""

NEARLY_ALL = 0.95
"""The share of such windows that reach tau as they stand from which on exact steps are not tried."""

MOST = 0.5
"""The same for guesses, which are not tried either where exact steps, or the guess before, bring so many."""

WIDTHS = range(60, 81)
"""How long the lines may have been that a text was wrapped into."""

PROBES = ((4, 4), (8, 1))
"""How the width is found: so many windows each, and so many of the widths that go on."""


def try_variants(run: StoredRun, model: ScoringModel, batch_size: BatchSize, tell: Progress) -> None:
    """Try a sample of a scored scan's windows after other steps, and write variants.json, where there is reason to.

    Exact steps are tried where they change windows that do not reach tau as they stand, guesses where few windows do.
    """
    cut = run.manifest.windows
    if cut is None or cut.within is not None or run.variants is not None:
        return
    trying = _Trials(run, model, batch_size, tell)
    trials = list(trying.every())
    if trying.tried:  # so that nothing is tried twice
        add_found(run.folder, "variants.json", Variants(format=FORMAT, trials=trials))


class _Trials:
    """A run's windows, by their row, and what they come to after other steps than the run's own."""

    def __init__(self, run: StoredRun, model: ScoringModel, batch_size: BatchSize, tell: Progress) -> None:
        manifest = run.manifest
        assert manifest.windows is not None
        assert run.text is not None
        self.model, self.batch_size, self.tell = model, batch_size, tell
        self.backend = plain_backend(model.tokenizer)
        self.text, self.cut, self.given = run.text, manifest.windows, tuple(manifest.source.steps)
        self.scheme, self.tau = Scheme.parse(manifest.schemes[0]), math.log(manifest.tau)
        rows = pl.concat([_of_row(part.filter(part["scheme"] == manifest.schemes[0])) for part in run.parts()])
        self.starts, self.ends = (rows[name].to_numpy() for name in ("start", "suffix_end"))
        self.reached = ~rows["bounded"].to_numpy() & (rows["log_prob"].to_numpy() >= self.tau)
        self.known = {(self.given, row): (reached, liking) for row, (reached, liking) in
                      enumerate(zip(self.reached.tolist(), rows["liking"].to_list(), strict=True))}  # fmt: skip
        self.prepared = cache(self._prepared)
        self.tried = self.planned = 0

    def every(self) -> Iterator[Trial]:
        """What undoes one thing exactly, step by step and those together that do no harm; then, if need be, guesses."""
        exact = [step for step in EXACT if step not in self.given and self.affected((*self.given, step)).size]
        self.planned = (len(exact) + 1) * SAMPLE
        liked, enough = self.given, False
        for step in exact:
            own = (*self.given, step)
            if (trial := self.trial(own, NEARLY_ALL)) is not None:
                yield trial
                enough = enough or self.enough(trial)
                rows = self.sample(own)
                liked = (*liked, step) if self.liking(own, rows) > self.liking(self.given, rows) else liked
        if len(liked) > len(self.given) + 1 and (trial := self.trial(liked, NEARLY_ALL)) is not None:
            yield trial
            enough = enough or self.enough(trial)
        if not enough:
            yield from self.guesses(liked)
        if self.tried:
            self.tell("tried", self.tried, self.tried)

    def guesses(self, steps: tuple[str, ...]) -> Iterator[Trial]:
        """Other quotation marks, then other line breaks, with the marks that the model likes best."""
        self.planned += 3 * SAMPLE + len(WIDTHS) * PROBES[0][0]
        liked = steps
        for marks in () if set(steps) & set(QUOTES) else filter(partial(self.changes, steps), QUOTES):
            if (trial := self.trial((*steps, marks), MOST)) is not None:
                yield trial
                if self.enough(trial):
                    return
                rows = self.sample((*steps, marks))
                liked = (*steps, marks) if self.liking((*steps, marks), rows) > self.liking(steps, rows) else liked
        if any(step.startswith(LINES) for step in steps) or self.reached.mean() >= MOST:
            return
        if self.changes(liked, "unwrap") and (trial := self.trial((*liked, "unwrap"), MOST)) is not None:
            yield trial
            if self.enough(trial):
                return
        if (trial := self.trial((*liked, self.width(liked)), MOST)) is not None:
            yield trial

    def changes(self, steps: tuple[str, ...], step: str) -> bool:
        """Whether one more step changes anything."""
        return self.prepared((*steps, step)).changed[step] > 0

    def enough(self, trial: Trial) -> bool:
        """Whether most windows would reach tau after these steps."""
        gained = (trial.after - trial.before) / trial.windows * trial.affected
        return bool(self.reached.sum() + gained >= MOST * self.reached.size)

    def width(self, steps: tuple[str, ...]) -> str:
        """The step that wraps lines where the model likes it best."""
        widths = [f"wrap-{width}" for width in WIDTHS]
        for count, left in PROBES:
            rows = spread(np.arange(self.starts.size), count)
            self.score([(*steps, width) for width in widths], rows)
            widths = sorted(widths, key=lambda width: -self.liking((*steps, width), rows))[:left]
        return widths[0]

    def trial(self, steps: tuple[str, ...], unless: float) -> Trial | None:
        """Windows that these steps change, before and after; None where this share of them reaches tau as it is."""
        rows = self.sample(steps)
        if not rows.size or self.reached[rows].mean() >= unless:
            return None
        after = {row: reached for row, (reached, _) in self.scored(steps, rows).items()}
        if not after:
            return None
        return Trial(
            steps=ordered(steps),
            affected=int(self.affected(steps).size),
            windows=len(after),
            before=int(self.reached[list(after)].sum()),
            after=sum(after.values()),
        )

    def sample(self, steps: tuple[str, ...]) -> NDArray[np.int64]:
        return spread(self.affected(steps), SAMPLE)

    def affected(self, steps: tuple[str, ...]) -> NDArray[np.int64]:
        """The windows that these steps change."""
        became, was = (self.prepared(each).became() for each in (steps, self.given))
        return affected(became != was, self.starts, self.ends)

    def liking(self, steps: tuple[str, ...], rows: NDArray[np.int64]) -> float:
        """How likely the model finds the suffixes, on average of their tokens: widths differ in it below tau too."""
        found = [liking for _, liking in self.scored(steps, rows).values()]
        return float(np.mean(found)) if found else -math.inf

    def scored(self, steps: tuple[str, ...], rows: NDArray[np.int64]) -> dict[int, tuple[bool, float]]:
        """Of each window whether it reaches tau after these steps, and how likely its tokens are; not of short ones."""
        self.score([steps], rows)
        return {row: self.known[steps, row] for row in rows.tolist() if (steps, row) in self.known}

    def score(self, several: Sequence[tuple[str, ...]], rows: NDArray[np.int64]) -> None:
        """Score the windows that are not known yet, after each of several ways to normalise the text.

        A window starts where it does in the run, or at the next character that the steps leave.
        """
        from rote.extraction.verbatim import verbatim

        examples: list[Example] = []
        keys: list[tuple[tuple[str, ...], int]] = []
        for steps in several:
            prepared = self.prepared(steps)
            new = [row for row in rows.tolist() if (steps, row) not in self.known]
            places = np.searchsorted(prepared.borders[:-1], self.starts[new]).tolist()
            by_start = {int(prepared.borders[p]): row for p, row in zip(places, new, strict=True)}
            inside = [place for place in places if place < len(prepared.text)]
            found = [e for e in cut_windows(prepared, self.backend, self.cut, inside) if self.taken(e)]
            examples += found
            keys += [(steps, by_start[example.start or 0]) for example in found]
        with warnings.catch_warnings():  # said of the run's own windows, where it is so
            warnings.simplefilter("ignore", RuntimeWarning)
            results = verbatim(self.model, examples, self.scheme, batch_size=self.batch_size)
        for key, result in zip(keys, results, strict=True):
            reached = not result.bounded and result.log_prob >= self.tau
            self.known[key] = (reached, float(np.mean(result.base_log_probs, dtype=np.float64)))
        self.tried += len(examples)
        self.tell("tried", self.tried, max(self.planned, self.tried))

    def taken(self, example: Example) -> bool:
        """Whether the model can score it: a server that takes texts alone cannot take every window."""
        if isinstance(self.model, SuffixScorer):
            try:
                self.model.refuse([example], [self.scheme])
            except InputError:
                return False
        return True

    def _prepared(self, steps: tuple[str, ...]) -> Normalised:
        return normalised(self.text, steps)


def _of_row(part: pl.DataFrame) -> pl.DataFrame:
    """What is asked of rows as they stand: of a large run not all of their tokens need to be in memory."""
    return part.select("start", "suffix_end", "log_prob", "bounded", liking=pl.col("base_log_probs").list.mean())
