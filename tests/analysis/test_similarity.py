"""Similarity of texts: against blocks found by looking everywhere, scikit-learn, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rote.analysis.similarity import normalise, sentences, similarity, tf_idf_cosine
from rote.errors import InputError
from tests.reference import similarity as reference

WORDS = st.lists(st.sampled_from(["ah", "be", "see", "Dee", "eff."]), max_size=14)


@given(WORDS, WORDS)
def test_ratios_and_alignment_are_those_of_blocks_found_by_looking_everywhere(a: list[str], b: list[str]) -> None:
    assume(a)
    found = similarity(" ".join(a), " ".join(b), seed="")
    assert found.word_ratio == pytest.approx(reference.ratio(a, b), abs=1e-15)
    inside = reference.matched(a, b)
    assert found.matched == sum(inside)
    one, two = sentences(" ".join(a)), sentences(" ".join(b))
    assert found.sentence_ratio == pytest.approx(reference.ratio(one, two), abs=1e-15)
    for first, last, share in found.by_position(parts=3):
        assert share == sum(inside[first:last]) / (last - first)
    rebuilt: list[str] = []
    for piece in found.pieces:
        assert (a[piece.first : piece.last] == b[piece.other_first : piece.other_last]) == (piece.kind == "equal")
        rebuilt += b[piece.other_first : piece.other_last]
    assert rebuilt == b
    longest = reference.longest_block(a, b)[2]
    assert (found.longest.last - found.longest.first if found.longest else 0) == longest
    same = a == b
    assert (found.first_difference is None) == same
    if not same:
        at = found.first_difference
        assert at is not None
        assert a[:at] == b[:at]
        assert a[at : at + 1] != b[at : at + 1]


def test_parts_cover_the_truth() -> None:
    text = " ".join(map(str, range(1000)))
    parts = similarity(text, text, seed="").by_position()
    assert len(parts) == 100
    assert parts[0][0] == 0
    assert parts[-1][1] == 1000
    assert all(share == 1 for _, _, share in parts)
    short = similarity("one two three", "one", seed="").by_position()
    assert short == [(0, 1, 1.0), (1, 2, 0.0), (2, 3, 0.0)]


def test_normalisation() -> None:
    assert normalise("‘Oh!’ she  said\n\n“so…”\tﬁne «x»") == '\'Oh!\' she said "so..." fine "x"'
    assert normalise("Case—and Dashes - stay") == "Case—and Dashes - stay"


def test_sentences() -> None:
    text = "One. Two! 'Three?' four (five.) Six 3.5 and \"he said 'so.'\" Seven"
    assert sentences(text) == ["One.", "Two!", "'Three?'", "four (five.)", "Six 3.5 and \"he said 'so.'\"", "Seven"]
    assert sentences("") == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("the cat sat on the mat", "the cat sat on the mat"),
        ("The cat sat; a dog did not.", "the DOG sat, and the cat did not not not"),
        ("alpha beta", "gamma delta"),
        ("naïve café déjà vu déjà", "Café au lait, naïve"),
    ],
)
def test_tf_idf_is_that_of_its_definition(one: str, two: str) -> None:
    assert tf_idf_cosine(one, two) == pytest.approx(reference.tf_idf_cosine(one, two), abs=1e-12)


def test_tf_idf_of_unrelated_books(alice: str, gatsby: str) -> None:
    alice, gatsby = alice[:30_000], gatsby[:30_000]
    found = tf_idf_cosine(alice, gatsby)
    assert found == pytest.approx(reference.tf_idf_cosine(alice, gatsby), abs=1e-12)
    assert found is not None
    assert found > 0.7, "what the docstring says of unrelated books"
    assert similarity(alice, gatsby, seed="").word_ratio < 0.04


def test_tf_idf_without_words_is_none() -> None:
    assert tf_idf_cosine("a b", "word") is None


@pytest.mark.parametrize(
    ("truth", "generated", "seed", "before", "seeded"),
    [
        ("One two three four", "One two three five", "One two", 2, 2),
        ("One two three four", "One two three five", "One tw", 1, 1),  # the last word goes on behind the seed
        ("One two, three four", "One two three five", "One two", 1, 1),
        ("‘One two three", '"One two', "‘One", 0, 0),  # a text that does not begin with its own seed
        ("A TITLE One two three four", "One two three four", "One two", 4, 2),
        ("One two", "One two three four", "One two three", 0, 3),  # shorter than the seed: none of it is written
        ("Another book", "One two three four", "One two", 0, 2),
        ("Another book", "One twofold three", "One two", 0, 1),
    ],
)
def test_the_seed_never_counts_as_written(truth: str, generated: str, seed: str, before: int, seeded: int) -> None:
    found = similarity(truth, generated, seed=seed)
    assert (found.words_before, found.seed_words) == (before, seeded)
    assert list(found.truth) == normalise(truth).split()[before:]
    assert list(found.generated) == normalise(generated).split()[seeded:]


def test_a_truth_that_ends_with_the_seed_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to compare with"):
        similarity("One two", "One two three", seed="One two")
