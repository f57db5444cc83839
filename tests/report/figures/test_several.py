"""The figures of comparisons, sweeps and reconstructions, counted again in the plainest way."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.coverage import coverage
from rote.analysis.near.rates import near_rates
from rote.analysis.rates import rates
from rote.models.base import ServedModel
from rote.report.figures.comparison import COMPARISON_FIGURES, PAIRS, comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.reconstruction import RECONSTRUCTION_FIGURES, reconstruction_figures
from rote.report.figures.sweep import SWEEP_FIGURES, sweep_figures
from rote.store.comparison import ComparedModel, ComparedNear, ComparedRun, ComparisonResult
from rote.store.files import FORMAT
from rote.store.manifest import ScannedWindows, Source
from rote.store.reconstruction import SimilarityNumbers
from rote.store.sweep import Lengths, Perplexity, Point, SweepResult, SweepSource, SweptPart, WithinTrials
from tests.cases import cases
from tests.report.figures.figureruns import LENGTH, SCHEME, TAU, rows
from tests.report.figures.test_run import only, sound
from tests.report.page.test_reconstruction import MANIFEST, summary_of
from tests.report.runs import MODEL, VERSIONS, Kind, search

SEEDS = st.integers(0, 10_000)


def compared(
    tables: dict[str, pl.DataFrame],
    *,
    kind: Kind = "scan",
    near: bool = False,
    several_schemes: bool = False,
) -> ComparisonResult:
    """As much of `rote compare`'s result as figures need: no pairs and no fixed sets."""
    scanned = kind == "scan"
    return ComparisonResult(
        format=FORMAT,
        kind=kind,
        source=Source(name="book.txt", sha256="ab" * 32, characters=LENGTH if scanned else None),
        windows=ScannedWindows(prefix=50, suffix=50, stride=10, unit="tokens") if scanned else None,
        tau=TAU,
        top=0,
        runs=[_run(key, table, scanned=scanned, near=near, named=several_schemes) for key, table in tables.items()],
        differing={},
        held_out_examples=0,
        common_examples=min(table.height for table in tables.values()),
        unpaired=dict.fromkeys(tables, 0),
        tokenizers_differ=False,
        pairs=[],
        fixed_sets=[],
        near=None,
    )


def _run(key: str, table: pl.DataFrame, *, scanned: bool, near: bool, named: bool) -> ComparedRun:
    model = ComparedModel(
        name=f"model {key}",
        parameters=1,
        fingerprint="0" * 32,
        dtype="float32",
        device="cpu",
        bos="auto",
        bos_token=None if key == "A" else 0,
        bos_text=None if key == "A" else "<bos>",
    )
    return ComparedRun(
        key=key,
        folder=f"runs/of-{key}",
        name=f"runs/of-{key}" + (f" ({SCHEME})" if named else ""),
        model=model,
        versions=VERSIONS,
        seal="1" * 64,
        scheme=SCHEME,
        stop_early=bool(table["bounded"].any()),
        examples=table.height,
        dropped=0,
        rates=rates(table),
        coverage=coverage(table, LENGTH) if scanned else None,
        near=ComparedNear(**asdict(search(2)), rate=near_rates(table)[-1]) if near else None,
        seconds=1.5,
        token_evals=int(table["token_evals"].sum()),
        warnings=[],
    )


def figures(tables: dict[str, pl.DataFrame], **options: Any) -> dict[str, Figure]:
    made = comparison_figures(compared(tables, **options), tables)
    assert len({figure.name for figure in made}) == len(made)
    assert {figure.name.split("-")[0] if "pair" in figure.name else figure.name for figure in made} <= set(
        COMPARISON_FIGURES
    )
    return {figure.name: figure for figure in made}


