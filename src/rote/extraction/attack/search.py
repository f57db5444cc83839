"""Attacks on prefixes: rounds of outputs, each round following from those before it, until the budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rote.errors import InputError, ModelError, argument
from rote.extraction.attack import beam
from rote.extraction.attack.options import Budget, Plan
from rote.extraction.attack.rounds import Found, Meter, OutOfTime, Round
from rote.extraction.attack.writing import Choose, Floats, Ints, Spine, Writer
from rote.models.base import LogitModel

LISTED = 8  # tokens that an output of a shared beam may go on with, or as many as it is wide
SURE = -0.02  # log-prob of a greedy output beside which no other is looked for, where time is short
ROWS = {"cuda": 512, "cpu": 64}  # examples that are looked at together; elsewhere as on a CPU
BEAMS = 10  # where the budget does not tell
WIDEST = 200  # beam, where the budget tells

Work = Callable[[list[int], int], tuple[list[Spine], int]]
"""Given examples and what they may cost: outputs, and what they cost."""


def search(
    model: LogitModel, prefixes: Sequence[Sequence[int]], plan: Plan, done: Sequence[Round] = ()
) -> Iterator[Round]:
    """The rounds after `done`. What is found does not depend on where a search was interrupted.

    No round is begun whose token evaluations would exceed the budget; one that time runs out on is given up. A round
    looks at some examples and needs nothing of those before it but what they spent.
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
        least = min(beam.plain_cost(len(p), plan.suffix, plan.width, model.vocabulary) for p in prefixes)
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
    width, prompts = 1, sum(map(len, prefixes))
    while width < WIDEST:
        if prompts + len(prefixes) * beam.plain_cost(0, suffix, width + 1, vocabulary) > budget.evals:
            break
        width += 1
    return width


def rows_of(model: LogitModel, prefixes: Sequence[Sequence[int]], suffix: int) -> int:
    """How many examples to look at together: as many as leave room for as many again."""
    fits = model.memory_positions // (2 * (max(map(len, prefixes)) + suffix))
    return max(1, min(ROWS.get(str(model.device).partition(":")[0], ROWS["cpu"]), fits))


