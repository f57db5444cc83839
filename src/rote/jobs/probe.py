"""`probe`: what chat models know of passages, asked in words: hidden words, completions, choices."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from rote.analysis.probe.summary import summarise
from rote.corpus.texts import LabelledText, Texts, labelled_texts
from rote.errors import InputError, argument
from rote.jobs.chats import Chat, load_models, open_index_for, reference_of, several
from rote.jobs.engine import named_folder
from rote.jobs.open import Membership, Probe
from rote.jobs.open import open as open_folder
from rote.models.base import BUNDLED_PASSAGES
from rote.models.chat import Endpoint
from rote.models.probed import ChatModel, WordReference
from rote.options import (
    Option,
    Out,
    Seed,
    require_flag,
    require_kind,
    require_known,
    require_number,
    require_whole,
    typed_path,
)
from rote.probes import prompts
from rote.probes.judging import rule
from rote.probes.options import Method, Wording, Words
from rote.progress import Progress, quiet, stopping
from rote.store.answers import Answers
from rote.store.files import FORMAT, locked, now, read_json
from rote.store.manifest import made_with, refuse_if_different
from rote.store.membership import MemberView, texts_source
from rote.store.outputs import IndexUse
from rote.store.probe import Chosen, Estimate, ProbeManifest, Role
from rote.store.probing import CHOSEN_SCHEMA, QUESTIONS_SCHEMA, as_frame, begin, finish, text_lines
from rote.store.seal import SEAL, put_back

if TYPE_CHECKING:  # torch is imported when it is needed: a command's options are read off its job without it
    from rote.jobs.probing import Setup
    from rote.store.index import StoredIndex
    from rote.store.member import TextsSource

SHARD = 64
"""Texts whose words are stored together."""


def typed_methods(text: str) -> tuple[Method, ...]:
    """What cloze,prefix stands for on a command line."""
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= set(get_args(Method)):
        raise ValueError(f"give one or several of {', '.join(get_args(Method))}, with commas between.")
    return tuple(dict.fromkeys(parts))  # type: ignore[arg-type]


def typed_hits(text: str) -> int:
    """A number on a command line."""
    if not text.isascii() or not text.isdigit():
        raise ValueError("give a whole number, or auto.")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What would be asked, and what it would cost: nothing was asked. `reason`: why, and how to go on."""

    folder: Path
    reason: str
    estimates: list[Estimate]


