"""`bench attack`: given prefixes alone, guess what follows, most confident first, within a budget."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np

from rote.corpus.bench import Ids, read_ids, read_split, splits_in
from rote.errors import InputError, argument
from rote.extraction.attack.options import Budget, Method, Plan, as_budget, typed_budget
from rote.jobs.engine import run_folder
from rote.models.base import LogitModel, with_logits
from rote.options import Option, Seed, require_known, require_number, require_whole, typed_path
from rote.progress import Progress, quiet, stopping
from rote.store.attack import (
    AttackManifest,
    AttackSummary,
    Calibration,
    Prefixes,
    StoredAttack,
    StoredGuess,
    add_round,
    begin,
    finish,
)
from rote.store.files import FORMAT, digest, locked, now, pretty
from rote.store.manifest import made_with
from rote.store.seal import SEAL

SUFFIX = 50  # tokens of a guess, where no answers tell
TOP_K = 10  # of the public baseline
EXAMPLES = 1000  # with answers, that chances are learnt from


@dataclass(frozen=True, slots=True)
class Target:
    """Prefixes to attack; `suffix`: the answers, where they are known."""

    name: str
    prefix: Ids
    suffix: Ids | None = None

    def about(self) -> Prefixes:
        """Who they are."""
        told = f"{self.prefix.shape} {self.prefix.tolist()}" + (
            "" if self.suffix is None else f"{self.suffix.tolist()}"
        )
        return Prefixes(name=self.name, sha256=digest(told), examples=len(self.prefix))


def attack(
    model: LogitModel,
    prefixes: Annotated[Path | str, Option("Prefixes: an .npy file of token ids, or a benchmark's folder.")],
    *,
    budget: Annotated[
        Budget | int | str,
        Option("What it may cost: 300s, 5m or 2h of time, or a whole number of token evaluations.", parse=typed_budget),
    ],
    split: Annotated[str, Option("Which examples of a benchmark's folder to attack.")] = "test",
    train: Annotated[
        Path | str | None,
        Option("Benchmark's folder whose train split has answers, to learn chances from.", parse=typed_path),
    ] = None,
    train_examples: Annotated[int, Option("How many of those to take at most, drawn at random.")] = EXAMPLES,
    method: Annotated[Method, Option("Which attack.")] = "ranked",
    suffix: Annotated[int | None, Option("Tokens of a guess.", default="those of answers, or 50")] = None,
    width: Annotated[int | None, Option("Beams of --method beam.", default="as many as the budget pays for")] = None,
    top_k: Annotated[int | None, Option("Of --method sample: draw from the k likeliest tokens.", default="10")] = None,
    temperature: Annotated[float | None, Option("Of --method sample.", default="1")] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | str | None, Option("Folder for the guesses.", "--out/-o", default="runs/NAME-MODEL", parse=typed_path)
    ] = None,
    progress: Progress | None = None,
) -> StoredAttack:
    """Guess what follows each prefix; `guesses.csv` in the folder `out` has the guesses, most confident first.

    Guesses are stored as they are found, and the same call goes on with a folder that was interrupted: `budget` counts
    what all sittings spent. Methods: "greedy", one guess an example; "sample", the public baseline: outputs under
    top-k and temperature; "beam", plain beam search; "ranked": beams that examples share, all guesses in one order by
    the chance that they are right. That chance is learnt from the train split of `train`, which is attacked first, at
    the same cost an example and on top of `budget`. Without it guesses stand by the model's own probability, the
    likeliest of every example before any second one.
    """
    with_logits(model, "an attack")
    require_known("method", method, get_args(Method))
    budget = as_budget(budget)
    _refuse_idle(method, train=train, width=width, top_k=top_k, temperature=temperature)
    vocabulary = model.vocabulary
    target = _target(prefixes, split, vocabulary)
    learnt = (
        None
        if train is None
        else _with_answers(train, require_whole("train_examples", train_examples), seed, vocabulary)
    )
    length = _length(suffix, target, learnt)
    plan = _plan(model, target, method, length, budget, width, top_k, temperature, require_whole("seed", seed, 0))
    folder = run_folder(out, f"{target.name}-{method}", model)
    known = StoredAttack(folder)
    with stopping(lambda: f"{known.progress()} in {folder}. Run the same command again to go on."):
        return _attacked(model, target, learnt, plan, folder, progress or quiet)


def _refuse_idle(method: Method, **given: Any) -> None:
    goes_with = {"train": "ranked", "width": "beam", "top_k": "sample", "temperature": "sample"}
    for name, value in given.items():
        if value is not None and method != goes_with[name]:
            raise InputError(
                f"{argument(name)} changes nothing here; it goes with {argument('method', goes_with[name])}."
            )


def _target(prefixes: Path | str, split: str, vocabulary: int) -> Target:
    path = Path(prefixes)
    if not path.is_dir():
        return Target(path.stem, read_ids(path, vocabulary))
    if split not in (there := splits_in(path)):
        raise InputError(f"{path} has no split {split!r}; {argument('split')} may be {', '.join(there)}.")
    found = read_split(path, split, vocabulary)
    return Target(f"{path.name}-{split}", found.prefix, found.suffix)


def _with_answers(train: Path | str, most: int, seed: int, vocabulary: int) -> Target:
    folder = Path(train)
    if "train" not in splits_in(folder):
        raise InputError(f"{folder} has no train_prefix.npy; give {argument('train')} a folder that has.")
    found = read_split(folder, "train", vocabulary)
    if found.suffix is None:
        raise InputError(
            f"{folder} has no train_suffix.npy: without answers there is nothing to learn. Give {argument('train')} a "
            "folder that has them, or leave it out."
        )
    rows = np.arange(len(found.prefix))
    if most < len(rows):
        rows = np.sort(np.random.default_rng([seed, len(rows)]).choice(rows, most, replace=False))
    return Target(f"{folder.name}-train", found.prefix[rows], found.suffix[rows])


def _length(suffix: int | None, target: Target, learnt: Target | None) -> int:
    told = next((t.suffix.shape[1] for t in (learnt, target) if t is not None and t.suffix is not None), SUFFIX)
    length = told if suffix is None else require_whole("suffix", suffix)
    if learnt is not None and learnt.suffix is not None and learnt.suffix.shape[1] != length:
        raise InputError(
            f"{argument('suffix', length)}, but the answers of {argument('train')} have {learnt.suffix.shape[1]} "
            f"tokens; leave {argument('suffix')} out."
        )
    return length


def _plan(
    model: LogitModel, target: Target, method: Method, length: int, budget: Budget, width: int | None,
    top_k: int | None, temperature: float | None, seed: int,
) -> Plan:  # fmt: skip
    from rote.extraction.attack.search import affordable_width, check_attack, rows_of

    rows = target.prefix.tolist()
    own: dict[str, Any] = {}
    if method == "beam":
        fits = affordable_width(rows, length, budget, model.vocabulary)
        own["width"] = fits if width is None else require_whole("width", width)
    if method == "sample":
        own = {"top_k": require_whole("top_k", TOP_K if top_k is None else top_k), "seed": seed}
        own["temperature"] = require_number("temperature", 1.0 if temperature is None else temperature)
        if not own["temperature"] > 0:
            raise InputError(f"{argument('temperature')} must be above 0; {argument('method', 'greedy')} is 0.")
    plan = Plan(
        method=method, suffix=length, budget=budget, rows=rows_of(model, rows, length),
        positions=model.memory_positions, **own,
    )  # fmt: skip
    check_attack(model, rows, plan)
    return plan


def _attacked(
    model: LogitModel, target: Target, learnt: Target | None, plan: Plan, folder: Path, tell: Progress,
    what: str = "attacking",
) -> StoredAttack:  # fmt: skip
    about, train = replace(target, suffix=None).about(), None if learnt is None else learnt.about()
    manifest = AttackManifest(
        format=FORMAT, kind="attack", created=now(), source=about, model=model.identity(), train=train,
        versions=made_with(), **asdict(plan) | {"budget": plan.budget},
    )  # fmt: skip
    stored = StoredAttack(folder)
    with locked(folder):
        sealed = (folder / SEAL).is_file()
        begin(folder, manifest)
        calibration = None
        if learnt is not None:
            share = len(learnt.prefix) / len(target.prefix)
            costs = replace(plan, budget=_share(plan.budget, share))
            tried = _attacked(model, learnt, None, costs, folder / "train", tell, "learning")
            calibration = _calibrated(tried, learnt, model.tokenizer)
        if not sealed:
            _search(stored, model, target, plan, tell, what)
        _finish(stored, len(target.prefix), calibration, model.tokenizer)
    return stored


def _share(budget: Budget, share: float) -> Budget:
    if budget.evals is not None:
        return Budget(evals=max(1, int(budget.evals * share)))
    return Budget(seconds=(budget.seconds or 0.0) * share)


def _search(stored: StoredAttack, model: LogitModel, target: Target, plan: Plan, tell: Progress, what: str) -> None:
    """Go on until the budget is spent."""
    from rote.extraction.attack.search import search

    done = stored.rounds()
    count = sum(len(r.found) for r in done)
    of = plan.budget.evals if plan.budget.evals is not None else max(1, int(plan.budget.seconds or 0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        for found in search(model, target.prefix.tolist(), plan, done):
            warned = [*model.warnings, *(str(w.message) for w in caught)]
            caught.clear()
            count = add_round(stored.folder, found, count, warned)
            tell(what, min(of, found.token_evals if plan.budget.evals is not None else int(found.seconds)), of)


def _calibrated(tried: StoredAttack, learnt: Target, tokenizer: Any) -> Calibration:
    from rote.analysis.chances import calibrate, features_of

    guesses, spent = tried.guesses(), tried.summary
    assert learnt.suffix is not None
    answers = [tuple(row) for row in learnt.suffix.tolist()]
    right = np.array([g.suffix == answers[g.example] for g in guesses])
    weights, reliability = calibrate(
        features_of(guesses, _texts(guesses, tokenizer)), right, [g.example for g in guesses]
    )
    return Calibration(
        format=FORMAT,
        examples=len(answers),
        token_evals=spent.token_evals,
        seconds=spent.seconds,
        ceiling=len({g.example for g, hit in zip(guesses, right, strict=True) if hit}) / len(answers),
        weights=weights,
        reliability=reliability,
    )


def _texts(guesses: Sequence[StoredGuess], tokenizer: Any) -> list[str] | None:
    return None if tokenizer is None else list(tokenizer.batch_decode([list(g.suffix) for g in guesses]))


def _finish(stored: StoredAttack, examples: int, calibration: Calibration | None, tokenizer: Any) -> None:
    """Give every guess its chance, put them in order, sum up and seal."""
    from rote.analysis.chances import chances_of, features_of, in_order

    guesses, rounds = stored.guesses(), stored.journal()
    chances = np.exp([g.log_prob for g in guesses])
    if calibration is not None and guesses:
        chances = chances_of(calibration.weights, features_of(guesses, _texts(guesses, tokenizer)))
    final = [replace(g, confidence=float(c)) for g, c in zip(guesses, chances, strict=True)]
    summary = AttackSummary(
        format=FORMAT,
        kind="attack",
        examples=examples,
        answered=len({g.example for g in guesses}),
        guesses=len(guesses),
        token_evals=rounds[-1].token_evals if rounds else 0,
        seconds=rounds[-1].seconds if rounds else 0.0,
        rounds=len(rounds),
        warnings=sorted({warning for r in rounds for warning in r.warnings}),
        expected_right=None if calibration is None else float(chances.sum()),
        calibration=calibration,
    )
    order = in_order(final, chances, firsts=calibration is None)
    finish(
        stored.folder, final, order, summary, {} if calibration is None else {"calibration.json": pretty(calibration)}
    )
