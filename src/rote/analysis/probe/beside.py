"""Scores of a run of `rote member` on the same texts, to stand beside the probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from rote.analysis.member.measures import Floats
from rote.corpus.texts import LabelledText
from rote.membership.scores import BY_NAME
from rote.store.membership import MemberView

PREFIXED = "recall"


def membership_scores(view: MemberView, texts: Sequence[LabelledText]) -> dict[str, Floats]:
    """Each score of the texts, by `member:NAME`, so that large means seen; NaN where a text has none.

    Texts are the same if their characters are. ReCaLL has none for the texts of its prefix and for their groups.
    """
    first = view.rows.filter(
        pl.col("id").is_in(view.manifest.prefix)
        & (pl.col("part") == ("texts" if view.manifest.held_out is None else "held_out"))
    )
    before, groups = set(first["text"].to_list()), set(first["group"].drop_nulls().to_list())
    rows: dict[str, Mapping[str, object]] = {}
    for each in view.rows.select("text", "group", *view.manifest.scores).iter_rows(named=True):
        rows.setdefault(each["text"], each)
    found = {}
    for name in view.manifest.scores:
        values = np.full(len(texts), np.nan)
        for place, text in enumerate(texts):
            row = rows.get(text.text)
            if row is None or (name == PREFIXED and (text.text in before or row["group"] in groups)):
                continue
            value = row[name]
            if isinstance(value, float):
                values[place] = value * BY_NAME[name].sign
        found[f"member:{name}"] = values
    return found


def sign_of(name: str) -> int:
    return BY_NAME[name.removeprefix("member:")].sign