def probe(
    texts: Annotated[
        Texts,
        Option(
            'Passages as JSONL, Parquet or a folder: {"text": "...", "label": ..., "group": ..., "prefix": ...}.',
            default="passages that the bundled chat model saw and did not see",
        ),
    ] = BUNDLED_PASSAGES,
    *,
    target: Annotated[
        Chat | Sequence[Chat],
        Option(
            "Chat model: http://HOST/v1/NAME, a .toml file, a model folder, hub id or .gguf file. Repeat it for more; "
            "others are compared with the first.",
            default="the bundled chat model",
        ),
    ] = (),
    method: Annotated[
        Sequence[Method],
        Option("What is asked: cloze,prefix,decop,slot.", default="cloze", parse=typed_methods),
    ] = ("cloze",),
    reference: Annotated[
        str | Path | WordReference | None,
        Option(
            "Model that says which words surprise: masked, or causal.", default="the bundled masked model", parse=str
        ),
    ] = None,
    filter: Annotated[
        Chat | Sequence[Chat],
        Option("Small chat model that has not read the texts: words that it guesses are dropped. Repeat it for more."),
    ] = (),
    unfiltered: Annotated[bool, Option("Ask targets for the words that a filter guessed too.")] = False,
    words: Words = Words(),
    wording: Annotated[
        Wording, Option("Prompt for hidden words: of passages, or short, of a benchmark's questions.")
    ] = ("passage"),
    hits: Annotated[
        int | None,
        Option(
            "Words that must come back for a passage to be flagged; auto: chosen on other texts.",
            none="auto",
            parse=typed_hits,
        ),
    ] = 2,
    plurals: Annotated[bool, Option("A regular plural of a word counts as the word, and the other way round.")] = False,
    prefix_words: Annotated[int, Option("First words of a passage that are to be completed.")] = 50,
    paraphraser: Annotated[
        Chat | None, Option("Chat model that writes DE-COP's paraphrases.", default="the first target", parse=str)
    ] = None,
    picker: Annotated[
        Chat | None, Option("Chat model that picks the words of TS-slot.", default="the first target", parse=str)
    ] = None,
    index: Annotated[str | Path | None, Option("Index of a corpus, to choose rare words by.", parse=typed_path)] = None,
    membership: Annotated[
        str | Path | None,
        Option("A run of rote member over the same texts: its scores in the same table.", parse=typed_path),
    ] = None,
    endpoint: Endpoint = Endpoint(),
    max_cost: Annotated[
        float | None, Option("US dollars that may be spent. Paid models are asked only with it.")
    ] = None,
    dry_run: Annotated[bool, Option("Only say what would be asked and what it would cost.")] = False,
    answers: Annotated[
        str | Path | None,
        Option("SQLite file of answers, which several runs may share.", default="in the run folder", parse=typed_path),
    ] = None,
    text_column: Annotated[str | None, Option("Key or column of the text.", default="text")] = None,
    glob: Annotated[str | None, Option("Which files of a folder are texts.", default="*.txt")] = None,
    device: Annotated[str, Option("Where models that are loaded here run: auto, cpu, cuda, cuda:N or mps.")] = "auto",
    seed: Seed = 0,
    out: Out = None,
    progress: Progress | None = None,
) -> Probe | DryRun:
    """Ask chat models about passages, and write a run folder with every prompt, answer and outcome.

    `texts`: the path of a JSONL file, a Parquet file or folder, or a folder of texts; or a list of texts, or of dicts
    with their text and what is known of it: `label` (whether it was seen), `group`, `repetitions`, `split`
    ("validation" or "test"), a `prefix` to complete, three `paraphrases`. `target`: a chat model, or several, by name
    or as `rote.load_chat` gives them; `endpoint` is for all that are served from where the first target is. Models
    that may cost money are asked only with `max_cost`: without it, a `DryRun` says what would be asked. A folder that
    holds part of this run is continued, and nothing that was answered is asked again.
    """
    tell, methods = progress or quiet, tuple(method)
    _check(methods, words, wording, hits, prefix_words, max_cost, seed)
    for flag, value in (("unfiltered", unfiltered), ("plurals", plurals), ("dry_run", dry_run)):
        require_flag(flag, value)
    own, name = labelled_texts(texts, "texts", text_column=text_column, glob=glob, probed=True, progress=tell)
    _refuse_masks(own)
    bundled = isinstance(texts, str | Path) and Path(texts) == BUNDLED_PASSAGES
    _refuse_others(target, bundled=bundled)
    beside = None if membership is None else _membership(membership)
    corpus = open_index_for(index, words, methods)
    models = load_models(target, filter, paraphraser, picker, methods, endpoint, device, tell)
    if beside is not None:
        _refuse_other_model(models, beside)
        _refuse_other_texts(own, beside)
    surprised = reference_of(reference, words, methods, device, tell)
    from rote.jobs.probing import Asker, Setup, ask_all, choose, count_words, read_words, to_expect
    from rote.probes.words import tagger

    setup = Setup(
        texts={text.id: text for text in own}, models=models, reference=surprised, tagger=tagger(words.spacy),
        index=corpus, methods=methods, words=words, wording=wording, plurals=plurals, prefix_words=prefix_words,
        unfiltered=unfiltered, seed=seed, tell=tell,
    )  # fmt: skip
    manifest = _manifest(setup, texts_source(name, own), hits, beside)
    folder = named_folder(out, name, models["target", 0].identity().title)
    kept = folder / "answers.sqlite" if answers is None else Path(answers)
    with stopping(lambda: _left(folder)), locked(folder), ExitStack() as at_the_end:
        if (folder / SEAL).is_file():
            refuse_if_different(read_json(folder / "manifest.json"), manifest, str(folder))
            if not _lacks_answers(Probe(folder), kept):
                return _shown(Probe(folder), tell)
            at_the_end.callback(put_back, folder)  # where nothing comes of asking again, it is finished as it was
        begin(folder, manifest, text_lines(own))
        manifest = Probe(folder).manifest
        scored = read_words(folder, setup, SHARD)
        found, chosen = choose(setup, scored)
        with Answers(kept) as store:
            expected = to_expect(setup, chosen.values(), store)
            if (reason := _why_dry(setup, max_cost, dry_run=dry_run)) is not None:
                return DryRun(folder=folder, reason=reason, estimates=expected)
            began, asker = time.perf_counter(), Asker(setup, store, max_cost, manifest.created)
            ask_all(asker, chosen)
            spent, seconds = asker.spent(), time.perf_counter() - began
        rows, facts = asker.rows, Probe(folder).facts()
        summary, verdicts = summarise(
            manifest=manifest, texts=setup.texts, chosen=as_frame(chosen.values(), CHOSEN_SCHEMA),
            questions=as_frame(rows, QUESTIONS_SCHEMA), words=count_words(setup, scored, found, chosen.values()),
            spent=spent, estimates=expected, seconds=seconds + sum(fact.seconds for fact in facts),
            warnings=list(dict.fromkeys(warning for fact in facts for warning in fact.warnings)), membership=beside,
            progress=tell,
        )  # fmt: skip
        finish(folder, summary, chosen=list(chosen.values()), questions=rows, verdicts=verdicts)
        return _shown(Probe(folder), tell)


