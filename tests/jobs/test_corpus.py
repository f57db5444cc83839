"""Runs that count in an indexed corpus: against looking at every place, and outputs that stand elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import InputError, Run, Windows
from rote.corpus.occurrences import Occurrences
from rote.corpus.readings import Reader
from rote.jobs.corpus import GENERATED
from rote.store.index import StoredIndex
from rote.tokens import Example
from tests.corpus.corpora import write_jsonl
from tests.reference import search

pytest.importorskip("infini_gram")

CUT = Windows(prefix=12, suffix=8, stride=37)


@pytest.fixture(scope="module")
def documents(alice: str, gatsby: str) -> dict[str, str]:
    """A passage of Alice three times in all, one of Gatsby once, and a document that has nothing."""
    passage = alice[3000:4500]
    return {"alice": passage, "again": f"So. {passage} {passage[:700]}", "gatsby": gatsby[20_000:21_000], "empty": ""}


@pytest.fixture(scope="module")
def indices(documents: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredIndex]:
    folder = tmp_path_factory.mktemp("indices")
    corpus = write_jsonl(folder / "corpus.jsonl", [{"id": key, "text": text} for key, text in documents.items()])
    return {
        "tokens": rote.index.build(corpus, out=folder / "tokens"),
        "bytes": rote.index.build(corpus, out=folder / "bytes", bytes=True),
    }


def counted(run: Run) -> list[tuple[int | None, int | None]]:
    rows = run.rows(run.manifest.schemes[0]).select("repetitions", "metadata")
    return [(whole, json.loads(said).get("suffix_repetitions")) for whole, said in rows.iter_rows()]


def test_examples_are_counted_as_their_tokens_stand(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    reader = Reader(bundled.tokenizer)
    ids = {key: reader.ids(text) for key, text in documents.items()}
    examples = [
        Example("thrice", tuple(ids["alice"][30:40]), tuple(ids["alice"][40:50]), metadata={"repetitions": 5}),
        Example("once", tuple(ids["gatsby"][5:9]), tuple(ids["gatsby"][9:15])),
        Example("never", tuple(ids["gatsby"][5:9]), tuple(ids["alice"][60:70])),
    ]
    run = rote.score(bundled, examples, index=indices["tokens"], out=tmp_path / "run")
    every = list(ids.values())
    expected = [
        (len(search.places(every, [*e.prefix, *e.suffix])), len(search.places(every, e.suffix))) for e in examples
    ]
    assert counted(run) == expected
    assert [whole for whole, _ in expected] == [3, 1, 0]
    assert json.loads(run.rows(run.manifest.schemes[0])["metadata"][0])["stated_repetitions"] == 5
    assert [group.repetitions for group in run.summary.schemes[run.manifest.schemes[0]].by_repetitions or ()] == [
        0,
        1,
        3,
    ]
    assert run.manifest.index is not None
    assert (run.manifest.index.documents, run.manifest.index.counted) == (4, "tokens")
    assert rote.verify(run).verified


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
def test_windows_are_counted_from_the_first_word_or_as_text(
    unit: str, bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    """Windows begin anywhere, also inside words; every one of the passage stands in the corpus all the same."""
    text, reader = documents["alice"], Reader(bundled.tokenizer)
    every = [reader.ids(document) for document in documents.values()]
    run = rote.scan(bundled, text, index=indices[unit], windows=CUT, out=tmp_path / "run")
    found = counted(run)
    for (whole, suffix), window in zip(found, rote.windows(text, bundled.tokenizer, CUT), strict=True):
        if unit == "bytes":
            own = [
                bundled.tokenizer.decode(ids).strip("\ufffd").strip()
                for ids in ((*window.prefix, *window.suffix), window.suffix)
            ]
            expected = [sum(len(re.findall(f"(?={re.escape(each)})", d)) for d in documents.values()) for each in own]
            assert [whole, suffix] == expected
        else:
            assert window.start is not None
            ids, places = reader.placed(text[window.start : window.start + 200])
            first = next(i for i, (at, _) in enumerate(places) if re.match(" [^ ]", text[window.start + at :]))
            assert whole == len(search.places(every, ids[first : len(window.prefix) + len(window.suffix)]))
            assert suffix == len(search.places(every, window.suffix))
        assert whole is not None
        assert whole >= 2
        assert suffix is not None
        assert suffix >= whole
    beginning = [
        whole
        for (whole, _), start in zip(found, run.rows(run.manifest.schemes[0])["start"], strict=True)
        if start < 400
    ]
    assert set(beginning) == {3}
    assert run.summary.corpus is not None
    assert run.summary.corpus.standing == run.summary.corpus.counted == len(found)
    assert rote.verify(run).verified
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "In the corpus" in page
    assert "from the first word that begins in it" in page or unit == "bytes"


def test_an_output_that_misses_its_suffix_may_stand_elsewhere(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    """The model is asked for Gatsby after a prefix of Alice, and goes on with Alice: training data all the same."""
    ids = Reader(bundled.tokenizer).ids(documents["alice"])
    target = tuple(Reader(bundled.tokenizer).ids(documents["gatsby"])[5:15])
    examples = [Example(f"e{at}", tuple(ids[at : at + 60]), target) for at in (0, 100, 200)]
    run = rote.score(bundled, examples, index=indices["tokens"], out=tmp_path / "run")
    found = run.summary.corpus
    assert found is not None
    assert (found.greedy, found.greedy_elsewhere, found.near) == (3, 3, 0)
    for each in found.listed:
        assert (each.kind, each.document, each.longest, each.length) == ("greedy", "alice", 10, 10)
        assert each.count >= 2
        assert each.excerpt is not None
        assert each.text in each.excerpt
    assert found.listed[0].token == int(found.listed[0].example_id[1:]) + 60
    told = " ".join(run.summary.warnings) + (run.folder / "report.html").read_text(encoding="utf-8")
    assert "training data all the same" in told
    again = rote.score(bundled, examples, index=indices["tokens"], out=tmp_path / "run")
    assert again.summary == run.summary


def test_outputs_near_a_suffix_are_looked_up(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    ids = Reader(bundled.tokenizer).ids(documents["alice"])
    wrong = [*ids[60:69], ids[69] + 1]  # the likeliest output is one edit from what is asked for
    run = rote.score(
        bundled, [Example("e", tuple(ids[:60]), tuple(wrong))], near=rote.Near(tolerance=2), index=indices["tokens"],
        out=tmp_path / "run",
    )  # fmt: skip
    assert run.outputs is not None
    first = run.outputs.outputs[0]
    assert (first.count, first.longest, first.document) == (3, 10, "alice")
    assert {each.kind for each in run.outputs.outputs} == {"near", "greedy"}
    assert run.outputs.near == sum(each.kind == "near" for each in run.outputs.outputs) > 1
    index = indices["tokens"].index
    every = [index.document(number).tolist() for number in range(index.documents)]
    candidates = run.scores["candidates"][0].to_list()
    for each in run.outputs.outputs:
        if each.candidate is not None:
            tokens = candidates[each.candidate]["tokens"]
            assert each.distance == candidates[each.candidate]["distance"] > 0
            assert each.longest == max(search.longest(every, tokens))
            assert each.count == len(search.places(every, tokens))


def test_outputs_of_a_run_too_large_to_keep_are_looked_up_part_by_part(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    ids = Reader(bundled.tokenizer).ids(documents["alice"])
    examples = [Example(f"e{at}", tuple(ids[at : at + 60]), (*ids[at + 60 : at + 69], 7)) for at in (0, 40)]
    options: dict[str, Any] = {"near": rote.Near(tolerance=1), "index": indices["tokens"]}
    options["schemes"] = ["temperature=1 top_k=40", "temperature=0.7"]
    kept = rote.score(bundled, examples, out=tmp_path / "kept", **options)
    monkeypatch.setattr("rote.store.parts.KEPT", 0)
    large = rote.score(bundled, examples, out=tmp_path / "large", **options)
    assert large.outputs == kept.outputs
    assert kept.outputs is not None
    assert {each.kind for each in kept.outputs.outputs} == {"near", "greedy"}
    assert not large.kept
    assert "scores" not in vars(large), "all of its rows are in memory"


def test_what_has_no_word_is_not_counted(bundled: Any, indices: dict[str, StoredIndex]) -> None:
    asked = Occurrences(indices["tokens"].index, bundled.tokenizer, scanned=True)
    ids = Reader(bundled.tokenizer).ids("Aliceinwonderlandandnospaceatall")
    assert asked.of(Example("e", tuple(ids[:4]), tuple(ids[4:]))) == (None, 0)
    as_bytes = Occurrences(indices["bytes"].index, bundled.tokenizer, scanned=True)
    blank = Reader(bundled.tokenizer).ids("   ")
    assert as_bytes.of(Example("e", tuple(blank), tuple(blank))) == (None, None)
    assert as_bytes.match(blank).tokens == 0


def test_what_does_not_go_together_is_refused(
    bundled: Any, indices: dict[str, StoredIndex], text: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="leaves windows out"):
        rote.scan(bundled, text, index=indices["tokens"], refine=rote.Refine(), out=tmp_path / "a")
    with pytest.raises(InputError, match="give index as well"):
        rote.scan(bundled, text, index_tokenizer="bundled", out=tmp_path / "a")
    with pytest.raises(InputError, match="there is no folder"):
        rote.scan(bundled, text, index=tmp_path / "none", out=tmp_path / "a")
    with pytest.raises(InputError, match="another tokenizer"):
        indices["tokens"].require_tokenizer("m", "00")
    indices["bytes"].require_tokenizer("m", "00")


def test_counts_are_no_part_of_what_the_examples_are(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    """So runs over the same examples are compared, counted or not."""
    ids = Reader(bundled.tokenizer).ids(documents["alice"])
    examples = [
        Example(f"e{at}", tuple(ids[at : at + 10]), tuple(ids[at + 10 : at + 20]), metadata={"repetitions": at})
        for at in (0, 50)
    ]
    runs = [
        rote.score(bundled, examples, index=index, out=tmp_path / name)
        for name, index in (("plain", None), ("tokens", indices["tokens"]), ("bytes", indices["bytes"]))
    ]
    assert len({run.manifest.source.sha256 for run in runs}) == 1
    assert rote.compare(runs).result.common_examples == 2


def test_an_example_without_a_prefix_is_written_on_from_bos(
    bundled: Any, indices: dict[str, StoredIndex], documents: dict[str, str], tmp_path: Path
) -> None:
    """BOS may well be token 0."""
    assert bundled.bos_id == 0
    suffix = tuple(Reader(bundled.tokenizer).ids(documents["gatsby"])[5:10])
    run = rote.score(bundled, [Example("e", (), suffix)], index=indices["tokens"], out=tmp_path / "run")
    assert run.outputs is not None
    assert run.outputs.greedy == 1


def test_no_more_greedy_outputs_than_said(
    bundled: Any, indices: dict[str, StoredIndex], gatsby: str, tmp_path: Path
) -> None:
    run = rote.scan(
        bundled, gatsby[30_000:31_600], index=indices["tokens"], windows=Windows(prefix=4, suffix=2, stride=20),
        out=tmp_path / "run",
    )  # fmt: skip
    assert run.outputs is not None
    assert run.outputs.greedy <= GENERATED
