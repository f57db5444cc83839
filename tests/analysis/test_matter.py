"""Front and back matter: told by the user, by markers, or guessed by words near either end."""

from __future__ import annotations

import pytest

from rote.analysis.matter import Part, gutenberg_body, part, read_body
from rote.errors import InputError

START = "*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***"
END = "*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***"
WORK = "The rabbit ran on. " * 300
NOTICE = "Copyright 1951 by the author. All rights reserved. Printed in the United States."


def at(text: str, passage: str) -> Part:
    start = text.index(passage)
    return part(text, start, start + len(passage))


def test_what_the_user_says_counts() -> None:
    text = "x" * 100
    assert part(text, 0, 10, (20, 80)) == Part("front matter", guessed=False)
    assert part(text, 15, 40, (20, 80)) == Part("work", guessed=False)
    assert part(text, 5, 30, (20, 80)) == Part("front matter", guessed=False)  # its middle lies before 20
    assert part(text, 70, 95, (20, 80)) == Part("back matter", guessed=False)


@pytest.mark.parametrize("this", ["THE", "THIS"])
def test_gutenberg_markers(this: str) -> None:
    start, end = START.replace("THE", this, 1), END.replace("THE", this, 1)
    text = f"A licence.\n{start}\n{WORK}\n{end}\nMore licence."
    body = gutenberg_body(text)
    assert body is not None
    assert text[slice(*body)] == f"\n{WORK}\n"
    assert at(text, "A licence.") == Part("front matter", guessed=True)
    assert at(text, "More licence.") == Part("back matter", guessed=True)
    assert at(text, "rabbit") == Part("work", guessed=True)
    only_end = f"{WORK}\n{end}\nMore."
    assert at(only_end, "More.") == Part("back matter", guessed=True)
    assert gutenberg_body(WORK) is None


@pytest.mark.parametrize(
    "notice",
    [NOTICE, "ISBN 0-14-118280-X", "1230 Avenue, New York, NY 10020", "London WC1B 3DP", "© 1998 somebody",
     "Published by Somebody and Sons", "ABOUT THE AUTHOR"],
)  # fmt: skip
def test_words_near_either_end(notice: str) -> None:
    assert at(f"{notice}\n{WORK}", notice) == Part("front matter", guessed=True)
    assert at(f"{WORK}\n{notice}", notice) == Part("back matter", guessed=True)
    assert at(f"{WORK}{notice}\n{WORK}", notice) == Part("work", guessed=True)


def test_words_count_near_a_passage_and_not_far_from_it() -> None:
    text = f"{NOTICE}\nFor my mother.\n{WORK}"
    assert at(text, "For my mother.") == Part("front matter", guessed=True)
    assert at(f"{NOTICE}{' ' * 210}For my mother.\n{WORK}", "For my mother.") == Part("work", guessed=True)
    assert at(f"in 10020 steps she ran\n{WORK}", "steps") == Part("work", guessed=True)


def test_reading_a_body() -> None:
    assert read_body("5:20", 30) == (5, 20)
    assert read_body("5:", 30) == (5, 30)
    assert read_body(":20", 30) == (0, 20)
    for bad in (":", "5", "a:b", "-1:5", "5-20", "1:2:3"):
        with pytest.raises(InputError, match="give START:END in characters"):
            read_body(bad, 30)
    for bad in ("5:5", "20:5", "5:31"):
        with pytest.raises(InputError, match="START must be below END, and END at most 30"):
            read_body(bad, 30)
