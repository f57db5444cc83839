"""`member`: whole texts, read by a model, with the standard membership scores and what they are worth."""

from __future__ import annotations

import math
import random
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import polars as pl

from rote.analysis.member.dataset import dataset_test
from rote.analysis.member.evaluate import evaluate, spreads
from rote.corpus.texts import LabelledText, Texts, labelled_texts
from rote.errors import InputError, argument, counted
from rote.jobs.engine import run_folder, shard_size
from rote.jobs.open import Membership
from rote.membership.options import Reading, longest_window
from rote.membership.scores import named
from rote.models.base import BUNDLED, BUNDLED_MEMBERS, LogitModel, ModelOptions, TokenModel, load, with_logits
from rote.options import Batch, Option, Out, Seed, require_flag, require_kind, require_whole, typed_path
from rote.progress import Progress, quiet, stopping
from rote.store.files import FORMAT, locked, now
from rote.store.manifest import made_with
from rote.store.member import Extracted, MemberManifest, MemberSummary, Part, TextsSource
from rote.store.membership import StoredText, add_shard, begin, finish, has_shard, text_lines, texts_source

if TYPE_CHECKING:  # torch is imported when it is needed: a command's options are read off its job without it
    from rote.membership.texts import Plan

Match = Literal["length", "date"]

EVALS = {
    "text": "token_evals", "lowercase": "lowercase_evals", "prefix": "prefixed_evals", "reference": "reference_evals",
    "windows": "windows_evals",
}  # fmt: skip
"""The columns of what was spent, by what it was for."""


def typed_match(text: str) -> list[Match]:
    """What length,date stands for on a command line."""
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= {"length", "date"}:
        raise ValueError("give length, date or length,date.")
    return list(dict.fromkeys(parts))  # type: ignore[arg-type]


def member(
    model: LogitModel,
    texts: Annotated[
        Texts,
        Option(
            'Texts as JSONL, Parquet or a folder: {"text": "...", "label": ..., "group": ..., "date": ...}.',
            default="passages that the bundled model saw and did not see",
        ),
    ] = BUNDLED_MEMBERS,
    *,
    reference: Annotated[
        str | LogitModel | None, Option("A model to compare with: folder, hub id, .gguf file or 'bundled'.")
    ] = None,
    held_out: Annotated[
        Texts | None, Option("Texts of the same kind that the model cannot have seen.", parse=typed_path)
    ] = None,
    text_column: Annotated[str | None, Option("Key or column of the text.", default="text")] = None,
    glob: Annotated[str | None, Option("Which files of a folder are texts.", default="*.txt")] = None,
    quick: Annotated[bool, Option("One pass a text: no lowercase, no ReCaLL.")] = False,
    shots: Annotated[int, Option("Held-out texts, or non-members, that stand before every text for ReCaLL.")] = 1,
    extract: Annotated[bool, Option("Also the likeliest window of each text, and what comes near it.")] = False,
    reading: Reading = Reading(),
    match: Annotated[
        Sequence[Match],
        Option("Make members and non-members alike by length, date or length,date.", default="none", parse=typed_match),
    ] = (),
    seed: Seed = 0,
    batch_size: Batch = "auto",
    out: Out = None,
    progress: Progress | None = None,
) -> Membership:
    """Read whole texts once and write a run folder with every standard membership score, and what the scores are worth.

    `texts`: the path of a JSONL file, a Parquet file or folder, or a folder of texts; or a list of texts, or of dicts
    with their text and what is known of it. Where they have labels, every score is evaluated, beside a blind baseline
    that uses no model. With `held_out`, or labels, the dataset test asks whether the model saw the texts at all.
    `reference`: another model, loaded or by name. A folder that holds part of this run is continued.
    """
    require_kind("model", model, TokenModel, "a model that rote.load gives")
    with_logits(model, "membership inference")
    for name, flag in (("quick", quick), ("extract", extract)):
        require_flag(name, flag)
    require_kind("reading", reading, Reading, "a rote.Reading")
    _check_match(match)
    require_whole("shots", shots)
    require_whole("seed", seed, 0)
    if batch_size != "auto":
        require_whole("batch_size", batch_size)
    tell = progress or quiet
    own, name = labelled_texts(texts, "texts", text_column=text_column, glob=glob, progress=tell)
    if isinstance(texts, str | Path) and Path(texts) == BUNDLED_MEMBERS and not _is_bundled(model):
        raise InputError(
            f"the bundled texts are labelled by what the bundled model saw, not {model.identity().name}. Give texts "
            "whose labels are about it, or none."
        )
    held, held_name = (
        ([], "")
        if held_out is None
        else labelled_texts(held_out, "held_out", text_column=text_column, glob=glob, progress=tell)
    )
    _refuse_both(own, held)
    _check_matched(own, match)
    from rote.membership.texts import plan_of

    if extract:
        _check_room(model)
    other = None if reference is None else _reference(reference, model, tell)
    every = [_stored("texts", text) for text in own] + [_stored("held_out", text) for text in held]
    before = [] if quick else _drawn(every, shots, seed)
    folder = run_folder(out, name, model)
    with stopping(lambda: _left(folder)):
        plan = plan_of(
            model, [text.text for text in every], [_called(text) for text in every], reference=other,
            before=[text.text for text in before], lowercase=not quick, extract=extract, reading=reading,
            batch_size=batch_size,
        )  # fmt: skip
        sources = texts_source(name, own), texts_source(held_name, held) if held else None
        manifest = _manifest(plan, sources, [text.id for text in before], match, seed)
        with locked(folder):
            begin(folder, manifest, text_lines(every))
            _read_all(folder, every, plan, manifest.shard_texts, tell)
            finish(folder, _summed_up(Membership(folder), tell))
            run = Membership(folder)
            run.report(progress=tell)
    return run


