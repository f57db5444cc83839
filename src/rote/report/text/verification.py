"""A verification in words: its verdict, and what comes with a file of evidence."""

from __future__ import annotations

from rote.report.text import numbers
from rote.store.run import Finished
from rote.store.seal import MEANING
from rote.store.stages import Staged
from rote.store.verification import Rescored, Verification


def verdict(result: Verification) -> str:
    """What was found, in one sentence with what it proves."""
    failed = next((finding for finding in result.findings if finding.passed is False), None)
    if failed is not None and failed.name == "model":
        return f"Nothing can be said of the rows: {failed.told.rstrip('.')}. Give the model that the run was made with."
    if failed is not None:
        return f"This run cannot be relied on: {failed.told.rstrip('.')}."
    unchanged = f"Nothing has changed since the run was sealed ({result.seal}), and its summary follows from its rows"
    if result.staged is not None:
        unchanged += f", which are those of {_staged(result.staged)}"
    if result.rescored is None:
        return f"{unchanged}; whether the rows are right was not tried: that takes the model."
    return f"{unchanged}; {_proves(result.rescored)}."


def _staged(staged: Staged) -> str:
    """Which windows of a scan in stages have a number."""
    windows = f"{numbers.count(staged.scored)} of {numbers.counted(staged.windows, 'window')}"
    if staged.ended == staged.stages:
        return f"{windows}, scored in {numbers.counted(staged.stages, 'stage')}"
    stages = f"{numbers.count(staged.ended)} of {numbers.counted(staged.stages, 'stage')} have ended"
    return f"{windows}: {stages}, and others are to come"


def _proves(found: Rescored) -> str:
    how = f"scored again with the model in {found.model.dtype}, come out as they stand"
    if found.drawn == found.examples:
        return f"all {found.unit}s, {numbers.count(found.examples)} in number, {how}"
    share = numbers.percent(found.wrong_at_most or 0.0)
    again = f"{numbers.count(found.drawn)} of {numbers.counted(found.examples, found.unit)} drawn at random"
    others = f" and {numbers.count(found.strongest)} of the likeliest" if found.strongest else ""
    return f"{again}{others}, {how}: at most {share} of all {found.unit}s are wrong, with 95% confidence"


def lines(result: Verification) -> list[str]:
    """Verdict and findings for a terminal."""
    marks = {True: "ok", False: "NOT OK", None: "?"}
    told = [f"{each.name:<10}{marks[each.passed]:<8}{numbers.literal(each.told)}" for each in result.findings]
    shown = [numbers.literal(result.verdict), "", *told]
    if (again := result.rescored) is not None:
        limit = numbers.setting(again.limit)
        shown += [
            "",
            f"Drawn with seed {again.seed}. A model whose tokens differ by less than {limit} would pass, too.",
        ]
    return [*shown, "", MEANING]


def instructions(run: Finished, seal: str) -> str:
    """What lies in a file of evidence, what it proves, and what to type."""
    model, staged, begun = run.manifest.model, run.summary.staged, ""
    told = f"weights {model.fingerprint}" if model.served is None else numbers.weights(model)
    if staged is not None and not run.complete:
        begun = (
            f"\nIt was not finished: the run is a scan in stages, {staged.ended} of {staged.stages} have ended, and "
            f"{staged.scored} of {staged.windows} windows have a number. Made again, it is whole.\n"
        )
    return f"""# Evidence

A run of Rote {run.manifest.versions.get("rote", "")} over {run.manifest.source.name}, made with {model.name} \
({told}) on {run.manifest.created}.
{begun}
- `run/`: the run as it was sealed, and its page, `run/report.html`, made anew when this file was.
- `environment.json`: the machine on which this file was made.
- `reproduce.py`: makes the run again.

The seal's number is

    {seal}

{MEANING}

## Is it unchanged, and does it add up?

    rote verify FILE

## Do its numbers come out?

With the same weights, on any machine:

    rote verify FILE --model {model.name}

## Make it again

Unpack the file, then:

    python reproduce.py {model.name}
    rote compare run again
"""
