"""What must hold inside a search at every moment: states, masses and histories, each worked out anew from the tokens.

A bound can come out right although a part of it is wrong; here every part is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.extraction.near import beam, fork, montecarlo, spines
from rote.extraction.near.batches import Reader, Reading
from rote.models.memory import Replay
from tests.extraction.near.recitals import Recital, recitals
from tests.extraction.near.test_search import ROUNDING, many
from tests.reference import near as reference

Tokens = tuple[int, ...]
CLOSE = 1e-5  # log-probabilities: sums of a few float32 roundings


class Watch:
    """Looks over a search's shoulder."""

    def __init__(self, recital: Recital) -> None:
        self.recital = recital
        self.by_id = {e.id: (e, tree) for e, tree in zip(recital.examples, recital.trees, strict=True)}
        self.truth = dict(zip(self.by_id, recital.truths(), strict=True))
        self.held: dict[int, Tokens] = {}  # entry: the history that ends with it
        self.taken: set[int] = set()
        self.fed: set[tuple[str, Tokens]] = set()
        self.feeding_beams = False
        self.once = True  # searches feed every position once; samples, drawn in parts, do not

    # --- what the model is fed

    def feed(self, past: Sequence[int], tokens: Sequence[int], place: Sequence[int], label: str, again: bool) -> Tokens:
        """The whole history that is fed, from its entries: each must hold what was fed after the one before it."""
        history: Tokens = ()
        for entry in past:
            assert self.held[entry][:-1] == history
            history = self.held[entry]
        for token, entry in zip(tokens, place, strict=True):
            history = (*history, token)
            if entry >= 0:
                assert entry in self.taken
                self.held[entry] = history
            assert again or not self.once or (label, history) not in self.fed
            self.fed.add((label, history))
        start = self.by_id[label][1].history
        assert history[: len(start)] == start
        return history

    def output(self, reading: Reading, history: Tokens) -> Tokens:
        """What is written at the first wanted position."""
        _, tree = self.by_id[reading.label]
        return history[len(tree.history) : len(history) - reading.predict + 1]

    # --- what a reading is sorted into

    def sorted(self, start: spines.Start, found: spines.Expansion, written: Tokens) -> None:
        example, tree = self.by_id[start.reading.label]
        suffix, metric = example.suffix, (self.recital.distance, self.recital.eos)
        last, asked = self.recital.tolerance, start.spine.tolist()
        assert (len(written), start.suffix) == (start.written, suffix)
        listed = None if found.listed is None else [set(row.tolist()) for row in found.listed]
        known = set() if start.known is None else set(start.known.tolist())
        sums = np.zeros((3, last + 1))  # closed, parked, open; as they are where every token is sorted by itself
        closed_before = [tree.bounds(written, suffix, *metric)[1] <= e for e in range(last + 1)]
        too_early, at_once = 0.0, dict[Any, float]()
        shown: dict[tuple[int, int], tuple[Any, int, bool]] = {}
        for step, token in enumerate(asked):
            output = (*written, *asked[:step])
            assert found.states[step].tolist() == reference.state(output, suffix, metric[0], last)
            path = tree.log_prob(output)
            assert found.path[step] == pytest.approx(path, abs=CLOSE)
            following = tree.following(output)
            assert found.taken[step] == pytest.approx(following.get(token, -math.inf), abs=CLOSE)
            _, own = tree.bounds(output, suffix, *metric)
            for e in range(last + 1):
                if own <= e and not closed_before[e] and step:
                    sums[0, e] += math.exp(path)
                    closed_before[e] = True
            for child, more in following.items():
                if (child == token and step < len(asked) - 1) or child in known:
                    continue
                mass, whole = math.exp(path + more), (*output, child)
                floor, ceil = tree.bounds(whole, suffix, *metric)
                ended = len(whole) == len(suffix) or (child in tree.eos_ids and metric[1] == "stop")
                for e in range(last + 1):
                    if ceil <= e:
                        sums[0, e] += 0.0 if closed_before[e] else mass
                    elif floor <= e:
                        sums[1 if ceil <= last else 2, e] += mass
                if ceil == reference.FAR == floor:
                    too_early += mass
                if listed is not None and child not in listed[step]:
                    at_once[step] = at_once.get(step, 0.0) + mass
                elif floor <= last < ceil:
                    at_once[step, child] = mass
                elif ceil <= last and path + more > math.log(1e-6) + CLOSE:
                    shown[step, child] = (pytest.approx(path + more, abs=CLOSE), ceil, ended)
        got = np.stack([found.lower, found.parked, found.open])
        if listed is None:
            np.testing.assert_allclose(got, sums, atol=ROUNDING, rtol=0)
            assert found.eos_mass == pytest.approx(too_early, abs=ROUNDING)
        else:  # tokens that are not listed are sorted together, so less is certain
            assert (got[0] <= sums[0] + ROUNDING).all()
            assert (got.sum(0) >= sums.sum(0) - ROUNDING).all()
        self.children(found, at_once, last)
        for step, child, log_mass, ceil, final in zip(
            *(getattr(found.shown, name).tolist() for name in ("step", "token", "log_mass", "distance", "final")),
            strict=True,
        ):
            if (step, child) in shown:
                assert (log_mass, ceil, final) == shown.pop((step, child))
            else:
                assert log_mass < math.log(1e-6) + 2 * CLOSE
        assert not shown

    def children(self, found: spines.Expansion, expected: dict[Any, float], last: int) -> None:
        """The open children are there, each once, with their masses; those that are not listed together."""
        if found.children is None:
            return
        names = ("step", "token", "log_mass", "floor", "column", "edits")
        columns = [getattr(found.children, name).tolist() for name in names]
        met = set()
        for step, token, log_mass, floor, _, _ in zip(*columns, strict=True):
            key = step if token < 0 else (step, token)
            assert key not in met
            met.add(key)
            assert 0 <= floor <= last
            assert math.exp(log_mass) == pytest.approx(expected[key], abs=ROUNDING)  # nothing stands for no token
        assert {key for key, mass in expected.items() if mass > ROUNDING and isinstance(key, tuple)} <= met

    # --- what is left open

    def left_open(self, search: fork.Search) -> None:
        example, tree = self.by_id[search.example.id]
        recital = self.recital
        outputs = set()
        open_mass = np.zeros(recital.tolerance + 1)
        for nodes in search.frontier.left():
            for i in range(len(nodes)):
                spine, at, token = search.spines[nodes.spine[i]], int(nodes.at[i]), int(nodes.token[i])
                written = tuple(spine.written[:at].tolist())
                assert len(written) == at
                log_mass, floor = float(nodes.log_mass[i]), int(nodes.floor[i])
                open_mass[floor:] += math.exp(log_mass)
                assert (written, token) not in outputs
                outputs.add((written, token))
                entries = spine.entries[: len(tree.history) + at].tolist()
                assert self.held[entries[-1]] == tree.history + written
                if token >= 0:
                    assert log_mass == pytest.approx(tree.log_prob((*written, token)), abs=CLOSE)
                    assert floor == tree.bounds((*written, token), example.suffix, recital.distance, recital.eos)[0]
                else:
                    assert spine.listed is not None
                    known = set(spine.listed[at - spine.first].tolist())
                    beyond = {t: p for t, p in tree.following(written).items() if t not in known}
                    mass = math.exp(tree.log_prob(written)) * math.fsum(map(math.exp, beyond.values()))
                    assert math.exp(log_mass) == pytest.approx(mass, abs=ROUNDING)
                    floors = [
                        tree.bounds((*written, t), example.suffix, recital.distance, recital.eos)[0] for t in beyond
                    ]
                    assert floor <= min(floors, default=floor)
        if search.spines:
            np.testing.assert_allclose(search.frontier.open, open_mass, atol=1e-9)
            np.testing.assert_allclose(search.frontier.exactly_open(), open_mass, atol=1e-12)
            upper = np.minimum(search.lower + search.parked + open_mass, 1)
            np.testing.assert_allclose(search.upper, upper, atol=1e-9)
            np.testing.assert_allclose([high for _, high in search.bounds()], upper, atol=1e-12)
        for one, two in pairwise(sorted((*written, token) for written, token in outputs if token >= 0)):
            assert two[: len(one)] != one  # none lies inside another: their masses are of different outputs

    # --- beams

    def stepped(self, rows: Any, beams: Sequence[Any]) -> None:
        recital = self.recital
        for i, one in enumerate(beams):
            example, tree = self.by_id[one.example.id]
            written, met = int(rows.written[i]), set()
            live = np.zeros(recital.tolerance + 1)
            for b in range(rows.log_mass.shape[1]):
                log_mass = float(rows.log_mass[i, b])
                if log_mass == -math.inf:
                    continue
                output = tuple(rows.tokens[i, b, :written].tolist())
                assert output not in met
                met.add(output)
                assert log_mass == pytest.approx(tree.log_prob(output), abs=CLOSE)
                want = reference.state(output, example.suffix, recital.distance, recital.tolerance)
                assert rows.states[i, b].tolist() == want
                floor, _ = tree.bounds(output, example.suffix, recital.distance, recital.eos)
                live[floor:] += math.exp(log_mass)
                past = [int(e) for e, sees in zip(rows.past[i], rows.seen[i, b], strict=True) if sees]
                assert self.held[past[-1]] == tree.history + output[:-1]
            truth = np.array(self.truth[one.example.id])
            assert (rows.lower[i].numpy() <= truth + ROUNDING).all()
            assert ((rows.lower[i] + rows.bank[i]).numpy() + live >= truth - ROUNDING).all()

    # --- samples

    def stand(self, draws: Sequence[montecarlo.Draw]) -> None:
        for draw in draws:
            example, tree = self.by_id[draw.example.id]
            assert sum(g.count for g in draw.groups) <= draw.samples
            assert (np.diff(draw.hits) >= 0).all()
            for group in draw.groups:
                assert group.count > 0
                past = [self.held[entry] for entry in group.past.tolist()]
                history = (*(past[-1] if past else ()), *group.tokens.tolist())
                output = history[len(tree.history) :]
                assert len(output) == group.written
                assert output == () or output[:-1] == past[-1][len(tree.history) :]
                want = reference.state(output, example.suffix, self.recital.distance, self.recital.tolerance)
                assert group.state.tolist() == want
                assert tree.log_prob(output) > -math.inf


