"""Texts that are asked about: each with what is known of it, a label, a group, a date, how often it was seen."""

from __future__ import annotations

import datetime
import re
from calendar import isleap
from dataclasses import dataclass

from rote.errors import InputError

_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledText:
    """`label`: whether the text is a member; None: not known. `date`: as given, YYYY, YYYY-MM or YYYY-MM-DD.

    `group`: texts of one group, such as the pages of a book, are dealt out together.
    """

    id: str
    text: str
    label: bool | None = None
    group: str | None = None
    date: str | None = None
    repetitions: int | None = None


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
