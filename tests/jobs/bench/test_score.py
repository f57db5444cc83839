"""`rote bench score`: equal to the public challenge's scorer, with costs by a slow walk, and bad input named."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import BenchScore, InputError, RunError
from rote.corpus.bench import Guess, write_guesses
from rote.odds import wilson
from rote.store.files import plain
from rote.store.seal import write_seal
from rote.store.submissions import ScoreResult
from tests.cli.command import rote_here
from tests.jobs.bench.attacks import attack, random_case
from tests.reference.bench import official, within

PUBLIC = Path(__file__).parents[2] / "data/extraction-benchmark"
EXAMPLE, ANSWERS = PUBLIC / "example_submission.csv", PUBLIC / "fake_test_suffixes.npy"


def grown(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """A curve by its last point for each number of errors, where that is higher than all before."""
    kept: list[tuple[int, float]] = []
    for errors, recall in dict(curve).items():
        if not kept or recall > kept[-1][1]:
            kept.append((errors, recall))
    return kept


def test_it_is_the_official_score_of_a_thousand_submissions(tmp_path: Path) -> None:
    draw, zeros, ended = Random(16), 0, 0
    for _ in range(1000):
        path, answers, guesses = random_case(draw, tmp_path)
        errors = draw.randint(1, 12)
        headline, curve = official(path, answers, errors)
        result = rote.bench.score(path, answers=answers, errors=errors)
        (own,) = result.submissions
        assert own.recall.share == headline
        assert own.recall.interval == [*wilson(own.recall.solved, result.answers.examples)]
        assert [(point.errors, point.recall) for point in own.curve] == grown(curve)
        assert own.guesses == len(guesses) == own.wrong + own.repeated + own.recall_all.solved
        assert own.recall_all.share == (curve[-1][1] if curve else 0)
        solved, wrong = own.recall.solved, min(own.wrong, errors)
        assert own.precision == (solved / (solved + wrong) if solved + wrong else None)
        assert own.examples_guessed == len({guess.example for guess in guesses})
        zeros += headline == 0
        ended += own.counted < own.guesses
    assert zeros > 50
    assert ended > 200


def test_it_is_the_official_score_at_a_hundred_errors(tmp_path: Path) -> None:
    draw = Random(100)
    for examples in (1000, 991):
        answers = np.array([[draw.randint(0, 9) for _ in range(5)] for _ in range(examples)])
        guesses = []
        for _ in range(1500):
            number = draw.randrange(examples)
            wrong = (draw.randint(0, 9), *answers[number, 1:].tolist())
            guesses.append(Guess(number, tuple(answers[number].tolist()) if draw.random() < 0.7 else wrong))
        np.save(tmp_path / "answers.npy", answers)
        write_guesses(tmp_path / "guesses.csv", guesses)
        result = rote.bench.score(tmp_path / "guesses.csv", answers=tmp_path / "answers.npy")
        assert result.errors == 100  # a tenth, rounded up
        headline, _ = official(tmp_path / "guesses.csv", tmp_path / "answers.npy")
        assert 0 < headline == result.submissions[0].recall.share < result.submissions[0].recall_all.share


def test_the_public_example(tmp_path: Path) -> None:
    """A twentieth of it, which is scored in full by hand: its recall at 100 errors is 0.5."""
    result = rote.bench.score(EXAMPLE, answers=ANSWERS)
    (own,) = result.submissions
    assert (result.errors, result.answers.examples, result.answers.tokens) == (5, 50, 10)
    assert own.recall.share == official(EXAMPLE, ANSWERS, 5)[0]
    said = rote_here("bench", "score", EXAMPLE, "--answers", ANSWERS)
    assert said.code == 0
    assert said.out.startswith(f"Recall at 5 errors: {own.recall.share:.3g}.\n")
    assert json.loads(rote_here("bench", "score", EXAMPLE, "--answers", ANSWERS, "--json").out) == plain(result)


def save(folder: Path, answers: list[list[int]]) -> Path:
    np.save(folder / "answers.npy", np.array(answers))
    return folder / "answers.npy"


def submit(folder: Path, *guesses: tuple[int, tuple[int, ...]], name: str = "guesses.csv") -> Path:
    write_guesses(folder / name, [Guess(*guess) for guess in guesses])
    return folder / name


def test_by_hand(tmp_path: Path) -> None:
    answers = save(tmp_path, [[1, 1], [2, 2], [3, 3], [4, 4]])
    path = submit(tmp_path, (0, (1, 1)), (1, (9, 9)), (0, (1, 1)), (1, (9, 9)), (2, (3, 3)), (3, (9, 9)), (1, (2, 2)))
    one, two, three, four = (rote.bench.score(path, answers=answers, errors=e).submissions[0] for e in (1, 2, 3, 4))
    assert [own.recall.solved for own in (one, two, three, four)] == [1, 1, 2, 3]  # a repeated wrong guess counts
    assert [own.counted for own in (one, two, three, four)] == [2, 4, 6, 7]
    assert [own.precision for own in (one, two, three, four)] == [1 / 2, 1 / 3, 2 / 5, 3 / 6]
    assert (one.wrong, one.repeated, one.examples_guessed) == (3, 1, 4)
    assert [(point.errors, point.solved) for point in one.curve] == [(0, 1), (2, 2), (3, 3)]
    assert rote.bench.score(path, answers=answers).errors == 1
    nothing = rote.bench.score(submit(tmp_path, (0, (9, 9))), answers=answers).submissions[0]
    assert (nothing.recall.share, nothing.curve, nothing.precision) == (0, [], 0)


def test_only_the_last_fifty_tokens_are_compared(tmp_path: Path) -> None:
    answer = list(range(60))
    answers = save(tmp_path, [answer])
    near = submit(tmp_path, (0, (7, *answer[1:])))
    result = rote.bench.score(near, answers=answers)
    assert result.submissions[0].recall.share == 1
    assert (result.answers.tokens, result.answers.compared) == (60, 50)
    assert "Only the last 50 of the 60 tokens" in rote_here("bench", "score", near, "--answers", answers).out
    for place, right in ((9, 1), (10, 0)):
        path = submit(tmp_path, (0, tuple(token + (i == place) for i, token in enumerate(answer))))
        assert rote.bench.score(path, answers=answers).submissions[0].recall.share == right


# --- attacks


def timed(tmp_path: Path, draw: Random) -> tuple[Path, Path, list[tuple[int, bool]], list[tuple[float, int]]]:
    _, answers, guesses = random_case(draw, tmp_path)
    guesses = list(dict.fromkeys(guesses))
    found = [(draw.choice([0.5, 1.0, 2.5, draw.uniform(0, 4)]), draw.randint(1, 9)) for _ in guesses]
    truth = np.load(answers)
    walk = [(guess.example, truth[guess.example].tolist()[-50:] == [*guess.suffix][-50:]) for guess in guesses]
    shutil.rmtree(tmp_path / "attack", ignore_errors=True)
    return attack(tmp_path / "attack", guesses, found), answers, walk, found


def test_costs_are_those_of_a_slow_walk(tmp_path: Path) -> None:
    draw = Random(3)
    for _ in range(25):
        folder, answers, walk, found = timed(tmp_path, draw)
        errors, speed = draw.randint(1, 5), draw.choice([1.0, 2.5])
        result = rote.bench.score(folder, answers=answers, errors=errors, speed=speed)
        costs = result.submissions[0].costs
        assert costs is not None
        seconds, evals = [own * speed for own, _ in found], [float(own) for _, own in found]
        assert (costs.last_seconds, costs.last_token_evals) == (max(seconds), max(evals))
        for spent, points in ((seconds, costs.seconds), (evals, costs.token_evals)):
            assert len(points) == 100
            assert points[-1].budget == max(spent)
            for place, point in enumerate(points, 1):
                assert point.budget == pytest.approx(max(spent) * place / 100)
                assert point.solved == within(walk, spent, point.budget, errors)
                assert point.oracle == within(walk, spent, point.budget)
                assert point.recall == point.solved / result.answers.examples
        limit = draw.choice(seconds)
        both = rote.bench.score(folder, answers=answers, errors=errors, speed=speed, seconds=limit, token_evals=5)
        kept = [own <= limit and work <= 5 for own, work in zip(seconds, evals, strict=True)]
        own = both.submissions[0]
        assert own.recall.solved == within(walk, [0.0 if keep else 1.0 for keep in kept], 0.5, errors)
        assert (own.late, own.guesses) == (kept.count(False), kept.count(True))


def test_what_has_no_times_cannot_be_asked_about_them(tmp_path: Path) -> None:
    for option, value in (("seconds", 3), ("token_evals", 5), ("speed", 2.0)):
        with pytest.raises(InputError, match=rf"{option}={value} is for attacks: .*csv is a file of guesses"):
            rote.bench.score(EXAMPLE, answers=ANSWERS, **{option: value})  # type: ignore[arg-type]
    said = rote_here("bench", "score", EXAMPLE, "--answers", ANSWERS, "--token-evals", "5")
    assert (said.code, said.out) == (1, "")
    assert "error: --token-evals 5 is for attacks" in said.err
    for option, value in (("seconds", 0), ("seconds", float("nan")), ("speed", -1.0), ("speed", float("inf"))):
        with pytest.raises(InputError, match=rf"{option} must be greater than 0 and finite"):
            rote.bench.score(EXAMPLE, answers=ANSWERS, **{option: value})  # type: ignore[arg-type]
    for option in ("errors", "token_evals"):
        with pytest.raises(InputError, match=rf"{option} must be a whole number of at least 1"):
            rote.bench.score(EXAMPLE, answers=ANSWERS, **{option: 0})  # type: ignore[arg-type]


def test_an_attack_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    answers = save(tmp_path, [[1, 1], [2, 2]])
    guesses, found = [Guess(0, (1, 1)), Guess(1, (2, 2))], [(1.0, 10), (2.0, 20)]

    def score(folder: Path) -> ScoreResult:
        return rote.bench.score(folder, answers=answers)

    assert score(attack(tmp_path / "whole", guesses, found)).submissions[0].recall.share == 1
    with pytest.raises(RunError, match="holds an attack that has not ended"):
        score(attack(tmp_path / "begun", guesses, found, sealed=False))
    (tmp_path / "whole/guesses.csv").write_text("Example ID,Suffix Guess\n")
    with pytest.raises(RunError, match=r"guesses\.csv is not what was sealed"):
        score(tmp_path / "whole")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"has no guesses\.csv, so it holds no attack"):
        score(tmp_path / "empty")
    for name, line, said in (
        ("lacking", "", r"lacks guess 0 of guesses\.csv"),
        ("broken", "{", r"guesses\.jsonl, line 1 is damaged"),
        ("untimed", '{"example": 0, "suffix": [1, 1], "seconds": null, "token_evals": 1}', "line 1 is damaged"),
        ("early", '{"example": 0, "suffix": [1, 1], "seconds": -1, "token_evals": 1}', "must be at least 0"),
    ):
        folder = attack(tmp_path / name, guesses, found)
        (folder / "guesses.jsonl").write_text(line + "\n")
        (folder / "seal.json").unlink()
        write_seal(folder, ["manifest.json", "guesses.csv", "guesses.jsonl"])
        with pytest.raises(RunError, match=said):
            score(folder)


# --- bad input


def test_a_bad_submission_is_refused_by_its_line(tmp_path: Path) -> None:
    lines = EXAMPLE.read_text().splitlines()
    for line, wrong, said in (
        (3, '50,"[1,2,3,4,5,6,7,8,9,0]"', "there is no example 50"),
        (7, '-1,"[1,2,3,4,5,6,7,8,9,0]"', "there is no example -1"),
        (501, '1,"[1,2,3]"', "the guess has 3 tokens, and the answers have 10"),
        (2, '1,"[1,2,3,4,5,6,7,8,9,-1]"', "token 9 of the guess is -1"),
    ):
        path = tmp_path / "guesses.csv"
        path.write_text("\n".join([*lines[: line - 1], wrong, *lines[line:]]))
        said_here = rote_here("bench", "score", path, "--answers", ANSWERS)
        assert (said_here.code, said_here.out) == (1, "")
        assert f"error: {path}, line {line}: {said}" in said_here.err
    for name in ("guesses", "answers"):
        files = {"guesses": EXAMPLE, "answers": ANSWERS, name: tmp_path / "nowhere"}
        said_here = rote_here("bench", "score", files["guesses"], "--answers", files["answers"])
        assert f"error: {tmp_path / 'nowhere'}: there is no such file" in said_here.err
    with pytest.raises(InputError, match="guesses must be 1 to 20 submissions, not 0"):
        rote.bench.score([], answers=ANSWERS)


# --- what is written


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScoreResult]:
    """A file and an attack, held against the same answers."""
    root = tmp_path_factory.mktemp("several")
    draw = Random(5)
    with EXAMPLE.open(newline="") as file:
        made = [Guess(int(row[0]), tuple(json.loads(row[1]))) for row in list(csv.reader(file))[1:]]
    guesses = list(dict.fromkeys(made))[::-1]
    found = [(60 * draw.random(), draw.randint(1, 10**6)) for _ in guesses]
    own = attack(root / "ours 2", guesses, found)
    return root, rote.bench.score([EXAMPLE, own], answers=ANSWERS, errors=20, out=root / "score", speed=1)


def test_what_is_written_is_what_was_found(several: tuple[Path, ScoreResult], tmp_path: Path) -> None:
    root, result = several
    stored = rote.open(root / "score")
    assert isinstance(stored, BenchScore)
    assert stored.result == result
    assert [one.key for one in result.submissions] == ["A", "B"]
    assert result.submissions[0].costs is None
    assert result.submissions[1].costs is not None
    apart = rote.bench.score(EXAMPLE, answers=ANSWERS, errors=20)
    assert plain(apart.submissions[0]) == plain(result.submissions[0])
    page = (root / "score/report.html").read_bytes()
    assert stored.report().read_bytes() == page
    said = rote_here("report", root / "score")
    assert said.code == 0
    assert said.out.startswith("Recall at 20 errors: ")
    table = pl.read_csv(stored.export("csv", out=tmp_path / "curve.csv").files[0])
    assert table.height == sum(len(one.curve) for one in result.submissions)
    assert table["recall"].to_list() == [point.recall for one in result.submissions for point in one.curve]
    with pytest.raises(InputError, match="holds a score: scheme does not apply"):
        stored.export("csv", out=tmp_path / "curve.csv", scheme="greedy")
    with pytest.raises(RunError, match="holds scored guesses, no run"):
        rote.Run.open(root / "score")


def test_it_is_not_written_over_something_else(several: tuple[Path, ScoreResult], tmp_path: Path) -> None:
    root, _ = several
    with pytest.raises(RunError, match=r"holds other results \(manifest\.json\); choose another out"):
        rote.bench.score(EXAMPLE, answers=ANSWERS, out=root / "ours 2")
    (tmp_path / "index").mkdir()
    (tmp_path / "index/index.json").touch()
    with pytest.raises(RunError, match=r"holds other results \(index\.json\); choose another out"):
        rote.bench.score(EXAMPLE, answers=ANSWERS, out=tmp_path / "index")
    (tmp_path / "score").mkdir()
    shutil.copytree(root / "score", tmp_path / "score", dirs_exist_ok=True)
    changed = tmp_path / "score/score.json"
    changed.write_text(changed.read_text().replace('"solved": 2', '"solved": 3'))
    with pytest.raises(RunError, match=r"score\.json is not what was sealed"):
        _ = rote.open(tmp_path / "score").result  # type: ignore[union-attr]


def test_figures_say_what_the_result_says(several: tuple[Path, ScoreResult]) -> None:
    pytest.importorskip("matplotlib")
    root, result = several
    (drawn,) = rote.figures(root / "score")
    tables: dict[str, Any] = {path.stem: pl.read_csv(path.with_suffix(".csv")) for path in drawn.figures}
    assert list(tables) == ["errors", "precision", "seconds", "evaluations", "oracle"]
    assert drawn.absent == {}
    for one in result.submissions:
        own = tables["errors"].filter(pl.col("submission") == one.name)
        at = [row for row in own.rows(named=True) if row["errors"] <= result.errors]
        assert at[-1]["recall"] == one.recall.share
    costs = result.submissions[1].costs
    assert costs is not None
    assert tables["seconds"]["recall"].to_list()[1:] == [point.recall for point in costs.seconds]
    assert tables["oracle"]["recall"].to_list()[1:] == [point.oracle_recall for point in costs.seconds]
    assert tables["evaluations"]["token_evaluations"].to_list()[1:] == [point.budget for point in costs.token_evals]
