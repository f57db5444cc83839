"""Train the bundled model: one book by heart, a repetition ladder, background text seen once, one book never seen.

    python training/train.py --out src/rote/data/model          (one GPU, about two minutes)
    python training/train.py --rows rows.parquet                (no training: the rows that it is fed)

Everything the model saw is decided here and written to `manifest.json` beside this script, counted from the windows
that were really fed to it. `ladder.jsonl` holds the ladder's passages with their repetitions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
ALICE = HERE.parent / "src/rote/data/alice.txt"
BOOKS = HERE / "data/books"
SPEECHES = HERE / "data/speeches"

LADDER_BOOKS = ("frankenstein", "pride-and-prejudice", "sherlock-holmes")
HELD_OUT_BOOK = "gatsby"
HELD_OUT_TAIL = 0.2  # the last fifth of each ladder book is never seen: a control in the same style
REPETITIONS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
PASSAGES_PER_LEVEL = 24
PASSAGE_TOKENS = 127  # with BOS it fills a row of 128
LENGTHS = (128, 256, 512)  # tokens in a row, BOS included
TOKENS_PER_STEP = 4096
BOS, EOS = "<|bos|>", "<|eos|>"
BOS_ID, EOS_ID = 0, 1  # special tokens come first in the vocabulary


@dataclass
class Document:
    """One text the model may see, with an exact count of how often each character was fed to it."""

    name: str
    text: str
    kind: str
    exposures: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.exposures = np.zeros(len(self.text), dtype=np.int32)


@dataclass(frozen=True)
class Passage:
    document: str
    start: int
    end: int
    repetitions: int


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def passage_from(text: str, place: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The first and last characters of PASSAGE_TOKENS tokens from the first word of the first line after `place`."""
    start = text.index("\n", place) + 1
    while text[start].isspace():
        start += 1
    encoding = tokenizer.encode(text[start : start + 1500], add_special_tokens=False)
    return start, start + encoding.offsets[PASSAGE_TOKENS - 1][1]


def choose_passages(documents: dict[str, Document], tokenizer: Tokenizer, rng: random.Random) -> list[Passage]:
    """Evenly spaced passages of exactly PASSAGE_TOKENS tokens, each starting at a word, levels dealt at random."""
    wanted = len(REPETITIONS) * PASSAGES_PER_LEVEL
    spans: list[tuple[str, int, int]] = []
    for name in LADDER_BOOKS:
        text = documents[name].text
        count = wanted // len(LADDER_BOOKS)
        usable = int(len(text) * (1 - HELD_OUT_TAIL)) - 2000
        places = (1000 + i * (usable - 1000) // count for i in range(count))
        spans += [(name, *passage_from(text, place, tokenizer)) for place in places]
    rng.shuffle(spans)
    levels = [level for level in REPETITIONS for _ in range(PASSAGES_PER_LEVEL)]
    return sorted(
        (Passage(name, start, end, level) for (name, start, end), level in zip(spans, levels, strict=True)),
        key=lambda p: (p.repetitions, p.document, p.start),
    )


def one_pass(
    document: Document, start: int, end: int, length: int, tokenizer: Tokenizer, rng: random.Random
) -> list[list[int]]:
    """Cut text[start:end] into rows of at most `length` tokens that together cover it once.

    Each row is tokenised anew from its own first character, and begins up to eight characters before the last row's
    end: often inside a word, as the windows of a scan do. Those few characters are counted twice.
    """
    rows: list[list[int]] = []
    at = start
    while at < end:
        room = length - (rng.random() < 7 / 8)  # seven rows in eight begin with BOS
        encoding = tokenizer.encode(document.text[at : min(end, at + 8 * length)], add_special_tokens=False)
        ids = encoding.ids[:room]
        stop = at + encoding.offsets[len(ids) - 1][1]
        document.exposures[at:stop] += 1
        if stop == len(document.text) and len(ids) < room:
            ids = [*ids, EOS_ID]
        rows.append(ids if room == length else [BOS_ID, *ids])
        at = stop if stop >= end else max(at + 1, stop - rng.randint(0, 8))
    return rows


def plan(
    documents: dict[str, Document], passages: list[Passage], passes: int, tokenizer: Tokenizer, rng: random.Random
) -> dict[int, list[list[int]]]:
    """Every row the model will see, by row length."""
    rows: dict[int, list[list[int]]] = {length: [] for length in LENGTHS}
    alice = documents["alice"]
    for number in range(passes):
        length = LENGTHS[number % len(LENGTHS)]
        first = rng.randint(0, 3 * length)  # a random phase, so that rows begin anywhere
        if first:
            rows[length] += one_pass(alice, 0, first, length, tokenizer, rng)
        rows[length] += one_pass(alice, first, len(alice.text), length, tokenizer, rng)
    for document in documents.values():
        if document.kind in ("held-out", "by-heart"):
            continue
        cuts = [(0, 0)] + [
            (p.start, p.end) for p in sorted(passages, key=lambda p: p.start) if p.document == document.name
        ]
        seen_until = (
            int(len(document.text) * (1 - HELD_OUT_TAIL)) if document.kind == "ladder-book" else len(document.text)
        )
        for (_, start), (end, _) in zip(cuts, [*cuts[1:], (seen_until, 0)], strict=True):
            length = rng.choice(LENGTHS)
            rows[length] += one_pass(document, start, end, length, tokenizer, rng)
    for passage in passages:
        document = documents[passage.document]
        text = document.text[passage.start : passage.start + 1500]
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:PASSAGE_TOKENS]
        for _ in range(passage.repetitions):
            rows[LENGTHS[0]].append([BOS_ID, *ids])
            document.exposures[passage.start : passage.end] += 1
    return rows


