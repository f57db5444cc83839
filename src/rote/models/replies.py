"""What servers reply: read, put into words where it is not what one asks for, and freed of secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import quote

SECRET = 8
"""How many characters a secret has at least: what is shorter stands for none, as the EMPTY of many local servers."""

BUSY = (429, 503, 529)
AGAIN = (408, 409, 425, 500, 502, 504, *range(520, 528), *BUSY)

Verdict = Literal["taken", "again", "refused", "stop"]
"""What becomes of a reply: it is what was asked for; it is asked for again; it is the answer to this one; or to all."""

Judge = Callable[[int, Any], Verdict]
"""Of a reply's status and its JSON, or None."""


class Headers:
    """What is sent with every request. Values are shown nowhere, and `scrub` takes the secret ones out of a text."""

    def __init__(self, values: Mapping[str, str] | None = None, secrets: Iterable[str] = ()) -> None:
        self.values = dict(values or {})
        spelled = {s for secret in secrets for s in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])}
        self._secret = [s for s in sorted(spelled, key=len, reverse=True) if len(s) >= SECRET]

    def __repr__(self) -> str:
        return f"<Headers: {', '.join(self.values) or 'none'}>"

    def scrub(self, text: str) -> str:
        """The text without a secret, and without what no file could hold: half a character."""
        for secret in self._secret:
            text = text.replace(secret, "***")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def scrubbed(self, content: Any) -> Any:
        """The same for all texts of a JSON value."""
        if isinstance(content, str):
            return self.scrub(content)
        if isinstance(content, list):
            return [self.scrubbed(each) for each in content]
        if isinstance(content, dict):
            return {self.scrub(name): self.scrubbed(value) for name, value in content.items()}
        return content

    def read(self, status: int, text: str, location: str = "") -> tuple[Any, str]:
        """A reply's JSON, or None; and what it says, in words, for where that is not what one asks for."""
        try:
            content = self.scrubbed(json.loads(text))
        except (ValueError, RecursionError):
            content = None
        return content, f"HTTP {status}: {_what(content, self.scrub(text), self.scrub(location))}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request came to. `status`: None where no reply came in. `content`: its JSON; None where it has none.

    `why`: in words, where it is not taken. `tries`: how often it was sent. `lost`: how many of these brought nothing,
    but may have been worked on. "again": it was tried as often as may be. "stop": nothing more is sent.
    """

    place: int
    verdict: Verdict
    status: int | None = None
    content: Any = None
    why: str = ""
    tries: int = 1
    lost: int = 0


def by_status(status: int, content: Any) -> Verdict:
    """What becomes of a reply, as far as its status tells."""
    if status in AGAIN or (200 <= status < 300 and content is None):
        return "again"
    if status < 400:
        return "taken" if status < 300 else "stop"
    return "stop" if status in (401, 402, 403, 404, 405) or status >= 500 else "refused"


def retry_after(header: str | None) -> float | None:
    """The seconds that a server asks to be left alone for: it says so, or until when."""
    if not header:
        return None
    if re.fullmatch(r"\s*\d+(\.\d*)?\s*", header):
        return float(header)
    try:
        then = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def message_in(content: Any) -> str:
    """What a server says is wrong, wherever it says so."""
    for name in ("error", "message", "detail", "msg"):
        if isinstance(content, dict) and content.get(name):
            return message_in(content[name])
    if isinstance(content, list) and content:
        return message_in(content[0])
    return content if isinstance(content, str) else json.dumps(content)


def _what(content: Any, text: str, location: str) -> str:
    if content is not None:
        return " ".join(message_in(content).split())[:500]
    if location:
        return f"it redirects to {location[:300]}"
    if is_page(text):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"an HTML page{f' ({title[1].strip()[:100]})' if title else ''}, no JSON"
    return f"no JSON, but {text.strip()[:200]!r}" if text.strip() else "an empty reply"


def is_page(text: str) -> bool:
    return re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE) is not None
