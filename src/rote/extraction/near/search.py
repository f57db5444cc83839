"""Near-verbatim extraction: the probability that one generation ends within a few edits of the suffix, bounded."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rote.corpus.formats import Examples, as_examples
from rote.errors import InputError, ModelError, argument
from rote.extraction.generations import generations
from rote.extraction.near.batches import Reader
from rote.extraction.near.beam import Beams
from rote.extraction.near.distance import Metric, metric_of
from rote.extraction.near.fork import Forks, Search, first_cost
from rote.extraction.near.montecarlo import Sampler, estimate
from rote.extraction.near.options import Near, Variant
from rote.extraction.near.results import Estimate, Goal, NearVerbatim
from rote.extraction.results import Results
from rote.extraction.verbatim import check, from_scores
from rote.models.base import GeneratingModel, LogitModel, ServedGenerator, TokenModel, searchable, with_logits
from rote.odds import wilson
from rote.options import TAU, BatchSize, require_kind
from rote.progress import Progress, quiet
from rote.scheme import GREEDY, Scheme
from rote.tokens import Example

SAMPLES = 1000
AT_ONCE = 256  # examples in flight, where memory allows


def near_verbatim(
    model: TokenModel,
    examples: Examples,
    scheme: Scheme | str = Scheme(),
    *,
    near: Near = Near(),
    tau: float = TAU,
    candidates: int = 8,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Results[NearVerbatim]:
    """Bound, for every example, the probability that one generation is near the suffix; `near` says what that means.

    `tau` is the probability that counts as extraction. No search reads more positions than the model's memory holds,
    whatever its budget. With `method="sample"` a model that only generates will do: then its own sampler draws, and
    which samples a seed stands for is its affair. `candidates`: how many outputs are shown of each example.
    `batch_size` is the number of examples in flight. `progress` counts examples as "scored".
    """
    require_kind("model", model, TokenModel, "a model that rote.load gives")
    require_kind("near", near, Near, "a rote.Near")
    scheme = Scheme.parse(scheme) if isinstance(scheme, str) else scheme
    if not isinstance(scheme, Scheme):
        raise InputError(f"near_verbatim takes one scheme, a rote.Scheme, not {type(scheme).__name__}.")
    what = "a near-verbatim search"
    searchable(model, near.method, what)
    examples = as_examples(examples, model.tokenizer, bos=model.bos_id)
    check(model, examples, [scheme], tau, batch_size)
    check_near(model, examples, near, [scheme])
    if candidates < 0:
        raise InputError(f"{argument('candidates')} must be at least 0, not {candidates}.")
    if not examples:
        return Results([], examples, model.tokenizer)
    published = near.method == "beam" and near.variant != "closing"
    metric = metric_of(near.distance, near.tolerance, near.eos, published=published)

    def allowed(example: Example) -> int:
        return len(example.prefix) + (len(example.suffix) - 1) * near.width if near.budget is None else near.budget

    goal = Goal(tau, near.gap, near.until)
    tell = progress or quiet
    results: list[NearVerbatim | None] = [None] * len(examples)
    if near.method == "sample":
        count = near.samples or (SAMPLES if near.budget is None else _affordable(examples, near.budget))
        if isinstance(model, LogitModel):
            finished = _sampled(model, examples, scheme, metric, tau, count, near.seed, batch_size)
        else:
            assert isinstance(model, GeneratingModel)  # or it was refused
            finished = _generated(model, examples, scheme, metric, tau, count, near.seed)
    elif near.method == "beam":
        finished = _beams(
            with_logits(model, what), examples, scheme, metric, goal, allowed, near.variant, near.width, candidates,
            batch_size,
        )  # fmt: skip
    else:
        finished = _forks(
            with_logits(model, what), examples, scheme, metric, goal, allowed, near.samples or 0, near.seed, candidates,
            batch_size,
        )  # fmt: skip
    for done, (index, result) in enumerate(finished, 1):
        results[index] = result
        tell("scored", done, len(examples))
    every = [r for r in results if r is not None]
    assert len(every) == len(examples)
    return Results(every, examples, model.tokenizer)


def greedy_distances(
    model: LogitModel, examples: Sequence[Example], near: Near, *, batch_size: BatchSize = "auto"
) -> list[int]:
    """How far from its suffix each example's greedy generation ends; tolerance + 1 stands for everything beyond.

    A beam of one: each generation is written token by token until it ends or cannot come near any more.
    """
    beam = Near(near.distance, near.tolerance, "beam", eos=near.eos, gap=0.0, until="budget", variant="pruned", width=1)
    results = near_verbatim(model, examples, GREEDY, near=beam, batch_size=batch_size)
    return [
        next((e for e, (lower, _) in enumerate(r.by_tolerance) if lower > 0.5), near.tolerance + 1) for r in results
    ]


def _forks(
    model: LogitModel, examples: Sequence[Example], scheme: Scheme, metric: Metric, goal: Goal,
    allowed: Callable[[Example], int], samples: int, seed: int, shown: int, batch_size: BatchSize,
) -> Iterator[tuple[int, NearVerbatim]]:  # fmt: skip
    """Bounds, and with `samples` the residual estimate."""
    first = max(first_cost(e) for e in examples)
    if not samples and all(allowed(e) <= first_cost(e) for e in examples):  # first passes alone need no memory
        at_once = max(1, model.batch_tokens // (first + 1)) if batch_size == "auto" else batch_size
        reader, most, part = Reader(model, scheme, 0), first, 0
    else:
        longest = max(len(e.suffix) for e in examples)
        part = max(1, min(samples, model.memory_positions // (4 * longest)))  # samples drawn at a time
        most = max(map(allowed, examples))
        reader, at_once, most = _room(
            model, scheme, len(examples), most, batch_size, least=first, beside=part * longest if samples else 0
        )
    forks = Forks(reader, metric, budget=lambda e: min(allowed(e), most), goal=goal, shown=shown, scores=True)
    sampler = Sampler(reader, metric, every=False)
    for done in forks.run(examples, at_once=at_once):
        guesses = _residuals(sampler, done, samples, part, seed) if samples else {}
        for search in done:
            yield search.index, NearVerbatim(
                example_id=search.example.id, scheme=scheme, method="fork", distance=metric.distance,
                tolerance=metric.tolerance, eos=metric.eos, tau=goal.tau, by_tolerance=search.bounds(), certified=True,
                token_evals=search.evals, candidates=tuple(search.candidates), eos_mass=search.eos_mass,
                estimate=guesses.get(search.index),
                verbatim=None if search.scores is None else from_scores(search.example, scheme, search.scores),
            )  # fmt: skip


def _residuals(sampler: Sampler, done: Sequence[Search], samples: int, part: int, seed: int) -> dict[int, Estimate]:
    """The residual estimates of finished searches; what was drawn, `part` samples at a time, is added to their cost."""
    begun = [search for search in done if search.spines]  # of others nothing is known
    hits = {search.index: 0 for search in begun if search.frontier}
    for start in range(0, samples, part):
        draws = [
            sampler.residual(search, min(part, samples - start), _rng(seed, search.example, start // part))
            for search in begun
            if search.frontier
        ]
        searches = {search.index: search for search in begun}
        for draw in sampler.run(draws, at_once=len(draws) or 1):
            searches[draw.index].evals += draw.evals
            hits[draw.index] += int(draw.hits[-1])
    guesses = {}
    for search in begun:
        lower, upper = search.bounds()[-1]
        if search.index in hits:
            still = float(search.frontier.exactly_open()[-1])
            guesses[search.index] = estimate(lower, still, hits[search.index], samples, seed)
        else:
            guesses[search.index] = Estimate(lower, upper - lower, (lower, upper), 0, seed)
    return guesses


def _beams(
    model: LogitModel, examples: Sequence[Example], scheme: Scheme, metric: Metric, goal: Goal,
    allowed: Callable[[Example], int], variant: Variant, width: int, shown: int, batch_size: BatchSize,
) -> Iterator[tuple[int, NearVerbatim]]:  # fmt: skip
    cost = max(min(allowed(e), len(e.prefix) + (len(e.suffix) - 1) * width) for e in examples)
    prefix = max(len(e.prefix) for e in examples)
    reader, at_once, most = _room(model, scheme, len(examples), cost, batch_size, least=prefix)
    reader.width = min(model.vocabulary, max(reader.width, width))
    beams = Beams(
        reader,
        metric,
        variant=variant,
        width=width,
        most=most,
        budget=lambda e: min(allowed(e), most),
        goal=goal,
        shown=shown,
    )
    for i, beam in beams.run(examples, at_once=at_once):
        yield i, NearVerbatim(
            example_id=beam.example.id, scheme=scheme, method="beam", distance=metric.distance,
            tolerance=metric.tolerance, eos=metric.eos, tau=goal.tau, by_tolerance=beam.bounds(), certified=True,
            token_evals=beam.evals, candidates=tuple(beam.candidates), eos_mass=beam.eos_mass,
        )  # fmt: skip


def _sampled(
    model: LogitModel, examples: Sequence[Example], scheme: Scheme, metric: Metric, tau: float, samples: int, seed: int,
    batch_size: BatchSize,
) -> Iterator[tuple[int, NearVerbatim]]:  # fmt: skip
    """Samples are drawn in parts that fit into memory; each part has its own seed."""
    longest = max(len(e.suffix) for e in examples)
    prefix = max(len(e.prefix) for e in examples)
    part = max(1, min(samples, (model.memory_positions - prefix - 1) // longest))
    sizes = [min(part, samples - start) for start in range(0, samples, part)]
    count = len(examples) * len(sizes)
    each = prefix + part * longest
    reader, at_once, _ = _room(model, scheme, count, each, batch_size, least=each)
    sampler = Sampler(reader, metric, every=True)
    draws = (
        sampler.plain(i, example, size, _rng(seed, example, p))
        for i, example in enumerate(examples)
        for p, size in enumerate(sizes)
    )
    hits = np.zeros((len(examples), metric.tolerance + 1), dtype=np.int64)
    evals, missing = np.zeros(len(examples), dtype=np.int64), np.full(len(examples), len(sizes))
    for draw in sampler.run(draws, at_once=at_once):
        i = draw.index
        hits[i] += draw.hits
        evals[i] += draw.evals
        missing[i] -= 1
        if not missing[i]:
            yield i, NearVerbatim(
                example_id=examples[i].id, scheme=scheme, method="sample", distance=metric.distance,
                tolerance=metric.tolerance, eos=metric.eos, tau=tau,
                by_tolerance=tuple(wilson(int(h), samples) for h in hits[i]), certified=False,
                token_evals=int(evals[i]), estimate=estimate(0.0, 1.0, int(hits[i, -1]), samples, seed),
            )  # fmt: skip


def _generated(
    model: GeneratingModel, examples: Sequence[Example], scheme: Scheme, metric: Metric, tau: float, samples: int,
    seed: int,
) -> Iterator[tuple[int, NearVerbatim]]:  # fmt: skip
    """Samples of a model that generates by itself: each is written out, and its distance is that of what it is."""
    for i, example in enumerate(examples):
        hits, evals = np.zeros(metric.tolerance + 1, dtype=np.int64), len(example.prefix)
        own = int(_rng(seed, example).integers(2**31))
        for output in generations(model, example, scheme, samples=samples, seed=own):
            evals += len(output) - 1
            counts = len(output) == len(example.suffix) or metric.eos == "stop"
            if counts and (edits := metric.between(output, example.suffix)) <= metric.tolerance:
                hits[edits:] += 1
        yield i, NearVerbatim(
            example_id=example.id, scheme=scheme, method="sample", distance=metric.distance,
            tolerance=metric.tolerance, eos=metric.eos, tau=tau,
            by_tolerance=tuple(wilson(int(h), samples) for h in hits), certified=False,
            token_evals=evals, estimate=estimate(0.0, 1.0, int(hits[-1]), samples, seed),
        )  # fmt: skip


def _room(
    model: LogitModel, scheme: Scheme, examples: int, each: int, batch_size: BatchSize, *, least: int, beside: int = 0
) -> tuple[Reader, int, int]:
    """(reader, examples at once, most token evaluations of one) such that all that is read fits into memory.

    Every example may feed `each` positions and one BOS, `least` of them at the least, and `beside` after its search.
    """
    room = model.memory_positions - beside - 1
    if room < min(each, least):
        raise ModelError(
            f"{model.memory_positions:,} positions fit into this device's memory beside the model, but one example "
            f"needs {least + beside + 1:,}; use a smaller model, a 16-bit dtype, fewer samples or shorter examples."
        )
    each = min(each, room)
    fits = max(1, model.memory_positions // (each + beside + 1))
    at_once = min(examples, fits, AT_ONCE) if batch_size == "auto" else min(examples, batch_size)
    return Reader(model, scheme, at_once * (each + beside + 1)), at_once, each


def check_near(model: TokenModel, examples: Sequence[Example], options: Near, schemes: Sequence[Scheme]) -> None:
    """Refuse what cannot be searched before any work is done, naming it."""
    if isinstance(model, LogitModel) and str(model.device).startswith("mps"):
        raise ModelError(
            f"near-verbatim searches add up in float64, which Apple GPUs lack; use {argument('device', 'cpu')}."
        )
    if options.eos == "ignore" and not isinstance(model, LogitModel):
        raise InputError(
            f"{argument('eos', 'ignore')} needs a model that runs here: what generates by itself ends at EOS."
        )
    if options.method == "sample" and isinstance(model, ServedGenerator):
        model.refuse_writing(examples, schemes)
    paid = options.method == "sample" and options.budget is not None and examples
    if paid and _affordable(examples, options.budget or 0) < 1:
        raise InputError(
            f"{argument('budget', options.budget)}: so many token evaluations do not pay for one sample of every "
            "example."
        )
    for example in examples if options.eos != "ignore" else ():
        at = next((i for i, token in enumerate(example.suffix[:-1]) if token in model.eos_ids), None)
        if at is not None:
            raise InputError(
                f"example {example.id!r} has EOS (token {example.suffix[at]}) at suffix position {at}, where a "
                f"generation would end; cut the suffix there, or use {argument('eos', 'ignore')}."
            )
    if options.budget is None or options.method == "sample":
        return
    fork = options.method == "fork"
    if short := [e for e in examples if options.budget < (first_cost(e) if fork else len(e.prefix))]:
        warnings.warn(
            f"a budget of {options.budget} token evaluations is too small to begin {len(short)} of {len(examples)} "
            f"examples (the first: {short[0].id!r}): nothing is known about them.",
            RuntimeWarning,
            stacklevel=3,
        )


def _affordable(examples: Sequence[Example], budget: int) -> int:
    """How many samples of every example a budget pays for, were each written out to its end."""
    return min((budget - len(e.prefix)) // max(len(e.suffix) - 1, 1) for e in examples)


def _rng(seed: int, example: Example, part: int = 0) -> np.random.Generator:
    """By the example's name, not its place: the same samples whatever it is scored along with."""
    return np.random.default_rng([seed, zlib.crc32(example.id.encode("utf-8", "surrogatepass")), part])
