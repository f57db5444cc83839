"""Texts that are asked about: each with what is known of it, a label, a group, a date, how often it was seen."""

from __future__ import annotations

from dataclasses import dataclass


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
