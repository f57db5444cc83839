"""Searches asked for with one flat list of options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rote import Example, Near, Scheme, near_verbatim
from rote.extraction.near.results import NearVerbatim
from rote.models.base import LogitModel

OF_NEAR = {field.name for field in fields(Near)}


def near_of(**options: Any) -> Near:
    """A search that goes on to the end of its budget if not told otherwise.

    Tests ask for all methods alike; what is idle with one of them, which `Near` refuses, is left out.
    """
    options = {"gap": 0.0, "until": "budget", **options}
    if options.get("method", "fork") != "beam":
        options.pop("variant", None)
        if options.get("method") == "sample" or options.get("budget") is not None:
            options.pop("width", None)
    return Near(**options)


def find_near(model: LogitModel, examples: Sequence[Example], *scheme: Scheme, **options: Any) -> list[NearVerbatim]:
    """`near_verbatim` with options of its own and of `near_of`."""
    own = {name: value for name, value in options.items() if name not in OF_NEAR}
    near = near_of(**{name: value for name, value in options.items() if name in OF_NEAR})
    return near_verbatim(model, examples, *scheme, near=near, **own)
