"""The empirical check: what transformers generates, against what Rote computes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import GREEDY, Scheme
from rote.analysis.empirical import smallest_of, two_sided
from rote.extraction.generations import generations
from rote.jobs.check import check
from rote.models.huggingface import HuggingFaceModel
from tests import tiny
from tests.cli.command import rote_here
from tests.seals import reseal


@pytest.fixture(scope="module")
def small() -> HuggingFaceModel:
    """Five tokens, the last of them EOS."""
    return HuggingFaceModel(tiny.build("llama", vocab_size=5, eos_token_id=4, bos_token_id=None))


@pytest.mark.parametrize("scheme", [Scheme(1.0, 3), Scheme(0.7, None, 0.8), Scheme(1.5, 4, 0.9)], ids=str)
def test_every_output_comes_as_often_as_the_scorer_says(small: HuggingFaceModel, scheme: Scheme) -> None:
    """All outputs of three tokens: their probabilities are the scorer's, their counts are transformers'."""
    samples, values = 4000, []
    counts = Counter(generations(small, rote.Example("a", (1, 2), (0, 0, 0)), scheme, samples=samples, seed=5))
    ways = [way for n in (1, 2, 3) for way in product(range(5), repeat=n)]
    ways = [w for w in ways if 4 not in w[:-1] and (len(w) == 3 or w[-1] == 4)]
    scored = rote.verbatim(small, [rote.Example(str(w), (1, 2), w) for w in ways], [scheme])
    assert sum(v.prob for v in scored) == pytest.approx(1, abs=1e-5)
    for way, found in zip(ways, scored, strict=True):
        values.append(two_sided(min(found.prob, 1.0), counts[way], samples))
    assert sum(counts.values()) == samples
    assert set(counts) <= set(ways)
    assert smallest_of(values) > 1e-3


def test_seeds_batches_and_greedy(small: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    example = rote.Example("a", (1, 2, 3), (0, 1, 2, 3))
    first = list(generations(small, example, Scheme(1.0, None), samples=50, seed=1))
    assert list(generations(small, example, Scheme(1.0, None), samples=50, seed=1)) == first
    assert list(generations(small, example, Scheme(1.0, None), samples=50, seed=2)) != first
    monkeypatch.setattr("rote.models.huggingface.GENERATED_AT_ONCE", 7)
    parts = list(generations(small, example, Scheme(1.0, None), samples=50, seed=1))
    assert len(parts) == 50
    assert len(set(parts)) > 7  # batches differ from one another
    assert len(set(generations(small, example, GREEDY, samples=9, seed=1))) == 1
    with pytest.raises(rote.InputError, match="end-of-text token before its end"):
        next(generations(small, rote.Example("a", (1,), (4, 1)), Scheme(1.0, None), samples=1, seed=0))


def test_a_model_s_own_generation_settings_do_not_matter(small: HuggingFaceModel) -> None:
    network = tiny.build("llama", vocab_size=5, eos_token_id=4, bos_token_id=None)
    network.generation_config.repetition_penalty = 50.0
    network.generation_config.top_k = 1
    spoiled = HuggingFaceModel(network)
    example = rote.Example("a", (1, 2, 3), (0, 1, 2, 3))
    ours, theirs = (list(generations(m, example, Scheme(1.0, None), samples=30, seed=1)) for m in (small, spoiled))
    assert ours == theirs
    assert network.generation_config.top_k == 1


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(), GREEDY, Scheme(0.7, None, 0.123456789), Scheme(1e-3, 7, 1.0), Scheme(top_k=None), Scheme(top_p=0.9),
        Scheme(temperature=0.1 + 0.2, top_k=7, top_p=1 / 3),
    ],
    ids=str,
)  # fmt: skip
def test_a_label_is_read_back_as_its_scheme(scheme: Scheme) -> None:
    assert Scheme.parse(str(scheme)) == scheme


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model on passages it has seen sixteen times: some come out, some do not."""
    path = Path(__file__).parents[2] / "training/ladder.jsonl"
    lines = [line for line in path.read_text().splitlines() if '"repetitions": 16' in line]
    folder = tmp_path_factory.mktemp("check")
    (folder / "ladder.jsonl").write_text("\n".join(lines))
    done = rote_here("score", folder / "ladder.jsonl", "--out", folder / "run", "--device", "cpu")
    assert done.code == 0, done.err
    return folder / "run"


