"""`bench score`: ordered guesses against the answers."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from rote.analysis.submissions import COMPARED, allowed_errors, scored
from rote.corpus.bench import read_ids
from rote.errors import InputError, argument
from rote.jobs.report import write_page
from rote.options import Option, folder_of, require_number, require_whole, typed_path
from rote.report.page.submissions import render_score
from rote.store.files import FORMAT
from rote.store.seal import hash_of
from rote.store.submissions import Answers, ScoreResult, Submitted, read_submission, write_score

MOST = 20
"""Submissions that can be scored at once: each has a letter, and a plot with more could not be read."""


def score(
    guesses: Annotated[
        Path | str | Sequence[Path | str],
        Option("Guesses as CSV (Example ID,Suffix Guess), or folders that rote bench attack wrote."),
    ],
    *,
    answers: Annotated[Path | str, Option("The right suffixes as .npy: a row of token ids for each example.")],
    errors: Annotated[
        int | None, Option("Wrong guesses that end it.", default="a tenth of the answers: 100 of 1,000")
    ] = None,
    seconds: Annotated[
        float | None, Option("Of attacks: only guesses that were found within so many seconds.", default="all")
    ] = None,
    token_evals: Annotated[
        int | None, Option("Of attacks: only guesses that were found within so many token evaluations.", default="all")
    ] = None,
    speed: Annotated[
        float, Option("Of attacks: seconds are multiplied by it, to tell what they would be on other hardware.")
    ] = 1.0,
    out: Annotated[
        Path | str | None,
        Option("Folder for score.json and the page.", "--out/-o", default="print only", parse=typed_path),
    ] = None,
) -> ScoreResult:
    """Hold ordered guesses, most confident first, against the answers.

    The headline is the recall at the last right guess that is made with fewer than `errors` wrong ones: 0 if there is
    none. A repeated wrong guess counts each time, a repeated right one is free. Several submissions are held against
    the same answers, in the order given. `seconds`, `token_evals` and `speed` need attacks, whose folders say when each
    guess was found. With `out`, all of it is written there, with a page.
    """
    path = Path(answers)
    rows = read_ids(path)
    allowed = allowed_errors(len(rows)) if errors is None else require_whole("errors", errors)
    _check_budgets(seconds, token_evals, speed)
    given = [guesses] if isinstance(guesses, str | Path) else list(guesses)
    if not 0 < len(given) <= MOST:
        raise InputError(f"{argument('guesses')} must be 1 to {MOST} submissions, not {len(given)}.")
    read = [read_submission(Path(one), len(rows), rows.shape[1]) for one in given]
    _refuse_untimed(read, {"seconds": seconds, "token_evals": token_evals, "speed": None if speed == 1 else speed})
    result = ScoreResult(
        format=FORMAT,
        kind="bench score",
        answers=Answers(
            name=str(path),
            sha256=hash_of(path),
            examples=len(rows),
            tokens=rows.shape[1],
            compared=min(rows.shape[1], COMPARED),
        ),
        errors=allowed,
        speed=float(speed),
        submissions=[
            scored(one, rows, key=key, errors=allowed, speed=speed, seconds=seconds, token_evals=token_evals)
            for key, one in zip(string.ascii_uppercase, read, strict=False)
        ],
        seconds=seconds,
        token_evals=token_evals,
    )
    if out is not None:
        folder = folder_of(out)
        write_score(folder, result)
        write_page(folder, render_score(result))
    return result


def _check_budgets(seconds: float | None, token_evals: int | None, speed: float) -> None:
    for name, number in (("seconds", seconds), ("speed", speed)):
        if number is not None and not 0 < require_number(name, number) < math.inf:
            raise InputError(f"{argument(name)} must be greater than 0 and finite, not {number}.")
    if token_evals is not None:
        require_whole("token_evals", token_evals)


def _refuse_untimed(read: Sequence[Submitted], asked: Mapping[str, float | None]) -> None:
    """Only an attack's folder says when a guess was found."""
    untimed = next((one for one in read if one.found is None), None)
    option = next((name for name, value in asked.items() if value is not None), None)
    if untimed is not None and option is not None:
        raise InputError(
            f"{argument(option, asked[option])} is for attacks: {untimed.name} is a file of guesses, which does not "
            f"say when they were found. Give the folder that rote bench attack wrote, or leave {argument(option)} out."
        )
