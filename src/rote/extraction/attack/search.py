"""Attacks on prefixes: rounds of outputs, each round following from those before it, until the budget is spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rote.errors import InputError, ModelError, argument
from rote.extraction.attack import beam
from rote.extraction.attack.forks import Forks
from rote.extraction.attack.options import Budget, Plan
from rote.extraction.attack.rounds import Found, Meter, Round
from rote.extraction.attack.writing import Choose, Floats, Ints, Node, OutOfTime, Spine, Writer
from rote.models.base import LogitModel

LISTED = 8  # tokens that are looked at, where a search may go on with any of them
ROWS = {"cuda": 512}  # outputs written side by side; 64 elsewhere
BEAMS = 10  # where the budget does not tell
KEPT = 8  # outputs of an example beside the greedy one whose keys are kept, where memory allows


def search(
    model: LogitModel, prefixes: Sequence[Sequence[int]], plan: Plan, done: Sequence[Round] = ()
) -> Iterator[Round]:
    """The rounds after `done`. What is found does not depend on where a search was interrupted.

    No round is begun whose token evaluations would exceed the budget; one that time runs out on is given up. Keys that
    were lost with an earlier sitting are made again, which costs time but no token evaluations.
    """
    check_attack(model, prefixes, plan)
    last = done[-1] if done else None
    meter = Meter(plan.budget, evals=last.token_evals if last else 0, seconds=last.seconds if last else 0.0)
    attack = _Attack(model, prefixes, plan, meter, done)
    rounds = {"greedy": attack.greedy, "sample": attack.sample, "beam": attack.beam, "ranked": attack.ranked}
    try:
        yield from rounds[plan.method]()
    except OutOfTime:
        return


def check_attack(model: LogitModel, prefixes: Sequence[Sequence[int]], plan: Plan) -> None:
    """Refuse what cannot be attacked, or not with this budget, before anything is read."""
    if str(model.device).startswith("mps"):
        raise ModelError(f"attacks add up in float64, which Apple GPUs lack; use {argument('device', 'cpu')}.")
    longest, bos = max(map(len, prefixes)), int(model.bos_id is not None)
    if model.context_length is not None and bos + longest + plan.suffix - 1 > model.context_length:
        raise InputError(
            f"prefixes of {longest} tokens and suffixes of {plan.suffix} take {bos + longest + plan.suffix - 1} "
            f"positions, more than the model's context of {model.context_length}; use shorter prefixes or a smaller "
            f"{argument('suffix')}."
        )
    least = min(map(len, prefixes)) + plan.suffix - 1
    if plan.method == "beam":
        assert plan.width is not None
        least = min(beam.cost(len(p), plan.suffix, plan.width, model.vocabulary) for p in prefixes)
    if plan.budget.evals is not None and plan.budget.evals < least:
        raise InputError(
            f"{argument('budget', plan.budget.evals)}: so many token evaluations do not pay for one example's guess; "
            f"give at least {least:,}."
        )
    need = bos + longest + (plan.suffix - 1) * (plan.width or 1)
    if plan.positions < need:
        raise ModelError(
            f"{plan.positions:,} positions fit into this device's memory beside the model, but one example needs "
            f"{need:,}; use a smaller model, a 16-bit dtype or shorter examples."
        )


def affordable_width(prefixes: Sequence[Sequence[int]], suffix: int, budget: Budget, vocabulary: int) -> int:
    """The widest beam that the budget pays for with every example; the usual one under a budget in seconds."""
    if budget.evals is None:
        return BEAMS
    width = 1
    while sum(beam.cost(len(p), suffix, width + 1, vocabulary) for p in prefixes) <= budget.evals and width < 1000:
        width += 1
    return width


def rows_of(model: LogitModel, prefixes: Sequence[Sequence[int]], suffix: int) -> int:
    """How many outputs to write side by side: as many as leave room for as many again."""
    fits = model.memory_positions // (2 * (max(map(len, prefixes)) + suffix))
    return max(1, min(ROWS.get(str(model.device).partition(":")[0], 64), fits))


class _Attack:
    def __init__(
        self, model: LogitModel, prefixes: Sequence[Sequence[int]], plan: Plan, meter: Meter, done: Sequence[Round]
    ) -> None:
        self.model, self.prefixes, self.plan, self.meter, self.done = model, prefixes, plan, meter, done
        self.every = range(len(prefixes))
        self.prompt = max(map(len, prefixes)) + 1  # entries of the longest prefix, and BOS

    # --- the attacks

    def greedy(self) -> Iterator[Round]:
        """The likeliest token at every step: one guess an example."""
        writer = self._writer(self.plan.rows * (self.prompt + self.plan.suffix), 1)
        for spines, found in self._first(writer):
            writer.give(*(s.entries for s in spines))
            yield found

    def beam(self) -> Iterator[Round]:
        """Plain beam search, some examples at a time. All that their last beams hold is found."""
        plan, width = self.plan, self.plan.width
        assert width is not None
        each = self.prompt + (plan.suffix - 1) * width
        size = max(1, min(plan.positions // each, plan.rows // width))
        writer = self._writer(size * each, width)
        for start in range(len({f.example for r in self.done for f in r.found}), len(self.prefixes), size):
            costs = [
                beam.cost(len(self.prefixes[e]), plan.suffix, width, self.model.vocabulary)
                for e in self.every[start : start + size]
            ]
            if not (part := self._paid(self.every[start : start + size], costs)):
                return
            yield self._round([spine for spines in beam.beams(writer, part, width) for spine in spines])

    def sample(self) -> Iterator[Round]:
        """Outputs drawn under top-k and temperature: the public baseline's candidates, told by their own likelihood.

        The published code scores positions `[-suffix - 1 : -1]` of the losses, which end one token early: the last
        prefix token counts and the last suffix token does not. What is right is the sum over exactly the suffix tokens,
        each given all before it; here it is kept while they are drawn, so that no second pass is needed.
        """
        for number, part in (parts := self._parts(self.prompt)):
            if not self._begins(number, parts):
                continue
            try:
                yield from self._sampled(number, part)
            except OutOfTime:
                continue

    def ranked(self) -> Iterator[Round]:
        """Greedy for all, then other outputs where the heaviest open ones begin, over all examples together."""
        plan, each = self.plan, self.prompt + self.plan.suffix
        parts = self._parts(each)
        first = [f for r in self.done if not r.part for f in r.found]
        if len(parts) > 1:  # the memory does not hold all: nothing is kept of the greedy outputs
            writer = self._writer(plan.rows * each, LISTED, prefixes=True)
            for spines, found in self._first(writer):
                writer.give(*(s.entries for s in spines))
                first += found.found
                yield found
        for number, part in parts:
            if not self._begins(number, parts):
                continue
            room = max(plan.rows, KEPT * len(part)) * plan.suffix
            writer = self._writer(len(part) * each + room, LISTED, prefixes=True)
            forks = Forks(writer)
            try:
                own = [f for f in first if f.example in part]
                if len(parts) > 1 and not self._go_back(own, number):
                    continue
                for start in range(0, len(own), plan.rows):
                    known = own[start : start + plan.rows]
                    forks.add(writer.again([(f.example, np.array(f.suffix)) for f in known], [None] * len(known)))
                if len(parts) == 1:
                    for spines, found in self._first(writer):
                        forks.add(spines)
                        yield found
                yield from self._forked(forks, number)
            except OutOfTime:
                continue

    # --- their parts

    def _first(self, writer: Writer) -> Iterator[tuple[list[Spine], Round]]:
        """Greedy outputs of all examples that have none yet; what the writer keeps of them is the caller's."""
        plan = self.plan
        begin = sum(len(r.found) for r in self.done if not r.part)
        for start in range(begin, len(self.prefixes), plan.rows):
            part = self.every[start : start + plan.rows]
            if not (paid := self._paid(part, [len(self.prefixes[e]) + plan.suffix - 1 for e in part])):
                return
            spines = writer.write(writer.begin(paid))
            yield spines, self._round(spines, prefixes=writer.prefix_log_probs)

    def _go_back(self, first: Sequence[Found], number: int) -> bool:
        """Pay for reading the greedy outputs of a part once more, unless that was done; whether the budget does."""
        if any(r.part == number for r in self.done):
            return True
        cost = sum(len(self.prefixes[f.example]) + self.plan.suffix - 1 for f in first)
        allowed = self.meter.allows(cost)
        self.meter.evals += cost if allowed else 0
        return allowed

    def _forked(self, forks: Forks, number: int) -> Iterator[Round]:
        for before in (r for r in self.done if r.part == number):
            known = [(f.example, np.array(f.suffix)) for f in before.found]
            nodes = [forks.taken(e, tokens, f.fork or 0) for (e, tokens), f in zip(known, before.found, strict=True)]
            forks.make_room(nodes)
            forks.add(forks.writer.again(known, nodes))
        while nodes := self._nodes(forks):
            spines = forks.writer.fork(nodes)
            forks.add(spines)
            yield self._round(spines, number, forks=[n.at for n in nodes])

    def _nodes(self, forks: Forks) -> list[Node]:
        """The next nodes, paid for."""
        nodes = forks.choose(self.plan.rows, self.meter.left)
        forks.make_room(nodes)
        costs = [forks.writer.cost(node) for node in nodes]  # dearer than they were, where keys were given up
        return self._paid(nodes, costs)

    def _sampled(self, number: int, part: range) -> Iterator[Round]:
        plan = self.plan
        assert plan.top_k is not None
        writer = self._writer(len(part) * self.prompt + plan.rows * plan.suffix, plan.top_k)
        seen = {(f.example, f.suffix) for r in self.done for f in r.found}
        begun: dict[int, Spine] = {}
        turns = -(-len(part) // plan.rows)  # of every sample
        turn = sum(r.part == number for r in self.done)
        while True:
            sample, chunk = divmod(turn, turns)
            if sample and plan.suffix == 1:  # nothing more is fed: it would go on for ever
                return
            chosen = part[chunk * plan.rows : (chunk + 1) * plan.rows]
            costs = [plan.suffix - 1 + (0 if sample else len(self.prefixes[e])) for e in chosen]
            if not (paid := self._paid(chosen, costs)):
                return
            if new := [e for e in paid if e not in begun]:
                begun |= {spine.example: spine for spine in writer.begin(new)}
            outputs = writer.write([begun[e] for e in paid], self._drawn(paid, sample))
            for spine in outputs:
                writer.give(spine.entries[len(begun[spine.example].entries) :])
            fresh = [s for s in outputs if (s.example, tuple(s.tokens.tolist())) not in seen]
            seen |= {(s.example, tuple(s.tokens.tolist())) for s in fresh}
            yield self._round(fresh, number)
            turn += 1

    def _drawn(self, examples: Sequence[int], sample: int) -> Choose:
        """Draws by example and sample, whatever is written beside them."""
        seed, temperature = self.plan.seed or 0, self.plan.temperature or 1.0
        luck = np.stack([np.random.default_rng([seed, e, sample]).random(self.plan.suffix) for e in examples])

        def choose(rows: Ints, at: Ints, log_probs: Floats) -> Ints:
            weights = np.exp((log_probs - log_probs[:, :1]) / temperature).cumsum(1)
            drawn: Ints = (weights < luck[rows, at][:, None] * weights[:, -1:]).sum(1)
            return drawn

        return choose

    # --- memory and money

    def _writer(self, entries: int, width: int, *, prefixes: bool = False) -> Writer:
        entries = min(entries, self.plan.positions)
        return Writer(
            self.model, self.prefixes, self.plan.suffix, entries=entries, width=width, tick=self.meter.tick,
            scores_prefixes=prefixes,
        )  # fmt: skip

    def _parts(self, each: int) -> list[tuple[int, range]]:
        """Examples in parts that fit into memory with a round beside them, the first being 1."""
        size = max(1, (self.plan.positions - self.plan.rows * self.plan.suffix) // each)
        return [(n, self.every[at : at + size]) for n, at in enumerate(range(0, len(self.prefixes), size), 1)]

    def _begins(self, number: int, parts: Sequence[tuple[int, range]]) -> bool:
        """Whether a part is still to be searched; then it has its share of what was left when it began."""
        if any(r.part > number for r in self.done):
            return False
        before = [Round(part=0, token_evals=0, seconds=0.0, found=()), *(r for r in self.done if r.part < number)]
        resumed = any(r.part == number for r in self.done)
        size, to_come = len(parts[number - 1][1]), sum(len(part) for n, part in parts if n >= number)
        self.meter.share(size / to_come, before[-1] if resumed else None)
        return True

    def _paid(self, wanted: Sequence[Any], costs: Sequence[int]) -> list[Any]:
        """As many of them, from the first on, as the budget allows, and paid for."""
        left, total = self.meter.left, np.cumsum(costs)
        count = len(wanted) if left is None else int((total <= left).sum())
        self.meter.tick()
        self.meter.evals += int(total[count - 1]) if count else 0
        return list(wanted[:count])

    def _round(
        self, spines: Sequence[Spine], part: int = 0, *, forks: Sequence[int] | None = None,
        prefixes: Mapping[int, float] | None = None,
    ) -> Round:  # fmt: skip
        found = [
            Found(
                example=s.example,
                suffix=tuple(s.tokens.tolist()),
                log_prob=s.log_prob,
                least=float(s.log_probs.min()),
                entropy=float(s.entropies.sum()),
                prefix_log_prob=None if prefixes is None else prefixes.get(s.example),
                fork=None if forks is None else forks[i],
            )
            for i, s in enumerate(spines)
        ]
        return Round(part=part, token_evals=self.meter.evals, seconds=self.meter.seconds, found=found)
