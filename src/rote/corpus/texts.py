"""Texts that are asked about: each with what is known of it, a label, a group, a date, how often it was seen."""

from __future__ import annotations

import datetime
import re
from calendar import isleap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rote.corpus.documents import open_corpus
from rote.corpus.windows import lone_surrogate
from rote.errors import InputError, argument
from rote.options import whole
from rote.progress import Progress

LABELS = {"member": True, "members": True, "non-member": False, "non-members": False}
"""Words for a label; also the names of folders whose texts have it."""

Split = Literal["validation", "test"]

SAID = ("label", "group", "date")
PROBED = ("prefix", "split", "paraphrases")
"""What is known of texts: by all, and by probes alone."""

_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledText:
    """`label`: whether the text is a member; None: not known. `date`: as given, YYYY, YYYY-MM or YYYY-MM-DD.

    `group`: texts of one group, such as the pages of a book, are dealt out together. For probes: `prefix`, which a
    model is to complete, `split`, whether thresholds are chosen on the text or it is judged by them, `paraphrases`.
    """

    id: str
    text: str
    label: bool | None = None
    group: str | None = None
    date: str | None = None
    repetitions: int | None = None
    prefix: str | None = None
    split: Split | None = None
    paraphrases: tuple[str, ...] | None = None


Texts = Path | str | Iterable[LabelledText | Mapping[str, Any] | str]
"""A file or folder of texts; or texts, as they are or with what is known of them."""


def labelled_texts(
    given: Texts,
    name: str,
    *,
    text_column: str | None = None,
    glob: str | None = None,
    probed: bool = False,
    progress: Progress | None = None,
) -> tuple[list[LabelledText], str]:
    """The texts, and what they are called. A text that is empty is refused, by its place; so is a label that is none.

    `name`: of the argument. `probed`: what only probes know of a text is read too.
    """
    keys = (*SAID, *PROBED) if probed else SAID
    if isinstance(given, str | Path):
        corpus = open_corpus(given, text_column=text_column, glob=glob, also=keys, progress=progress)
        texts = [
            _text(
                document.id, text, {"repetitions": document.repetitions, **dict(document.said)}, corpus.where(document),
                folder=document.id.split("/")[0] if corpus.shape == "texts" and "/" in document.id else None,
            )
            for document, text in corpus.read(corpus.documents)
        ]  # fmt: skip
        return texts, Path(given).resolve().name
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes) or hasattr(given, "columns"):
        kind = type(given).__name__
        raise InputError(
            f"{argument(name)} must be a path, or a list of texts or of dicts with their text, not a {kind}."
        )
    texts, seen = [], set()
    for number, one in enumerate(given):
        made = _given(one, number, text_column or "text", keys, f"{name}[{number}]")
        if made.id in seen:
            raise InputError(f"{name}[{number}]: the id {made.id!r} is another text's already. Give each its own.")
        seen.add(made.id)
        texts.append(made)
    if not texts:
        raise InputError(f"{argument(name)} holds no text. Give at least one.")
    return texts, "texts"


def _given(one: Any, number: int, column: str, keys: tuple[str, ...], where: str) -> LabelledText:
    keys = (*keys, "repetitions")
    if isinstance(one, LabelledText):
        known = {key: getattr(one, key) for key in keys}
        return _text(one.id, one.text, known, where)
    if isinstance(one, str):
        return _text(f"text-{number}", one, {}, where)
    if not isinstance(one, Mapping):
        raise InputError(f"{where} is {one!r:.60}. Give a text, or a mapping with {column!r}.")
    if column not in one:
        raise InputError(f"{where} has no {column!r}. Name its key with {argument('text_column')}.")
    own = one.get("id")
    own = f"text-{number}" if own is None else str(own) if whole(own) else own
    return _text(own, one[column], {key: one.get(key) for key in keys}, where)


