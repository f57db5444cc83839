"""What benchmarks are made of and others rest on."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import member, probe
from benchmarks.planted import LENGTHS, PASSAGES, planted


def test_the_planted_text_is_the_same_every_time(alice: str, gatsby: str) -> None:
    text = planted()
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "691dd9389d8fe31bb3fe3d01add3b5bd1f4e6a3204cf94a91c7fdf739e9df53e"
    )
    added = len(text) - len(gatsby)
    assert PASSAGES * LENGTHS[0] < added < PASSAGES * LENGTHS[1]
    assert sum(part.strip() in alice for part in text.split("\n\n") if len(part) > 100) >= PASSAGES / 2


def test_membership_costs_are_of_the_same_scores(bundled: Any) -> None:
    """Loss alone, rote's scores and the peers' all come to the same numbers, whatever passes they make."""
    lines = [json.loads(line)["text"][:120] for line in member.MEMBERS.read_text(encoding="utf-8").splitlines()[:3]]
    ids = [bundled.tokenizer.encode(text, add_special_tokens=False) for text in lines]
    lower = [bundled.tokenizer.encode(text.lower(), add_special_tokens=False) for text in lines]
    texts = [member.Text(*each) for each in zip(lines, ids, lower, strict=True)][1:]
    plain = member.Plain(bundled, ids[0])
    ours = member.all_scores(bundled, texts, ids[0])
    assert member.losses(bundled, texts) == pytest.approx([scores["loss"] for scores in ours], rel=1e-5)
    assert member.one_pass_scores(bundled, texts)[0].keys() == ours[0].keys() - {"lowercase", "recall"}
    for passes in member.PEERS.values():
        for own, theirs in zip(ours, plain.all_scores(texts, passes), strict=True):
            assert theirs == pytest.approx({name: own[name] for name in theirs}, rel=1e-3)


def test_membership_costs_need_torch_transformers_and_numpy_alone() -> None:
    """What the script imports at once; that these rooms of rote need no more is tested with the other imports."""
    tree = ast.parse(Path(member.__file__).read_text(encoding="utf-8"))
    names = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    rooms = {".".join(name.split(".")[:2]) for name in names if name.startswith("rote")}
    assert rooms <= {"rote.errors", "rote.extraction", "rote.membership", "rote.models", "rote.tokens"}
    others = {name.split(".")[0] for name in names} - {"rote"} - sys.stdlib_module_names
    assert others == {"numpy", "torch"}


def test_every_way_of_asking_asks_all(capsys: pytest.CaptureFixture[str]) -> None:
    """No question is asked twice or refused, and the sample is said to be one."""
    probe.main(["--questions", "36", "--sample", "1"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if "|" in line][2:]
    assert [(row[1], *row[4:6]) for row in rows] == [
        ("36", "36", "0"),
        ("36", "0", "0"),
        ("1", "1", "0"),
        ("36", "36", "0"),
    ]
    assert "scaled up" in rows[2][0]
