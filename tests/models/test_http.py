"""JSON over HTTP, against a server on this machine that does everything wrong that servers do."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.models.http import LARGEST, Server, is_loopback
from rote.models.replies import Headers, Reply, by_status, retry_after
from tests.cases import cases
from tests.chatserver import ChatServer, Instead, Misbehave, error, failing, reply

KEY = "sk-test-0123456789/abc+DEF="


def bodies(count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for place in range(count):
        yield place, {"model": "tiny-chat", "messages": [{"role": "user", "content": f"question {place}"}]}


def impatient(server: ChatServer, **changes: Any) -> Server:
    options: dict[str, Any] = {"base": server.url, "backoff": 0.01, "timeout": 5.0}
    return Server(**options | changes)


def sent(server: ChatServer, count: int = 1, **changes: Any) -> list[Reply]:
    return sorted(impatient(server, **changes).post("chat/completions", bodies(count)), key=lambda reply: reply.place)


def only(misbehave: Misbehave, **changes: Any) -> Reply:
    """What one request comes to."""
    with ChatServer(misbehave=misbehave) as server:
        (found,) = sent(server, **changes)
    return found


# --- many at once


def test_replies_have_the_places_of_what_was_sent() -> None:
    with ChatServer(latency=0.01) as server:
        found = sent(server, 40, concurrency=7)
    assert [one.place for one in found] == list(range(40))
    assert all(one.content["choices"][0]["message"]["content"] == f"You said: question {one.place}" for one in found)
    assert server.most_flying == 7
    assert len(server.requests) == 40


def test_a_slow_one_keeps_no_other_waiting() -> None:
    slow = Instead(body=reply("at last"), wait=0.8)
    with ChatServer(misbehave=lambda number, body: slow if number == 1 else None, latency=0.01) as server:
        order = [one.place for one in impatient(server, concurrency=2).post("chat/completions", bodies(30))]
    assert order[-1] == 1
    assert sorted(order) == list(range(30))


def test_the_first_goes_alone_until_one_is_taken() -> None:
    with ChatServer(misbehave=failing(2, error(500, "not yet")), latency=0.2) as server:
        sent(server, 9)
        assert server.beside[:4] == [0, 0, 0, 0]  # two failures, one that is taken, and the first of all others
        assert max(server.beside) > 1
        list(impatient(server).post("chat/completions", bodies(8), proven=True))
        assert max(server.beside[-8:]) > 1


def test_no_more_come_in_than_are_taken() -> None:
    with ChatServer() as server:
        replies = impatient(server, concurrency=2).post("chat/completions", bodies(50))
        next(replies)
        time.sleep(0.3)
        assert len(server.requests) <= 1 + 3 * 2
        assert len(list(replies)) == 49


# --- tried again


def test_a_busy_server_is_asked_again() -> None:
    found = only(failing(2, error(429, "slow down")))
    assert (found.verdict, found.tries, found.lost) == ("taken", 3, 0)


@pytest.mark.parametrize("status", [500, 502, 504, 408])
def test_what_may_have_been_worked_on_is_counted_as_lost(status: int) -> None:
    found = only(failing(2, error(status, "oops")))
    assert (found.verdict, found.tries, found.lost) == ("taken", 3, 2)


def test_retry_after_is_waited_for_by_all() -> None:
    busy = Instead(status=429, headers={"Retry-After": "0.4"})
    with ChatServer(misbehave=lambda number, body: busy if number == 6 else None, latency=0.02) as server:
        assert all(one.verdict == "taken" for one in sent(server, 60, concurrency=2))
    gaps = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    assert max(gaps) > 0.35


def test_retry_after_may_be_a_date() -> None:
    then = datetime.now(UTC) + timedelta(seconds=30)
    assert retry_after(format_datetime(then, usegmt=True)) == pytest.approx(30, abs=2)
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("7") == 7
    assert retry_after(" 1.5 ") == 1.5
    for nothing in (None, "", "soon", "-3"):
        assert retry_after(nothing) is None


def test_a_server_that_wants_to_be_left_alone_for_long_is_given_up() -> None:
    found = only(failing(99, Instead(status=429, headers={"Retry-After": "86400"})))
    assert (found.verdict, found.tries) == ("stop", 1)
    assert "1,440 minutes" in found.why


def test_a_busy_server_has_fewer_on_its_way() -> None:
    """It allows two, and eight are sent; all are answered within the tries that each has."""
    with ChatServer(allowed=2, latency=0.02) as server:
        found = sent(server, 40, concurrency=8, backoff=0.05)
    assert {one.verdict for one in found} == {"taken"}
    assert server.refused > 0


def test_after_all_tries_it_is_told_why() -> None:
    with ChatServer(misbehave=lambda number, body: error(500, "broken") if "3" in str(body) else None) as server:
        found = sent(server, 6, retries=2)
    assert [one.verdict for one in found] == ["taken"] * 3 + ["again"] + ["taken"] * 2
    assert (found[3].tries, found[3].lost, found[3].status, found[3].why) == (3, 3, 500, "HTTP 500: broken")


def test_a_server_that_fails_always_is_given_up() -> None:
    with ChatServer(misbehave=failing(999, error(500, "broken"))) as server:
        found = sent(server, 50)
    assert [one.verdict for one in found] == ["again", "again", "stop"]
    assert len(server.requests) == 9  # three questions, one after the other, three times each


def test_a_server_that_fails_later_is_given_up_too() -> None:
    with ChatServer(misbehave=lambda number, body: error(502, "gone") if number > 4 else None) as server:
        found = sent(server, 300, retries=1, concurrency=4)
    verdicts = [one.verdict for one in found]
    assert verdicts.count("taken") == 5
    assert verdicts.count("stop") == 1
    assert len(found) < 30


def test_waits_grow_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    server = Server(base="http://x")
    assert [server.wait(tries) for tries in (1, 2, 3, 6, 7, 8, 5000)] == [1, 2, 4, 32, 60, 60, 60]


@cases(50)
@given(st.integers(1, 10_000), st.floats(0.01, 10), st.floats(0.01, 100))
def test_waits_have_full_jitter(tries: int, backoff: float, longest: float) -> None:
    assert 0 <= Server(base="http://x", backoff=backoff, longest=longest).wait(tries) <= longest


# --- replies that are none


def test_nobody_listens() -> None:
    with ChatServer() as server:
        pass
    began = time.monotonic()
    (found,) = sent(server, 9)
    assert (found.verdict, found.status, found.tries, found.lost) == ("stop", None, 3, 0)
    assert "no connection" in found.why
    assert time.monotonic() - began < 2


def test_slow_bytes_do_not_hang() -> None:
    began = time.monotonic()
    found = only(failing(99, Instead(body=reply("slow"), pause=0.02)), timeout=0.2)
    assert (found.verdict, found.tries, found.lost) == ("again", 3, 3)
    assert "no whole reply within 0.2 seconds" in found.why
    assert time.monotonic() - began < 3


def test_a_reply_that_never_begins_does_not_hang() -> None:
    found = only(failing(1, Instead(body=reply("slow"), wait=20)), timeout=0.2)
    assert (found.verdict, found.tries, found.lost) == ("taken", 2, 1)


@pytest.mark.parametrize("bytes_sent", [0, 9, 60, 150])
def test_dropped_connections_are_tried_again(bytes_sent: int) -> None:
    found = only(failing(2, Instead(body=reply("half a reply"), drop=bytes_sent)))
    assert (found.verdict, found.tries, found.lost) == ("taken", 3, 2)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "an empty reply"),
        (b"{'not': json}", "no JSON, but"),
        (b"[" * 100_000, "no JSON, but"),
        (b"\xff\xfe\x00", "no JSON, but"),
        (b"<!DOCTYPE html><title>Bad\ngateway</title>", "an HTML page (Bad\ngateway), no JSON"),
    ],
)
def test_what_is_no_json_is_tried_again(content: bytes, why: str) -> None:
    found = only(failing(99, Instead(body=content)), retries=1)
    assert (found.verdict, found.tries, found.lost, found.content) == ("again", 2, 2, None)
    assert found.why.startswith(f"HTTP 200: {why}")
    assert only(failing(1, Instead(body=content))).verdict == "taken"


def test_a_reply_of_a_megabyte() -> None:
    text = "word " * 200_000
    assert only(failing(1, Instead(body=reply(text)))).content["choices"][0]["message"]["content"] == text


def test_a_reply_without_end() -> None:
    found = only(failing(1, Instead(body=reply("x" * LARGEST))))
    assert (found.verdict, found.why, found.lost) == ("refused", "its reply has more than 4 MiB", 1)


def test_a_small_reply_that_unpacks_to_one_without_end() -> None:
    packed = gzip.compress(b"x" * (LARGEST + 1))
    found = only(failing(1, Instead(body=packed, headers={"Content-Encoding": "gzip"})))
    assert (found.verdict, found.why) == ("refused", "its reply has more than 4 MiB")


def test_half_a_character_is_no_reason_to_fail() -> None:
    found = only(failing(1, Instead(body=b'{"choices": ["\\ud83d"], "more": "\\u0000"}')))
    assert found.content == {"choices": ["\ufffd"], "more": "\0"}


def test_what_a_status_means() -> None:
    assert [by_status(status, {}) for status in (200, 201, 302, 401, 402, 403, 404, 501)] == ["taken"] * 2 + [
        "stop"
    ] * 6
    assert [by_status(status, {}) for status in (400, 413, 422, 418)] == ["refused"] * 4
    assert [by_status(status, {}) for status in (408, 429, 500, 502, 503, 504, 524, 529)] == ["again"] * 8
    assert by_status(200, None) == "again"


# --- no more is sent


def test_what_is_not_admitted_is_not_sent() -> None:
    with ChatServer(latency=0.02) as server:
        admit = lambda place: place < 6  # noqa: E731
        found = list(impatient(server, concurrency=3).post("chat/completions", bodies(20), admit=admit))
    assert sorted(one.place for one in found) == list(range(6))
    assert len(server.requests) == 6


def test_what_was_lost_needs_to_be_admitted_again() -> None:
    asked: list[int] = []

    def admit(place: int) -> bool:
        asked.append(place)
        return len(asked) < 3

    with ChatServer(misbehave=failing(9, error(500, "oops"))) as server:
        (found,) = impatient(server).post("chat/completions", bodies(1), admit=admit)
    assert asked == [0, 0, 0]
    assert (found.verdict, found.tries, found.lost, found.why) == ("again", 2, 2, "HTTP 500: oops")
    assert len(server.requests) == 2


def test_what_was_refused_for_being_busy_was_not_worked_on() -> None:
    asked: list[int] = []
    with ChatServer(misbehave=failing(3, error(429, "later"))) as server:
        list(impatient(server).post("chat/completions", bodies(1), admit=lambda place: not asked.append(place)))  # type: ignore[func-returns-value]
    assert asked == [0]
    assert len(server.requests) == 4


def test_closing_ends_what_is_on_its_way() -> None:
    with ChatServer(misbehave=lambda number, body: Instead(wait=30) if number else None) as server:
        replies = impatient(server, timeout=60.0).post("chat/completions", bodies(20))
        next(replies)
        time.sleep(0.1)
        began = time.monotonic()
        replies.close()
        assert time.monotonic() - began < 1
    assert not [thread for thread in threading.enumerate() if thread.name == "rote-http"]


def test_what_the_caller_gets_wrong_is_told() -> None:
    def judge(status: int, content: Any) -> Any:
        raise ZeroDivisionError("mine")

    with ChatServer() as server, pytest.raises(ZeroDivisionError, match="mine"):
        list(impatient(server).post("chat/completions", bodies(5), judge))


def test_interrupted_by_hand() -> None:
    code = """
