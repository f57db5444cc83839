"""The store of answers: nothing that is in it is lost, and nothing that is no store is touched."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import RunError
from rote.models.probed import Answer, ChatIdentity, Question
from rote.probes.asking import key_of
from rote.store.answers import Answers
from tests.cases import cases

MODEL = ChatIdentity(name="tiny", url="http://h/v1", body={"n": 1, "seed": None}, headers=[])
QUESTION = Question(prompt="Who?", tokens=3)
ANSWER = Answer(text="Me.\0 世界", ended="stop", prompt_tokens=2, answer_tokens=3, model="tiny-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "answers.sqlite"


def test_what_is_put_is_there(path: Path) -> None:
    with Answers(path) as store:
        assert store.get(["a", "b"]) == {}
        store.put("a", QUESTION, MODEL, ANSWER)
        assert store.get(["a", "b"]) == {"a": ANSWER}
        assert len(store) == 1
    with Answers(path) as store:
        assert store.get(iter(["b", "a"])) == {"a": ANSWER}
    assert [each.name for each in path.parent.iterdir()] == ["answers.sqlite"]


def test_the_first_answer_stays(path: Path) -> None:
    with Answers(path) as store:
        store.put("a", QUESTION, MODEL, ANSWER)
        store.put("a", QUESTION, MODEL, replace(ANSWER, text="Someone else."))
        assert store.get(["a"]) == {"a": ANSWER}


def test_many_keys_at_once(path: Path) -> None:
    with Answers(path) as store:
        for number in range(1234):
            store.put(str(number), QUESTION, MODEL, Answer(text=str(number)))
        found = store.get(str(number) for number in range(2000))
    assert {key: answer.text for key, answer in found.items()} == {str(number): str(number) for number in range(1234)}


def test_rows_can_be_read_by_others(path: Path) -> None:
    with Answers(path) as store:
        store.put("a", QUESTION, MODEL, ANSWER)
    row = sqlite3.connect(path).execute("SELECT key, identity, question, answer, created FROM answers").fetchone()
    assert row[0] == "a"
    assert row[1] == '{"body": {"n": 1, "seed": null}, "headers": [], "name": "tiny", "url": "http://h/v1"}'
    assert '"prompt": "Who?"' in row[2]
    assert '"model": "tiny-1"' in row[3]
    assert row[4].endswith("+00:00")


@cases(40)
@given(
    st.builds(
        Answer, text=st.text(), ended=st.none() | st.text(), refusal=st.none() | st.text(), model=st.none() | st.text(),
        prompt_tokens=st.none() | st.integers(0, 2**40), attempts=st.integers(1, 99), lost=st.integers(0, 99),
        error=st.none() | st.text(), again=st.booleans(),
    )
)  # fmt: skip
def test_answers_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, answer: Answer) -> None:
    with Answers(tmp_path_factory.mktemp("s") / "answers.sqlite") as store:
        store.put("a", Question(prompt=answer.text, tokens=1), MODEL, answer)
        assert store.get(["a"]) == {"a": answer}


# --- several processes


def test_two_at_once(path: Path) -> None:
    with Answers(path) as one, Answers(path) as two:
        one.put("a", QUESTION, MODEL, ANSWER)
        assert two.get(["a"]) == {"a": ANSWER}
        two.put("b", QUESTION, MODEL, ANSWER)
        one.put("b", QUESTION, MODEL, replace(ANSWER, text="late"))
        assert one.get(["a", "b"]) == {"a": ANSWER, "b": ANSWER}


WRITER = """
import os, signal, sys
from rote.models.probed import Answer, ChatIdentity, Question
from rote.store.answers import Answers
store = Answers(sys.argv[1])
who = ChatIdentity(name="m", body={}, headers=[])
for number in range(int(sys.argv[3])):
    store.put(f"{sys.argv[2]}{number}", Question(prompt="q", tokens=1), who, Answer(text=str(number)))
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_write_and_are_killed_lose_nothing(path: Path) -> None:
    path.parent.mkdir()
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "300"], stdout=subprocess.PIPE)
        for name in "ab"
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == [b"written\n"] * 2
    assert all(process.returncode == -9 for process in processes)
    with Answers(path) as store:
        assert len(store) == 600
        assert store.get(["a299", "b299"]) == {"a299": Answer(text="299"), "b299": Answer(text="299")}