# --- what is asked, checked before anything is read


def _check_match(match: Sequence[str]) -> None:
    if isinstance(match, str) or not set(match) <= {"length", "date"}:
        raise InputError(f"{argument('match')} must be of 'length' and 'date', as in ['length'], not {match!r}.")


def _check_room(model: LogitModel) -> None:
    from rote.membership.windows import PREFIX, SUFFIX

    room = longest_window(model)
    if room < PREFIX + SUFFIX:
        raise InputError(
            f"{argument('extract')} takes windows of {PREFIX + SUFFIX} tokens, and the model's context has room for "
            f"{room}. Leave it out."
        )


def _check_matched(own: Sequence[LabelledText], match: Sequence[Match]) -> None:
    """Refuse, before anything is read, what could not be matched in the end."""
    labelled = [text for text in own if text.label is not None]
    if match and not labelled:
        raise InputError(f"{argument('match')} makes members and non-members alike, and no text has a label.")
    undated = next((text for text in labelled if text.date is None), None)
    if "date" in match and undated is not None:
        raise InputError(f"text {undated.id!r} has no date to match by. Give it one, or match by length alone.")


def _is_bundled(model: LogitModel) -> bool:
    name = model.identity().name
    return name == "bundled" or Path(name) == BUNDLED


def _refuse_both(own: Sequence[LabelledText], held: Sequence[LabelledText]) -> None:
    """A text cannot be a member and none."""
    for first, second, what in (
        (own, held, "is held out too"),
        (
            [t for t in own if t.label],
            [t for t in own if t.label is False],
            "is labelled as one that was not seen, too",
        ),
    ):
        known = {text.text: text.id for text in second}
        both = next((text for text in first if text.text in known), None)
        if both is not None:
            raise InputError(
                f"text {both.id!r} {what}, as {known[both.text]!r}: it cannot be both. Remove it from one of the two."
            )
    wrong = next((text for text in held if text.label), None)
    if wrong is not None:
        raise InputError(f"held-out text {wrong.id!r} is labelled as a member; held-out texts are those never seen.")


def _reference(given: str | LogitModel, model: LogitModel, tell: Progress) -> LogitModel:
    if isinstance(given, str):
        tell("loaded", 0, 1)
        own = model.identity()
        given = load(given, ModelOptions(device=str(model.device), dtype=own.dtype))  # type: ignore[arg-type]
        tell("loaded", 1, 1)
    require_kind("reference", given, LogitModel, "the name of a model, or one that rote.load gives")
    if given.identity().fingerprint == model.identity().fingerprint:
        raise InputError(f"{argument('reference')} is the model itself: their difference says nothing. Give another.")
    return given


