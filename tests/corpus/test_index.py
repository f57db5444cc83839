"""Every answer of an index against looking at every place of every document, on the real engine."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.corpus.index import CorpusIndex, Place
from rote.corpus.shards import Width, numbers_of, width_of
from rote.errors import InputError
from rote.store.index import sort_tokens, write_tokens
from tests.cases import cases
from tests.reference import search

pytest.importorskip("infini_gram")

VOCABULARIES: dict[Width, tuple[int, ...]] = {1: (2, 255), 2: (3, 256, 65535), 4: (3, 65537, 2**32 - 1)}


def indexed(folder: Path, documents: list[list[int]], width: Width, room: int = 1 << 30) -> CorpusIndex:
    """An index of these documents, in shards of at least `room` bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    left = iter([({"path": "p", "linenum": n, "metadata": {"id": f"d{n}"}}, ids) for n, ids in enumerate(documents)])
    done = number = 0
    while done < len(documents):
        shard = write_tokens(folder, number, left, width, room)
        sort_tokens(folder, number, width, shard)
        done, number = done + shard.documents, number + 1
    return CorpusIndex(folder, "tokens", width, 256**width - 1)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Width, list[list[int]], list[int], int]:
    """Documents with repeats, empty and one-token ones too; a text that shares runs with them; a shard's size."""
    width: Width = draw(st.sampled_from((1, 2, 4)))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    size = draw(st.sampled_from(VOCABULARIES[width]))
    pool = [0, size - 1, *(rng.randrange(size) for _ in range(draw(st.sampled_from((1, 3, 40)))))]
    documents = [
        [rng.choice(pool) for _ in range(rng.choice((0, 1, 2, 5, 25)))] for _ in range(draw(st.integers(1, 7)))
    ]
    documents += [list(rng.choice(documents)) for _ in range(draw(st.integers(0, 3)))]
    text: list[int] = []
    for _ in range(3):
        document = rng.choice(documents)
        at = rng.randint(0, len(document))
        text += document[at : at + rng.randint(0, 8)] + [rng.choice(pool)] * rng.randint(0, 1)
    return width, documents, text, draw(st.sampled_from((1 << 30, 40, 1)))


@cases(200)
@given(corpora())
def test_answers_are_those_of_looking_everywhere(
    tmp_path_factory: pytest.TempPathFactory, corpus: tuple[Width, list[list[int]], list[int], int]
) -> None:
    width, documents, text, room = corpus
    index = indexed(tmp_path_factory.getbasetemp() / "searched", documents, width, room)
    assert (index.documents, index.tokens) == (len(documents), sum(map(len, documents)))
    assert [index.document(number).tolist() for number in range(len(documents))] == documents
    assert [index.name(number) for number in range(len(documents))] == [f"d{n}" for n in range(len(documents))]
    for at in range(len(text)):
        query = text[at : at + 1 + at % 4]
        places = search.places(documents, query)
        assert index.count(query) == len(places)
        assert [(place.document, place.token) for place in index.places(query)] == places
        assert index.places(query, 2) == [Place(*place) for place in places[:2]]
        assert index.documents_with(query) == len({document for document, _ in places})
        found = index.following(query)
        assert found == search.following(documents, query)
        assert list(found.values()) == sorted(found.values(), reverse=True)
    odd = [*text, index._separator, *text[:2]]  # not even where a separator stands
    assert index.longest(odd) == search.longest(documents, odd)
    for few in (64, 0):
        with patch("rote.corpus.index.FEW", few):
            assert index.longest(text) == search.longest(documents, text)
    for least in (1, 3):
        assert index.spans(text, least) == search.spans(documents, text, least)
    for length, least in ((1, 1), (2, 2), (4, 3)):
        repeated = dict(index.repeated(length, least))
        whole = {tuple(index.document(p.document)[p.token : p.token + length].tolist()): n for p, n in repeated.items()}
        assert len(whole) == len(repeated)
        assert whole == search.repeated(documents, length, least)
        for place in repeated:
            ids = index.document(place.document)[place.token : place.token + length].tolist()
            assert place == index.places(ids, 1)[0]


def test_what_the_engine_itself_leaves_out(tmp_path: Path) -> None:
    """Why `ntd` and `creativity` of the engine are not asked: they err about what stands at the end of a shard."""
    index = indexed(tmp_path / "index", [[3, 1], [3, 1, 2, 1], [2, 3, 1]], 2)
    own = index.engine.ntd([1], max_support=10)["result_by_token_id"]
    assert {token: each["cont_cnt"] for token, each in own.items()} == {0: 4}, "mended? Then following may use it"
    assert index.following([1]) == {None: 3, 2: 1}
    index = indexed(tmp_path / "index", [[1, 3]], 2)
    assert index.engine.creativity([2, 1, 1])["rs"] == [0, 1, 3], "mended? Then longest may use it"
    assert index.longest([2, 1, 1]) == [0, 1, 1]