def test_checking_a_run(ladder: Path) -> None:
    done = rote_here("check", ladder, "--samples", "60", "--passages", "2", "--show", "1", "--json", "--device", "cpu")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert len(found["passages"]) == 2
    for passage in found["passages"]:
        assert 1 / 60 <= passage["p_z"] <= 59 / 60
        assert passage["samples"] == 60
        assert len(passage["outputs"]) == 1
        assert passage["p_value"] > 1e-4
    row = found["passages"][0]
    printed = rote_here("check", ladder, "--samples", "5", "--example", row["example_id"], "--show", "1")
    assert printed.code == 0, printed.err
    for expected in (row["example_id"][:8], "95% interval", "its p-value is", "scheme", "generation 1"):
        assert expected in printed.out
    assert "computed probabilities" not in printed.out  # there is one
    several = rote_here("check", ladder, "--samples", "5", "--passages", "2").out
    assert "of 2 computed probabilities lie outside" in " ".join(several.split())
    assert "expected by chance" in several


def test_what_cannot_be_checked_is_said(ladder: Path, model: Any, tmp_path: Path) -> None:
    loaded = rote.load("bundled", rote.ModelOptions(device="cpu"))
    with pytest.raises(rote.InputError, match="no example 'nobody'"):
        check(ladder, loaded, examples=["nobody"])
    with pytest.raises(rote.InputError, match="no scores under 'greedy'"):
        check(ladder, loaded, scheme="greedy")
    with pytest.raises(rote.InputError, match="at least 1"):
        check(ladder, loaded, samples=0)
    for seed in (-1, 10**30):
        with pytest.raises(rote.InputError, match="seed must be a whole number from 0"):
            check(ladder, loaded, seed=seed)
    with pytest.raises(rote.RunError, match="made with another model: its fingerprint"):
        check(ladder, model)
    with pytest.raises(rote.InputError, match=r"no example of this run has a p_z between 0\.5 and 0\.5"):
        check(ladder, loaded, samples=2)


def test_greedy_decoding_has_nothing_to_spread_over(model: Any, text: str, tmp_path: Path) -> None:
    run = rote.scan(model, text, out=tmp_path, windows=rote.Windows(prefix=8, suffix=6, stride=200), schemes=[GREEDY])
    with pytest.raises(rote.InputError, match="every generation is the same"):
        check(run.folder, model)
    name = run.scores["example_id"][0]
    told: list[tuple[str, int, int]] = []
    found = check(run, model, examples=[name], samples=3, progress=lambda *what: told.append(what)).passages[0]
    assert found.hits == 3 * found.p_z
    assert told == [("generated", done, 3) for done in (1, 2, 3)]


def test_a_scan_s_windows_are_cut_again_as_they_were(tiny_folder: Path, text: str, tmp_path: Path) -> None:
    model = rote.load(tiny_folder, rote.ModelOptions(device="cpu"))
    run = rote.scan(model, text, out=tmp_path, windows=rote.Windows(prefix=8, suffix=6, stride=10))
    cut = rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=10))
    assert run.cut(run.scores, model.tokenizer) == cut  # places and all
    some = run.scores[[7, 3, 3]]
    assert [e.start for e in run.cut(some, model.tokenizer)] == some["start"].to_list()
    (tmp_path / "text.txt").write_text("changed")
    with pytest.raises(rote.RunError, match=r"text\.txt is not what was sealed"):
        rote.Run(tmp_path).cut(run.scores, model.tokenizer)
    reseal(tmp_path)
    with pytest.raises(rote.RunError, match="not the text that was scored"):
        rote.Run(tmp_path).cut(run.scores, model.tokenizer)