def _drawn(every: Sequence[StoredText], shots: int, seed: int) -> list[StoredText]:
    """The texts that stand before every text for ReCaLL; none where they would leave nothing to compare with.

    What is of their groups is left out with them, so they are taken from few and small groups.
    """
    held = [text for text in every if text.part == "held_out"]
    pool = held or [text for text in every if text.label is False]
    order = random.Random(seed).sample(pool, len(pool))
    sizes = Counter(text.group for text in every)
    places = {text.group: place for place, text in reversed(list(enumerate(order)))}

    def rank(place: int) -> tuple[int, int, int]:
        group = order[place].group
        return (1, place, 0) if group is None else (sizes[group], places[group], place)

    drawn = [order[place] for place in sorted(range(len(order)), key=rank)[:shots]]
    groups = {text.group for text in drawn} - {None}
    if len(drawn) == shots and any(text not in drawn and text.group not in groups for text in pool):
        return drawn
    if shots > 1:
        there = counted(len(pool), "held-out text" if held else "non-member")
        raise InputError(
            f"{argument('shots', shots)}: there {'is' if len(pool) == 1 else 'are'} {there}, and one at least, of "
            "another group, must be left to compare with. Give fewer shots, or more of them."
        )
    return []


def _stored(part: Part, text: LabelledText) -> StoredText:
    return StoredText(
        part=part, id=text.id, text=text.text, label=text.label, group=text.group, date=text.date,
        repetitions=text.repetitions,
    )  # fmt: skip


def _called(text: StoredText) -> str:
    return f"{'held-out ' if text.part == 'held_out' else ''}text {text.id!r}"


def _left(folder: Path) -> str:
    if not (folder / "manifest.json").exists():
        return f"nothing stored yet in {folder}. Run the same command again to go on."
    return f"{Membership(folder).progress()} in {folder}. Run the same command again to go on."


def _manifest(
    plan: Plan, sources: tuple[TextsSource, TextsSource | None], before: list[str], match: Sequence[Match], seed: int
) -> MemberManifest:
    from rote.membership import windows

    model, reference = plan.model, plan.reference
    window, stride = plan.reading.settled(model)
    theirs = (None, None) if reference is None else Reading().settled(reference)
    shard = shard_size(model, min(window, max(len(own.ids) for own in plan.tokens)))
    return MemberManifest(
        format=FORMAT,
        kind="member",
        created=now(),
        source=sources[0],
        held_out=sources[1],
        model=model.identity(),
        reference=None if reference is None else reference.identity(),
        scores=named(plan.needs),
        window=window,
        stride=stride,
        reference_window=theirs[0],
        reference_stride=theirs[1],
        prefix=before,
        prefix_tokens=len(plan.prefix) if before else None,
        prefix_whole=plan.prefix_whole if before else None,
        extracted=Extracted(
            prefix=windows.PREFIX,
            suffix=windows.SUFFIX,
            every=windows.EVERY,
            scheme=str(windows.SCHEME),
            tolerance=windows.NEAR.tolerance,
        )
        if "windows" in plan.needs
        else None,
        match=list(match),
        seed=seed,
        batch_size=plan.batch_size,
        batch_tokens=model.batch_tokens if plan.batch_size == "auto" else None,
        logit_tolerance=model.logit_tolerance,
        shard_texts=shard,
        shards=math.ceil(len(plan.texts) / shard),
        versions={**made_with(), "zlib": zlib.ZLIB_RUNTIME_VERSION},  # others may compress to other sizes
    )


# --- reading