def test_repeats_longer_than_a_hundred_thousand_bytes_are_counted(tmp_path: Path) -> None:
    """Where the engine's own builder cuts files into parts, they would not be."""
    rng = np.random.default_rng(0)
    book = rng.integers(0, 50000, 60_000).tolist()
    index = indexed(tmp_path / "index", [[1], book, book, [2, *book]], 2)
    assert index.count(book) == 3
    assert index.count(book[5:]) == 3
    assert index.longest([*book, 60_000])[0] == len(book)


@pytest.mark.parametrize(("vocabulary", "width"), [(1, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), (2**32 - 1, 4)])
def test_a_token_is_as_wide_as_the_vocabulary_needs(vocabulary: int, width: int) -> None:
    """With room for the separator, which is the largest number of the width."""
    assert width_of(vocabulary) == width
    assert vocabulary - 1 < np.iinfo(numbers_of(width_of(vocabulary))).max


def test_a_token_that_no_document_can_have_is_nowhere(tmp_path: Path) -> None:
    index = indexed(tmp_path / "index", [[1, 2]], 2)
    for query in ([65535], [1, 65535], [70000], [-1], [2**40]):
        assert index.count(query) == 0
        assert index.places(query) == []
        assert index.following(query) == {}
    with pytest.raises(InputError, match="no token"):
        index.count([])
    with pytest.raises(InputError, match="there is no document 1"):
        index.document(1)


@pytest.mark.parametrize("name", ["tables", "tokenized", "offset.0", "metadata", "metaoff", "unigram"])
def test_a_folder_may_be_called_as_the_files_are(name: str, tmp_path: Path) -> None:
    """The engine itself ends the process there."""
    (tmp_path / name).mkdir()
    index = indexed(tmp_path / name / "index", [[1, 2], [2, 1, 2]], 2, room=1)
    assert index.count([1, 2]) == 2
    assert index.following([2]) == {None: 2, 1: 1}


def test_more_shards_than_ten(tmp_path: Path) -> None:
    """The engine itself takes the eleventh for the third."""
    documents = [[number, 7, number] for number in range(12)]
    index = indexed(tmp_path / "index", documents, 2, room=1)
    assert index.shards == 12
    assert [(place.document, place.token) for place in index.places([7])] == search.places(documents, [7])
    assert index.following([7]) == search.following(documents, [7])
    assert index.longest([7, 10, 2, 7, 2]) == search.longest(documents, [7, 10, 2, 7, 2])
    assert index.places([10, 7, 10]) == [Place(10, 0)]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    """The engine itself takes them for its own, and ends the process or answers from them."""
    folder = tmp_path / "index"
    indexed(folder, [[1, 2], [3, 4, 5]], 2, room=1)
    for name in ("table.0.old", "offset.0~", "metadata of these.txt", "my tokenized files"):
        (folder / name).write_bytes(b"12345678")
    (folder / "metaoff.1").unlink()
    index = CorpusIndex(folder, "tokens", 2, 65535)
    assert index.places([4, 5]) == [Place(1, 1)]
    assert (index.name(0), index.name(1)) == ("d0", "document 1")


def test_a_folder_that_is_no_whole_index_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    indexed(folder, [[1, 2], [3, 4, 5]], 2, room=1)

    def refused(**change: bytes | None) -> str:
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(folder, broken)
        for name, content in change.items():
            path = broken / name.replace("_", ".")
            path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(InputError) as error:
            CorpusIndex(broken, "tokens", 2, 65535)
        return str(error.value)

    assert "no tokenized.0" in refused(tokenized_0=None)
    assert "table.1 is missing" in refused(table_1=None)
    assert "cut short" in refused(table_0=b"12345")
    assert "cut short" in refused(tokenized_0=b"123")
    assert "no separator" in refused(tokenized_0=bytes(6))
    assert "cut short" in refused(offset_0=b"")
    for begins in ([2], [400], [0, 400], [0, 0]):
        assert "offset.0 does not fit tokenized.0" in refused(offset_0=np.array(begins, dtype="<u8").tobytes())
    (folder / "metadata.0").write_bytes(b"{")
    assert CorpusIndex(folder, "tokens", 2, 65535).name(0) == "document 0"
    (folder / "metadata.0").unlink()
    assert CorpusIndex(folder, "tokens", 2, 65535).name(0) == "document 0"
    indexed(folder, [[1, 2], [3, 4, 5]], 2)
    for content in (b"123", bytes(8)):
        (folder / "metaoff.0").write_bytes(content)
        assert CorpusIndex(folder, "tokens", 2, 65535).name(1) == "document 1"
