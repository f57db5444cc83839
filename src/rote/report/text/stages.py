"""A scan in stages in words: how much of it was looked at, and what the windows that were left out can come to."""

from __future__ import annotations

from rote.report.keys import derived
from rote.report.text import numbers
from rote.store.comparison import ComparedRun
from rote.store.run import Finished
from rote.store.stages import Audit, Staged


def left_out(run: Finished) -> tuple[Staged, Audit] | None:
    """What a scan in stages left out; None of one that did not, or is in no stages."""
    staged, audit = run.summary.staged, run.numbers.audit
    return None if staged is None or audit is None or audit.drawn == audit.left_out else (staged, audit)


def looked_at(run: Finished) -> str:
    """The end of a headline: which share of the windows has a number, and which share of the others may reach tau."""
    both = left_out(run)
    assert both is not None
    staged, audit = both
    share = numbers.percent(derived(staged.scored / staged.windows, "staged/share", staged.scored))
    scored = f"{share} of the windows were scored"
    if staged.ended < staged.stages:
        return f"so far {scored}, in {numbers.count(staged.ended)} of {numbers.counted(staged.stages, 'stage')}."
    if not audit.drawn:
        return f"{scored}, the others left out without an audit."
    return f"{scored}; of those left out at most {numbers.percent(audit.bound)} reach τ (95% confidence)."


def stages_sentence(run: Finished) -> str:
    """What was scored, and why not the rest; nothing for a scan that is in no stages."""
    staged = run.summary.staged
    if staged is None:
        return ""
    both, windows = left_out(run), numbers.counted(staged.windows, "window")
    if both is None:
        return f" The scan was made in stages, and all its {windows} were scored."
    audit, rest = both[1], numbers.count(both[1].left_out)
    why = "those that tile the text, and those that may reach τ by what was read before"
    coverage = "So what is covered is at least what is told here." if run.numbers.rates.rate_at_tau.count else ""
    if staged.ended < staged.stages:
        return (
            f" Of {windows}, {numbers.count(staged.scored)} were scored so far: {why}. The {rest} others have no "
            f"number yet; {numbers.count(staged.ended)} of {numbers.counted(staged.stages, 'stage')} have ended. "
            f"{coverage}"
        ).rstrip()
    scored = numbers.count(derived(staged.scored - staged.audited, "staged/chosen", staged.scored))
    if not audit.drawn:
        return (
            f" Of {windows}, {scored} were scored: {why}. The {rest} others were left out, and nothing bounds how many "
            f"of them reach τ. {coverage}"
        ).rstrip()
    reach = "reach" if audit.hits > 1 else "reaches"
    hits = numbers.count(audit.hits) if audit.hits else "none"
    if run.numbers.rates.bounded and run.manifest.model.served is not None:
        reach = "are certain to reach" if audit.hits > 1 else "is certain to reach"
    return (
        f" Of {windows}, {scored} were chosen and scored: {why}. Of the {rest} others {numbers.count(audit.drawn)} "
        f"were drawn at random and scored as an audit; {hits} of these {reach} τ, so with 95% confidence at most "
        f"{numbers.percent(audit.bound)} of the others do. {coverage}"
    ).rstrip()


def stages_doubt(run: Finished) -> str:
    """What is uncertain about the rates of a scan that left windows out."""
    both = left_out(run)
    assert both is not None
    upper = "what the audit allows (one-sided, 95%)" if both[1].drawn else "what it would be if all of them counted"
    return (
        "Of all windows of this text at this stride, some were left out and have no number: rates run from what was "
        f"found to {upper}, and coverage is a lower value."
    )


def compared_stages(run: ComparedRun, tau: float) -> str:
    """What a scan in stages left out, and what follows for its numbers."""
    staged, audit = run.staged, run.audit
    assert staged is not None
    assert audit is not None
    ended = ""
    if staged.ended < staged.stages:
        ended = f", {numbers.count(staged.ended)} of {numbers.counted(staged.stages, 'stage')} have ended"
    scored = f"{numbers.count(staged.scored)} of {numbers.counted(staged.windows, 'window')} have a number{ended}"
    bound, most = "nothing bounds how many of the others reach τ", "what it would be if all of them did"
    if audit.drawn:
        most = "what that allows"
        bound = (
            f"of the {numbers.count(audit.left_out)} left out before its audit at most {numbers.percent(audit.bound)} "
            f"reach τ = {numbers.setting(tau)} (95% confidence)"
        )
    return (
        f"{run.key} is a scan in stages: {scored}; {bound}. Its rates run from what was found to {most}, "
        "and its coverage is at least what is told."
    )