# --- what is asked, checked before anything is read


def _check(
    methods: Sequence[str], words: Words, wording: str, hits: int | None, prefix_words: int, max_cost: float | None,
    seed: int,
) -> None:  # fmt: skip
    require_kind("words", words, Words, "a rote.Words")
    if not methods:
        raise InputError(f"{argument('method')} is empty; give one or several of {', '.join(get_args(Method))}.")
    for name in methods:
        require_known("method", name, get_args(Method))
    require_known("wording", wording, get_args(Wording))
    if hits is not None:
        require_whole("hits", hits)
    require_whole("prefix_words", prefix_words)
    require_whole("seed", seed, 0)
    if max_cost is not None and not 0 <= require_number("max_cost", max_cost) < math.inf:
        raise InputError(f"{argument('max_cost')} must be a sum of US dollars, not {max_cost}.")


def _refuse_masks(texts: Sequence[LabelledText]) -> None:
    masked = next((text for text in texts if prompts.MASK in text.text), None)
    if masked is not None:
        raise InputError(
            f"text {masked.id!r} has {prompts.MASK} in it, which stands for the hidden word in what models are asked. "
            "Give the text without it."
        )


def _refuse_others(target: Chat | Sequence[Chat], *, bundled: bool) -> None:
    if bundled and several(target) and "bundled" not in map(str, several(target)):
        raise InputError(
            f"the bundled passages are labelled by what the bundled chat model saw: give passages of your own, or "
            f"{argument('target', 'bundled')} among the models."
        )


def _membership(given: str | Path | Membership) -> MemberView:
    run = given if isinstance(given, Membership) else open_folder(given)
    if not isinstance(run, Membership):
        raise InputError(f"{argument('membership')} must be the folder of a run of rote member; {given} holds another.")
    return run.view


def _refuse_other_model(models: dict[tuple[Role, int], ChatModel], beside: MemberView) -> None:
    """Membership scores are of one model. That a served target is that one can only be believed."""
    own = [model.identity().model for (role, _), model in models.items() if role == "target"]
    scored = beside.manifest.model
    if all(each is not None and each.fingerprint != scored.fingerprint for each in own):
        raise InputError(
            f"{argument('membership')} is of {scored.title}, which is none of the targets: their scores say nothing of "
            "each other. Give a run of rote member with a target's weights."
        )


