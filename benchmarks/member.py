"""Membership scores: what they cost beside loss alone and one by one, and how well they tell the bundled set apart.

    python -m benchmarks.member                          cost, with the bundled model on the CPU
    python -m benchmarks.member --gpu                    cost and memory of a 1B shape, random weights, on a CUDA GPU
    python -m benchmarks.member --quality runs/quality   AUROC, dataset tests, false positives, a confounded set

Loss alone is the same pass in the same batches, with nothing but the log-prob of every token taken from its logits. The
peers are plain transformers with one text in a batch and whole-vocabulary log-probs, as public scripts have them: a
pass for each score; the passes that the public scripts of Min-K%, Min-K%++ and ReCaLL make if they are run one after
the other; and no pass made twice. All are timed in turns, and a time is the median of its repetitions; on the CPU it is
the processor's, so that what else runs on the machine does not count. The peers score every so many-th text, and their
seconds are scaled up.

Costs need torch, transformers and numpy alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rote.errors import ModelError
from rote.extraction.passes import Passes
from rote.membership.passes import few_rows, read_texts
from rote.membership.scores import KS, Floats, TextRead, scores_of
from rote.models.base import LogitModel
from rote.models.huggingface import HuggingFaceModel
from rote.tokens import Example

ROOT = Path(__file__).parent.parent
MEMBERS = ROOT / "src/rote/data/members.jsonl"
SHAPE = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8,
}  # fmt: skip
VOCABULARIES = (32_768, 131_072, 262_144)
TIMED = (128_256, 262_144)
Ids = Sequence[int]


@dataclass(frozen=True)
class Text:
    """A text as itself and in lowercase, as token ids."""

    text: str
    ids: list[int]
    lower: list[int]


# --- loss alone: the same passes, and the log-prob


def log_prob(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    values = logits.float()
    return (values.gather(1, targets[:, None]) - values.logsumexp(-1, keepdim=True)).squeeze(1)


@cache
def compiled_log_prob() -> Callable[..., torch.Tensor]:
    compiled: Any = torch.compile(log_prob)
    return compiled  # type: ignore[no-any-return]


class LossAlone(Passes[Floats]):
    def __init__(self, model: LogitModel, examples: Sequence[Example]) -> None:
        super().__init__(model, examples, "auto")
        self.log_prob = compiled_log_prob() if model.compiled else log_prob

    def measure(self, logits: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        return [torch.cat([self.log_prob(*part) for part in few_rows(logits, targets)])]

    def bad(self, arrays: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        numbers: NDArray[np.bool_] = np.isfinite(arrays[0])
        return ~numbers

    def read(
        self, arrays: Sequence[NDArray[Any]], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[Floats]:
        yield from (arrays[0][start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))

    def refuse(self, example: Example, token: int) -> ModelError:
        return ModelError(f"token {token} of {example.id} has no log-prob")


def losses(model: LogitModel, texts: Sequence[Text]) -> list[float]:
    own = 0 if model.bos_id is not None else 1
    examples = [Example(str(i), tuple(t.ids[:own]), tuple(t.ids[own:])) for i, t in enumerate(texts)]
    read = LossAlone(model, examples).run(np.arange(len(examples)), None, lambda _: None)
    return [-float(read[i].mean(dtype=np.float64)) for i in range(len(examples))]


# --- rote's scores


def one_pass_scores(model: LogitModel, texts: Sequence[Text]) -> list[dict[str, float]]:
    """Loss, perplexity, zlib, Min-K% and Min-K%++."""
    return [scores_of(t.text, read) for t, read in zip(texts, read_texts(model, [t.ids for t in texts]), strict=True)]


def all_scores(model: LogitModel, texts: Sequence[Text], prefix: Ids) -> list[dict[str, float]]:
    """The same, lowercase and ReCaLL: three passes."""
    ids = [t.ids for t in texts]
    reads: list[list[TextRead]] = [
        read_texts(model, ids), read_texts(model, [t.lower for t in texts]), read_texts(model, ids, prefix=prefix),
    ]  # fmt: skip
    passes = zip(texts, *reads, strict=True)
    return [scores_of(t.text, read, lowercase=lower, prefixed=after) for t, read, lower, after in passes]


# --- the peers: plain transformers, one text at a time

Pass = Literal["log-probs", "log-probs and their spread", "lowercase", "prefixed"]
PEERS: dict[str, tuple[Pass, ...]] = {
    "one pass scores, one by one": (
        "log-probs",  # loss
        "log-probs",  # zlib
        "log-probs",  # Min-K%
        "log-probs and their spread",  # Min-K%++
    ),
    "all scores, one by one": (
        "log-probs",  # loss
        "log-probs",  # zlib
        *("log-probs", "lowercase"),  # lowercase
        "log-probs",  # Min-K%
        "log-probs and their spread",  # Min-K%++
        *("log-probs", "prefixed"),  # ReCaLL
    ),
    "all scores, three public scripts": (
        *("log-probs", "lowercase"),  # Min-K%: loss, lowercase, zlib, Min-K%
        "log-probs and their spread",  # Min-K%++: loss, zlib, Min-K%, Min-K%++
        *("log-probs", "prefixed", "log-probs and their spread"),  # ReCaLL: it reads the text a second time
    ),
    "all scores, no pass twice": ("log-probs and their spread", "lowercase", "prefixed"),
}


class Plain:
    """What a script does with a model of transformers and one text: a list of passes."""

    def __init__(self, model: HuggingFaceModel, prefix: Ids) -> None:
        self.model, self.prefix = model._model, list(prefix)
        self.bos = [] if model.bos_id is None else [model.bos_id]

    @torch.inference_mode()
    def log_probs(self, ids: Ids, before: Ids = (), spread: bool = False) -> tuple[Floats, Floats | None]:
        row = torch.tensor([[*self.bos, *before, *ids]], device=self.model.device)
        logits = self.model(row).logits[0, :-1]
        own = row[0, 1:, None]
        log_probs = torch.log_softmax(logits.float(), -1)
        taken = log_probs.gather(1, own).squeeze(1)
        z_scores = None
        if spread:
            probs = torch.softmax(logits.float(), -1)
            mu = (probs * log_probs).sum(-1)
            sigma = (probs * log_probs.square()).sum(-1) - mu.square()
            z_scores = ((taken - mu) / sigma.clamp(min=1e-12).sqrt()).cpu().numpy()
        return taken[len(before) :].cpu().numpy(), z_scores

    def all_scores(self, texts: Sequence[Text], passes: Sequence[Pass]) -> list[dict[str, float]]:
        return [self.scores(text, passes) for text in texts]

    def scores(self, text: Text, passes: Sequence[Pass]) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind in passes:
            if kind == "lowercase":
                found["lowercase"] = found["loss"] / -float(self.log_probs(text.lower)[0].mean())
            elif kind == "prefixed":
                found["recall"] = -float(self.log_probs(text.ids, self.prefix)[0].mean()) / found["loss"]
            else:
                log_probs, z_scores = self.log_probs(text.ids, spread=kind == "log-probs and their spread")
                found["loss"] = -float(log_probs.mean())
                found["zlib"] = found["loss"] / len(zlib.compress(text.text.encode()))
                for name, values in (("min_k", log_probs), ("min_k_plus_plus", z_scores)):
                    if values is not None:
                        ordered = np.sort(values)
                        found |= {f"{name}_{k}": float(ordered[: max(1, len(ordered) * k // 100)].mean()) for k in KS}
        return found


# --- timing


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def in_turns(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each, after one round that is not timed."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    took: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(repeats + 1):
        for name, work in works.items():
            wait()
            began = clock()
            work()
            wait()
            if round_:
                took[name].append(clock() - began)
    return {name: median(seconds) for name, seconds in took.items()}


def costs(label: str, model: HuggingFaceModel, plain: Plain, texts: Sequence[Text], every: int, repeats: int) -> None:
    """The table of one model. `plain` may be of the same weights, not compiled."""
    few = texts[::every]
    scale = len(texts) / len(few)
    works: dict[str, Callable[[], Any]] = {
        "loss alone": lambda: losses(model, texts),
        "one pass scores": lambda: one_pass_scores(model, texts),
        "all scores": lambda: all_scores(model, texts, plain.prefix),
    }
    for name, passes in PEERS.items():
        works[name] = partial(plain.all_scores, few, passes)
    seconds = {k: v * (scale if k in PEERS else 1) for k, v in in_turns(works, repeats).items()}
    tokens = sum(len(text.ids) for text in texts)
    print(f"\n{label}: {len(texts)} texts of {tokens / len(texts):.0f} tokens; the peers on {len(few)} of them")
    print("\n| what | seconds | texts a second | of loss alone | of the same scores by rote |\n|---|---|---|---|---|")
    for name, took in seconds.items():
        own = seconds["one pass scores" if name.startswith("one pass") else "all scores"]
        against = f"{took / own:.2f}" if name in PEERS else ""
        shown = f"{'' if name in PEERS else 'rote: '}{name}"
        print(f"| {shown} | {took:.2f} | {len(texts) / took:,.1f} | {took / seconds['loss alone']:.2f} | {against} |")
    ours, theirs = all_scores(model, few, plain.prefix), plain.all_scores(few, PEERS["all scores, one by one"])
    gaps = {k: max(abs(a[k] - b[k]) for a, b in zip(ours, theirs, strict=True)) for k in theirs[0]}
    worst = max(gaps, key=lambda k: gaps[k])
    print(f"\nlargest difference of a score from the peers': {gaps[worst]:.1e} ({worst})", flush=True)


def on_cpu(every: int, repeats: int, count: int | None) -> None:
    from rote.models.base import ModelOptions, load

    model = load("bundled", ModelOptions(device="cpu"))
    assert isinstance(model, HuggingFaceModel)
    lines = [json.loads(line)["text"] for line in MEMBERS.read_text(encoding="utf-8").splitlines()]
    lines, prefix = lines[1:][:count], lines[0]

    def ids(text: str) -> list[int]:
        return list(model.tokenizer.encode(text, add_special_tokens=False))

    texts = [Text(text, ids(text), ids(text.lower())) for text in lines]
    costs("bundled model, CPU float32", model, Plain(model, ids(prefix)), texts, every, repeats)


# --- on a GPU


def shaped(vocabulary: int) -> Any:
    """A Llama of a billion parameters and its vocabulary's, with random weights, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=0, **SHAPE
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def wrapped(model: Any, *, compiled: bool) -> HuggingFaceModel:
    found = HuggingFaceModel(model, compile=compiled)
    found.bos_id = 0
    return found


