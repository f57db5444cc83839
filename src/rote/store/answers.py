"""Everything that chat models answered, in one SQLite file: an answer is kept as soon as it comes in, for good."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from rote.errors import RunError
from rote.models.probed import Answer, ChatIdentity, Question
from rote.store.files import make_folder, now, plain

APPLICATION = int.from_bytes(b"Rote")
VERSION = 1
"""Of the table below; a file of another is refused, not guessed at."""

WAIT = 60.0
"""Seconds that another process may take to write."""

TABLE = (
    "CREATE TABLE answers (key TEXT PRIMARY KEY, identity TEXT NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL, "
    "created TEXT NOT NULL) WITHOUT ROWID"
)


class Answers:
    """A store of answers. Several processes may share it; what one put is there for all, however that one ends."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        make_folder(self.path.parent)
        with self._told():
            self._base = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        try:
            with self._told():
                self._open()
        except BaseException:
            self._base.close()
            raise

    def _open(self) -> None:
        # In the order that a kill at any point leaves a file which opens again.
        with self._transaction():
            application, version = self._pragma("application_id"), self._pragma("user_version")
            tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not (application or version or tables):
                self._base.execute(TABLE)
                self._base.execute(f"PRAGMA application_id = {APPLICATION}")
                self._base.execute(f"PRAGMA user_version = {VERSION}")
            elif application != APPLICATION:
                raise RunError(f"{self.path} is another program's database, no store of answers; {_OTHER}")
            elif version != VERSION:
                raise RunError(
                    f"{self.path} has format {version}, but this version of Rote reads format {VERSION}; {_OTHER}"
                )
        until = time.monotonic() + WAIT
        while True:
            try:
                self._base.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:  # another process is at it: SQLite does not wait for that by itself
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        self._base.execute("PRAGMA synchronous = NORMAL")  # what is written outlives the process; the disk may lag

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    def __len__(self) -> int:
        with self._told():
            return int(self._base.execute("SELECT count(*) FROM answers").fetchone()[0])

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """The answers that are there, by key."""
        found: dict[str, Answer] = {}
        with self._told():
            for some in _batches(list(keys)):
                marks = ",".join("?" * len(some))
                rows = self._base.execute(f"SELECT key, answer FROM answers WHERE key IN ({marks})", some)
                found |= {key: self._answer(text) for key, text in rows}
        return found

    def put(self, key: str, question: Question, identity: ChatIdentity, answer: Answer) -> None:
        """Keep an answer. One that is there already stays."""
        row = (key, *(json.dumps(plain(each), sort_keys=True) for each in (identity, question, answer)), now())
        with self._told():
            self._base.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def since(self, identity: ChatIdentity, when: str) -> list[Answer]:
        """What a model answered since then: all that this cost."""
        own = json.dumps(plain(identity), sort_keys=True)
        with self._told():
            rows = self._base.execute("SELECT answer FROM answers WHERE identity = ? AND created >= ?", (own, when))
            return [self._answer(text) for (text,) in rows]

    def before(self, keys: Iterable[str], when: str) -> int:
        """How many of these were answered before that."""
        with self._told():
            return sum(
                self._base.execute(
                    f"SELECT count(*) FROM answers WHERE created < ? AND key IN ({','.join('?' * len(some))})",
                    [when, *some],
                ).fetchone()[0]
                for some in _batches(list(keys))
            )

    def _answer(self, text: str) -> Answer:
        try:
            return msgspec.convert(json.loads(text), Answer)
        except (ValueError, msgspec.ValidationError) as error:
            raise RunError(f"{self.path} is damaged: {error}; {_OTHER}") from error

    def _pragma(self, name: str) -> int:
        return int(self._base.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite has to say, in our words."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RunError(
                f"cannot use the store of answers {self.path}: {error}. Free some space, mend the permissions or wait "
                "for the other process, then run the same command again: what is stored already is kept."
            ) from error
        except sqlite3.DatabaseError as error:
            raise RunError(f"{self.path} is no store of answers, or damaged ({error}); {_OTHER}") from error


_OTHER = "give another path, or move that file away."


def _batches(keys: list[str], size: int = 500) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