def _refuse_other_texts(texts: Sequence[LabelledText], beside: MemberView) -> None:
    known = set(beside.rows["text"].to_list())
    if not any(text.text in known for text in texts):
        raise InputError(
            f"{argument('membership')} has none of these texts. Give a run of rote member over the same ones, or leave "
            "it out."
        )


def _manifest(setup: Setup, source: TextsSource, hits: int | None, beside: MemberView | None) -> ProbeManifest:
    words, texts = setup.words, setup.texts.values()
    identities = {place: model.identity() for place, model in setup.models.items()}
    of = {role: [own for (each, _), own in identities.items() if each == role] for role, _ in identities}
    labelled = any(text.label is not None for text in texts)
    split = any(text.split == "validation" for text in texts)
    used: dict[str, list[str]] = {
        "cloze": [setup.wording], "slot": [setup.wording, "pick"], "prefix": ["complete"],
        "decop": ["paraphrase", "choose"],
    }  # fmt: skip
    names = {name for method in setup.methods for name in used[method]}
    names |= {"guess", "list"} if "filter" in of else set()
    return ProbeManifest(
        format=FORMAT,
        kind="probe",
        created=now(),
        source=source,
        targets=of["target"],
        filters=of.get("filter", []),
        paraphraser=next(iter(of.get("paraphrase", [])), None),
        picker=next(iter(of.get("slot", [])), None),
        reference=None if setup.reference is None else setup.reference.identity(),
        index=None if setup.index is None else _use(setup.index),
        methods=list(setup.methods),
        words=Chosen(
            select=list(words.select) if "cloze" in setup.methods else [],
            most=words.most,
            log_likelihood=words.log_likelihood,
            rank=words.rank,
            share=words.share,
            once=words.once,
            tagger=setup.tagger.name,
        ),
        wording=setup.wording,
        prompts={name: text for name, text in prompts.PROMPTS.items() if name in names},
        prefix_words=setup.prefix_words,
        hits=hits,
        unfiltered=setup.unfiltered,
        plurals=setup.plurals,
        rule=rule(setup.plurals),
        temperature=0.0,
        seed=setup.seed,
        calibrated="split" if split else "parts" if labelled else "none",
        membership=None if beside is None else beside.seal,
        shard_texts=SHARD,
        shards=math.ceil(len(setup.texts) / SHARD),
        versions=made_with(),
    )


def _use(index: StoredIndex) -> IndexUse:
    return IndexUse(
        name=index.folder.resolve().name if index.manifest is None else index.manifest.corpus, id=index.id,
        unit=index.index.unit, documents=index.index.documents, tokens=index.index.tokens, counted="text",
    )  # fmt: skip


def _why_dry(setup: Setup, max_cost: float | None, *, dry_run: bool) -> str | None:
    """Why nothing is asked for now; None where the models may be asked."""
    if dry_run:
        return "Nothing was asked, as this is a dry run."
    paid = [model for model in setup.models.values() if model.paid]
    if not paid:
        return None
    name = paid[0].identity().title
    if max_cost is None:
        return (
            f"{name} may cost money, so nothing was asked. Say with max_cost (--max-cost) how many US dollars may be "
            "spent; where it is free, say so with a price (--price) of 0,0."
        )
    unknown = next((model.identity().title for model in paid if model.price is None), None)
    if unknown is not None:
        raise InputError(
            f"what {unknown} costs is not known, so {argument('max_cost')} cannot be kept to. Give its "
            f"{argument('price')}: US dollars for a million prompt tokens and answer tokens, as in 2.5,10."
        )
    return None


def _lacks_answers(run: Probe, kept: Path) -> bool:
    """Whether some questions of a finished run had no answer: what failed for good is in the store with the others."""
    return kept.is_file() and bool((run.questions["outcome"] == "error").any())


def _left(folder: Path) -> str:
    if not (folder / "manifest.json").exists():
        return f"nothing stored yet in {folder}. Run the same command again to go on."
    return f"{Probe(folder).progress()} in {folder}; all answers are kept. Run the same command again to go on."


def _shown(run: Probe, tell: Progress) -> Probe:
    _ = run.seal
    run.report(progress=tell)
    return run