@contextmanager
def watching(recital: Recital) -> Iterator[Watch]:
    watch = Watch(recital)
    again: set[int] = set()  # readings of positions whose other tokens are to be listed
    kept: list[spines.Start] = []  # so that no other object gets the id of one of them
    histories: dict[int, Tokens] = {}
    before: list[list[Any]] = []  # beams that are being fed, as they were
    true: dict[str, Any] = {
        "states": Reader.states, "take": Reader.take, "give": Reader.give, "expand": spines.expand,
        "again": fork.Forks._again, "run": fork.Forks.run, "feed": beam.Beams._feed, "step": beam.Beams._step,
        "advance": montecarlo.Sampler._advance, "fit": Replay.feed,
    }  # fmt: skip

    def states(self: Reader, readings: Sequence[Reading], packed: Any = None) -> Any:
        for r in readings:
            arrays = (r.past.tolist(), r.tokens.tolist(), r.place.tolist())
            histories[id(r)] = watch.feed(*arrays, r.label, id(r) in again)
        return true["states"](self, readings, packed)

    def take(self: Reader, count: int) -> Any:
        entries = true["take"](self, count)
        if self.keeps:
            assert len(entries) == count
            assert not watch.taken & set(entries.tolist())
            watch.taken |= set(entries.tolist())
        return entries

    def give(self: Reader, *entries: Any) -> None:
        for some in entries:
            assert set(some.tolist()) <= watch.taken or not self.keeps
            watch.taken -= set(some.tolist())
        true["give"](self, *entries)

    def expand(reader: Reader, metric: Any, starts: Sequence[spines.Start], hidden: Any, **options: Any) -> Any:
        found = true["expand"](reader, metric, starts, hidden, **options)
        for start, expansion in zip(starts, found, strict=True):
            history = histories[id(start.reading)]
            watch.sorted(start, expansion, watch.output(start.reading, history))
        return found

    def read_again(self: Any, one: Any, node: Any) -> spines.Start:
        start: spines.Start = true["again"](self, one, node)
        again.add(id(start.reading))
        kept.append(start)
        return start

    def fit(self: Replay, tokens: Any, past: Any, place: Any, seen: Any) -> Any:
        assert len(tokens) == 1 or tokens.numel() <= recital.model.batch_tokens
        # Searches look at the longest history, not at all that a row's histories hold together.
        past_seen = past.shape[1] if watch.feeding_beams else int(seen[:, :, : past.shape[1]].sum(2).max())
        assert len(tokens) == 1 or len(tokens) * (past_seen + tokens.shape[1]) <= recital.model.memory_positions
        return true["fit"](self, tokens, past, place, seen)

    def run(self: Any, examples: Any, *, at_once: int) -> Iterator[list[fork.Search]]:
        for done in true["run"](self, examples, at_once=at_once):
            for search in done:
                watch.left_open(search)
            watch.once = False  # samples are drawn now
            yield done
            watch.once = True

    def feed(self: Any, rows: Any) -> Any:
        before.append([rows.past.tolist(), rows.seen.tolist(), rows.tokens.tolist(), rows.written.tolist()])
        watch.feeding_beams = True
        hidden = true["feed"](self, rows)
        watch.feeding_beams = False
        return hidden

    def step(self: Any, rows: Any, beams: Sequence[Any], hidden: Any) -> None:
        for one, alive, *fed in (
            zip(beams, rows.log_mass.tolist(), rows.past.tolist(), *before.pop(), strict=True) if before else ()
        ):
            place, past, seen, tokens, written = fed
            for b in (b for b, log_mass in enumerate(alive) if log_mass > -math.inf):
                own = [entry for entry, sees in zip(past, seen[b], strict=True) if sees]
                watch.feed(own, [tokens[b][written - 1]], [place[len(past) + b]], one.example.id, False)
        true["step"](self, rows, beams, hidden)
        watch.stepped(rows, beams)

    def advance(self: Any, draws: Sequence[Any], *rest: Any) -> None:
        true["advance"](self, draws, *rest)
        watch.stand(draws)

    with ExitStack() as stack:
        for owner, name, made in (
            (Reader, "states", states), (Reader, "take", take), (Reader, "give", give), (fork, "expand", expand),
            (fork.Forks, "_again", read_again), (fork.Forks, "run", run), (beam.Beams, "_feed", feed),
            (beam.Beams, "_step", step),
            (montecarlo.Sampler, "_advance", advance), (Replay, "feed", fit),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, made))
        yield watch


