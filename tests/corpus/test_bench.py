"""The extraction benchmark's files and criteria: read, refused by name and place, written byte for byte."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import InputError
from rote.corpus.bench import (
    HEADER,
    Guess,
    read_guesses,
    read_ids,
    read_split,
    splits_in,
    write_guesses,
    write_ids,
)
from rote.corpus.criteria import entropy, period, repetitive, substring
from tests.reference import bench as slow

PUBLIC = Path(__file__).parents[1] / "data/extraction-benchmark"

SUFFIXES = st.lists(st.integers(0, 2), min_size=1, max_size=12)


# --- arrays


@pytest.mark.parametrize("name", ["train_prefix", "train_suffix", "val_prefix", "val_preprefix", "test_prefix"])
def test_public_arrays_round_trip_byte_for_byte(name: str, tmp_path: Path) -> None:
    path = PUBLIC / f"{name}.npy"
    ids = read_ids(path, vocabulary=50257)
    assert ids.dtype == np.int64
    assert (ids == np.load(path)).all()
    write_ids(tmp_path / "again.npy", ids)
    assert (tmp_path / "again.npy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("most", "vocabulary", "kind"),
    [(65535, None, "uint16"), (65536, None, "uint32"), (9, 65536, "uint16"), (9, 65537, "uint32")],
)
def test_ids_are_as_wide_as_the_vocabulary(most: int, vocabulary: int | None, kind: str, tmp_path: Path) -> None:
    ids = np.array([[0, most], [1, 2]])
    write_ids(tmp_path / "ids.npy", ids, vocabulary)
    assert np.load(tmp_path / "ids.npy").dtype == kind
    assert (read_ids(tmp_path / "ids.npy") == ids).all()


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), **options)
    return out.getvalue()


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.ones((2, 2), int))
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"ids\.npy: there is no such file"),
        (b"", r"is not an \.npy file of numbers"),
        (b"Example ID,Suffix Guess\n", r"is not an \.npy file of numbers"),
        (npy([[1, 2]])[:-3], r"is not an \.npy file of numbers"),
        (npy(np.array([{"a": 1}]), allow_pickle=True), r"is not an \.npy file of numbers"),
        (npz(), "holds several arrays"),
        (npy([1, 2]), r"holds an array of shape 2 of int64\. Give a row of token ids"),
        (npy([[[1]]]), r"shape 1×1×1"),
        (npy(7), r"shape none"),
        (npy([[1.0, 2.0]]), "of float64"),
        (npy([[True]]), "of bool"),
        (npy(np.zeros((0, 50), int)), r"shape 0×50: nothing"),
        (npy(np.zeros((3, 0), int)), r"shape 3×0: nothing"),
        (npy([[1, 2], [3, -4]]), r"ids\.npy, row 1: token 1 is -4\. Give token ids from 0 to 4,294,967,295"),
        (npy(np.array([[1], [2**32]])), r"row 1: token 0 is 4294967296"),
        (npy(np.array([[2**64 - 1]], dtype=np.uint64)), r"row 0: token 0 is 18446744073709551615"),
    ],
)
def test_what_is_no_array_of_ids_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_ids(path)


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(InputError, match=r"train_prefix\.npy, row \d+: token \d+ is \d+\. .* 0 to 99: the vocabulary"):
        read_ids(PUBLIC / "train_prefix.npy", vocabulary=100)
    with pytest.raises(InputError, match="is a folder"):
        read_ids(PUBLIC)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for wrong in (np.array([[-1]]), np.array([[2**32]]), np.array([1, 2]), np.array([[0.5]]), np.zeros((0, 3), int)):
        with pytest.raises(InputError, match=r"ids\.npy: "):
            write_ids(tmp_path / "ids.npy", wrong)
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write_ids(tmp_path / "nowhere/ids.npy", np.array([[1]]))


def test_splits_are_read_with_what_there_is_of_them(tmp_path: Path) -> None:
    assert splits_in(PUBLIC) == ["train", "val", "test"]
    train, val, test = (read_split(PUBLIC, name) for name in splits_in(PUBLIC))
    assert (len(train), len(val), len(test)) == (40, 20, 20)
    assert train.preprefix is None
    assert val.preprefix is not None
    assert val.preprefix.shape == (20, 100)
    assert test.suffix is None
    write_ids(tmp_path / "other_prefix.npy", train.prefix)
    write_ids(tmp_path / "other_suffix.npy", val.prefix)
    write_ids(tmp_path / "val_prefix.npy", val.prefix)
    assert splits_in(tmp_path) == ["val", "other"]
    with pytest.raises(InputError, match=r"other_suffix\.npy has 20 rows, and other_prefix\.npy beside it has 40"):
        read_split(tmp_path, "other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no files such as train_prefix"):
        splits_in(tmp_path / "empty")
    with pytest.raises(InputError, match="there is no folder"):
        splits_in(tmp_path / "nowhere")


# --- guesses


def test_the_public_example_round_trips_byte_for_byte(tmp_path: Path) -> None:
    path = PUBLIC / "example_submission.csv"
    guesses = read_guesses(path, examples=50, length=10)
    assert len(guesses) == 500
    write_guesses(tmp_path / "again.csv", guesses)
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


@given(
    st.lists(
        st.builds(Guess, st.integers(0, 99), st.lists(st.integers(0, 2**32 - 1), min_size=1).map(tuple)), min_size=1
    )
)
def test_any_guesses_round_trip(tmp_path_factory: pytest.TempPathFactory, guesses: list[Guess]) -> None:
    path = tmp_path_factory.getbasetemp() / "guesses.csv"
    write_guesses(path, guesses)
    assert read_guesses(path) == guesses


HEAD = ",".join(HEADER) + "\n"


@pytest.mark.parametrize(
    "body",
    ['3,"[1, 2, 3]"\n', '3,"[1,2,3]"', '3,"[1,2,3]"\r\n', ' 3 ,"[ 1 , 2 ,3 ] "\n\n\n', '3,"[1,\n2,3]"\n'],
)
def test_guesses_may_be_written_in_several_ways(body: str, tmp_path: Path) -> None:
    for mark in ("", "\ufeff"):
        path = tmp_path / "guesses.csv"
        path.write_text(mark + HEAD + body, newline="")
        assert read_guesses(path, 4, 3) == [Guess(3, (1, 2, 3))]


FIRST = '0,"[1, 2, 3]"\n'


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("", None, "is empty"),
        (HEAD, None, "holds no guesses"),
        (HEAD + "\n\n", None, "holds no guesses"),
        ("Example ID, Suffix Guess\n" + FIRST, 1, "the header is 'Example ID, Suffix Guess'"),
        (FIRST, 1, "the header is "),
        ("\n" + HEAD + FIRST, 1, "the header is ''"),
        (HEAD + FIRST + '4,"[1,2,3]"\n', 3, r"there is no example 4\. .* up to 3 as there are 4 answers"),
        (HEAD + '-1,"[1,2,3]"\n', 2, "there is no example -1"),
        (HEAD + FIRST + '\n1,"[1,2]"\n', 4, "the guess has 2 tokens, and the answers have 3"),
        (HEAD + '1,"[1,2,3,4]"\n', 2, "the guess has 4 tokens, and the answers have 3"),
        (HEAD + '1,"[1,2,-3]"\n', 2, "token 2 of the guess is -3"),
        (HEAD + '1,"[1,2,4294967296]"\n', 2, "token 2 of the guess is 4294967296"),
        (HEAD + '1,"[1,2,99999999999999999999]"\n', 2, "which is no list of token ids"),
        (HEAD + '1,"[]"\n', 2, r"the guess is '\[\]', which is no list"),
        (HEAD + '1,"[1,2,]"\n', 2, "no list"),
        (HEAD + '1,"[1 2 3]"\n', 2, "no list"),
        (HEAD + '1,"[1,2.0,3]"\n', 2, "no list"),
        (HEAD + '1,"(1,2,3)"\n', 2, "no list"),
        (HEAD + "1,word\n", 2, "no list"),
        (HEAD + "1,\n", 2, "no list"),
        (HEAD + '1.0,"[1,2,3]"\n', 2, r"the example's id is '1\.0', which is no whole number"),
        (HEAD + ',"[1,2,3]"\n', 2, "the example's id is ''"),
        (HEAD + '١,"[1,2,3]"\n', 2, "which is no whole number"),
        (HEAD + "1\n", 2, "1 field, not 2"),
        (HEAD + '1,        "[1,2,3]"\n', 2, "4 fields, not 2"),
        (HEAD + '1,"[1,2,3]",0.9\n', 2, "3 fields, not 2"),
        (HEAD + FIRST + '1,"[1,2,3]\n2,"[1,2,3]"\n', 3, "not CSV"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_its_reason(content: str, line: int | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "guesses.csv"
    path.write_text(content, "utf-8", newline="")
    with pytest.raises(InputError, match=said) as refused:
        read_guesses(path, examples=4, length=3)
    named = re.search(r"guesses\.csv, line (\d+): ", str(refused.value))
    assert (None if named is None else int(named[1])) == line


def test_what_is_no_guess_is_not_written(tmp_path: Path) -> None:
    for wrong in (Guess(-1, (1,)), Guess(0, (-1,)), Guess(0, ()), Guess(0, (2**32,))):
        with pytest.raises(InputError, match="guess 1: "):
            write_guesses(tmp_path / "guesses.csv", [Guess(0, (1,)), wrong])
    assert not (tmp_path / "guesses.csv").exists()


# --- criteria


@given(SUFFIXES)
def test_criteria_are_those_of_the_slow_way(suffix: list[int]) -> None:
    assert entropy(suffix) == pytest.approx(slow.entropy(suffix), abs=1e-12)
    assert repetitive(suffix) == slow.repetitive(suffix)
    run = suffix[: period(suffix)]
    assert (run * len(suffix))[: len(suffix)] == suffix
    assert repetitive(suffix * 2)


@given(st.lists(st.integers(0, 12), max_size=8), st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_a_suffix_is_found_in_a_prefix(prefix: list[int], suffix: list[int]) -> None:
    assert substring(prefix, suffix) == slow.substring(prefix, suffix)
    assert substring([*prefix, *suffix, *prefix], suffix)


def test_criteria_by_hand() -> None:
    assert entropy([7] * 50) == 0
    assert entropy([1, 2] * 25) == 1
    assert entropy(range(8)) == 3
    assert (period([5]), period([5, 5, 5]), period([1, 2, 3, 1, 2]), period([1, 2, 3])) == (1, 1, 3, 3)
    assert not repetitive([5])
    assert repetitive([5, 5])
    assert repetitive([1, 2, 1, 2, 1])
    assert not repetitive([1, 2, 3, 1, 2])
