"""How whole texts are read by a model: in windows, where they are longer than its context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rote.errors import InputError, argument
from rote.models.base import LogitModel
from rote.options import Option, require_whole

UNLIMITED = 2048
"""Tokens of a window for a model that names no longest context."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How texts are read that do not fit a model's context: in windows of so many tokens, `stride` tokens apart.

    Every token is scored once: in the first window that holds it, so after at least `window - stride` tokens, but for
    those of the first window. BOS stands before every window where the model has one. None: the longest window that
    fits, and half of it.
    """

    window: Annotated[int | None, Option("Tokens of a text that are read at once.", default="what fits")] = None
    stride: Annotated[
        int | None, Option("Tokens from one window of a long text to the next.", default="half a window")
    ] = None

    def __post_init__(self) -> None:
        for name in ("window", "stride"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))

    def settled(self, model: LogitModel, prefix: int = 0) -> tuple[int, int]:
        """(window, stride) for a model, in which `prefix` tokens stand before every window."""
        largest = longest_window(model)
        window = largest if self.window is None else self.window
        if window > largest:
            raise InputError(
                f"{argument('window', window)} is more than the model's context has room for; {largest} is the largest."
            )
        if window < 2 and model.bos_id is None:
            raise InputError(f"{argument('window', window)} leaves no token to score where there is no BOS; give 2.")
        stride = max(1, window // 2) if self.stride is None else self.stride
        most = window if model.bos_id is not None else window - 1
        if stride > most:
            raise InputError(
                f"{argument('stride', stride)} would leave tokens out between windows of {window}; give at most {most}."
            )
        if not prefix:
            return window, stride
        beside = min(window, largest - prefix)
        if beside < min(window, (largest + 1) // 2):
            raise InputError(
                f"{prefix} tokens before every text leave room for {max(beside, 0)} of the {largest} that the model "
                f"reads at once; they may take half. Use fewer {argument('shots')}, or shorter texts there."
            )
        return beside, max(1, stride * beside // window)


def longest_window(model: LogitModel) -> int:
    """The last token of a window need not be fed."""
    context = model.context_length
    return UNLIMITED if context is None else context + 1 - (model.bos_id is not None)
