"""What is wrong with all requests to a server, so that nothing more is sent: in words, with what to do."""

from __future__ import annotations

import re
from typing import Any

from rote.errors import argument
from rote.models.http import Server
from rote.models.replies import Reply

QUOTA = re.compile(r"insufficient_quota|billing|credit balance|insufficient (balance|credits|funds)", re.IGNORECASE)
LENGTH = re.compile(r"context[_ ](length|window|size)|too (long|large|many tokens)|maximum.{0,20}(length|tokens)", re.I)


def why_stopped(
    server: Server, reply: Reply, *, path: str, name: str, key: str | None, proven: bool, one: str, mend: str
) -> str:
    """`name`: of the model. `key`: the variable that its key is in. `one`: what a request is called. `mend`: what to do
    where the first is refused."""
    base, why = server.base, reply.why.rstrip(". ")
    status = reply.status and status_of(reply.status, reply.content)
    said = error_in(reply.content)
    if status in (401, 403):
        fix = (
            f"Set the environment variable {key} to a key that is valid there, and for this model."
            if key
            else "Put a key for it into an environment variable and name that variable, as in "
            f"{argument('key', 'OPENAI_API_KEY')}."
        )
        return f"{base} does not let us in ({why}). {fix}"
    if status == 402 or (status == 429 and QUOTA.search(said)):
        return f"{base} wants money: {why}. Pay there, or use another key; then run the same command again."
    if status in (404, 405):
        return f"{base}/{path} does not know the model {name!r} ({why}). {known_models(server)}"
    if status is not None and 300 <= status < 400:
        return f"{base} has moved ({why}). Give the address where it is now: keys are sent to no other on the way."
    if status is not None and 400 <= status < 500 and status != 408 and status != 429:
        return f"{base} refuses the first {one} ({why}). {mend}"
    if status is None and not reply.lost:
        return f"{base} cannot be reached: {why}. Check that the server runs, and that this is its address."
    if status == 429:
        return (
            f"{base} takes no more {one}s for now ({why}). Wait, or ask fewer at once with "
            f"{argument('concurrency', '1')}; then run the same command again."
        )
    if proven:
        return f"{base} answers no more: {why}. Run the same command again when it does."
    if status is not None and status >= 500:
        return f"{base} fails at every {one}: {why}. Its log says why; check the model's name, {name!r}, too."
    return f"{base} does not answer: {why}. Check that this is the base URL of an OpenAI-compatible server."


def known_models(server: Server) -> str:
    """Which models the server has, if it says so."""
    listed = server.get("models")
    data = listed.get("data") if isinstance(listed, dict) else None
    names = [str(each["id"]) for each in data if isinstance(each, dict) and "id" in each] if data else []
    if not names:
        return "Check the model's name, and that the address is right up to /v1."
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"It has {', '.join(sorted(names)[:20])}{more}."


def status_of(status: int, content: Any) -> int:
    """A reply's status. Some servers hand on the errors of others with a success of their own."""
    error = content.get("error") if isinstance(content, dict) and 200 <= status < 300 else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else status


def error_in(content: Any) -> str:
    """All that a server says of an error: code, kind and message."""
    return str(content["error"]) if isinstance(content, dict) and content.get("error") else str(content or "")