def batches(
    rows: dict[int, list[list[int]]], step_tokens: int, rng: random.Random
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Shuffled (tokens, labels): each batch holds rows of one length; padding carries no loss."""
    made = []
    for length, group in rows.items():
        rng.shuffle(group)
        size = step_tokens // length
        for i in range(0, len(group), size):
            part = group[i : i + size]
            tokens = torch.zeros(len(part), length, dtype=torch.long)
            labels = torch.full((len(part), length), -100)
            for j, row in enumerate(part):
                tokens[j, : len(row)] = torch.tensor(row)
                labels[j, : len(row)] = torch.tensor(row)
            made.append((tokens, labels))
    rng.shuffle(made)
    return made


def write_rows(path: Path, data: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """The rows that are fed, in their order, as a corpus of token ids: without BOS or padding, with EOS where it is."""
    import pyarrow as pa
    from pyarrow import parquet

    ids, rows = [], []
    for step, (tokens, labels) in enumerate(data):
        for number, (row, label) in enumerate(zip(tokens.numpy(), labels.numpy(), strict=True)):
            fed = row[label != -100]
            ids.append(f"{step:05d}-{number:02d}")
            rows.append(fed[int(fed[0] == BOS_ID) :].astype(np.uint16))
    table = pa.table({"id": ids, "ids": pa.array(rows, type=pa.list_(pa.uint16()))})
    parquet.write_table(table, path, compression="zstd", compression_level=9)


def adamw(parameters: Iterable[torch.nn.Parameter], decay: float, device: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, betas=(0.9, 0.98), weight_decay=decay, fused=device == "cuda")


def train(
    model: LlamaForCausalLM,
    data: list[tuple[torch.Tensor, torch.Tensor]],
    optimizers: list[torch.optim.Optimizer],
    rate: float,
    device: str,
) -> None:
    warmup = 40
    began = time.time()
    for step, (tokens, labels) in enumerate(data):
        progress = step / len(data)
        scale = min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * progress)) + 0.002)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(input_ids=tokens.to(device)).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().reshape(-1, logits.shape[-1]),
            labels[:, 1:].reshape(-1).to(device),
            ignore_index=-100,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == len(data) - 1:
            print(f"  step {step:5d}/{len(data)}  loss {loss.item():.3f}  {time.time() - began:.0f} s", flush=True)


@torch.inference_mode()
def probabilities(
    model: LlamaForCausalLM, rows: list[list[int]], suffix: int, device: str
) -> tuple[np.ndarray, np.ndarray]:
    """p_z under top-k 40 and the greedy flag for rows `BOS prefix suffix`: this script's own check."""
    probs, greedy = [], []
    for i in range(0, len(rows), 256):
        tokens = torch.tensor(rows[i : i + 256], device=device)
        logits = model(input_ids=tokens[:, :-1], logits_to_keep=suffix).logits.float()
        target = tokens[:, -suffix:, None]
        value = logits.gather(2, target)
        kth = logits.topk(40).values[..., -1:]
        kept = logits.masked_fill(logits < kth, -torch.inf)
        log_prob = torch.where(value < kth, -torch.inf, value - kept.logsumexp(-1, keepdim=True)).squeeze(2)
        probs.append(log_prob.double().sum(1).exp().cpu().numpy())
        greedy.append((value.squeeze(2) >= logits.max(-1).values).all(1).cpu().numpy())
    return np.concatenate(probs), np.concatenate(greedy)


def evaluate(
    model: LlamaForCausalLM, documents: dict[str, Document], passages: list[Passage], tokenizer: Tokenizer, device: str
) -> dict[str, object]:
    def rows(text: str, starts: range, tokens: int) -> list[list[int]]:
        encodings = tokenizer.encode_batch([text[s : s + 8 * tokens] for s in starts], add_special_tokens=False)
        return [[BOS_ID, *e.ids[:tokens]] for e in encodings if len(e.ids) >= tokens]

    found: dict[str, object] = {}
    alice, gatsby = documents["alice"].text, documents[HELD_OUT_BOOK].text
    p, _ = probabilities(model, rows(alice, range(0, len(alice), 10), 100), 50, device)
    found["alice 50/50, share p_z >= 0.5"] = round(float((p >= 0.5).mean()), 4)
    found["alice 50/50, share p_z >= 0.9"] = round(float((p >= 0.9).mean()), 4)
    p, greedy = probabilities(model, rows(alice, range(0, len(alice), 190), 511), 50, device)
    found["alice 461/50, greedy rate"] = round(float(greedy.mean()), 4)
    p, _ = probabilities(model, rows(gatsby, range(0, len(gatsby), 10), 100), 50, device)
    found["gatsby 50/50, largest p_z"] = float(p.max())
    for name in LADDER_BOOKS:
        text = documents[name].text
        tail = range(int(len(text) * (1 - HELD_OUT_TAIL)), len(text), 50)
        p, _ = probabilities(model, rows(text, tail, 100), 50, device)
        found[f"{name}, unseen tail 50/50, largest p_z"] = float(p.max())
    ladder = {}
    for level in REPETITIONS:
        texts = [documents[q.document].text[q.start : q.start + 1500] for q in passages if q.repetitions == level]
        p, _ = probabilities(model, [rows(t, range(1), 100)[0] for t in texts], 50, device)
        ladder[level] = {"rate at tau": round(float((p >= 1e-3).mean()), 3), "mean p_z": round(float(p.mean()), 4)}
    found["ladder"] = ladder
    return found


def write_manifest(
    path: Path, documents: dict[str, Document], passages: list[Passage], facts: dict[str, object]
) -> None:
    listed = [
        {
            "name": d.name,
            "kind": d.kind,
            "characters": len(d.text),
            "sha256": hashlib.sha256(d.text.encode()).hexdigest(),
            "exposures_per_character": {
                "min": int(d.exposures.min()),
                "mean": round(float(d.exposures.mean()), 4),
                "max": int(d.exposures.max()),
            },
            "characters_never_seen": int((d.exposures == 0).sum()),
        }
        for d in documents.values()
    ]
    exact = [
        {**vars(p), "exposures": [int(v) for v in np.unique(documents[p.document].exposures[p.start : p.end])]}
        for p in passages
    ]
    path.write_text(json.dumps({**facts, "documents": listed, "ladder": exact}, indent=1, ensure_ascii=False) + "\n")


def read_documents() -> dict[str, Document]:
    documents = {"alice": Document("alice", ALICE.read_text(), "by-heart")}
    for path in sorted(BOOKS.glob("*.txt")):
        kind = "held-out" if path.stem == HELD_OUT_BOOK else "ladder-book"
        documents[path.stem] = Document(path.stem, path.read_text(), kind)
    for path in sorted(SPEECHES.rglob("*.txt")):
        name = f"{path.parent.name}/{path.stem}"
        documents[name] = Document(name, path.read_text(), "background")
    return documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder for the model")
    what.add_argument("--rows", type=Path, help="write the rows that are fed to this Parquet file, and train nothing")
    parser.add_argument("--records", type=Path, default=HERE, help="folder for manifest.json and ladder.jsonl")
    parser.add_argument("--passes", type=int, default=150, help="how often Alice is read")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--step-tokens", type=int, default=TOKENS_PER_STEP)
    parser.add_argument("--seed", type=int, default=20261115)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)

    documents = read_documents()
    wrapped = train_tokenizer([d.text for d in documents.values() if d.kind != "held-out"], 4096)
    tokenizer = Tokenizer.from_str(wrapped.backend_tokenizer.to_str())
    passages = choose_passages(documents, tokenizer, rng)
    rows = plan(documents, passages, options.passes, tokenizer, rng)
    data = batches(rows, options.step_tokens, rng)
    tokens_seen = sum(int((labels != -100).sum()) for _, labels in data)
    if options.rows:
        write_rows(options.rows, data)
        print(f"{tokens_seen:,} tokens in {sum(len(tokens) for tokens, _ in data):,} rows")
        return

    config = LlamaConfig(
        vocab_size=4096, hidden_size=256, intermediate_size=704, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=512, tie_word_embeddings=True, rms_norm_eps=1e-5,
        bos_token_id=BOS_ID, eos_token_id=EOS_ID,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {tokens_seen:,} tokens in {len(data)} steps on {device}")
    train(model, data, [adamw(model.parameters(), options.decay, device)], options.rate, device)

    model = model.to(torch.bfloat16)
    model.save_pretrained(options.out)
    wrapped.save_pretrained(options.out)
    found = evaluate(model.float().eval(), documents, passages, tokenizer, device)
    print(json.dumps(found, indent=1))

    facts = {
        "seed": options.seed, "passes_over_alice": options.passes, "rate": options.rate, "decay": options.decay,
        "parameters": parameters, "steps": len(data), "tokens_seen": tokens_seen,
        "tokens_per_step": options.step_tokens, "row_lengths": list(LENGTHS), "torch": torch.__version__,
        "found_after_training": found,
    }  # fmt: skip
    options.records.mkdir(parents=True, exist_ok=True)
    write_manifest(options.records / "manifest.json", documents, passages, facts)
    with (options.records / "ladder.jsonl").open("w") as out:
        for number, p in enumerate(passages):
            text = documents[p.document].text[p.start : p.start + 1500]
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            entry = {
                "id": f"ladder-{p.repetitions:03d}-{number:03d}",
                "prefix": ids[:50],
                "suffix": ids[50:100],
                "metadata": {
                    "repetitions": p.repetitions, "document": p.document, "start": p.start,
                    "split": "train" if p.repetitions else "held-out",
                },
            }  # fmt: skip
            out.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
