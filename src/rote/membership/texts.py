"""Texts as a model's tokens, and every pass over them that the scores need; what they come to, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rote.corpus.readings import TOGETHER
from rote.corpus.windows import plain_backend
from rote.errors import InputError
from rote.membership.options import Reading
from rote.membership.passes import cuts, nothing_to_score, read_texts
from rote.membership.scores import Needs, TextRead, scores_of
from rote.membership.windows import BestWindow, best_windows
from rote.models.base import LogitModel
from rote.options import BatchSize
from rote.progress import Progress

BETWEEN = "\n\n"
"""What stands between the texts before every text for ReCaLL, and after the last of them."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text's tokens, and the characters of it that each of them stands for."""

    ids: list[int]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be read, by the place of a text. `lowered`: None for a text that is lowercase as it is.

    `prefix` stands before every text for ReCaLL: the first tokens of `prefix_whole`, at most half of a window.
    """

    model: LogitModel
    reference: LogitModel | None
    reading: Reading
    batch_size: BatchSize
    needs: tuple[Needs, ...]
    names: list[str]
    texts: list[str]
    tokens: list[Tokens]
    lowered: list[list[int] | None]
    for_reference: list[list[int]]
    prefix: list[int]
    prefix_whole: int


def plan_of(
    model: LogitModel,
    texts: Sequence[str],
    names: Sequence[str],
    *,
    reference: LogitModel | None = None,
    before: Sequence[str] = (),
    lowercase: bool = True,
    extract: bool = False,
    reading: Reading = Reading(),
    batch_size: BatchSize = "auto",
) -> Plan:
    """Tokenise everything. A text without a token to score, in one of the readings that are asked for, is refused.

    `names`: what messages call the texts.
    """
    tokens = _tokenised(model, texts, names, "")
    lowered: list[list[int] | None] = [None] * len(texts)
    if lowercase:
        low = [text.lower() for text in texts]
        changed = [place for place, text in enumerate(texts) if low[place] != text]
        made = _tokenised(model, [low[p] for p in changed], [names[p] for p in changed], ", in lowercase,")
        for place, own in zip(changed, made, strict=True):
            lowered[place] = own.ids
    theirs = [] if reference is None else _tokenised(reference, texts, names, ", for the reference model,")
    whole = plain_backend(model.tokenizer).encode("".join(text + BETWEEN for text in before)).ids if before else []
    asked: dict[Needs, bool] = {
        "text": True, "lowercase": lowercase, "prefix": bool(before), "reference": reference is not None,
        "windows": extract,
    }  # fmt: skip
    return Plan(
        model=model,
        reference=reference,
        reading=reading,
        batch_size=batch_size,
        needs=tuple(name for name, wanted in asked.items() if wanted),
        names=list(names),
        texts=list(texts),
        tokens=tokens,
        lowered=lowered,
        for_reference=[own.ids for own in theirs],
        prefix=whole[: reading.settled(model)[0] // 2],
        prefix_whole=len(whole),
    )


def _tokenised(model: LogitModel, texts: Sequence[str], names: Sequence[str], how: str) -> list[Tokens]:
    backend: Any = plain_backend(model.tokenizer)
    made, waiting = [], iter(texts)
    while batch := list(islice(waiting, TOGETHER)):
        made += [Tokens(each.ids, each.offsets) for each in backend.encode_batch(batch, add_special_tokens=False)]
    least = 1 if model.bos_id is not None else 2
    wrong = next((place for place, own in enumerate(made) if len(own.ids) < least), None)
    if wrong is not None:
        raise InputError(nothing_to_score(f"{names[wrong]}{how}", len(made[wrong].ids)))
    return made


def read_rows(plan: Plan, places: Sequence[int], progress: Progress) -> Iterator[dict[str, Any]]:
    """What the passes over these texts come to: a row for each, with the columns of the table but those that it was
    given with. `progress` counts texts as "read", every pass over them in equal parts."""
    reads = _Reads(plan, list(places), progress)
    read = reads.of("text", [plan.tokens[place].ids for place in places])
    lowered = reads.lowered(read) if "lowercase" in plan.needs else None
    prefixed = reads.of("prefix", [plan.tokens[place].ids for place in places], plan.prefix)
    reference = reads.of("reference", [plan.for_reference[place] for place in places] if plan.for_reference else [])
    best = reads.windows() if "windows" in plan.needs else None
    for number, place in enumerate(places):
        own = read[number]
        others = {
            "lowercase": lowered[number] if lowered else None,
            "prefixed": prefixed[number] if prefixed else None,
            "reference": reference[number] if reference else None,
        }
        yield {
            **_tokens_row(plan, place, own),
            **{f"{name}_loss": -other.mean for name, other in others.items() if other is not None},
            **{f"{name}_evals": other.token_evals for name, other in others.items() if other is not None},
            **scores_of(plan.texts[place], own, **others),
            **({} if best is None else _window_row(plan.tokens[place], best[number])),
        }


class _Reads:
    """The passes over some texts, one after the other."""

    def __init__(self, plan: Plan, places: list[int], progress: Progress) -> None:
        self.plan, self.places, self.progress = plan, places, progress
        self.names = [plan.names[place] for place in places]
        self.done = 0

    def of(self, needs: Needs, ids: Sequence[Sequence[int]], prefix: Sequence[int] = ()) -> list[TextRead]:
        if needs not in self.plan.needs:
            return []
        model = self.plan.reference if needs == "reference" else self.plan.model
        assert model is not None
        return self._read(model, ids, self.names, prefix)

    def lowered(self, read: Sequence[TextRead]) -> list[TextRead]:
        """A text that is lowercase as it is has been read already."""
        low = [self.plan.lowered[place] for place in self.places]
        changed = [number for number, ids in enumerate(low) if ids is not None]
        made = self._read(self.plan.model, [low[n] or [] for n in changed], [self.names[n] for n in changed], ())
        found = dict(zip(changed, made, strict=True))
        return [found.get(number) or replace(own, token_evals=0) for number, own in enumerate(read)]

    def windows(self) -> list[BestWindow | None]:
        made = best_windows(self.plan.model, [self.plan.tokens[p].ids for p in self.places], self.plan.batch_size)
        self._tell(1, 1)
        self.done += 1
        return made

    def _read(
        self, model: LogitModel, ids: Sequence[Sequence[int]], names: Sequence[str], prefix: Sequence[int]
    ) -> list[TextRead]:
        reading = self.plan.reading if model is self.plan.model else Reading()
        made = read_texts(
            model, ids, prefix=prefix, reading=reading, names=names, batch_size=self.plan.batch_size,
            progress=lambda what, done, of: self._tell(done, of),
        )  # fmt: skip
        self.done += 1
        return made

    def _tell(self, done: int, of: int) -> None:
        share = (self.done + done / max(of, 1)) / len(self.plan.needs)
        self.progress("read", int(share * len(self.places)), len(self.places))


def _tokens_row(plan: Plan, place: int, read: TextRead) -> dict[str, Any]:
    own, bos = plan.tokens[place], plan.model.bos_id is not None
    window, stride = plan.reading.settled(plan.model)
    return {
        "tokens": len(read.log_probs),
        "windows": sum(1 for _ in cuts(len(own.ids), window, stride, bos=bos)),
        "token_evals": read.token_evals,
        "scored_start": 0 if bos else own.spans[1][0],
        "token_ends": [end for _, end in own.spans[0 if bos else 1 :]],
        "token_log_probs": read.log_probs,
        "token_z": read.z_scores,
    }


def _window_row(tokens: Tokens, best: BestWindow | None) -> dict[str, Any]:
    if best is None:
        return {"windows_tried": 0, "windows_evals": 0}
    return {
        "best_window": best.log_prob,
        "near_lower": best.near_lower,
        "windows_tried": best.tried,
        "best_start": tokens.spans[best.start][0],
        "windows_evals": best.token_evals,
    }
