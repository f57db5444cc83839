"""Servers asked over HTTP: JSON sent to a path, JSON back, many at once, tried again where that may help.

It knows nothing of what is asked. Whoever asks judges each reply: whether it is taken, worth another try, refused for
good, or a reason to ask nothing more of the server.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import queue
import random
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx2

from rote.models.replies import BUSY, Headers, Judge, Reply, Verdict, by_status, retry_after

for _name in ("httpx2", "httpcore2"):  # a server may echo a key in its headers, and they would log these
    logging.getLogger(_name).setLevel(logging.WARNING)

LARGEST = 4 << 20
"""Bytes of a reply."""

PATIENCE = 600.0
"""Seconds that a server may ask to be left alone for; where it is more, the user is told."""

CONNECTING = 10.0
FEW = 3
"""How often a server is tried that nothing was heard of yet: whoever mistypes an address is not kept waiting. And how
often what takes too long is sent, since each may have been worked on, and be charged for."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where to ask, and how patiently.

    `timeout`: seconds for a whole reply, from the first byte sent to the last that comes in. `backoff`: seconds of the
    first wait at most; each is twice as long, up to `longest`, and drawn anew between nothing and that.
    `largest`: bytes of a reply.
    """

    base: str
    headers: Headers = field(default_factory=Headers)
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 6
    backoff: float = 1.0
    longest: float = 60.0
    largest: int = LARGEST

    def post(
        self,
        path: str,
        bodies: Iterable[tuple[int, Any]],
        judge: Judge = by_status,
        admit: Callable[[int], bool] = lambda place: True,
        *,
        proven: bool = False,
    ) -> Generator[Reply, None, None]:
        """Send each body, at most `concurrency` at a time, and give the replies by their places as they come in.

        One goes alone until one is taken, unless the server is `proven`: what is wrong with all of them shows at the
        first. `admit` is called right before a body is sent, and again before it is sent anew where the try before may
        have been worked on; once it says False, nothing more is sent. What is on its way is waited for, but where the
        iterator is closed. Every body that was sent has a reply.
        """
        yield from _Sending(self, f"{self.base}/{path}", iter(bodies), judge, admit, proven).replies()

    def get(self, path: str, timeout: float = 5.0) -> Any:
        """The JSON that stands there; None where there is none. It is asked for once."""

        def ask() -> None:
            with (
                suppress(httpx2.HTTPError, ValueError, RecursionError),
                httpx2.Client(headers=self.headers.values, timeout=timeout, trust_env=not self.here) as client,
            ):
                found.append(self.headers.scrubbed(client.get(f"{self.base}/{path}").raise_for_status().json()))

        found: list[Any] = []
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(timeout)  # it may send byte after byte
        return found[0] if found else None

    @property
    def here(self) -> bool:
        """Whether it runs on this machine; then no proxy of the environment stands in between."""
        return is_loopback(urlsplit(self.base).hostname or "")

    def wait(self, tries: int) -> float:
        """Seconds until the next try: full jitter."""
        return random.uniform(0, min(self.longest, self.backoff * 2 ** min(tries - 1, 30)))


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass(order=True, slots=True)
class _Job:
    due: float
    place: int
    body: Any = field(compare=False)
    tries: int = field(default=0, compare=False)
    lost: int = field(default=0, compare=False)
    admitted: bool = field(default=False, compare=False)
    status: int | None = field(default=None, compare=False)
    why: str = field(default="", compare=False)


class _Failed(Exception):
    """A try without a reply. `lost`: it may have been worked on. `final`: another would be no better."""

    def __init__(self, why: str, *, lost: bool = True, slow: bool = False, final: bool = False) -> None:
        super().__init__(why)
        self.why, self.lost, self.slow, self.final = why, lost, slow, final


class _Sending:
    """One call of `post`: an event loop in a thread of its own, since one may be running in this one already."""

    def __init__(
        self,
        server: Server,
        url: str,
        bodies: Iterator[tuple[int, Any]],
        judge: Judge,
        admit: Callable[[int], bool],
        proven: bool,
    ) -> None:
        self.server, self.url, self.bodies, self.judge, self.admit = server, url, bodies, judge, admit
        self.proven = proven
        self.came: queue.SimpleQueue[Reply | BaseException | None] = queue.SimpleQueue()
        self.waiting: list[_Job] = []  # for their next try
        self.resting: list[float] = []  # until when one fewer may be on its way
        self.not_before = 0.0  # the server asked to be left alone until then
        self.fresh, self.stopped = True, False
        self.flying = self.failures = 0
        self.told, self.taken, self.full = 0, 0, False  # full: nothing is sent until more replies are taken
        self.idle: list[httpx2.AsyncClient] = []
        self.trusted: ssl.SSLContext | bool | None = None
        self.changed = asyncio.Event()

    # --- in the thread that asks

    def replies(self) -> Iterator[Reply]:
        loop = asyncio.new_event_loop()
        work = loop.create_task(self.work())
        thread = threading.Thread(target=self.run, args=(loop, work), daemon=True, name="rote-http")
        thread.start()
        try:
            while (reply := self.came.get()) is not None:
                if isinstance(reply, BaseException):
                    raise reply
                self.taken += 1
                if self.full:
                    with suppress(RuntimeError):  # the last was sent, and the loop is closed
                        loop.call_soon_threadsafe(self.changed.set)
                yield reply
        finally:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(work.cancel)
            thread.join(5)

    # --- in the thread of the event loop

    def run(self, loop: asyncio.AbstractEventLoop, work: asyncio.Task[None]) -> None:
        try:
            loop.run_until_complete(work)
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as several:  # of `judge` or `admit`: told where replies are waited for
            self.came.put(several.exceptions[0])
        except BaseException as error:
            self.came.put(error)
        finally:
            loop.close()
            self.came.put(None)

    async def work(self) -> None:
        async with AsyncExitStack() as clients, asyncio.TaskGroup() as tries:
            while (job := await self.next()) is not None:
                client = self.idle.pop() if self.idle else await clients.enter_async_context(self.client())
                self.flying += 1
                tries.create_task(self.one(client, job))
        for job in self.waiting:  # they were sent, and are not sent again
            self.tell(job, "again", job.status, why=job.why)

    def client(self) -> httpx2.AsyncClient:
        """For one at a time: a client that has many on their way looks through all of them for each."""
        server = self.server
        if self.trusted is None:  # once for all of them, since it takes a while
            self.trusted = not (server.here and server.base.startswith("http:")) and httpx2.create_ssl_context()
        return httpx2.AsyncClient(
            headers={**server.headers.values, "Content-Type": "application/json", "Accept": "application/json"},
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=4.0),  # many servers keep them for five seconds
            timeout=httpx2.Timeout(None, connect=min(CONNECTING, server.timeout)),  # `exchange` sees to the others
            trust_env=not server.here,
            verify=self.trusted,
        )

    async def next(self) -> _Job | None:
        """What is sent next, once it may be; None: nothing more is."""
        while not self.stopped:
            now = time.monotonic()
            self.resting = [until for until in self.resting if until > now]
            alone = not self.proven and (self.flying > 0 or bool(self.waiting))
            room = self.flying + len(self.resting) < self.server.concurrency
            self.full = True  # said before it is looked at: the other thread may take one in between
            self.full = self.told - self.taken >= 2 * self.server.concurrency
            room = room and not self.full and now >= self.not_before
            if room and self.waiting and now >= self.waiting[0].due:
                return self.admitted(heapq.heappop(self.waiting))
            if room and self.fresh and not alone:
                place, body = next(self.bodies, (-1, None))
                self.fresh = place >= 0
                if self.fresh:
                    return self.admitted(_Job(0.0, place, body))
            if not (self.fresh or self.waiting or self.flying):
                return None
            self.changed.clear()
            times = (self.not_before, *self.resting, *(job.due for job in self.waiting[:1]))
            wakes = min((until for until in times if until > now), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wakes is None else wakes - now):
                    await self.changed.wait()
        return None

    def admitted(self, job: _Job) -> _Job | None:
        if not job.admitted and not self.admit(job.place):
            self.stopped = True
            self.waiting += [job] if job.tries else []
            return None
        job.admitted = True
        return job

    async def one(self, client: httpx2.AsyncClient, job: _Job) -> None:
        """Send it, and see what becomes of it."""
        job.tries += 1
        try:
            await self.sent(client, job)
        except _Failed as failed:
            job.lost += failed.lost
            job.admitted = not failed.lost
            if failed.final:
                self.tell(job, "refused", None, why=failed.why)
            else:
                self.put_off(job, None, failed.why, slow=failed.slow)
        finally:
            self.flying -= 1
            self.idle.append(client)
            self.changed.set()

    async def sent(self, client: httpx2.AsyncClient, job: _Job) -> None:
        response, text = await self.exchange(client, job.body)
        status, headers = response.status_code, response.headers
        content, why = self.server.headers.read(status, text, headers.get("Location", "") if status < 400 else "")
        verdict = self.judge(status, content)
        self.proven = self.proven or verdict == "taken"
        if verdict != "again":
            self.failures = 0
            self.tell(job, verdict, status, content, why)
            return
        busy, rest = status in BUSY, retry_after(headers.get("Retry-After")) or 0.0
        job.lost += not busy
        job.admitted = busy
        if rest > PATIENCE:
            self.tell(job, "stop", status, content, f"{why}; it asks to be left alone for {rest / 60:,.0f} minutes")
            return
        self.not_before = max(self.not_before, time.monotonic() + rest)
        self.put_off(job, status, why, rest=rest)
        if busy:
            self.resting.append(job.due)

    async def exchange(self, client: httpx2.AsyncClient, body: Any) -> tuple[httpx2.Response, str]:
        """The reply and its text."""
        scrub, sent, read = self.server.headers.scrub, json.dumps(body).encode(), bytearray()
        try:
            async with (
                asyncio.timeout(self.server.timeout),
                client.stream("POST", self.url, content=sent) as response,
            ):
                async for part in response.aiter_bytes():
                    read += part
                    if len(read) > self.server.largest:
                        raise _Failed(f"its reply has more than {self.server.largest >> 20} MiB", final=True)
        except httpx2.ConnectTimeout:
            raise _Failed("no connection within the time", lost=False) from None
        except (TimeoutError, httpx2.TimeoutException):
            raise _Failed(f"no whole reply within {self.server.timeout:g} seconds", slow=True) from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise _Failed(scrub(f"no connection ({_said(error)})"), lost=False) from None
        except httpx2.HTTPError as error:
            raise _Failed(scrub(f"the connection broke off ({_said(error)})")) from None
        return response, bytes(read).decode("utf-8", "replace")

    def put_off(self, job: _Job, status: int | None, why: str, *, slow: bool = False, rest: float = 0.0) -> None:
        """Until its next try; or it has had all of them."""
        job.due, job.status, job.why = time.monotonic() + rest + self.server.wait(job.tries), status, why
        few = not self.proven and status not in BUSY
        if job.tries < min(1 + self.server.retries, FEW if few or slow else job.tries + 1) and not self.stopped:
            heapq.heappush(self.waiting, job)
            return
        self.failures += 1
        unheard = status in BUSY or (status is None and not job.lost)
        enough = 2 * self.server.concurrency if self.proven else 1 if unheard else 3
        self.tell(job, "stop" if self.failures >= enough and not self.stopped else "again", status, why=why)

    def tell(self, job: _Job, verdict: Verdict, status: int | None, content: Any = None, why: str = "") -> None:
        self.stopped = self.stopped or verdict == "stop"
        self.told += 1
        self.came.put(Reply(job.place, verdict, status, content, why, job.tries, job.lost))


def _said(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