def test_coverage_has_whiskers_where_a_list_leaves_windows_open() -> None:
    rows_here = rows(30, 3)
    may = (pl.int_range(pl.len()) % 3 == 0) & (pl.col("log_prob") > -1.5)
    open_rows = rows_here.with_columns(bounded=may)
    assert open_rows["bounded"].any()
    found = compared({"A": rows_here, "B": rows_here})
    plain = {figure.name: figure for figure in comparison_figures(found, {"A": rows_here, "B": rows_here})}
    assert not [layer for layer in plain["coverage"].layers if layer.kind == "interval"]
    assert "share_of_looked_at_upper" not in plain["coverage"].table.columns
    assert "left open" not in plain["coverage"].caption + plain["strips"].caption

    served = ServedModel(url="http://localhost/v1", protocol="test", listed=3)
    second = replace(
        found.runs[1],
        model=replace(found.runs[1].model, served=served),
        rates=rates(open_rows),
        coverage=coverage(open_rows, LENGTH, served=True),
    )
    some = replace(found, runs=[found.runs[0], second])
    made = {figure.name: figure for figure in comparison_figures(some, {"A": rows_here, "B": open_rows})}
    sound(made)
    figure = made["coverage"]
    assert "Whiskers take in windows that a server’s list leaves open." in figure.caption
    assert f"white is below τ = {TAU:g} or left open by the server’s list, grey" in made["strips"].caption
    whiskers = [layer.data for layer in figure.layers if layer.kind == "interval"]
    assert len(whiskers) == len(second.coverage or {}) > 0
    for data, (threshold, covered) in zip(whiskers, (second.coverage or {}).items(), strict=True):
        (first, low), (_, high) = (data[name].to_list() for name in ("low", "high"))
        assert (first, data["high"][0]) == (data["y"][0], data["y"][0])  # all of it is known
        upper = covered.share_of_looked_at_upper
        assert (low, high) == (covered.share_of_looked_at, upper if covered.undecided else low)
        own = figure.table.filter(pl.col("p_z_at_least") == float(threshold))
        assert own["share_of_looked_at_upper"].to_list() == [None, upper]
    assert any(data["high"][1] > data["low"][1] for data in whiskers)


@given(st.integers(1, 40), SEEDS, st.booleans())
@cases(15)
def test_comparison(count: int, seed: int, stopping: bool) -> None:
    first, second = rows(count, seed, stopping=stopping), rows(count, seed + 1, stopping=stopping)
    tables = {"A": first, "B": second.sort("example_id", descending=True)}
    made = figures(tables)
    sound(made)
    assert made["strips"].y.names == ("B of-B", "A of-A")
    for name, table in (("A of-A", first), ("B of-B", second)):
        parts = made["strips"].table.filter(pl.col("run") == name).to_dicts()
        for part in parts[::97]:
            over = [
                math.exp(row["log_prob"])
                for row in table.to_dicts()
                if not row["bounded"] and row["suffix_start"] < part["end"] and row["suffix_end"] > part["start"]
            ]
            best = max(over, default=0.0)
            assert part["highest_probability"] == (pytest.approx(best) if best >= TAU * (1 - 1e-12) else None)
    _check_pair(made.get("pair-a-b"), first, second)
    shares = made["rates"].table.filter(pl.col("measure") == "Greedy")["rate"].to_list()
    assert shares == [sum(table["greedy"]) / count for table in (first, second)]
    covered = made["coverage"].table.filter(pl.col("p_z_at_least") == 0.5)["characters"].to_list()
    for table, characters in zip((first, second), covered, strict=True):
        spans = [(r["suffix_start"], r["suffix_end"]) for r in table.to_dicts() if r["log_prob"] >= math.log(0.5)]
        assert characters == sum(any(start <= i < end for start, end in spans) for i in range(LENGTH))
    assert made["cost"].table["token_evaluations"].to_list() == [sum(t["token_evals"]) for t in (first, second)]


def _check_pair(figure: Figure | None, first: pl.DataFrame, second: pl.DataFrame) -> None:
    other = {row["example_id"]: row for row in second.to_dicts()}
    both = [(row, other[row["example_id"]]) for row in first.to_dicts()]
    known = [(one, two) for one, two in both if not one["bounded"] and not two["bounded"]]
    if not known:
        assert figure is None
        return
    assert figure is not None
    listed = {row["example_id"]: row for row in figure.table.to_dicts()}
    assert len(listed) == len(known)
    for one, two in known:
        row = listed[one["example_id"]]
        assert row["p_z_first"] == pytest.approx(math.exp(one["log_prob"]))
        assert row["p_z_second"] == pytest.approx(math.exp(two["log_prob"]))
        reached = tuple(each["log_prob"] >= math.log(TAU) for each in (one, two))
        names = {(True, True): "both", (False, True): "gained", (True, False): "lost", (False, False): "neither"}
        assert row["change"] == names[reached]
    left = len(both) - len(known)
    assert (f"{left} window{'s' * (left != 1)} given up early" in figure.caption) == (left > 0)


def test_comparison_of_near_verbatim_runs_and_of_examples() -> None:
    tables = {"A": rows(30, 1, tolerance=2), "B": rows(30, 2, tolerance=2)}
    near = figures(tables, near=True)["near-rates"]
    sound({"near-rates": near})
    certified = only(near, "interval", "Near")["y"].to_list()
    assert certified == [sum(value >= TAU for value in table["lower"]) / 30 for table in tables.values()]
    examples = figures(tables, kind="score")
    assert {"strips", "coverage", "near-rates"}.isdisjoint(examples)
    assert len([layer for layer in examples["prompts"].layers if layer.kind == "interval"]) == 2


