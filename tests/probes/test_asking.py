"""Questions asked through a store and within a budget: none twice, none lost, and no key anywhere."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import Endpoint, InputError, ModelError, Price, RunError, load_chat
from rote.models.http import Server
from rote.models.probed import Answer, ChatIdentity, Question
from rote.probes.asking import OVERHEAD, Budget, Ledger, ask, key_of
from rote.store.answers import Answers
from tests.cases import cases
from tests.chatserver import ChatServer, Instead, error, failing

KEY = "sk-test-0123456789/abc+DEF="


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "wait", lambda self, tries: 0.005)


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    def get(self, keys: Iterable[str]) -> Mapping[str, Answer]:
        return {key: self.answers[key] for key in keys if key in self.answers}

    def put(self, key: str, question: Question, identity: ChatIdentity, answer: Answer) -> None:
        assert key not in self.answers
        assert key == key_of(identity, question)
        self.answers[key] = answer


@dataclass
class Fake:
    """A chat model that charges: it has some on their way, in any order, and loses some of them."""

    price: Price | None = None
    paid: bool = True
    at_once: int = 4
    draw: random.Random = field(default_factory=random.Random)
    loses: float = 0.0
    counts: bool = True
    charged: float = 0.0
    flying: float = 0.0
    most: float = 0.0
    asked: list[str] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> ChatIdentity:
        return ChatIdentity(name="fake", url="http://h/v1", body=self.body, headers=[])

    def worst(self, question: Question) -> float:
        assert self.price is not None
        return self.price.of(len(question.prompt.encode()) + OVERHEAD, question.tokens)

    def answers(
        self, questions: Sequence[Question], *, admit: Callable[[int], bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        waiting, on_their_way, lost = list(range(len(questions))), list[int](), dict[int, int]()
        admitting = True
        while True:
            while admitting and waiting and len(on_their_way) < self.at_once:
                admitting = admit is None or admit(waiting[0])
                if admitting:
                    place = waiting.pop(0)
                    on_their_way.append(place)
                    self.asked.append(questions[place].prompt)
                    self.flying += self.worst(questions[place]) if self.price else 0
                    self.most = max(self.most, self.charged + self.flying)
            if not on_their_way:
                break
            place = on_their_way.pop(self.draw.randrange(len(on_their_way)))
            question = questions[place]
            self.flying -= self.worst(question) if self.price else 0
            tokens = (
                self.draw.randint(1, len(question.prompt.encode()) + OVERHEAD),
                self.draw.randint(0, question.tokens),
            )
            self.charged += self.price.of(*tokens) if self.price else 0
            if self.draw.random() < self.loses:
                lost[place] = lost.get(place, 0) + 1
                waiting.insert(0, place)
                continue
            counts = tokens if self.counts else (None, None)
            own = lost.pop(place, 0)
            yield (
                place,
                Answer(
                    text=question.prompt.upper(),
                    prompt_tokens=counts[0],
                    answer_tokens=counts[1],
                    attempts=1 + own,
                    lost=own,
                ),
            )
        for place, times in lost.items():
            yield place, Answer(text="", error="lost", again=True, attempts=times, lost=times)


def questions(*prompts: str, tokens: int = 10) -> list[Question]:
    return [Question(prompt=prompt, tokens=tokens) for prompt in prompts]


# --- through the store


def test_answers_come_in_the_order_of_the_questions() -> None:
    model, store, ledger, told = Fake(), Kept(), Ledger(), list[tuple[str, int, int]]()
    found = ask(model, questions(*"abcabd"), store, ledger, lambda *how: told.append(how))
    assert [answer.text for answer in found] == list("ABCABD")
    assert sorted(model.asked) == list("abcd")  # equal ones once
    assert told == [("asked", done, 4) for done in range(5)]
    assert (ledger.questions, ledger.known, ledger.cost) == (4, 0, 0)
    assert ledger.prompt_tokens > 0


def test_what_was_answered_is_not_asked_again() -> None:
    model, store, ledger, told = Fake(), Kept(), Ledger(), list[tuple[str, int, int]]()
    ask(model, questions(*"abc"), store, ledger)
    before = ledger.prompt_tokens
    found = ask(model, questions(*"cdb"), store, ledger, lambda *how: told.append(how))
    assert [answer.text for answer in found] == list("CDB")
    assert sorted(model.asked) == list("abcd")
    assert (ledger.questions, ledger.known) == (6, 2)
    assert told[0] == ("asked", 2, 3)
    assert ask(model, questions(*"dab"), store, Ledger())[0].text == "D"
    assert ask(model, [], store, Ledger()) == []
    assert ledger.prompt_tokens > before


def test_what_may_be_answered_another_time_is_not_kept() -> None:
    class Once(Fake):
        def answers(self, questions: Sequence[Question], *, admit: Any = None) -> Iterator[tuple[int, Answer]]:
            yield 1, Answer(text="", error="HTTP 400: bad")
            yield 0, Answer(text="", error="HTTP 500: oops", again=True, lost=2)

    store, ledger = Kept(), Ledger(Price(prompt=1, answer=1))
    found = ask(Once(), questions("a", "b"), store, ledger)
    assert [answer.error for answer in found] == ["HTTP 500: oops", "HTTP 400: bad"]
    assert [answer.error for answer in store.answers.values()] == ["HTTP 400: bad"]
    assert ledger.lost == pytest.approx(2 * (1 + OVERHEAD + 10) / 1e6)
    assert (ledger.cost, ledger.uncounted) == (0, 0)


def test_answers_that_came_in_before_a_failure_are_kept() -> None:
    store = Kept()
    with ChatServer(misbehave=lambda number, body: error(401, "expired") if number >= 20 else None) as server:
        model = load_chat(server.model)
        with pytest.raises(ModelError, match="expired"):
            ask(model, questions(*map(str, range(100))), store, Ledger())
    assert len(store.answers) == 20
    # The same address decides what is known; nothing listens there now.
    found = ask(load_chat(server.model), questions(*server.prompts[:20]), store, Ledger())
    assert len(found) == 20


def test_a_store_that_fails_ends_it_at_once() -> None:
    class Full(Kept):
        def put(self, *_: Any) -> None:
            raise RunError("disk is full")

    with ChatServer(latency=0.01, misbehave=lambda number, body: Instead(wait=20) if number else None) as server:
        began = time.monotonic()
        ledger = Ledger(Price(prompt=1, answer=1))
        with pytest.raises(RunError, match="disk is full"):
            ask(load_chat(server.model), questions(*map(str, range(50))), Full(), ledger)
        assert time.monotonic() - began < 2
        assert len(server.requests) < 20
        assert ledger.lost > 0  # what was on its way may be charged for


# --- what it may cost


def test_a_ledger_counts_what_servers_count() -> None:
    ledger = Ledger(Price(prompt=2, answer=10))
    with ChatServer(lambda prompt: "one two three") as server:
        ask(load_chat(server.model), questions("a b c", "d"), Kept(), ledger)
    assert (ledger.prompt_tokens, ledger.answer_tokens, ledger.uncounted) == (4 + 2, 6, 0)
    assert ledger.cost == pytest.approx((6 * 2 + 6 * 10) / 1e6)
    assert ledger.budget.held == pytest.approx(ledger.cost)
    assert ledger.lost == 0


def test_answers_that_are_not_counted_may_cost_the_most() -> None:
    model = Fake(Price(prompt=1, answer=1), counts=False)
    ledger = Ledger(model.price)
    ask(model, questions("a", "b"), Kept(), ledger)
    assert (ledger.uncounted, ledger.cost) == (2, 0)
    assert ledger.unsure == pytest.approx(2 * (1 + OVERHEAD + 10) / 1e6) == ledger.budget.held


@cases(100)
@given(
    st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 9), st.floats(0, 0.6), st.floats(0, 0.02), st.booleans()
)
def test_no_more_is_spent_than_allowed(
    seed: int, count: int, at_once: int, loses: float, max_cost: float, counts: bool
) -> None:
    """Whatever is counted, lost and still on its way; and where it stops, the next could have been too much."""
    draw = random.Random(seed)
    model = Fake(Price(prompt=3, answer=12), at_once=at_once, draw=draw, loses=loses, counts=counts)
    store, budget = Kept(), Budget(max_cost)
    ledger = Ledger(model.price, budget)
    asked = [Question(prompt=f"{i} " + "x" * draw.randint(0, 300), tokens=draw.randint(1, 50)) for i in range(count)]
    try:
        found = ask(model, asked, store, ledger)
    except RunError:
        left = [question for question in asked if key_of(model.identity(), question) not in store.answers]
        assert any(budget.held + model.worst(question) > max_cost for question in left)
    else:
        assert len(found) == count
    assert model.most <= max_cost + 1e-12
    assert model.charged <= budget.held + 1e-12 <= max_cost + 2e-12
    assert budget.held == pytest.approx(ledger.cost + ledger.lost + ledger.unsure, abs=1e-12)
    assert not ledger._aside


def test_what_is_set_aside_for_others_only_keeps_waiting() -> None:
    """The budget has room for all answers as they are, but not for all at once as they might be."""
    with ChatServer(lambda prompt: "yes") as server:
        model = load_chat(server.model, Endpoint(price="1,1"))
        ledger = Ledger(model.price, Budget(0.003))
        found = ask(model, questions(*map(str, range(60)), tokens=1000), Kept(), ledger)
    assert {answer.text for answer in found} == {"yes"}
    assert 0 < ledger.budget.held < 0.003
    assert server.most_flying == 2


def test_several_models_share_a_budget() -> None:
    budget = Budget(0.001)
    first, second = (Ledger(Price(prompt=1, answer=1), budget) for _ in range(2))
    ask(Fake(first.price), questions("a"), Kept(), first)
    with pytest.raises(
        RunError, match=r"max_cost=0\.001 allows: up to 0\.0\d+ US\$ are spent, and \d+ of 100 questions"
    ):
        ask(Fake(second.price), questions(*map(str, range(100))), Kept(), second)
    assert budget.held == pytest.approx(first.cost + second.cost)


def test_answers_are_kept_where_the_money_ends_and_more_goes_on() -> None:
    store, model = Kept(), Fake(Price(prompt=1, answer=1))
    with pytest.raises(RunError, match=r"All answers are kept: raise max_cost"):
        ask(model, questions(*map(str, range(30))), store, Ledger(model.price, Budget(0.002)))
    assert 0 < len(store.answers) < 30
    ask(model, questions(*map(str, range(30))), store, Ledger(model.price, Budget(1)))
    assert sorted(model.asked) == sorted(map(str, range(30)))


def test_a_cost_needs_a_price() -> None:
    with pytest.raises(
        InputError, match=r"max_cost needs to know what fake costs: give its price, as in price='2.5,10'"
    ):
        ask(Fake(), questions("a"), Kept(), Ledger(None, Budget(1)))
    ask(Fake(paid=False), questions("a"), Kept(), Ledger(None, Budget(0)))
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises(InputError, match="max_cost must be"):
            Budget(wrong)  # type: ignore[arg-type]


def test_answers_without_end_have_no_bound() -> None:
    price = Price(prompt=1, answer=1)
    with pytest.raises(InputError, match="leaves max_tokens out"):
        ask(Fake(price, body={"max_tokens": None}), questions("a"), Kept(), Ledger(price, Budget(1)))
    longer = {"max_tokens": None, "max_completion_tokens": 5000}
    assert Ledger(price).most(questions("ä")[0], longer) == pytest.approx((2 + OVERHEAD + 5000) / 1e6)
    assert Ledger(price).most(questions("a")[0], {"max_tokens": 3}) == pytest.approx((1 + OVERHEAD + 10) / 1e6)
    assert Ledger().most(questions("a")[0]) == 0


# --- killed, and searched for the key

RUN = """
import sys, warnings, logging
logging.basicConfig(level=logging.DEBUG)
from rote import Endpoint, load_chat
from rote.models.probed import Question
from rote.models.http import Server
from rote.probes.asking import Ledger, ask
from rote.store.answers import Answers
Server.wait = lambda self, tries: 0.005
url, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = load_chat(url, Endpoint(key="ROTE_TEST_KEY", header=["X-More: $ROTE_TEST_KEY"], price="1,1", retries=1))
print(model, model.identity())
with Answers(f"{folder}/answers.sqlite") as store:
    found = ask(model, [Question(prompt=f"question {i}", tokens=9) for i in range(count)], store, Ledger(model.price),
                lambda *how: print(*how, flush=True))