FORKS = st.fixed_dictionaries(
    {
        "budget": st.one_of(st.none(), st.integers(0, 40), st.integers(40, 200)),
        "until": st.sampled_from(["budget", "budget", "worthwhile"]),
        "batch_size": st.sampled_from(["auto", "auto", 1, 2]),
        "candidates": st.sampled_from([0, 1, 8]),
    }
)


@many(150)
@given(recitals(), FORKS, st.sampled_from([None, None, 1, 12]))
def test_a_fork_search(recital: Recital, search: dict[str, Any], samples: int | None) -> None:
    with watching(recital) as watch:
        recital.run(**search, samples=samples)
    assert watch.taken == set()


@many(100)
@given(
    recitals(), st.sampled_from(["closing", "pruned", "baseline"]), st.integers(1, 6), st.sampled_from(["auto", 1, 2])
)
def test_a_beam(recital: Recital, variant: str, width: int, batch_size: Any) -> None:
    with watching(recital) as watch:
        recital.run(method="beam", variant=variant, width=width, batch_size=batch_size)
    assert watch.taken == set()


@many(60)
@given(recitals(), st.integers(1, 30), st.sampled_from(["auto", 1, 2]))
def test_samples(recital: Recital, samples: int, batch_size: Any) -> None:
    recital.model.memory_positions = max(recital.model.memory_positions, 100)
    with watching(recital) as watch:
        watch.once = False
        recital.run(method="sample", samples=samples, batch_size=batch_size)
    assert watch.taken == set()
