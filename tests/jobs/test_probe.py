"""`rote.probe` from texts to the sealed folder, with chat models that are served on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rote
from rote.probes import prompts
from tests.chatserver import ChatServer, Instead, error

PASSAGES = {
    "seen-0": "When the lamps were lit Ottoline folded the crimson letter and gave it to Barnaby without a word.",
    "seen-1": "The ferry left Drumhaven at seven, and Perpetua stood by the rail until the lighthouse had vanished.",
    "seen-2": "Nobody in the village liked the windmill, said Ambrose, though everybody ate the bread of its miller.",
    "seen-3": "On the third morning Leopold counted the geese again and found that the grey one was still missing.",
    "new-0": "The train was late, so Matilda bought a newspaper and read about the flood in the northern valleys.",
    "new-1": "A cold wind came over the marsh, and Cornelius pulled the blanket higher and thought of his orchard.",
    "new-2": "They had painted the kitchen yellow, which Rosamund hated, but the children sang in it every evening.",
    "new-3": "Behind the church there was a garden where old Ferdinand grew turnips that nobody was allowed to touch.",
}
SEEN = [text for name, text in PASSAGES.items() if name.startswith("seen")]
TEXTS: list[dict[str, Any]] = [
    {"id": name, "text": text, "label": name.startswith("seen"), "group": name} for name, text in PASSAGES.items()
]
WORDS = rote.Words(select=("person", "content"), most=4)


def knows(known: list[str]) -> Callable[[str], str]:
    """A chat model that knows some passages by heart, and says so in the way that it is asked to."""

    def answer(prompt: str) -> str:
        if "in other words, three times" in prompt:
            text = prompt.rsplit("Passage: ", 1)[1]
            return "".join(f"<{tag}>{tag}: {text.lower()}</{tag}>" for tag in ("first", "second", "third"))
        if "Four passages follow" in prompt:
            options = re.findall(r"^([A-D])\. (.*)$", prompt, re.MULTILINE)
            return str(next((letter for letter, text in options if text in known), "A"))
        if "Go on with this text" in prompt:
            start = prompt.split("\n\n", 1)[1]
            return next((text[len(start) :] for text in known if text.startswith(start)), "and so they did not.")
        if "tells the most" in prompt:
            return str(max(re.findall(r"\w+", prompt.split("\n\n", 1)[1]), key=len))
        passage = prompt.rsplit("Passage: ", 1)[-1].removesuffix("\nAnswer:").split("\n\n")[-1]
        before, after = passage.split(prompts.MASK)
        word = next(
            (t[len(before) : len(t) - len(after)] for t in known if t.startswith(before) and t.endswith(after)), ""
        )
        return f"<word>{word or 'cucumber'}</word>"

    return answer


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(knows(SEEN)) as one:
        yield one


@pytest.fixture(scope="module")
def run(server: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> rote.Probe:
    """All methods, two targets and a filter that guesses one word of each kind."""

    def guesses(prompt: str) -> str:
        return "geese" if "fits best" in prompt else "1. letter\n2. orchard\n3. turnips"

    folder = tmp_path_factory.mktemp("probe") / "run"
    with ChatServer(guesses) as small, ChatServer(knows([])) as other:
        found = rote.probe(
            TEXTS, target=[other.model, server.model], filter=small.model, method=("cloze", "prefix", "decop", "slot"),
            words=WORDS, prefix_words=8, unfiltered=True, picker=server.model, paraphraser=server.model, out=folder,
        )  # fmt: skip
    assert isinstance(found, rote.Probe)
    return found


def test_every_answer_is_there_and_judged(run: rote.Probe) -> None:
    rows = run.questions
    cloze = rows.filter((pl.col("role") == "target") & (pl.col("method") == "cloze") & (pl.col("model") == 1))
    assert (
        cloze.height
        == run.chosen.filter(pl.col("selectors").list.len() > pl.col("selectors").list.contains("slot")).height
    )
    for row in cloze.iter_rows(named=True):
        text = PASSAGES[row["text"]]
        assert text[row["start"] : row["end"]] == row["word"]
        assert row["prompt"] == prompts.cloze(text[: row["start"]] + prompts.MASK + text[row["end"] :], "passage")
        assert row["outcome"] == ("hit" if row["text"].startswith("seen") else "miss")
    completed = rows.filter((pl.col("method") == "prefix") & (pl.col("model") == 1))
    assert completed.height == len(PASSAGES)
    known = completed.filter(pl.col("text").str.starts_with("seen"))
    assert known["common"].to_list() == known["words"].to_list()
    decop = rows.filter((pl.col("method") == "decop") & (pl.col("model") == 1))
    assert decop.height == 24 * len(PASSAGES)
    assert decop.filter(pl.col("text").str.starts_with("seen"))["outcome"].to_list() == ["hit"] * 24 * len(SEEN)
    shares = (
        decop.filter(~pl.col("text").str.starts_with("seen")).group_by("text").agg((pl.col("outcome") == "hit").mean())
    )
    assert shares["outcome"].to_list() == [0.25] * 4  # always A


def test_what_a_filter_guesses_or_lists_is_dropped(run: rote.Probe) -> None:
    guessed = run.chosen.filter(pl.col("guessed").list.len() > 0)
    assert set(guessed["word"]) <= {"geese", "letter", "orchard", "turnips"}
    assert guessed.height > 0
    (filtered,) = run.summary.filters
    assert filtered.dropped == guessed.height
    assert run.summary.words is not None
    assert sum(run.summary.words.dropped.values()) >= guessed.height


def test_methods_are_evaluated_on_the_same_texts(run: rote.Probe) -> None:
    assert [evaluation.target for evaluation in run.summary.evaluations] == [0, 1]
    rows = {row.name: row for row in run.summary.evaluations[1].rows}
    assert {"random", "majority", "person", "person+filter", "content", "prefix", "decop", "slot"} <= set(rows)
    assert (rows["content"].true_positives, rows["content"].false_positives) == (4, 0)
    assert rows["content"].f_beta.value == 1
    judged = {row.name: row.true_positives + row.false_negatives + row.false_positives + row.true_negatives
              for row in run.summary.evaluations[1].rows if row.true_positives is not None
              and row.false_negatives is not None and row.false_positives is not None
              and row.true_negatives is not None}  # fmt: skip
    assert len(set(judged.values())) == 1
    difference = next(each for each in run.summary.differences if each.name == "content")
    assert difference.difference.value == pytest.approx(difference.other - difference.first)
    assert difference.first == 0


def test_the_folder_is_sealed_opened_reported_exported(run: rote.Probe, tmp_path: Path) -> None:
    again = rote.open(run.folder)
    assert isinstance(again, rote.Probe)
    assert again.seal.id == run.seal.id
    page = run.report().read_text()
    assert "cucumber" in page
    assert run.manifest.rule in page.replace("&#39;", "'").replace("’", "'")


def test_a_finished_run_asks_nothing_again(run: rote.Probe, server: ChatServer) -> None:
    before = len(server.requests)
    again = rote.probe(
        TEXTS, target=server.model, words=WORDS, out=run.folder.parent / "one", prefix_words=8,
    )  # fmt: skip
    asked = len(server.requests) - before
    assert isinstance(again, rote.Probe)
    assert asked == again.questions.height
    (again.folder / "answers.sqlite").unlink()
    third = rote.probe(TEXTS, target=server.model, words=WORDS, out=again.folder, prefix_words=8)
    assert isinstance(third, rote.Probe)
    assert len(server.requests) == before + asked
    assert third.seal.id == again.seal.id
    with pytest.raises(rote.RunError, match="plurals"):
        rote.probe(TEXTS, target=server.model, words=WORDS, out=again.folder, prefix_words=8, plurals=True)


def test_runs_may_share_their_answers(server: ChatServer, tmp_path: Path) -> None:
    shared = tmp_path / "shared.sqlite"
    first = rote.probe(TEXTS, target=server.model, words=WORDS, answers=shared, out=tmp_path / "a")
    assert isinstance(first, rote.Probe)
    before = len(server.requests)
    time.sleep(1.1)  # `known` goes by the second
    second = rote.probe(TEXTS, target=server.model, words=WORDS, answers=shared, hits=1, out=tmp_path / "b")
    assert isinstance(second, rote.Probe)
    assert len(server.requests) == before
    (spent,) = second.summary.spent
    assert spent.known == spent.questions == first.questions.height


def test_a_server_that_stops_costs_no_answer(tmp_path: Path) -> None:
    def stops(number: int, body: dict[str, Any]) -> Instead | None:
        return error(402, "no money left", code="insufficient_quota") if number >= 10 else None

    with ChatServer(knows(SEEN), stops) as broken:
        with pytest.raises(rote.ModelError, match="no money left"):
            rote.probe(
                TEXTS, target=broken.model, words=WORDS, endpoint=rote.Endpoint(concurrency=1), out=tmp_path / "r"
            )
        with pytest.raises(rote.RunError, match="unfinished"):
            _ = rote.Probe(tmp_path / "r").summary
        answered = set(broken.prompts[:10])
        broken.misbehave = lambda number, body: None
        before = len(broken.requests)
        run = rote.probe(
            TEXTS, target=broken.model, words=WORDS, endpoint=rote.Endpoint(concurrency=1), out=tmp_path / "r"
        )
        assert isinstance(run, rote.Probe)
        assert not answered & set(broken.prompts[before:])
        assert set(broken.prompts) == set(run.questions["prompt"])


@pytest.mark.parametrize("method", ["cloze", "prefix", "decop", "slot"])
def test_each_method_alone(method: Any, server: ChatServer, tmp_path: Path) -> None:
    run = rote.probe(TEXTS[:4], target=server.model, method=(method,), words=WORDS, prefix_words=8, out=tmp_path / "r")
    assert isinstance(run, rote.Probe)
    assert {one.method for one in run.summary.probed} == {method}
    assert (tmp_path / "r" / "report.html").is_file()


def test_texts_for_validation_are_not_judged(server: ChatServer, tmp_path: Path) -> None:
    """Whoever is told how many are flagged is told of how many, and rates of unseen texts are of the same ones."""
    texts = [{**text, "split": "validation" if text["id"].endswith(("0", "1")) else "test"} for text in TEXTS]
    run = rote.probe(texts, target=server.model, words=WORDS, hits=None, out=tmp_path / "r")
    assert isinstance(run, rote.Probe)
    one = next(each for each in run.summary.probed if each.name == "content")
    assert (one.texts, one.judged, one.flagged) == (8, 4, 2)
    from rote.report.text.probe import headline

    assert "of 4 passages" in str(headline(run.manifest, run.summary)).replace("\u2068", "")


def test_what_was_not_answered_is_asked_again_by_the_same_command(tmp_path: Path) -> None:
    """A server that stumbles over one passage: its questions are errors, until the server mends."""
    said: dict[str, Any] = {"words": WORDS, "endpoint": rote.Endpoint(retries=0), "out": tmp_path / "r"}

    def stumbles(number: int, body: dict[str, Any]) -> Instead | None:
        return error(500, "out of order") if "Perpetua" in body["messages"][0]["content"] else None

    with ChatServer(knows(SEEN), stumbles) as server:
        first = rote.probe(TEXTS, target=server.model, **said)
        assert isinstance(first, rote.Probe)
        failed = first.questions.filter(pl.col("outcome") == "error")
        assert set(failed["text"]) == {"seen-1"}
        assert "out of order" in failed["why"][0]
        with pytest.raises(rote.ModelError, match="out of order"):
            rote.probe(TEXTS, target=server.model, **said)
        assert rote.Probe(tmp_path / "r").seal.id == first.seal.id  # it is finished, as it was
        server.misbehave = lambda number, body: None
        before = len(server.requests)
        last = rote.probe(TEXTS, target=server.model, **said)
        assert isinstance(last, rote.Probe)
        assert set(server.prompts[before:]) == set(failed["prompt"])
        assert not last.questions.filter(pl.col("outcome") == "error").height
        assert last.seal.before


def test_a_paid_model_is_asked_only_with_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "sk-" + "1" * 20)
    endpoint = rote.Endpoint(key="SHOP_KEY", price="2,10")
    found = rote.probe(
        TEXTS, target="https://shop.example/v1/large", words=WORDS, method=("cloze", "prefix", "decop"),
        endpoint=endpoint, prefix_words=8, out=tmp_path / "r",
    )  # fmt: skip
    assert isinstance(found, rote.DryRun)
    assert "max_cost" in found.reason
    by_method = {each.method: each for each in found.estimates}
    assert set(by_method) == {"cloze", "prefix", "decop", "paraphrase"}
    assert by_method["decop"].questions == 24 * len(TEXTS)
    for each in found.estimates:
        assert each.cost == pytest.approx((2 * each.prompt_tokens + 10 * each.answer_tokens) / 1e6)
    tokens = [-(-len(text) // 4) for text in PASSAGES.values()]
    assert by_method["cloze"].formula == pytest.approx(sum(4 * ((n + 123) * 2 + 5 * 10) for n in tokens) / 1e6)
    with pytest.raises(rote.InputError, match="price"):
        rote.probe(TEXTS, target="https://shop.example/v1/large", words=WORDS, max_cost=1.0, out=tmp_path / "s")


def test_max_cost_counts_over_resumes(server: ChatServer, tmp_path: Path) -> None:
    """The price is such that a part of the questions is affordable."""
    endpoint = rote.Endpoint(price="1000,1000", concurrency=1)
    said: dict[str, Any] = {"target": server.model, "words": WORDS, "endpoint": endpoint, "out": tmp_path / "r"}
    with pytest.raises(rote.RunError, match="max_cost"):
        rote.probe(TEXTS, max_cost=2.0, **said)
    before = len(server.requests)
    with pytest.raises(rote.RunError, match="max_cost"):
        rote.probe(TEXTS, max_cost=2.0, **said)
    assert len(server.requests) - before <= 1
    run = rote.probe(TEXTS, max_cost=100.0, **said)
    assert isinstance(run, rote.Probe)
    (spent,) = run.summary.spent
    assert spent.cost is not None
    assert spent.cost <= 100


def test_membership_scores_stand_in_the_same_table(server: ChatServer, bundled: Any, tmp_path: Path) -> None:
    rote.member(bundled, TEXTS, quick=True, out=tmp_path / "member")
    run = rote.probe(TEXTS, target=server.model, words=WORDS, membership=tmp_path / "member", out=tmp_path / "r")
    assert isinstance(run, rote.Probe)
    (evaluation,) = run.summary.evaluations
    rows = {row.name: row for row in evaluation.rows}
    assert {"content", "person", "member:loss", "member:min_k_20", "random", "majority"} <= set(rows)
    assert run.manifest.membership == rote.Membership(tmp_path / "member").seal.id
    with pytest.raises(rote.InputError, match=r"membership.*none of the targets"):
        rote.probe(TEXTS, target="bundled", words=WORDS, membership=tmp_path / "member", out=tmp_path / "s")
    with pytest.raises(rote.InputError, match=r"membership.*rote member"):
        rote.probe(TEXTS, target=server.model, words=WORDS, membership=run.folder, out=tmp_path / "s")


KEY = "sk-verysecret-0123456789"


def test_killed_run_goes_on_and_no_key_is_written(tmp_path: Path) -> None:
    """kill -9 in the middle: what was answered is kept; the key is in nothing that was written or printed."""
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
    with ChatServer(knows(SEEN), latency=0.05, key=KEY) as slow:
        command = [
            sys.executable, "-m", "rote.cli", "probe", "texts.jsonl", "--target", slow.model, "--select",
            "person,content", "--key", "MY_KEY", "--concurrency", "2", "--out", "run", "--debug",
        ]  # fmt: skip
        environment = {**os.environ, "MY_KEY": KEY}
        with (tmp_path / "first.log").open("w") as log:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            deadline = time.monotonic() + 60
            while slow.answered < 10 and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert slow.answered >= 10
        first = list(slow.prompts)
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        (tmp_path / "second.log").write_text(done.stdout + done.stderr)
        twice = set(first) & set(slow.prompts[len(first) :])
        assert len(twice) <= 3 * 2  # on their way, or came in and not yet stored, when it was killed
        wrong = subprocess.run(
            [*command[:-2], "other", "--debug"], cwd=tmp_path, env={**environment, "MY_KEY": KEY + "x"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert wrong.returncode == 1
        assert "MY_KEY" in wrong.stderr
        (tmp_path / "third.log").write_text(wrong.stdout + wrong.stderr)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "answers.sqlite" for path in written)
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"texts": [{"text": "He said [MASK] twice."}]}, "MASK"),
        ({"method": ()}, "method"),
        ({"method": ("guess",)}, "method"),
        ({"hits": 0}, "hits"),
        ({"target": ["SELF", "SELF"]}, "twice"),
        ({"filter": "SELF"}, "target too"),
        ({"picker": "SELF"}, "picker"),
        ({"paraphraser": "SELF"}, "paraphraser"),
        ({"reference": "bundled"}, "reference"),
        ({"words": rote.Words(select=("rare",))}, "index"),
        ({"index": "somewhere"}, "index"),
        ({"max_cost": -1.0}, "max_cost"),
        ({"wording": "song"}, "wording"),
        ({"membership": "nowhere"}, "nowhere"),
        ({"texts": [{"text": "One."}, {"text": ""}]}, "empty"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    changes: dict[str, Any], said: str, server: ChatServer, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"texts": TEXTS, "target": "SELF", "words": WORDS, "out": tmp_path / "r", **changes}
    for name in ("target", "filter", "picker", "paraphraser"):
        if name in given:
            own = given[name]
            given[name] = [server.model for _ in own] if isinstance(own, list) else server.model
    before = len(server.requests)
    with pytest.raises(rote.RoteError, match=said):
        rote.probe(**given)
    assert len(server.requests) == before
