"""How jobs say how far they are."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is counted, how many are done, and of how many.

Counted are "windows" (cut), "places" (looked for), "listed" and "drawn" (documents), "scored", "generated", "compared",
"exported", "figures" and "page".
"""


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""
