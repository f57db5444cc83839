"""How one kind of completions server is spoken to, as a type: what to send, and what to read out of what comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from rote.models.http import Server
from rote.models.promptlists import Lists
from rote.scheme import Scheme


class Dialect(Protocol):
    """How one kind of server is spoken to. What is read raises `Odd` where it is not what was asked for."""

    kind: Literal["vllm", "server"]
    beside: dict[str, Any]
    """Everything that is sent with a prompt that is scored; the number of log-probs is added."""

    def asked(self, tokens: Sequence[int], count: int) -> dict[str, Any]:
        """The request for a prompt's log-probs; `tokens` begin with BOS, where there is one."""

    def lists(self, content: Any, tokens: Sequence[int], first: int, count: int) -> Lists: ...

    def unsendable(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Which of these prompts, without BOS, cannot be sent as they are."""

    def probe(self, post: Callable[[dict[str, Any]], Any], tokens: list[int], count: int) -> None:
        """Find out whether the server lists the model's own log-probs for these very tokens; refuse it if not."""

    def version(self, server: Server) -> str | None: ...
    def refuse(self, scheme: Scheme) -> str | None:
        """Why the server cannot generate under this scheme, as where its sampler is another; None: it can."""

    def drawn(self, tokens: Sequence[int], scheme: Scheme, length: int, samples: int, seed: int) -> dict[str, Any]: ...
    def outputs(self, content: Any, tokens: Sequence[int], length: int) -> list[tuple[int, ...]]: ...

    at_once: int
    """Outputs of one request."""