def test_as_many_runs_as_can_be_compared_have_letters_and_the_first_few_are_drawn_against_the_first() -> None:
    tables = {key: rows(20, number) for number, key in enumerate("ABCDEFGHIJKLMNOPQRST")}
    made = figures(tables, several_schemes=True)
    sound(made)
    assert len(made["strips"].y.names) == 20
    assert made["strips"].y.names[-1] == "A of-A (top_k=40)"
    assert made["rates"].x.names == tuple(tables)
    pairs = [name for name in made if name.startswith("pair-")]
    assert len(pairs) == PAIRS
    assert f"Only the first {PAIRS} of 19 runs are drawn against A." in made[pairs[0]].caption
    assert "BOS '<bos>' (id 0) first or no BOS token" in made["rates"].caption


# --- sweeps


def sweep(schemes: int, prefixes: int, suffixes: int) -> SweepResult:
    lengths = Lengths(prefix=[10 * (i + 1) for i in range(prefixes)], suffix=[5 * (i + 1) for i in range(suffixes)])
    labels = [SCHEME, "temperature=0.5", "greedy"][:schemes]
    return SweepResult(
        format=FORMAT,
        kind="sweep",
        model=MODEL,
        examples=20,
        tau=TAU,
        logit_tolerance=0.0005,
        versions=VERSIONS,
        source=SweepSource(name="examples.jsonl"),
        lengths=lengths,
        points=[
            Point(
                scheme=label,
                prefix=prefix,
                suffix=suffix,
                rates=rates(rows(20, prefix * suffix + i)),
                perplexity=Perplexity(finite=0, quartiles=[]),
                within_trials=WithinTrials(trials=100, mean=0.0),
            )
            for prefix in lengths.prefix
            for suffix in lengths.suffix
            for i, label in enumerate(labels)
        ],
    )


@pytest.mark.parametrize(("schemes", "prefixes", "suffixes"), [(1, 1, 1), (1, 3, 2), (3, 1, 2), (3, 2, 3)])
def test_sweep(schemes: int, prefixes: int, suffixes: int) -> None:
    found = sweep(schemes, prefixes, suffixes)
    made = {figure.name: figure for figure in sweep_figures(found)}
    sound(made)
    varied = {"prefix": prefixes, "suffix": suffixes, "schemes": schemes}
    assert set(made) == {name for name, count in varied.items() if count > 1} | {"prompts"}
    assert set(made) <= set(SWEEP_FIGURES)
    both: tuple[tuple[SweptPart, SweptPart], ...] = (("prefix", "suffix"), ("suffix", "prefix"))
    for part, other in both:
        if part not in made:
            continue
        figure = made[part]
        assert figure.x.names == tuple(map(str, found.lengths.of(part)))
        lines = [layer for layer in figure.layers if layer.kind == "interval"]
        assert len(lines) == (schemes if schemes > 1 else len(found.lengths.of(other)))
        for point in found.points:
            if schemes > 1 and point.length(other) != found.lengths.of(other)[-1]:
                continue
            rate = point.rates.rate_at_tau
            row = figure.table.row(
                by_predicate=(pl.col("scheme") == point.scheme)
                & (pl.col("prefix") == point.prefix)
                & (pl.col("suffix") == point.suffix),
                named=True,
            )
            assert (row["rate"], row["interval_low"], row["interval_high"]) == (rate.rate, *rate.interval)
            place = found.lengths.of(part).index(point.length(part))
            assert any(
                abs(x - place) < 0.26 and y == rate.rate
                for layer in lines
                for x, y in layer.data.select("x", "y").rows()
            )
    if schemes > 1:
        assert made["schemes"].x.names == ("top_k=40", "temperature=0.5", "greedy")


# --- reconstructions


def test_reconstruction() -> None:
    found = SimilarityNumbers(
        normalisation="",
        seed_words=0,
        words_before=0,
        truth_words=20,
        generated_words=20,
        word_ratio=0.525,
        sentence_ratio=0.5,
        tf_idf_cosine=None,
        matched_words=10,
        matched_share=0.525,
        differences=1,
        longest=None,
        first_difference=None,
        by_position=[(0, 7, 1.0), (7, 14, 0.5), (14, 20, 0.0)],
    )
    manifest = replace(MANIFEST, beams=8)
    (figure,) = reconstruction_figures(manifest, replace(summary_of(), similarity=found))
    assert figure.name in RECONSTRUCTION_FIGURES
    sound({"matches": figure})
    assert only(figure, "bars").rows() == [(0, 7, 1.0), (7, 14, 0.5), (14, 20, 0.0)]
    assert only(figure, "rule").rows() == [(0, 0.525, 20, 0.525)]
    assert "written by beam search of width 8" in figure.caption
    assert reconstruction_figures(manifest, summary_of()) == []