def random_texts(count: int, tokens: int, vocabulary: int) -> list[Text]:
    rng = np.random.default_rng(0)

    def drawn() -> list[int]:
        return [int(token) for token in rng.integers(1, vocabulary, tokens)]

    return [Text(" ".join(map(str, ids)), ids, drawn()) for ids in (drawn() for _ in range(count))]


def peak(work: Callable[[], Any]) -> float:
    """GiB of GPU memory at the most, beyond what was held before."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    wait()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def on_gpu(count: int, tokens: int, every: int, repeats: int) -> None:
    print(f"{torch.cuda.get_device_name()}")
    for compiled in (False, True):
        for vocabulary in TIMED:
            model = shaped(vocabulary)
            texts = random_texts(count, tokens, vocabulary)
            plain = Plain(wrapped(model, compiled=False), texts[0].ids[:127])
            how = "layers and scores compiled" if compiled else "not compiled"
            label = f"1B shape, vocabulary {vocabulary:,}, bfloat16, {how}"
            costs(label, wrapped(model, compiled=compiled), plain, texts[1:], every, repeats)
            del model, plain
    print("\n| vocabulary | weights, GiB | peak beyond them: loss alone | one pass scores | a peer's pass |")
    print("|---|---|---|---|---|")
    for vocabulary in VOCABULARIES:
        model = shaped(vocabulary)
        texts = random_texts(count, tokens, vocabulary)
        own, plain = wrapped(model, compiled=False), Plain(wrapped(model, compiled=False), [])
        weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
        peaks = [
            peak(partial(losses, own, texts)),
            peak(partial(one_pass_scores, own, texts)),
            peak(partial(plain.scores, texts[0], ("log-probs and their spread",))),
        ]
        print(f"| {vocabulary:,} | {weights:.2f} | {' | '.join(f'{p:.2f}' for p in peaks)} |", flush=True)
        del model, own, plain


# --- quality


def quality(folder: Path) -> None:
    """On the bundled set, by repetitions; on passages that were never seen; on two styles that never were."""
    import polars as pl
    from training import members

    import rote
    from rote.analysis.member.dataset import dataset_test
    from rote.progress import quiet
    from rote.store.member import DatasetTest, Measured

    def told(found: Measured) -> str:
        low, high = found.interval
        return f"{found.value:.3f} ({low:.3f} to {high:.3f})"

    model = rote.load("bundled", rote.ModelOptions(device="cpu"))
    run = rote.member(model, MEMBERS, out=folder / "members")
    evaluation = run.summary.evaluation
    assert evaluation is not None
    assert evaluation.by_repetitions is not None
    print(f"\n{evaluation.members} members, {evaluation.non_members} non-members, {evaluation.groups} groups")
    print("\n| score | AUROC | TPR at 1% FPR | precision | recall | F-beta(0.1) |\n|---|---|---|---|---|---|")
    for row in evaluation.rows:
        cells = (row.auroc, row.tpr_1, row.precision, row.recall, row.f_beta)
        print(f"| {row.name} | {' | '.join('-' if cell is None else told(cell) for cell in cells)} |")
    levels = [level.repetitions for level in evaluation.by_repetitions]
    print(f"\n| AUROC | {' | '.join(map(str, levels))} |\n|---|{'---|' * len(levels)}")
    for name in evaluation.by_repetitions[0].auroc:
        print(f"| {name} | {' | '.join(told(level.auroc[name]) for level in evaluation.by_repetitions)} |")

    before = run.view.rows.filter(pl.col("id").is_in(run.manifest.prefix))["group"].to_list()
    rows = run.view.rows.filter(~pl.col("group").is_in(before))
    names = [name for name in run.manifest.scores if name not in ("best_window", "near_lower")]
    unseen = rows.filter(~pl.col("label"))

    def tested(label: str, suspects: pl.DataFrame, others: pl.DataFrame) -> None:
        found = dataset_test(suspects, others, names, seed=0, progress=quiet)
        if not isinstance(found, DatasetTest):
            print(f"| {label} | {suspects.height} | {found} |")
            return
        wrong = found.false_positives
        print(
            f"| {label} | {suspects.height} | {others.height} | {found.p:.4f} | {found.blind:.4f} | "
            f"{found.difference:+.2f} | {wrong.single} of {wrong.trials} | {wrong.combined} of {wrong.trials} |",
            flush=True,
        )

    head = "suspects | texts | held out | p | blind p | difference | single p < 5% | combined p < 5%"
    print(f"\n| {head} |\n|{'---|' * 8}")
    for level in levels:
        tested(f"seen {level} times", rows.filter(pl.col("repetitions") == level), unseen)
    tested("seen 16 times or more", rows.filter(pl.col("repetitions") >= 16), unseen)
    tested("seen 1 to 8 times", rows.filter(pl.col("repetitions").is_between(1, 8)), unseen)

    other = rote.member(model, members.held_out(), out=folder / "held-out").view.rows
    second = pl.col("group").rank("dense") % 2 == 0
    tested("never seen, every second block of a book", other.filter(second), other.filter(~second))
    gatsby = other.filter(pl.col("id").str.starts_with("gatsby")).with_columns(group=pl.lit(None, pl.String))
    tested("Gatsby, never seen, every second passage", gatsby[::2], gatsby[1::2])

    styles = rote.member(model, members.confounded(), out=folder / "confounded").summary.evaluation
    assert styles is not None
    print(f"\ntwo styles, neither ever seen; the blind baseline explains {styles.blind.explained}\n")
    print("| score | AUROC | over the blind baseline |\n|---|---|---|")
    for row in styles.rows:
        print(f"| {row.name} | {told(row.auroc)} | {'-' if row.over_blind is None else told(row.over_blind)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--gpu", action="store_true")
    what.add_argument("--quality", type=Path, metavar="FOLDER", help="folder for the runs")
    parser.add_argument("--texts", type=int, help="how many (default: all on the CPU, 256 on the GPU)")
    parser.add_argument("--tokens", type=int, default=512, help="of a text on the GPU")
    parser.add_argument("--every", type=int, default=8, help="the peers score every so many-th text")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPU cores")
    if options.quality:
        quality(options.quality)
    elif options.gpu:
        on_gpu((options.texts or 256) + 1, options.tokens, options.every, options.repeats)
    else:
        on_cpu(options.every, options.repeats, options.texts)


if __name__ == "__main__":
    main()
