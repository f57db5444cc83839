"""What benchmarks are made of and others rest on."""

from __future__ import annotations

import hashlib

from benchmarks.planted import LENGTHS, PASSAGES, planted


def test_the_planted_text_is_the_same_every_time(alice: str, gatsby: str) -> None:
    text = planted()
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "691dd9389d8fe31bb3fe3d01add3b5bd1f4e6a3204cf94a91c7fdf739e9df53e"
    )
    added = len(text) - len(gatsby)
    assert PASSAGES * LENGTHS[0] < added < PASSAGES * LENGTHS[1]
    assert sum(part.strip() in alice for part in text.split("\n\n") if len(part) > 100) >= PASSAGES / 2
