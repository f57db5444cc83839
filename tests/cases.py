"""How many cases a property test tries: as many as it says, or a part of them, by hypothesis' profile.

`pytest` tries an eighth. `pytest --hypothesis-profile=full -m 'hypothesis or scaled'` tries all; tests that are marked
`scaled` have no property but many examples, of which they take fewer as well.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings

ALL = 100
"""Examples of hypothesis' own default, which the profile "full" keeps."""

LEAST = 5


def all_cases() -> bool:
    """Whether everything is tried: what a test marked `scaled` makes of it is its own business."""
    return settings.default.max_examples >= ALL  # type: ignore[union-attr]


def cases(number: int, **more: Any) -> settings:
    """For a property that should be tried on so many examples; where none is said, it is ALL."""
    scaled = math.ceil(number * settings.default.max_examples / ALL)  # type: ignore[union-attr]
    return settings(max_examples=max(scaled, min(number, LEAST)), **more)
