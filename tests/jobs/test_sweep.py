"""Sweeps over schemes and lengths: each point is what scoring it alone gives."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import GREEDY, Scheme
from rote.jobs.sweep import sweep
from rote.report.text import numbers
from rote.store.files import plain
from tests.cli.command import rote_here, rote_process
from tests.jobs.support import wait_for_shards
from tests.seals import reseal


@pytest.fixture(scope="module")
def examples(model: Any, text: str) -> list[rote.Example]:
    return rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=100))


def test_every_point_is_what_scoring_it_alone_gives(model: Any, examples: list[rote.Example], tmp_path: Path) -> None:
    schemes = [Scheme(top_k=40), Scheme(3.0, None), Scheme(1.0, None, 0.9)]
    swept = sweep(model, examples, out=tmp_path / "s", schemes=schemes, prefixes=[4, 8], suffixes=[6, 1, 3], tau=1e-6)
    found = swept.result
    assert (found.lengths.prefix, found.lengths.suffix) == ([4, 8], [1, 3, 6])
    assert len(found.points) == 3 * 2 * 3
    assert json.loads((tmp_path / "s/sweep.json").read_text()) == plain(found)
    for point in found.points:
        short = [
            replace(e, prefix=e.prefix[-point.prefix :], suffix=e.suffix[: point.suffix], token_ends=None)
            for e in examples
        ]
        scheme = next(s for s in schemes if str(s) == point.scheme)
        alone = rote.verbatim(model, short, [scheme])
        assert point.rates.examples == len(examples)
        assert point.rates.rate_at_tau.count == sum(v.prob >= 1e-6 for v in alone)
        assert point.rates.maximum_rate.count == sum(v.prob > 0 for v in alone)
        assert point.rates.greedy_rate.count == sum(bool(v.greedy) for v in alone)
        doubt = 2 * model.logit_tolerance / scheme.temperature * point.suffix
        assert point.rates.near_tau.numeric_tolerance == pytest.approx(doubt)
        if point.suffix == 6:
            summary = rote.Run.open(tmp_path / f"s/prefix-{point.prefix}").summary
            assert summary.schemes[point.scheme].rates == point.rates


def test_the_parts_are_runs_and_are_not_scored_again(
    model: Any, examples: list[rote.Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sweep(model, examples, out=tmp_path, schemes=[Scheme(), GREEDY], prefixes=[4, 8])
    assert rote.Run.open(tmp_path / "prefix-4").manifest.schemes == ["temperature=1 top_k=40", "greedy"]
    monkeypatch.setattr("rote.extraction.verbatim.verbatim", None)  # whoever scores, fails
    again = sweep(model, examples, out=tmp_path, schemes=[Scheme(), GREEDY], prefixes=[4, 8])
    assert again.result == first.result


def test_a_sweep_s_folder_is_no_run_and_other_lengths_are_named(
    model: Any, examples: list[rote.Example], tmp_path: Path
) -> None:
    sweep(model, examples, out=tmp_path, prefixes=[4])
    with pytest.raises(rote.RunError, match=r"holds a sweep; give one of its runs, such as .*prefix-4\."):
        rote.Run.open(tmp_path)
    with pytest.raises(rote.RunError, match=r"sweep\.suffix: the folder has 6, this command 3"):
        sweep(model, examples, out=tmp_path, prefixes=[4], suffixes=[3])


def test_the_report_is_written_and_written_anew(model: Any, examples: list[rote.Example], tmp_path: Path) -> None:
    schemes = [Scheme(top_k=40), Scheme(3.0, None)]
    found = sweep(
        model, examples, out=tmp_path, name="<b>x</b>", schemes=schemes, prefixes=[4, 8], suffixes=[2, 6], tau=1e-9
    ).result
    page = tmp_path / "report.html"
    first = page.read_bytes()
    assert b"<b>x</b>" not in first
    page.unlink()
    done = rote_here("report", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert page.read_bytes() == first
    whole = [p for p in found.points if p.prefix == 8 and p.suffix == 6]
    assert whole == found.longest
    rates = [numbers.rate(p.rates.rate_at_tau) for p in whole]
    assert done.out.startswith(
        f"{rates[0]} of {len(examples)} examples of <b>x</b> can be extracted at τ = 1e-09, "
        "with prompts of 8 tokens and suffixes of 6 tokens."
    )
    printed = " ".join(done.out.split())
    for point in found.points:
        assert numbers.rate(point.rates.rate_at_tau) in printed
    assert "prompt of 8 tokens, suffix of 6" in printed
    assert f"report {page}" in printed
    assert json.loads(rote_here("report", tmp_path, "--json").out) == plain(found)


def test_a_report_needs_all_runs_of_the_sweep(model: Any, examples: list[rote.Example], tmp_path: Path) -> None:
    sweep(model, examples, out=tmp_path, prefixes=[4, 8])
    (tmp_path / "prefix-4").rename(tmp_path / "elsewhere")
    done = rote_here("report", tmp_path)
    assert (done.code, done.out) == (1, "")
    gone = f"error: {tmp_path}/prefix-4/seal.json is gone, and the seal of {tmp_path} names it. Put the right file"
    assert gone in " ".join(done.err.split())
    reseal(tmp_path)
    done = rote_here("report", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "prefix-4, a run of this sweep, is not there. Run the command that made it again." in " ".join(
        done.err.split()
    )
    (tmp_path / "sweep.json").write_text("{")
    done = rote_here("report", tmp_path)
    assert done.code == 1
    assert done.err.startswith(f"error: {tmp_path}/sweep.json is not what was sealed")
    reseal(tmp_path)
    done = rote_here("report", tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: cannot read ")
    (tmp_path / "sweep.json").write_text('{"format": 7, "kind": "sweep"}')
    reseal(tmp_path)
    done = rote_here("report", tmp_path)
    assert done.code == 1
    assert "sweep.json is damaged: Object missing required field `model`" in done.err
    assert "Run the command that made the sweep again." in done.err


def test_lengths_that_examples_do_not_have_are_refused(
    model: Any, examples: list[rote.Example], tmp_path: Path
) -> None:
    with pytest.raises(rote.InputError, match="has a prefix of 8 tokens, fewer than 9"):
        sweep(model, examples, out=tmp_path, prefixes=[9])
    with pytest.raises(rote.InputError, match="whole numbers of at least 1"):
        sweep(model, examples, out=tmp_path, suffixes=[0])
    uneven = [*examples, rote.Example("short", (5, 6), (7, 8))]
    with pytest.raises(rote.InputError, match="prefixes have from 2 to 8 tokens"):
        sweep(model, uneven, out=tmp_path, schemes="greedy")
    with pytest.raises(rote.InputError, match="no examples"):
        sweep(model, [], out=tmp_path, schemes="greedy")
    with pytest.raises(rote.InputError, match="nothing to vary; give schemes, prefixes or suffixes"):
        sweep(model, examples, out=tmp_path)


def test_the_command_line(tiny_folder: Path, alice: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(alice[3000:4200], encoding="utf-8")
    common = ("--model", tiny_folder, "--device", "cpu", "--out", tmp_path / "out", "--stride", "200")
    done = rote_here(
        "sweep", text, *common, "--scheme", "top_k=2,0", "--scheme", "temperature=0.5,2 top_p=0.9",
        "--scheme", "greedy",
        "--prefix", "4,8", "--suffix", "3,6",
    )  # fmt: skip
    assert done.code == 0, done.err
    for expected in ("prompt of 8 tokens, suffix of 6", "top_k=2", "greedy", "suffix of 3", "sweep.json", "Wilson"):
        assert expected in done.out
    labels = json.loads((tmp_path / "out/sweep.json").read_text())["points"]
    assert {p["scheme"] for p in labels} == {
        "temperature=1 top_k=2", "temperature=1", "temperature=0.5 top_p=0.9", "temperature=2 top_p=0.9", "greedy",
    }  # fmt: skip
    lines = "".join(json.dumps({"prefix": [5] * n, "suffix": [6] * 4}) + "\n" for n in (6, 9))
    (tmp_path / "e.jsonl").write_text(lines)
    done = rote_here(
        "sweep", tmp_path / "e.jsonl", "--model", tiny_folder, "--prefix", "2,6", "--out", tmp_path / "e", "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["lengths"] == {"prefix": [2, 6], "suffix": [4]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing to vary"),
        (["--scheme", "top_q=1,2"], "'top_q=1,2' is not understood"),
        (["--scheme", "top_k=a"], "not understood"),
        (["--scheme", ""], "not understood"),
        (["--scheme", "top_k=1.5,2"], "top_k is a whole number"),
        (["--scheme", "temperature=0,1"], "write greedy"),
        (["--scheme", "top_k=5,5"], "asked for twice"),
        (["--scheme", "top_k=5 top_k=6"], "has top_k twice"),
        (["--scheme", "temperature=1e-300"], "at least 1e-6"),
        (["--prefix", "10,x"], "whole numbers of at least 1"),
        (["--prefix", "10,,20"], "whole numbers of at least 1"),
        (["--scheme", "top_p=0.5,2"], "top_p must lie in"),
    ],
)
def test_mistakes_are_named(options: list[str], said: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Alice was beginning to get very tired of sitting by her sister. " * 20)
    done = rote_here("sweep", text, *options, "--out", tmp_path / "out")
    assert done.code == 1
    assert said in " ".join(done.err.split())
    assert not (tmp_path / "out").exists()


def test_what_is_stored_is_said_when_a_sweep_is_stopped(tiny_folder: Path, alice: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(alice[3000:9000], encoding="utf-8")
    small = "from rote.jobs import engine; engine.SHARD_FLOPS['cpu'] = 1.0"
    options = ("--model", tiny_folder, "--device", "cpu", "--stride", "3", "--prefix", "4,8", "--suffix", "4")
    with rote_process("sweep", text, *options, "--out", tmp_path / "out", before=small) as process:
        wait_for_shards(process, tmp_path / "out/prefix-4", 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.search(r"stopped: prefix-4: \d+ of \d+ shards stored", " ".join(err.split()))
