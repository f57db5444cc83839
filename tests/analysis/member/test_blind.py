"""What is told without a model: it finds what differs, and nothing where nothing does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from rote import InputError
from rote.analysis.member import blind
from rote.analysis.member.fitting import aligned, deal
from rote.analysis.member.measures import Bools, Ints, Ladder, Texts, auroc
from rote.corpus.texts import year_of
from tests.analysis.member.tables import passages
from tests.cases import all_cases

Floats = NDArray[np.float64]


def area(features: blind.Features, member: Bools, seed: int, group: Ints | None = None) -> float:
    texts = Texts(member, np.arange(len(member)) if group is None else group, group is not None)
    part = deal(texts, seed)
    assert part is not None
    scores = np.zeros(len(member))
    for number in np.unique(part):
        scores[part == number] = blind.fit(features, np.flatnonzero(part != number), member).scores[part == number]
    return float(auroc(*Ladder.of(aligned(scores, member, part), member).counts()))


def drawn(count: int, seed: int = 0) -> Bools:
    return np.random.default_rng(seed).permutation(np.arange(count) % 2 == 0)


def test_dates_alone_tell() -> None:
    member = drawn(60)
    dates = [f"20{'15' if one else '23'}-{place % 12 + 1:02}" for place, one in enumerate(member)]
    features = blind.features(passages(60, 100), dates)
    assert area(features, member, 0) == 1.0
    high, low = blind.named(features, member)
    assert "year" in low
    assert "year" not in high
    assert features.words[-1] == "dates"


def test_a_date_that_is_there_or_not_tells() -> None:
    member = drawn(60)
    features = blind.features(passages(60, 100), ["2020" if one else None for one in member])
    assert area(features, member, 0) == 1.0
    assert "no date" in blind.named(features, member)[1]


def test_style_alone_tells() -> None:
    member = drawn(80)
    texts = [
        text.replace("\n", " ").replace("’", "'") if one else text
        for text, one in zip(passages(80, 250), member, strict=True)
    ]
    assert area(blind.features(texts, [None] * 80), member, 0) > 0.99


def test_words_alone_tell_and_are_named() -> None:
    member = drawn(60)
    texts = [f"{text} {'whale' if one else 'shark'}" for text, one in zip(passages(60, 80), member, strict=True)]
    features = blind.features(texts, [None] * 60)
    assert area(features, member, 0) > 0.98
    assert "word 'whale'" in blind.named(features, member)[0]
    assert "dates" not in features.words


def test_lengths_alone_tell() -> None:
    member = drawn(80)
    texts = [text[: 150 if one else 110] for text, one in zip(passages(80, 150), member, strict=True)]
    assert area(blind.features(texts, [None] * 80), member, 0) > 0.98


@pytest.mark.scaled
@pytest.mark.parametrize("grouped", [False, True])
def test_labels_drawn_at_random_come_to_a_half(grouped: bool) -> None:
    """600 labelings each, of 60 passages: a mean of 0.498 and 0.502, with a standard error of 0.004."""
    count, labelings = 60, 100 if all_cases() else 8
    rng = np.random.default_rng(0)
    features = blind.features(passages(count, 120), [None] * count)
    found = []
    for number in range(labelings):
        if grouped:
            group = np.repeat(np.arange(17), rng.permutation([12, 10, 8, 6, 4, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]))
            found.append(area(features, (rng.permutation(17) < 8)[group], number, group))
        else:
            found.append(area(features, rng.permutation(count) < count // 2, number))
    error = float(np.std(found)) / len(found) ** 0.5
    assert abs(float(np.mean(found)) - 0.5) < 3.5 * error


def test_what_is_fitted_depends_on_no_other_text() -> None:
    """The scores of the texts that it was fitted on stay as they are when all others change."""
    texts = passages(40, 100)
    member = drawn(40)
    on = np.arange(30)
    dates = [f"{2000 + place}" if place % 3 else None for place in range(40)]
    one = blind.fit(blind.features(texts, dates), on, member)
    other = blind.fit(
        blind.features([*texts[:30], *(["Quite another!"] * 10)], [*dates[:30], *["1900"] * 10]), on, member
    )
    assert one.scores[:30] == pytest.approx(other.scores[:30], abs=1e-6)
    assert one.names == other.names


def test_terms_weigh_as_scikit_learn_has_it() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = passages(30, 100)
    features = blind.features(texts, [None] * 30)
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", min_df=2, sublinear_tf=True).fit(
        texts[:20]
    )
    fitted = blind.fit(features, np.arange(20), drawn(30))
    assert [f"word {name!r}" for name in words.get_feature_names_out()] == [
        name for name in fitted.names if name.startswith("word ")
    ]


@pytest.mark.parametrize(
    "texts", [["a", "b", "c", "d"], ["!!", "?!", "\ud800", "!"], ["same"] * 4, ["", " ", "\n", ""]]
)
def test_texts_that_have_hardly_anything_in_them(texts: list[str]) -> None:
    member = np.array([True, True, False, False])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = blind.fit(blind.features(texts, [None] * 4), np.array([0, 2]), member)
        high, low = blind.named(blind.features(texts, [None, "2020", None, None]), member)
    assert np.isfinite(fitted.scores).all()
    assert not set(high) & set(low)


def test_years_of_dates() -> None:
    assert year_of("2023") == 2023
    assert year_of("2023-07") == pytest.approx(2023.5, abs=0.01)
    assert 2023.99 < year_of("2023-12-31") < 2024
    assert year_of("2024-02-29") == 2024 + 59 / 366
    for wrong in ("", "23", "2023-13", "2023-02-29", "2023-1", "2023/01/01", "0000", "20230101", "٢٠٢٣", "2023 "):
        with pytest.raises(InputError, match="is no date; write YYYY, YYYY-MM or YYYY-MM-DD"):
            year_of(wrong)
