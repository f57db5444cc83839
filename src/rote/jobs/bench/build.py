"""`bench build`: examples for the extraction benchmark, chosen from a corpus by its criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from rote.corpus import criteria
from rote.corpus.apart import Apart, shared_out
from rote.corpus.bench import SPLITS
from rote.corpus.index import CorpusIndex, Place
from rote.errors import InputError, RunError, argument, counted
from rote.jobs import index as indexing
from rote.jobs.corpus import IndexTokenizerIf
from rote.models.base import ScoringModel
from rote.options import (
    Batch,
    BatchSize,
    Option,
    Prefix,
    Seed,
    Suffix,
    folder_of,
    numbers,
    require_whole,
    typed_path,
)  # fmt: skip
from rote.progress import Progress, quiet, stopping
from rote.scheme import GREEDY
from rote.store import bench as files
from rote.store.bench import BenchManifest, Criteria, Emitted, Filtered, StoredBench
from rote.store.files import FORMAT, locked, now
from rote.store.index import StoredIndex, open_index
from rote.store.manifest import made_with
from rote.store.seal import SEAL
from rote.tokens import Example

CHUNK = 128
"""Candidates that the model is asked about together: what a stopped build loses at most."""


def build(
    model: ScoringModel,
    corpus: Annotated[
        Path | str | None, Option("What the index is of, if it is yet to be made: see rote index build.")
    ] = None,
    *,
    index: Annotated[
        Path | str | None,
        Option("Folder of the corpus's index; made there if there is none.", default="OUT/index", parse=str),
    ] = None,
    out: Annotated[Path | str, Option("Folder for the benchmark.", "--out/-o", parse=typed_path)],
    prefix: Prefix = 50,
    suffix: Suffix = 50,
    repetitions: Annotated[int, Option("How often an example must stand in the corpus, at least.")] = 5,
    entropy: Annotated[float, Option("Bits per token that a suffix must have, at least.")] = criteria.LEAST_ENTROPY,
    longer: Annotated[
        Sequence[int],
        Option(
            "Lengths of longer prefixes: one must make the model emit the suffix.", default="100,150", parse=numbers
        ),
    ] = (100, 150),
    tries: Annotated[int, Option("Places of an example in the corpus whose longer prefixes are tried.")] = 4,
    apart: Annotated[int, Option("Tokens in a row that no two examples share.")] = 20,
    train: Annotated[int, Option("Examples of the train split; all three are scaled down if there are fewer.")] = 15000,
    val: Annotated[int, Option("Examples of the validation split.")] = 1000,
    test: Annotated[int, Option("Examples of the test split.")] = 1000,
    seed: Seed = 0,
    index_tokenizer: IndexTokenizerIf = None,
    text_column: Annotated[str | None, Option("Key or column that holds the text.", default="text")] = None,
    ids: Annotated[str | None, Option("Key or column that holds token ids, in a corpus that has them.")] = None,
    glob: Annotated[str | None, Option("Which files of a folder are texts.", default="*.txt")] = None,
    batch_size: Batch = "auto",
    progress: Progress | None = None,
) -> StoredBench:
    """Choose examples that stand in a corpus by the extraction benchmark's criteria; a stopped build is continued.

    An example is `prefix` + `suffix` tokens that stand in the corpus at least `repetitions` times. After every
    occurrence of the prefix the text agrees with the suffix, as far as its document goes. The suffix has at least
    `entropy` bits per token, is not one run of tokens over and over, and does not stand in the prefix. At least as many
    tokens as the longest of the `longer` prefixes needs stand before one of its places, and one of these prefixes makes
    the model emit the suffix greedily. No two examples overlap in the corpus or share `apart` tokens in a row, so
    neither do splits.

    Candidates are looked at in random order until there are enough. Give the `corpus`, the `index`, or both: the index
    is then made if it is not there, and must be of this corpus.
    """
    from rote.extraction.verbatim import check

    tell, folder = progress or quiet, folder_of(out)
    asked = Criteria(
        prefix=prefix, suffix=suffix, repetitions=repetitions, entropy=entropy, longer=_lengths(longer), tries=tries,
        apart=apart,
    )  # fmt: skip
    sizes = {name: require_whole(name, size, 0) for name, size in zip(SPLITS, (train, val, test), strict=True)}
    if not any(sizes.values()):
        raise InputError(
            f"{argument('train')}, {argument('val')} and {argument('test')} are all 0: nothing is asked for."
        )
    require_whole("seed", seed, 0)
    longest = Example("the longest prefix and suffix", (0,) * max(asked.longer), (0,) * suffix)
    check(model, [longest], [GREEDY], None, batch_size)
    with (
        locked(folder),
        stopping(lambda: f"what was found is stored in {folder}. Run the same command again to go on."),
    ):
        reading = _Reading(text_column, ids, glob)
        stored = _index(model, corpus, index, folder, index_tokenizer, reading, tell)
        manifest = files.begin(folder, _manifest(model, stored, asked, sizes, seed))
        if manifest.splits is not None and (folder / SEAL).is_file():
            return files.open_bench(folder)
        taken = Apart(asked.length, asked.apart)
        return _Search(model, stored.index, manifest, folder, batch_size, tell, taken).run()


@dataclass(frozen=True)
class _Reading:
    """How a corpus is read that is yet to be indexed."""

    text_column: str | None
    ids: str | None
    glob: str | None


def _lengths(longer: Sequence[int]) -> list[int]:
    try:
        return sorted({require_whole("longer", length) for length in longer})
    except TypeError:
        raise InputError(f"{argument('longer')} must be a list of lengths, not {longer!r}.") from None


def _index(
    model: ScoringModel, corpus: Path | str | None, index: Path | str | None, folder: Path, tokenizer: str | None,
    reading: _Reading, tell: Progress,
) -> StoredIndex:  # fmt: skip
    """The index that was named, or one that is made; of the model's own tokens."""
    identity = model.identity()
    if corpus is None:
        for name, value in vars(reading).items():
            if value is not None:
                raise InputError(f"{argument(name, value)} is for reading a corpus; give {argument('corpus')} as well.")
        if index is None:
            raise InputError(f"give a {argument('corpus')} to index, or the {argument('index')} of one.")
        stored = open_index(index, tokenizer)
    elif tokenizer is not None:
        raise InputError(
            f"{argument('index_tokenizer')} is that of an index that is not Rote's; leave {argument('corpus')} out."
        )
    else:
        stored = indexing.build(
            corpus, out=folder / "index" if index is None else index, tokenizer=identity.name,
            revision=identity.revision, progress=tell, **vars(reading),
        )  # fmt: skip
    if stored.index.unit == "bytes":
        raise InputError(
            f"the index {stored.folder} is one of bytes, and examples are tokens. Build one with rote index build "
            f"--model {identity.name}."
        )
    stored.require_tokenizer(identity.name, identity.tokenizer)
    return stored