def _read_all(folder: Path, every: Sequence[StoredText], plan: Plan, size: int, tell: Progress) -> None:
    """Read what is not stored yet, `size` texts to a shard."""
    from rote.membership.texts import read_rows

    total = len(every)
    for index, start in enumerate(range(0, total, size)):
        places = range(start, min(start + size, total))
        if not has_shard(folder, index):
            began = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", RuntimeWarning)
                read = list(read_rows(plan, places, _from(tell, start, total)))
            warned = [*plan.model.warnings, *(str(each.message) for each in caught)]
            rows = [{**_known(every[place]), **row} for place, row in zip(places, read, strict=True)]
            add_shard(folder, index, rows, time.perf_counter() - began, warned)
        tell("read", places.stop, total)


def _from(tell: Progress, before: int, total: int) -> Progress:
    """A shard's progress as that of the run."""
    return lambda what, done, of: tell(what, before + done, total)


def _known(text: StoredText) -> dict[str, Any]:
    own = {name: getattr(text, name) for name in ("part", "id", "label", "group", "date", "repetitions")}
    return {**own, "characters": len(text.text)}


# --- what it comes to


def _summed_up(run: Membership, tell: Progress) -> MemberSummary:
    manifest, rows = run.manifest, run.rows
    names = manifest.scores
    before = pl.col("id").is_in(manifest.prefix) & (
        (pl.col("part") == "held_out") if manifest.held_out is not None else (pl.col("part") == "texts")
    )
    first = rows.filter(before)  # the same text may stand there again, and others of its group gain from it
    groups = first["group"].drop_nulls().to_list()
    known = pl.col("text").is_in(first["text"].to_list()) | pl.col("group").is_in(groups).fill_null(value=False)
    own, left = rows.filter(pl.col("part") == "texts"), rows.filter(~known)
    labelled = own.filter(pl.col("label").is_not_null())
    asked, held = left.filter(pl.col("part") == "texts"), left.filter(pl.col("part") == "held_out")
    evaluated = asked.filter(pl.col("label").is_not_null())
    evaluation = evaluate(
        evaluated, _complete(evaluated, names), match=manifest.match, seed=manifest.seed,
        unlabelled=own.height - labelled.height, prefix=labelled.height - evaluated.height, progress=tell,
    )  # fmt: skip
    suspects = asked.filter(pl.col("label")) if labelled.height else asked
    others = held if manifest.held_out is not None else asked.filter(~pl.col("label"))
    test = dataset_test(suspects, others, _complete(left, names), seed=manifest.seed, progress=tell)
    facts = run.facts()
    return MemberSummary(
        format=FORMAT,
        kind="member",
        texts=own.height,
        held_out=rows.height - own.height,
        members=labelled.filter("label").height,
        non_members=labelled.filter(~pl.col("label")).height,
        tokens=int(rows["tokens"].sum()),
        token_evals={
            name: int(rows[column].sum()) for name, column in EVALS.items() if rows[column].null_count() < rows.height
        },
        seconds=sum(fact.seconds for fact in facts),
        windowed=int((rows["windows"] > 1).sum()),
        short=None if manifest.extracted is None else int(rows["best_window"].null_count()),
        warnings=[*dict.fromkeys(warning for fact in facts for warning in fact.warnings), *_repeated(rows)],
        spreads=spreads(rows, names),
        evaluation=None if isinstance(evaluation, str) else evaluation,
        not_evaluated=evaluation if isinstance(evaluation, str) else None,
        test=None if isinstance(test, str) else test,
        not_tested=test if isinstance(test, str) else None,
    )


def _repeated(rows: pl.DataFrame) -> list[str]:
    """What is to be said where the same text stands there again, and no group says that the two belong together."""
    apart = pl.col("group").is_null().any() | (pl.col("group").n_unique() > 1)
    again = rows.group_by("part", "text", maintain_order=True).agg("id", apart=apart).filter("apart")
    again = again.filter(pl.col("id").list.len() > 1)
    if not again.height:
        return []
    first, second, *_ = again["id"][0]
    return [
        f"{counted(again.height, 'text')} {'stands' if again.height == 1 else 'stand'} there more than once "
        f"({first!r} and {second!r} for one), and each time counts as another text: intervals are too narrow "
        "and p-values too small. Give each text once, or those that are the same one group."
    ]


def _complete(rows: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """The scores that every one of these texts has: none is looked at over fewer."""
    return [name for name in names if rows[name].null_count() == 0]