for answer in found:
    print(answer)
"""


def run(server: ChatServer, folder: Path, count: int) -> subprocess.Popen[bytes]:
    import os

    return subprocess.Popen(
        [sys.executable, "-c", RUN, server.model, str(folder), str(count)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "ROTE_TEST_KEY": KEY},
    )  # fmt: skip


def searched(folder: Path, *outputs: bytes) -> None:
    """No part of the key that tells anything is in any byte."""
    for written in [*outputs, *(path.read_bytes() for path in folder.rglob("*") if path.is_file())]:
        for part in (KEY, KEY[3:20], KEY[-16:], "sk-test", "%2Fabc%2B"):
            assert part.encode() not in written
            assert part.encode("utf-16-le") not in written


def test_nothing_is_lost_where_it_is_killed(tmp_path: Path) -> None:
    with ChatServer(latency=0.02, key=KEY) as server:
        process = run(server, tmp_path, 300)
        assert process.stdout is not None
        told = b""
        while not told.startswith(b"asked 60 "):
            told = process.stdout.readline()
            assert told, process.stderr.read() if process.stderr else ""
        process.send_signal(signal.SIGKILL)
        output, complaints = process.communicate(timeout=20)
        assert process.returncode == -9
        searched(tmp_path, output, complaints)
        assert {path.name for path in tmp_path.iterdir()} > {"answers.sqlite-wal"}
        with Answers(tmp_path / "answers.sqlite") as store:
            kept = len(store)
        assert kept >= 60
        first = len(server.requests)
        assert first <= kept + 3 * 8  # no more than were on their way, or had come in that very moment
        process = run(server, tmp_path, 300)
        output, complaints = process.communicate(timeout=60)
        assert process.returncode == 0, complaints
        assert len(server.requests) - first == 300 - kept  # what was kept is not asked again
        assert output.count(b"Answer(text='You said: question") == 300
    searched(tmp_path, output, complaints)


def echoes(number: int, body: dict[str, Any]) -> Instead | None:
    """The key in answers, in errors, in HTML, in headers of errors; whole, and at the end of what is shown."""
    echo = {
        1: Instead(status=500, body=f"<html><title>{KEY}</title>".encode()),
        2: error(400, f"bad key {KEY}"),
        3: Instead(body=("x" * 180 + KEY).encode()),
        4: Instead(status=429, headers={"Retry-After": KEY}, body=f'"{KEY}"'.encode()),
        5: error(400, "y" * 480 + KEY, code="content_filter"),
        6: Instead(drop=30, body=KEY.encode()),
    }
    return echo.get(number % 9)


@pytest.mark.parametrize("misbehave", [echoes, failing(999, error(401, f"wrong key {KEY}, sent as Bearer {KEY}"))])
def test_no_key_is_written_anywhere(tmp_path: Path, misbehave: Any) -> None:
    with ChatServer(lambda prompt: f"{prompt}: your key is {KEY}", misbehave) as server:
        process = run(server, tmp_path, 60)
        output, complaints = process.communicate(timeout=60)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (process.returncode == 0) == (misbehave is echoes), complaints
    assert b"***" in (output if misbehave is echoes else complaints)
    assert len(server.requests) == 1 or misbehave is echoes
    searched(tmp_path, output, complaints)