import sys
from rote.models.http import Server
for reply in Server(base=sys.argv[1]).post("chat/completions", ((i, {"model": "tiny-chat", "messages":
        [{"content": "x"}]}) for i in range(50))):
    print(reply.place, flush=True)
"""
    with ChatServer(misbehave=lambda number, body: Instead(wait=30) if number else None) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", code, server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=20)
        assert time.monotonic() - began < 5
    assert "KeyboardInterrupt" in complaints.splitlines()[-1]


def test_where_an_event_loop_is_running() -> None:
    async def cell() -> list[Reply]:
        with ChatServer() as server:
            return sent(server, 5)

    assert len(asyncio.run(cell())) == 5


# --- other hosts


def test_redirects_are_not_followed() -> None:
    with ChatServer() as other:
        moved = Instead(status=307, headers={"Location": f"{other.url}/chat/completions?{KEY}"})
        found = only(failing(9, moved), headers=Headers({"Authorization": f"Bearer {KEY}"}, [KEY]))
        assert (found.verdict, found.status) == ("stop", 307)
        assert f"redirects to {other.url}/chat/completions?***" in found.why
        assert not other.requests


def test_no_proxy_stands_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with ChatServer() as server:
        assert sent(server)[0].verdict == "taken"
        assert impatient(server).get("models") == {"data": [{"id": "tiny-chat"}, {"id": "tiny-base"}]}
    assert [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "a.localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("10.0.0.1", "example.com", "localhost.com", "")] == [False] * 4


def test_what_is_not_there_is_nothing() -> None:
    with ChatServer() as server:
        pass
    assert impatient(server).get("models", timeout=0.5) is None


# --- secrets


def test_secrets_are_shown_nowhere() -> None:
    headers = Headers({"Authorization": f"Bearer {KEY}", "X-Title": "mine"}, [KEY])
    server = Server(base="http://x", headers=headers)
    assert KEY not in f"{headers!r} {headers} {server!r} {server}"
    assert repr(headers) == "<Headers: Authorization, X-Title>"


@pytest.mark.parametrize(
    "echo",
    [
        json.dumps({"error": {"message": f"Incorrect key: {KEY}", KEY: [KEY, {"deep": f"x{KEY}x"}]}}).encode(),
        b'{"error": "' + "".join(f"\\u{ord(c):04x}" for c in KEY).encode() + b'"}',
        b'{"error": "sk-test-0123456789%2Fabc%2BDEF%3D"}',
        b"<html><title>" + KEY.encode() + b"</title>",
        b"x" * 190 + KEY.encode(),
        json.dumps({"error": "x" * 490 + KEY}).encode(),
    ],
)
def test_an_echoed_key_is_taken_out(echo: bytes) -> None:
    for status in (200, 401, 500):
        found = only(
            failing(99, Instead(status=status, body=echo)), retries=0, headers=Headers({"A": f"Bearer {KEY}"}, [KEY])
        )
        assert "sk-test" not in repr(found)
        assert "0123456789" not in repr(found)


def test_what_is_too_short_to_be_a_key_is_left_alone() -> None:
    assert Headers({}, ["EMPTY"]).scrub("The bottle is EMPTY.") == "The bottle is EMPTY."
    assert Headers({}, ["12345678", "123456789"]).scrub("a 123456789 b 12345678") == "a *** b ***"
