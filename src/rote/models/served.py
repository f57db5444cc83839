"""Chat models behind an OpenAI-compatible server: what is sent, what is read out of replies, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from rote.errors import ModelError, argument
from rote.models.http import Server
from rote.models.probed import Answer, ChatIdentity, Price, Question
from rote.models.replies import Reply, Verdict, by_status, message_in
from rote.models.stopped import LENGTH, QUOTA, error_in, status_of, why_stopped

BESIDE: dict[str, Any] = {"n": 1, "frequency_penalty": 0, "presence_penalty": 0, "stream": False}
"""What is sent with every question. Servers differ in what they take where nothing is said."""

LEFT_OUT = '{"NAME": null}'
POLICY = re.compile(r"content[_ ]?(filter|policy|management)|moderation|flagged|responsibleai", re.IGNORECASE)


class ServedChat:
    """A `ChatModel` behind a server. `key`: the name of the environment variable that its key is in, for errors."""

    def __init__(
        self,
        server: Server,
        name: str,
        *,
        body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        paid: bool = True,
        label: str | None = None,
        key: str | None = None,
    ) -> None:
        self._server, self._key, self._proven = server, key, False
        self.name, self.label, self.price, self.paid = name, label, price, paid
        self._beside = {**BESIDE, **(body or {})}

    def __repr__(self) -> str:
        return f"<{self.identity().title} at {self._server.base}>"

    def identity(self) -> ChatIdentity:
        names = sorted(name for name in self._server.headers.values if name.lower() != "authorization")
        return ChatIdentity(
            name=self.name, label=self.label, url=self._server.base, body=dict(self._beside), headers=names
        )

    def answers(
        self, questions: Sequence[Question], *, admit: Callable[[int], bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        """As answers come in. What fails for want of a reply is asked once more when all others were."""
        left, held, stop = list(range(len(questions))), dict[int, Answer](), None
        on = True

        def admitted(place: int) -> bool:
            nonlocal on
            on = on and (admit is None or admit(place))
            return on

        for last in (False, True):
            bodies = ((place, self._body(questions[place])) for place in left)
            sent = self._server.post("chat/completions", bodies, self._judge, admitted, proven=self._proven)
            with closing(sent) as replies:
                for reply in replies:
                    before = held.pop(reply.place, Answer(text="", attempts=0))
                    answer = self._answer(reply)
                    answer = replace(answer, attempts=answer.attempts + before.attempts, lost=answer.lost + before.lost)
                    if reply.verdict == "stop":
                        stop = reply
                    if answer.again and not last and on and stop is None:
                        held[reply.place] = answer
                    else:
                        yield reply.place, answer
            left = list(held)
            if not (left and on) or stop is not None:
                break
        yield from held.items()
        if stop is not None:
            raise ModelError(self._wrong(stop))

    def _body(self, question: Question) -> dict[str, Any]:
        body = {
            "model": self.name, "messages": [{"role": "user", "content": question.prompt}],
            "max_tokens": question.tokens, "temperature": question.temperature, "top_p": question.top_p,
            "seed": question.seed, **self._beside,
        }  # fmt: skip
        return {name: value for name, value in body.items() if value is not None}

    # --- what a reply is

    def _judge(self, status: int, content: Any) -> Verdict:
        verdict = self._verdict(status, content)
        self._proven = self._proven or verdict == "taken"
        return verdict

    def _verdict(self, status: int, content: Any) -> Verdict:
        status, said = status_of(status, content), error_in(content)
        if 200 <= status < 300:
            return "again" if _choice(content) is None else "taken"
        if status == 429 and QUOTA.search(said):
            return "stop"
        if status in (400, 403, 413, 422) and (POLICY.search(said) or LENGTH.search(said)):
            return "refused"
        verdict = by_status(status, content)
        return "stop" if verdict == "refused" and not self._proven else verdict

    def _answer(self, reply: Reply) -> Answer:
        tried: dict[str, Any] = {"attempts": reply.tries, "lost": reply.lost}
        if reply.verdict == "taken":
            return replace(_read(reply.content), **tried)
        if reply.verdict == "refused" and POLICY.search(error_in(reply.content)):
            return Answer(text="", ended="content_filter", refusal=message_in(reply.content)[:2000], **tried)
        return Answer(text="", error=reply.why, again=reply.verdict != "refused", **tried)

    def _wrong(self, reply: Reply) -> str:
        leave_out = f"Where it does not take a parameter, leave that out: {argument('body', LEFT_OUT)}."
        return why_stopped(
            self._server, reply, path="chat/completions", name=self.name, key=self._key, proven=self._proven,
            one="question", mend=leave_out,
        )  # fmt: skip


def _choice(content: Any) -> dict[str, Any] | None:
    """The first choice, if it has a message, and came to its end."""
    choices = content.get("choices") if isinstance(content, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if (
        not isinstance(first, dict)
        or not isinstance(first.get("message"), dict)
        or first.get("finish_reason") == "error"
    ):
        return None
    return first


def _read(content: dict[str, Any]) -> Answer:
    """The answer in a reply; not what a model wrote on the way to it, where a server tells that apart."""
    choice = _choice(content)
    assert choice is not None
    message, usage = choice["message"], content.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        text=_text(message.get("content")),
        ended=_words(choice.get("finish_reason")),
        refusal=_words(message.get("refusal")),
        prompt_tokens=_count(counts.get("prompt_tokens")),
        answer_tokens=_count(counts.get("completion_tokens")),
        model=_words(content.get("model")),
    )


def _text(content: Any) -> str:
    """A text, or one in parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _words(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