def _manifest(
    model: ScoringModel, stored: StoredIndex, asked: Criteria, sizes: dict[str, int], seed: int
) -> BenchManifest:
    name = stored.folder.resolve().name if stored.manifest is None else stored.manifest.corpus
    corpus = files.BenchCorpus(
        name=name, id=stored.id, documents=stored.index.documents, tokens=stored.index.tokens
    )  # fmt: skip
    return BenchManifest(
        format=FORMAT,
        kind="bench",
        created=now(),
        corpus=corpus,
        model=model.identity(),
        criteria=asked,
        sizes=sizes,
        seed=seed,
        versions=made_with(),
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A sequence that stands often enough: its first place, its tokens, and all its places with enough before them."""

    place: Place
    repetitions: int
    ids: tuple[int, ...]
    preceded: tuple[Place, ...]


@dataclass
class _Search:
    """Candidates in random order, filter by filter, the cheap ones first, until there are enough examples."""

    model: ScoringModel
    index: CorpusIndex
    manifest: BenchManifest
    folder: Path
    batch_size: BatchSize
    tell: Progress
    taken: Apart
    rejected: list[tuple[Place, int, str]] = field(default_factory=list)
    accepted: list[tuple[_Candidate, Emitted]] = field(default_factory=list)

    @property
    def criteria(self) -> Criteria:
        return self.manifest.criteria

    def run(self) -> StoredBench:
        repeated = list(self.index.repeated(self.criteria.length, self.criteria.repetitions))
        wanted, looked_at, chunks = sum(self.manifest.sizes.values()), 0, 0
        chunk: list[_Candidate] = []
        order = np.random.default_rng(self.manifest.seed).permutation(len(repeated)).tolist()
        for looked_at, number in enumerate(order, 1):
            place, count = repeated[number]
            found = self._filtered(place, count)
            if isinstance(found, str):
                self.rejected.append((place, count, found))
            else:
                chunk.append(found)
            if len(chunk) == CHUNK or (chunk and looked_at == len(order)):
                self._ask(chunks, chunk)
                chunk, chunks = [], chunks + 1
                self.tell("examples", min(len(self.accepted), wanted), wanted)
                if len(self.accepted) >= wanted:
                    break
        return self._close(len(repeated), looked_at)

    def _text(self, document: int, start: int, end: int) -> tuple[int, ...]:
        return tuple(self.index.document(document)[start:end].tolist())

    def _halves(self, ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        return ids[: self.criteria.prefix], ids[self.criteria.prefix :]

    def _filtered(self, place: Place, count: int) -> _Candidate | str:
        """A candidate that passes all filters but the model's and is taken; or the filter that rejects it."""
        ids = self._text(place.document, place.token, place.token + self.criteria.length)
        prefix, suffix = self._halves(ids)
        if criteria.entropy(suffix) < self.criteria.entropy:
            return "entropy"
        if criteria.repetitive(suffix):
            return "repetitive"
        if criteria.substring(prefix, suffix):
            return "in the prefix"
        if self.taken.shares(ids) or self.taken.overlaps(places := self.index.places(ids)):
            return "apart"
        if not criteria.unique(self.index, prefix, suffix):
            return "unique"
        preceded = tuple(each for each in places if each.token >= self.criteria.before)
        if not preceded:
            return "preceded"
        self.taken.take(ids, places)
        return _Candidate(place, count, ids, preceded)

    def _ask(self, number: int, chunk: list[_Candidate]) -> None:
        found = files.read_checked(self.folder, number)
        if found is None:
            found = self._emitted(chunk)
            files.write_checked(self.folder, number, found)
        for candidate, emitted in zip(chunk, found, strict=True):
            if emitted is None:
                self.rejected.append((candidate.place, candidate.repetitions, "emitted"))
            else:
                self.accepted.append((candidate, emitted))

    def _emitted(self, chunk: list[_Candidate]) -> list[Emitted | None]:
        """For each candidate the first of its longer prefixes that makes the model emit the suffix greedily."""
        from rote.extraction.verbatim import verbatim

        found: list[Emitted | None] = [None] * len(chunk)
        left = [list(self._prompts(candidate)) for candidate in chunk]
        while open_ := [i for i, prompts in enumerate(left) if found[i] is None and prompts]:
            asked = [left[i].pop(0) for i in open_]
            examples = [
                Example(str(i), prompt, chunk[i].ids[self.criteria.prefix :])
                for i, (prompt, _) in zip(open_, asked, strict=True)
            ]
            # With tau 1, what is certain not to be the greedy output is given up early.
            results = verbatim(self.model, examples, GREEDY, tau=1.0, batch_size=self.batch_size)
            for i, (_, emitted), result in zip(open_, asked, results, strict=True):
                if result.greedy:
                    found[i] = emitted
        return found

    def _prompts(self, candidate: _Candidate) -> Iterator[tuple[tuple[int, ...], Emitted]]:
        """Longer prefixes, each once, as they stand before the candidate's places; where they tell the suffix, none."""
        prefix, suffix = self._halves(candidate.ids)
        seen: set[tuple[int, ...]] = set()
        for place in candidate.preceded[: self.criteria.tries]:
            longest = self._text(place.document, place.token - self.criteria.before, place.token + len(prefix))
            for length in reversed(self.criteria.longer if not criteria.substring(longest, suffix) else ()):
                prompt = longest[-length:]
                if prompt not in seen:
                    seen.add(prompt)
                    yield prompt, Emitted(tokens=length, document=place.document, token=place.token)

    def _close(self, candidates: int, looked_at: int) -> StoredBench:
        asked, room = self.criteria, self.criteria.length
        places = sum(max(0, self.index.length(i) - room + 1) for i in range(self.index.documents))
        filters = list(self._filters(places, candidates, looked_at))
        numbers = [place.document for place, _, _ in self.rejected]
        names = {number: self.index.name(number) for number in set(numbers)}
        files.write_rejected(
            self.folder,
            {
                "document": [names[number] for number in numbers],
                "number": numbers,
                "token": [place.token for place, _, _ in self.rejected],
                "repetitions": [count for _, count, _ in self.rejected],
                "filter": [reason for _, _, reason in self.rejected],
            },
        )
        if not self.accepted:
            said = ", ".join(f"{each.name} {each.passed:,}" for each in filters)
            raise RunError(
                f"no example satisfies every criterion. How many passed each filter: {said}. "
                f"{self.folder / files.REJECTED} has the reasons; what is asked for may be eased."
            )
        splits = shared_out(len(self.accepted), self.manifest.sizes)
        finished = replace(
            self.manifest, places=places, candidates=candidates, looked_at=looked_at, filters=filters, splits=splits
        )
        chosen = self.accepted[: sum(splits.values())]
        rows = [(split, row) for split, size in splits.items() for row in range(size)]
        examples = [
            self._example(split, row, *each) for (split, row), each in zip(rows, chosen, strict=True)
        ]  # fmt: skip
        before = [self._text(e.document, e.token - asked.before, e.token) for _, e in chosen]
        return files.close(self.folder, finished, examples, before, self.model.vocabulary)

    def _filters(self, places: int, candidates: int, looked_at: int) -> Iterator[Filtered]:
        asked = self.criteria
        bits = "1 bit" if asked.entropy == 1 else f"{asked.entropy:g} bits"
        reasons = {
            "entropy": f"the suffix has less than {bits} per token",
            "repetitive": "the suffix is one run of tokens over and over",
            "in the prefix": "the suffix stands in the prefix",
            "apart": f"it overlaps one that passed before, or shares {counted(asked.apart, 'token')} with it",
            "unique": "the prefix goes on differently elsewhere in the corpus",
            "preceded": f"nowhere do {counted(asked.before, 'token')} stand before it in its document",
            "emitted": "no longer prefix makes the model emit it greedily",
        }
        often = f"it stands fewer than {asked.repetitions} times, or was counted at another place"
        yield Filtered(name="repeated", reason=often, given=places, passed=candidates)
        left = looked_at
        for name, reason in reasons.items():
            passed = left - sum(own == name for _, _, own in self.rejected)
            yield Filtered(name=name, reason=reason, given=left, passed=passed)
            left = passed

    def _example(self, split: str, row: int, candidate: _Candidate, emitted: Emitted) -> Example:
        prefix, suffix = self._halves(candidate.ids)
        about = {
            "split": split,
            "row": row,
            "repetitions": candidate.repetitions,
            "document": self.index.name(emitted.document),
            "token": emitted.token,
            "emitted_after": emitted.tokens,
        }
        return Example(f"{split}-{row}", tuple(prefix), tuple(suffix), metadata=about)
