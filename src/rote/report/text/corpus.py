"""How much of a run stands in an indexed corpus, in words."""

from __future__ import annotations

from typing import Any

from rote.report.text import numbers
from rote.store.outputs import InCorpus, LookedUp
from rote.store.run import Finished

COUNTED = {
    "tokens": "all tokens of {a}",
    "tokens from the first word on": "the tokens of {a} from the first word that begins in it, as one that begins "
    "inside a word has other tokens there than the corpus",
    "text": "the text of {a}, byte by byte",
}


def corpus_sentence(run: Finished) -> str:
    """How many examples and suffixes stand in the corpus."""
    found = _found(run)
    lines = [_standing(run, found)]
    if found.near or found.greedy:
        lines.append(outputs_sentence(found))
    return " ".join(lines)


def _standing(run: Finished, found: InCorpus) -> str:
    if not found.counted:
        return "nothing could be looked for."
    often = "once" if found.most == 1 else f"{numbers.count(found.most)} times"
    most = "" if not found.standing else f", the most frequent {often}"
    return (
        f"{numbers.count(found.standing)} of {numbers.counted(found.counted, run.unit)} "
        f"{'stands' if found.standing == 1 else 'stand'} in it{most}; {numbers.count(found.suffixes_standing)} of "
        f"{numbers.counted(found.suffixes, 'suffix').replace('suffixs', 'suffixes')} "
        f"{'does' if found.suffixes_standing == 1 else 'do'}."
    )


def outputs_sentence(found: InCorpus) -> str:
    """What of the outputs that miss their suffix stands elsewhere."""
    kinds = [
        (found.near, "output near a suffix", "outputs near a suffix"),
        (found.greedy, "greedy output", "greedy outputs"),
    ]
    asked = " and ".join(f"{numbers.count(n)} {one if n == 1 else several}" for n, one, several in kinds if n)
    left = f" ({numbers.count(found.left)} less likely ones were not looked up)" if found.left else ""
    near, greedy = found.near_elsewhere, found.greedy_elsewhere
    if not near and not greedy:
        return f"Of {asked} that are not the suffix{left}, none stands in it as a whole."
    whole = " and ".join(
        f"{numbers.count(count)} {kind}"
        for count, of, kind in ((near, found.near, "near"), (greedy, found.greedy, "greedy"))
        if of
    )
    return f"Of {asked} that are not the suffix{left}, {whole} stand in it word for word: training data all the same."


def corpus_facts(run: Finished) -> list[tuple[str, str]]:
    """Which corpus, and what was counted."""
    use = run.manifest.index
    if use is None:
        return []
    counted = COUNTED[use.counted].format(a=f"a {run.unit}")
    return [
        (
            "Corpus",
            f"{numbers.name(use.name)}: {numbers.counted(use.documents, 'document')}, {numbers.count(use.tokens)} "
            f"{use.unit}, {numbers.name(use.id)}. Repetitions are counts in it, exact, of {counted}; a suffix is "
            "counted by itself as well. Nothing is counted across two documents",
        )
    ]


def corpus_section(run: Finished) -> dict[str, Any] | None:
    """The outputs that stand elsewhere, or of which the most does; None where no index was asked."""
    found = run.summary.corpus
    if found is None:
        return None
    use = run.manifest.index
    return {
        "note": corpus_sentence(run),
        "unit": "tokens" if use is None else use.unit,
        "caption": "Outputs that are not the suffix, those that stand in the corpus as a whole first, then by the "
        "length of the longest part that does. The excerpt is from the first document that has it.",
        "rows": [_row(each) for each in found.listed],
    }


def _row(each: LookedUp) -> dict[str, str]:
    near = each.kind == "near"
    kind = f"near, {numbers.counted(each.distance or 0, 'edit')}" if near else "greedy"
    return {
        "name": numbers.name(each.example_id),
        "kind": kind,
        "text": numbers.literal(each.text),
        "count": numbers.count(each.count),
        "longest": f"{numbers.count(each.longest)} of {numbers.count(each.length)}",
        "document": numbers.MISSING if each.document is None else numbers.name(each.document),
        "excerpt": "" if each.excerpt is None else numbers.literal(" ".join(each.excerpt.split())),
    }


def _found(run: Finished) -> InCorpus:
    assert run.summary.corpus is not None
    return run.summary.corpus
