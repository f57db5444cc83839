"""A chat server on this machine that answers from a function, and misbehaves as it is told.

    with ChatServer(lambda prompt: prompt.upper()) as server:
        model = rote.load_chat(server.model)

`misbehave` is called with a request's number, from 0, and its body; what it returns is done instead of answering: see
`Instead`. All requests are kept, with their headers.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Misbehave = Callable[[int, dict[str, Any]], "Instead | None"]


@dataclass(frozen=True, kw_only=True)
class Instead:
    """Another reply. `drop`: after so many bytes of it the connection is closed. `pause`: seconds after each byte."""

    status: int = 200
    body: bytes | Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: int | None = None
    pause: float = 0.0
    wait: float = 0.0


def failing(times: int, instead: Instead) -> Misbehave:
    """The first so many requests go wrong."""
    return lambda number, body: instead if number < times else None


def error(status: int, message: str, **more: Any) -> Instead:
    """As OpenAI's servers put it."""
    return Instead(status=status, body={"error": {"message": message, **more}})


def reply(text: str | None, prompt: str = "", **changes: Any) -> dict[str, Any]:
    """The JSON of an answer."""
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "model": "tiny-chat-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1 + len(prompt.split()), "completion_tokens": len((text or "").split())},
    } | changes


class ChatServer:
    """`latency`: seconds until an answer. `allowed`: how many may be on their way; more are refused with 429."""

    def __init__(
        self,
        answer: Callable[[str], str] = lambda prompt: f"You said: {prompt}",
        misbehave: Misbehave = lambda number, body: None,
        *,
        latency: float = 0.0,
        allowed: int | None = None,
        key: str | None = None,
    ) -> None:
        self.answer, self.misbehave, self.latency, self.allowed, self.key = answer, misbehave, latency, allowed, key
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.beside: list[int] = []  # how many others were on their way when each came in
        self.models = ["tiny-chat", "tiny-base"]
        self.flying = self.most_flying = self.refused = self.answered = self.gone = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[Any] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def model(self) -> str:
        return f"{self.url}/tiny-chat"

    @property
    def prompts(self) -> list[str]:
        return [str(request["messages"][0]["content"]) for request in self.requests]

    def __enter__(self) -> ChatServer:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = listening.result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self._server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        if head[0].startswith("GET"):
            await self._send(writer, Instead(body={"data": [{"id": name} for name in self.models]}))
            return True
        body = json.loads(content)
        number = len(self.requests)
        self.requests.append(body)
        self.headers.append(headers)
        self.times.append(time.monotonic())
        self.beside.append(self.flying)
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        try:
            done = await self._reply(number, body, headers, head[0].split()[1])
            await asyncio.sleep(done.wait)
        except asyncio.CancelledError:
            self.gone += 1
            raise
        finally:
            self.flying -= 1
        await self._send(writer, done)
        return done.drop is None

    async def _reply(self, number: int, body: dict[str, Any], headers: dict[str, str], path: str) -> Instead:
        if (instead := self.misbehave(number, body)) is not None:
            return instead
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return error(401, f"Incorrect API key provided: {headers.get('authorization')}", code="invalid_api_key")
        if path != "/v1/chat/completions" or body["model"] not in self.models:
            return error(404, f"The model {body['model']} does not exist", code="model_not_found")
        if self.allowed is not None and self.flying > self.allowed:
            self.refused += 1
            return error(429, "Rate limit reached")
        await asyncio.sleep(self.latency)
        prompt = body["messages"][0]["content"]
        self.answered += 1
        return Instead(body=reply(self.answer(prompt), prompt))

    async def _send(self, writer: asyncio.StreamWriter, done: Instead) -> None:
        body = done.body if isinstance(done.body, bytes) else json.dumps(done.body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **done.headers}
        lines = [f"HTTP/1.1 {done.status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
        whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        whole = whole if done.drop is None else whole[: done.drop]
        for part in [whole[i : i + 1] for i in range(len(whole))] if done.pause else [whole]:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(done.pause)