class _Attack:
    def __init__(
        self, model: LogitModel, prefixes: Sequence[Sequence[int]], plan: Plan, meter: Meter, done: Sequence[Round]
    ) -> None:
        self.model, self.prefixes, self.plan, self.meter = model, prefixes, plan, meter
        self.every = list(range(len(prefixes)))
        self.dealt = {stage: sum(r.examples for r in done if r.stage == stage) for stage in (0, 1)}
        self.found = {(f.example, f.suffix) for r in done for f in r.found}
        self.best = dict.fromkeys(self.every, -np.inf)  # after the first stage: the likeliest output's log-prob
        for one in (f for r in done if not r.stage for f in r.found):
            self.best[one.example] = max(self.best[one.example], one.log_prob)
        self.brief = plan.budget.evals is None
        self.prompt = max(map(len, prefixes)) + 1  # entries of the longest prefix, and BOS

    # --- the attacks

    def greedy(self) -> Iterator[Round]:
        """The likeliest token at every step: one guess an example."""
        plan = self.plan
        writer = self._writer(plan.rows * (self.prompt + plan.suffix), 1)

        def write(examples: list[int], evals: int) -> tuple[list[Spine], int]:
            begun = writer.begin(examples)
            written = writer.write(begun)
            writer.give(*(s.entries for s in begun))
            return written, self._least(examples)

        yield from self._stage(0, self.every, plan.rows, self._least, write, self.brief)

    def beam(self) -> Iterator[Round]:
        """Plain beam search. All that an example's last beam holds is found."""
        plan, width = self.plan, self.plan.width
        assert width is not None
        each = self.prompt + (plan.suffix - 1) * width
        size = max(1, min(plan.positions // each, plan.rows // width))
        writer = self._writer(size * each, width)

        def cost(examples: Sequence[int]) -> int:
            lengths = (len(self.prefixes[e]) for e in examples)
            return sum(beam.plain_cost(n, plan.suffix, width, self.model.vocabulary) for n in lengths)

        def write(examples: list[int], evals: int) -> tuple[list[Spine], int]:
            return beam.plain_beams(writer, examples, width)

        yield from self._stage(0, self.every, size, cost, write, self.brief)

    def sample(self) -> Iterator[Round]:
        """Outputs drawn under top-k and temperature: the public baseline's candidates, told by their own likelihood.

        The published code scores positions `[-suffix - 1 : -1]` of the losses, which end one token early: the last
        prefix token counts and the last suffix token does not. What is right is the sum over exactly the suffix tokens,
        each given all before it; here it is kept while they are drawn, so that no second pass is needed.
        """
        plan = self.plan
        assert plan.top_k is not None
        writer = self._writer(plan.rows * (self.prompt + plan.suffix), plan.top_k)

        def draw(examples: list[int], evals: int, first: int) -> tuple[list[Spine], int]:
            prompts = self._least(examples) - len(examples) * (plan.suffix - 1)
            each = len(examples) * (plan.suffix - 1)
            number = max(1, (evals - prompts) // each if each else 1)  # of one token, more would cost nothing
            begun = writer.begin(examples)
            drawn = [
                spine
                for sample in range(first, first + number)
                for spine in writer.write(begun, self._drawn(examples, sample))
            ]
            writer.give(*(s.entries for s in begun))
            return drawn, prompts + number * each

        yield from self._twice(self.every, lambda stage: lambda some, evals: draw(some, evals, stage))

    def ranked(self) -> Iterator[Round]:
        """Beams that examples share."""
        plan = self.plan
        usual = self.prompt + (WIDEST // 10) * plan.suffix  # token evaluations of an example
        if plan.budget.evals is not None:
            usual = max(self.prompt + plan.suffix, plan.budget.evals // len(self.prefixes) + 2)
        wide = max(LISTED, min(usual // plan.suffix, WIDEST))
        writer = self._writer(plan.rows * usual, wide, prefixes=True)
        size = max(1, min(plan.rows, writer.free // (self.prompt + plan.suffix)))

        def search(examples: list[int], evals: int) -> tuple[list[Spine], int]:
            evals = min(evals, writer.free - len(examples))
            return beam.shared_beams(writer, examples, evals)

        for found in self._twice(self.every, lambda stage: search, size):
            yield replace(
                found, found=[replace(f, prefix_log_prob=writer.prefix_log_probs.get(f.example)) for f in found.found]
            )

    # --- rounds

    def _twice(self, examples: list[int], work: Callable[[int], Work], size: int | None = None) -> Iterator[Round]:
        """All examples; under a budget in seconds briefly at first, and then again where there is doubt."""
        size = size or self.plan.rows
        yield from self._stage(0, examples, size, self._least, work(0), self.brief)
        if self.brief:
            doubtful = [e for e in examples if self.best[e] < SURE]
            yield from self._stage(1, doubtful, size, self._least, work(1))

    def _stage(
        self, stage: int, examples: list[int], size: int, least: Callable[[Sequence[int]], int], work: Work,
        brief: bool = False,
    ) -> Iterator[Round]:  # fmt: skip
        """Rounds of `size` examples, each with its share of what is left; `least`: what examples cost at the least.

        `brief`: none has more than that.
        """
        at = self.dealt[stage]
        while at < len(examples):
            part = examples[at : at + size]
            self.meter.tick()
            if not brief:
                while part and least(part) > self.meter.left:
                    part = part[:-1]
            if not part:
                return
            beyond = 0 if brief else max(0, self.meter.left - least(examples[at:]))  # what one output of each costs
            spines, spent = work(part, least(part) + int(beyond * len(part) / (len(examples) - at)))
            self.meter.evals += spent
            at += len(part)
            yield self._round(stage, len(part), spines)

    def _round(self, stage: int, examples: int, spines: Sequence[Spine]) -> Round:
        """What is new of outputs."""
        found = []
        for spine in spines:
            one = Found(
                example=spine.example,
                suffix=tuple(spine.tokens.tolist()),
                log_prob=spine.log_prob,
                least=float(spine.log_probs.min()),
                entropy=float(spine.entropies.sum()),
            )
            if (one.example, one.suffix) not in self.found:
                self.found.add((one.example, one.suffix))
                found.append(one)
                if not stage:
                    self.best[one.example] = max(self.best[one.example], one.log_prob)
        spent = self.meter
        return Round(stage=stage, examples=examples, token_evals=spent.evals, seconds=spent.seconds, found=found)

    def _least(self, examples: Sequence[int]) -> int:
        """Token evaluations of one output of each."""
        return sum(len(self.prefixes[e]) + self.plan.suffix - 1 for e in examples)

    def _writer(self, entries: int, width: int, *, prefixes: bool = False) -> Writer:
        entries = min(entries, self.plan.positions)
        return Writer(
            self.model, self.prefixes, self.plan.suffix, entries=entries, width=width, tick=self.meter.tick,
            scores_prefixes=prefixes,
        )  # fmt: skip

    def _drawn(self, examples: Sequence[int], sample: int) -> Choose:
        """Draws by example and sample, whatever is written beside them."""
        seed, temperature = self.plan.seed or 0, self.plan.temperature or 1.0
        luck = np.stack([np.random.default_rng([seed, e, sample]).random(self.plan.suffix) for e in examples])

        def choose(rows: Ints, at: int, log_probs: Floats) -> Ints:
            weights = np.exp((log_probs - log_probs[:, :1]) / temperature).cumsum(1)
            drawn: Ints = (weights < luck[rows, at][:, None] * weights[:, -1:]).sum(1)
            return drawn

        return choose