OPENER = """
import os, sys
from rote.models.probed import Answer, ChatIdentity, Question
from rote.store.answers import Answers
who = ChatIdentity(name="m", body={}, headers=[])
for turn in range(10):
    children = []
    for number in range(5):
        if not (child := os.fork()):
            with Answers(f"{sys.argv[1]}/{turn}.sqlite") as store:
                store.put(str(number), Question(prompt="q", tokens=1), who, Answer(text="x"))
            os._exit(0)
        children.append(child)
    assert not any(os.waitpid(child, 0)[1] for child in children)
    assert len(Answers(f"{sys.argv[1]}/{turn}.sqlite")) == 5
"""


def test_processes_that_begin_a_store_at_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OPENER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- what is no store


def refused(path: Path, *words: str) -> None:
    before = path.read_bytes()
    with pytest.raises(RunError) as told:
        Answers(path)
    for word in (str(path), "give another path", *words):
        assert word in str(told.value)
    assert path.read_bytes() == before


def test_what_is_no_store_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("key,answer\n" * 500)
    refused(path, "is no store of answers")


def test_the_database_of_another_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE answers (key TEXT)")
    other.close()
    refused(path, "another program's database")


def test_a_store_of_another_format_is_refused(path: Path) -> None:
    Answers(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    refused(path, "has format 2, but this version of Rote reads format 1")


def test_a_damaged_answer_is_told(path: Path) -> None:
    with Answers(path) as store:
        store.put("a", QUESTION, MODEL, ANSWER)
    for text in ("{", '{"text": 3}', "[]"):
        with sqlite3.connect(path) as other:
            other.execute("UPDATE answers SET answer = ?", (text,))
        other.close()
        with Answers(path) as store, pytest.raises(RunError, match="is damaged"):
            store.get(["a"])


def test_a_damaged_file_is_told(path: Path) -> None:
    with Answers(path) as store:
        for number in range(2000):
            store.put(f"{number:060d}", QUESTION, MODEL, ANSWER)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"answers\.sqlite"), Answers(path) as store:
        store.get([f"{number:060d}" for number in range(2000)])


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the folder"):
        Answers(tmp_path / "file" / "answers.sqlite")
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(RunError, match="cannot use the store of answers"):
        Answers(tmp_path / "folder.sqlite")


def test_a_full_disk_is_told_and_loses_nothing(path: Path) -> None:
    with Answers(path) as store:
        store.put("a", QUESTION, MODEL, ANSWER)
        pages = store._base.execute("PRAGMA page_count").fetchone()[0]
        store._base.execute(f"PRAGMA max_page_count = {pages + 5}")
        many = [f"b{number}" for number in range(1000)]
        with pytest.raises(RunError, match=r"disk is full.*Free some space.*what is stored already is kept"):
            _put_all(store, many)
        kept = len(store.get(many))
        assert 3 < kept < 1000
        store._base.execute("PRAGMA max_page_count = 100000")
        store.put("c", QUESTION, MODEL, ANSWER)  # once there is space again
    with Answers(path) as store:
        assert len(store) == 2 + kept


def _put_all(store: Answers, keys: list[str]) -> None:
    for key in keys:
        store.put(key, QUESTION, MODEL, Answer(text="x" * 1000))


def test_a_store_that_is_locked_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rote.store.answers.WAIT", 0.1)
    with Answers(path) as store, Answers(path) as other:
        other._base.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunError, match=r"database is locked.*wait for the other process"):
            store.put("a", QUESTION, MODEL, ANSWER)
        other._base.execute("ROLLBACK")
        store.put("a", QUESTION, MODEL, ANSWER)


# --- keys


def test_a_key_is_of_everything_that_decides_an_answer() -> None:
    own = key_of(MODEL, QUESTION)
    assert own == key_of(replace(MODEL, label="another", headers=["X-Title"], body={"seed": None, "n": 1}), QUESTION)
    others: list[dict[str, Any]] = [{"url": "http://h/v2"}, {"name": "b"}, {"body": {"n": 1}}, {"template": "t"}]
    keys = [key_of(replace(MODEL, **change), QUESTION) for change in others]
    asked: list[dict[str, Any]] = [{"prompt": "?"}, {"tokens": 4}, {"temperature": 1.0}, {"top_p": 0.5}, {"seed": 1}]
    keys += [key_of(MODEL, replace(QUESTION, **change)) for change in asked]
    assert len({own, *keys}) == 1 + len(others) + len(asked)
    assert all(len(key) == 64 for key in keys)
    assert key_of(MODEL, replace(QUESTION, prompt="half \ud83d")) != own
