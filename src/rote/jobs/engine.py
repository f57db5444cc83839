"""The local engine: score what a run still lacks, shard by shard, then sum up."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from rote.corpus.windows import Regions, window_starts, windows
from rote.decoding import Scheme
from rote.errors import InputError
from rote.extraction.near.fork import first_cost
from rote.extraction.near.results import NearVerbatim
from rote.extraction.near.search import Near, check_near, greedy_distances, near_verbatim
from rote.extraction.verbatim import BatchSize, Verbatim, check, verbatim
from rote.jobs.summary import THRESHOLDS, summarise
from rote.models.base import LogitModel
from rote.store.manifest import build, digest
from rote.store.run import Run
from rote.tokens import Example

Progress = Callable[[str, int, int], None]
"""Called with what is counted ("windows" while cutting, "scored" while scoring), how many are done, and of how many."""

SHARD_FLOPS = {"cuda": 2e15, "cpu": 2e11}  # a few seconds, also on a slow core; 1e12 elsewhere. What a kill can lose.


def scan(
    text: str,
    model: LogitModel,
    *,
    out: str | Path,
    name: str = "text",
    prefix: int = 50,
    suffix: int = 50,
    stride: int = 10,
    within: Regions | None = None,
    schemes: Sequence[Scheme] = (Scheme(),),
    tau: float = 1e-3,
    stop_early: bool = False,
    near: Near | None = None,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Run:
    """Score sliding windows over a text and write a run folder; a folder that holds part of this run is continued.

    `tau` is the smallest probability that counts as extraction. With `stop_early`, windows that are certain to end
    below it are given up after a few tokens: cheaper on text that is not memorized, at the price of exact numbers
    below tau. `near` asks for near-verbatim extraction as well: rote.Near() for its defaults. `within`: regions of the
    text, as [start, end) pairs, in which windows may start; rates are then those of a choice of windows.
    """
    tell = progress or (lambda what, done, total: None)
    if stop_early and tau > THRESHOLDS[0]:
        raise InputError(
            f"with stop_early, tau must be at most {THRESHOLDS[0]}, the lowest coverage threshold, not {tau}."
        )
    examples = windows(
        text, model.tokenizer, prefix=prefix, suffix=suffix, stride=stride, within=within,
        progress=lambda d, t: tell("windows", d, t),
    )  # fmt: skip
    dropped = len(window_starts(len(text), stride, within)) - len(examples)
    if not examples and within is not None:
        raise InputError(
            f"not one window of {prefix} + {suffix} tokens starts in the given parts of {name} and fits before "
            "its end. Use shorter windows (--prefix, --suffix) or a smaller --stride."
        )
    if not examples:
        raise InputError(
            f"{name} is too short: not one window of {prefix} + {suffix} tokens fits into its {len(text)} characters. "
            "Use shorter windows (--prefix, --suffix) or a longer text."
        )
    manifest = build(
        kind="scan",
        source={"name": name, "sha256": digest(text), "characters": len(text)},
        model=model.identity(),
        options={
            "windows": {
                "prefix": prefix,
                "suffix": suffix,
                "stride": stride,
                **({} if within is None else {"within": [list(region) for region in within]}),
            },
            "dropped": dropped,
            **job_options(model, examples, schemes, tau, stop_early, near, batch_size),
        },
    )
    content = {"text.txt": text.encode("utf-8", "surrogatepass")}
    return complete(Run(Path(out)), manifest, content, model, examples, schemes, tell)


def score(
    examples: Sequence[Example],
    model: LogitModel,
    *,
    out: str | Path,
    name: str = "examples",
    schemes: Sequence[Scheme] = (Scheme(),),
    tau: float = 1e-3,
    stop_early: bool = False,
    near: Near | None = None,
    batch_size: BatchSize = "auto",
    recorded: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Score given examples and write a run folder, as `scan` does for windows.

    `recorded` goes into the manifest: what else decided these examples, such as how they were drawn.
    """
    if not examples:
        raise InputError(f"{name} holds no examples.")
    twice = next((key for key, times in Counter(e.id for e in examples).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{name} has more than one example with the id {twice!r}; give every example its own id.")
    # First: ids may be past the tokenizer's.
    options = job_options(model, examples, schemes, tau, stop_early, near, batch_size)
    shown = [_shown(example, model.tokenizer) for example in examples]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in shown)
    if model.tokenizer is not None:
        suffixes = [(example.suffix, one["suffix_text"]) for example, one in zip(examples, shown, strict=True)]
        ends = decoded_ends(model.tokenizer, suffixes)
        examples = [replace(example, token_ends=end) for example, end in zip(examples, ends, strict=True)]
    ids = json.dumps([[e.id, e.prefix, e.suffix, dict(e.metadata)] for e in examples], sort_keys=True)
    manifest = build(
        kind="score",
        source={"name": name, "sha256": digest(ids), "text_sha256": digest(lines), "examples": len(examples)},
        model=model.identity(),
        options={"dropped": 0, **options, **(recorded or {})},
    )
    tell = progress or (lambda what, done, total: None)
    content = {"examples.jsonl": lines.encode("utf-8", "surrogatepass")}
    return complete(Run(Path(out)), manifest, content, model, examples, schemes, tell)


def job_options(
    model: LogitModel,
    examples: Sequence[Example],
    schemes: Sequence[Scheme],
    tau: float,
    stop_early: bool,
    near: Near | None,
    batch_size: BatchSize,
) -> dict[str, Any]:
    check(model, examples, schemes, tau, batch_size)
    if near is not None:
        if stop_early:
            raise InputError("near-verbatim extraction needs every example in full; it cannot stop early.")
        _refuse_pointless(examples, near)
        check_near(model, examples, near)
    if len(set(map(str, schemes))) < len(schemes):
        raise InputError("the same decoding scheme was given twice; give each scheme once.")
    size = shard_size(model, examples)
    return {
        "schemes": [str(scheme) for scheme in schemes],
        "tau": tau,
        "stop_early": stop_early,
        "batch_size": batch_size,
        "batch_tokens": model.batch_tokens if batch_size == "auto" else None,  # it may follow from the GPU's memory
        "near": None if near is None else {**asdict(near), "memory_positions": model.memory_positions},
        "shard_examples": size,
        "shards": math.ceil(len(examples) / size),
    }


def _refuse_pointless(examples: Sequence[Example], near: Near) -> None:
    """Refuse searches that would find out nothing: they could not pay for themselves, or everything would count."""
    if near.budget is not None and near.method != "sample":
        beam = near.method == "beam"
        costs = [len(e.prefix) + (len(e.suffix) - 1) * near.width if beam else first_cost(e) for e in examples]
        if near.budget < max(costs):
            what = f"a beam of {near.width}" if beam else "the first pass"
            raise InputError(
                f"a budget of {near.budget} token evaluations does not cover {what}; give at least {max(costs)}."
            )
    short = min(examples, key=lambda e: len(e.suffix))
    if near.eos != "exclude" and len(short.suffix) <= near.tolerance:
        raise InputError(
            f"with a tolerance of {near.tolerance} every output is near enough to the suffix of example {short.id!r}, "
            f"which has {len(short.suffix)} tokens; use a tolerance below that, or longer suffixes."
        )


def shard_size(model: LogitModel, examples: Sequence[Example]) -> int:
    """Examples per shard: a power of two worth a few seconds, and always the same for the same job."""
    identity = model.identity()
    longest = max(len(e.prefix) + len(e.suffix) for e in examples)
    flops = 2 * identity.get("parameters", 1_000_000) * longest
    budget = SHARD_FLOPS.get(identity.get("device", "cpu"), 1e12)
    return 1 << int(math.log2(min(max(budget / flops, 32), 4096)))


def complete(
    run: Run,
    manifest: dict[str, Any],
    content: Mapping[str, bytes],
    model: LogitModel,
    examples: Sequence[Example],
    schemes: Sequence[Scheme],
    tell: Progress,
) -> Run:
    size = manifest["shard_examples"]
    with run.locked():
        run.begin(manifest, content=content)
        for index in range(manifest["shards"]):
            part = examples[index * size : (index + 1) * size]
            if not run.has_shard(index):
                count = partial(_tell_from, tell, index * size, len(examples))
                _score_shard(run, index, part, model, schemes, manifest, count)
            tell("scored", index * size + len(part), len(examples))
        run.finish(summarise(run, model.logit_tolerance, model.tokenizer))
        run.report()
    return run


def _tell_from(tell: Progress, before: int, total: int, done: int) -> None:
    tell("scored", before + done, total)


def _score_shard(
    run: Run,
    index: int,
    part: Sequence[Example],
    model: LogitModel,
    schemes: Sequence[Scheme],
    manifest: Mapping[str, Any],
    tell: Callable[[int], None],
) -> None:
    done = 0

    def count(newly: int) -> None:
        nonlocal done
        done += newly
        tell(done)

    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        near: list[dict[str, Any]] = []
        if manifest["near"] is None:
            tau = manifest["tau"] if manifest["stop_early"] else None
            results = verbatim(model, part, schemes, tau=tau, batch_size=manifest["batch_size"], progress=count)
        else:
            results, near = _near_shard(part, model, schemes, manifest, count)
    warned = [*model.warnings, *(str(w.message) for w in caught)]
    facts = {"seconds": time.perf_counter() - began, "warnings": warned}
    run.add_shard(index, part, results, facts, near)


def _near_shard(
    part: Sequence[Example],
    model: LogitModel,
    schemes: Sequence[Scheme],
    manifest: Mapping[str, Any],
    tell: Callable[[int], None],
) -> tuple[list[Verbatim], list[dict[str, Any]]]:
    """Verbatim results and near-verbatim columns: for each example, for each scheme."""
    options = {key: value for key, value in manifest["near"].items() if key != "memory_positions"}
    size = manifest["batch_size"]
    same = {key: options[key] for key in ("distance", "tolerance", "eos")}
    greedy: Sequence[int | None] = [None] * len(part)
    by_scheme = []
    for scheme in schemes:
        once = tell if scheme is schemes[0] else None  # progress counts examples
        found = near_verbatim(model, part, scheme, tau=manifest["tau"], batch_size=size, progress=once, **options)
        scored = [f.verbatim for f in found if f.verbatim is not None]
        if len(scored) < len(part):  # beams, samples, and budgets too small for a first pass
            scored = verbatim(model, part, [scheme], batch_size=size)
        by_scheme.append((scored, found))
    if any(f.token_evals > v.token_evals for scored, found in by_scheme for v, f in zip(scored, found, strict=True)):
        greedy = greedy_distances(model, part, batch_size=size, **same)  # where more than first passes is paid for
    results, near = [], []
    for i in range(len(part)):
        for scored, found in by_scheme:
            results.append(scored[i])
            near.append(_near_columns(found[i], greedy[i], model.tokenizer))
    return results, near


def _near_columns(found: NearVerbatim, greedy: int | None, tokenizer: Any) -> dict[str, Any]:
    return {
        "lower": found.lower,
        "upper": found.upper,
        "lower_by_tolerance": [lower for lower, _ in found.by_tolerance],
        "upper_by_tolerance": [upper for _, upper in found.by_tolerance],
        "verdict": found.verdict,
        "near_token_evals": found.token_evals,
        "eos_mass": found.eos_mass,
        "estimate": None if found.estimate is None else found.estimate.mean,
        "estimate_error": None if found.estimate is None else found.estimate.error,
        "candidates": [
            {
                "tokens": candidate.tokens,
                "text": None if tokenizer is None else str(tokenizer.decode(list(candidate.tokens))),
                "log_prob": candidate.log_prob,
                "set_log_prob": candidate.set_log_prob,
                "distance": candidate.distance,
            }
            for candidate in found.candidates
        ],
        "greedy_distance": greedy,
    }


def decoded_ends(tokenizer: Any, suffixes: Iterable[tuple[Sequence[int], str]]) -> Iterator[tuple[int, ...]]:
    """For each (tokens, their text): where in the text each token ends; one with part of a character may be empty.

    Most tokenizers decode token by token; where the pieces do not add up to the text, the first tokens are decoded
    together, one more each time, and what they share with the text counts.
    """
    alone: dict[int, str] = {}
    for tokens, text in suffixes:
        for token in tokens:
            if token not in alone:
                alone[token] = str(tokenizer.decode([token]))
        if "".join(alone[token] for token in tokens) == text:
            yield tuple(accumulate(len(alone[token]) for token in tokens))
            continue
        ends = [_shared(str(tokenizer.decode(list(tokens[:count]))), text) for count in range(1, len(tokens))]
        yield tuple(accumulate([*ends, len(text)], max))


def _shared(beginning: str, text: str) -> int:
    """How many characters the two have in common from the start."""
    return next(
        (i for i, (one, other) in enumerate(zip(beginning, text, strict=False)) if one != other),
        min(len(beginning), len(text)),
    )


def _shown(example: Example, tokenizer: Any) -> dict[str, Any]:
    """An example for the reader: its ids, and their text where a tokenizer is at hand (for display only)."""

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids))) if tokenizer is not None and ids else " ".join(map(str, ids))

    return {
        "id": example.id,
        "prefix": example.prefix,
        "suffix": example.suffix,
        "prefix_text": decode(example.prefix),
        "suffix_text": decode(example.suffix),
        "metadata": dict(example.metadata),
    }