def _text(name: Any, text: Any, said: Mapping[str, Any], where: str, folder: str | None = None) -> LabelledText:
    """`folder`: that of a text in a folder of texts, which may be its label."""
    if not isinstance(name, str) or not name or lone_surrogate(name) is not None:
        raise InputError(f"{where}: id is {name!r:.40}. Give a string that is not empty, or leave it out.")
    if not isinstance(text, str):
        raise InputError(f"{where}: the text is {text!r:.40}. Give a string.")
    if not text:
        raise InputError(f"{where}: the text is empty, so there is nothing to score. Remove it.")
    if (lone := lone_surrogate(text)) is not None:
        raise InputError(f"{where}: character {lone} is half of a surrogate pair, which is not text. Replace it.")
    label, group, date, repetitions = (said.get(key) for key in (*SAID, "repetitions"))
    if group is not None and (isinstance(group, bool) or not isinstance(group, str | int) or group == ""):
        raise InputError(f"{where}: group is {group!r:.40}. Give a name or a number, or leave it out.")
    if isinstance(group, str) and lone_surrogate(group) is not None:
        raise InputError(f"{where}: group {group!r:.40} has half of a surrogate pair, which is not text. Replace it.")
    if repetitions is not None and not (whole(repetitions) and 0 <= repetitions < 2**63):
        raise InputError(f"{where}: repetitions is {repetitions!r:.40}. Give a whole number of at least 0.")
    return LabelledText(
        id=name,
        text=text,
        label=LABELS.get(folder or "") if label is None else _label(label, where),
        group=None if group is None else str(group),
        date=None if date is None else _date(date, where),
        repetitions=None if repetitions is None else int(repetitions),
        prefix=_prefix(said.get("prefix"), where),
        split=_split(said.get("split"), where),
        paraphrases=_paraphrases(said.get("paraphrases"), text, where),
    )


def _prefix(given: Any, where: str) -> str | None:
    if given is not None and (not isinstance(given, str) or not given.strip() or lone_surrogate(given) is not None):
        raise InputError(f"{where}: prefix is {given!r:.40}. Give the text that the model is to complete, or none.")
    return given


def _split(given: Any, where: str) -> Split | None:
    if given is not None and given not in ("validation", "test"):
        raise InputError(f'{where}: split is {given!r:.40}. Give "validation" or "test", or leave it out.')
    return given  # type: ignore[no-any-return]


def _paraphrases(given: Any, text: str, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{where}: paraphrases is {given!r:.40}. Give a list of three texts, or leave it out.")
    own = tuple(given)
    fine = all(isinstance(each, str) and each.strip() and lone_surrogate(each) is None for each in own)
    if not fine or len({*own, text}) != 4 or len(own) != 3:
        raise InputError(f"{where}: paraphrases must be three texts that differ from each other and from the text.")
    return own


def _label(given: Any, where: str) -> bool:
    if isinstance(given, bool | np.bool_) or ((whole(given) or isinstance(given, float)) and given in (0, 1)):
        return bool(given)
    if isinstance(given, str) and given.strip().lower() in LABELS:
        return LABELS[given.strip().lower()]
    raise InputError(
        f"{where}: label is {given!r:.40}. Give true or 1 for a text that was seen, false or 0 for one that was not, "
        '"member" or "non-member"; leave it out where that is not known.'
    )


def _date(given: Any, where: str) -> str:
    """A date as text, without the time of day."""
    text = re.sub(r"(?<=\d\d)[T ].*", "", given.isoformat() if hasattr(given, "isoformat") else str(given).strip())
    try:
        year_of(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return text


def year_of(date: str) -> float:
    """A date, YYYY, YYYY-MM or YYYY-MM-DD, as a year with the part of it that has passed: 2023-07 is about 2023.5."""
    parts = _DATE.fullmatch(date)
    try:
        if parts is None:
            raise ValueError
        day = datetime.date(int(parts[1]), int(parts[2] or 1), int(parts[3] or 1))
    except ValueError:
        raise InputError(f"{date!r} is no date; write YYYY, YYYY-MM or YYYY-MM-DD.") from None
    start = datetime.date(day.year, 1, 1)
    return day.year + (day - start).days / (366 if isleap(day.year) else 365)
