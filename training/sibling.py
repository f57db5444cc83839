"""Train a sibling of the bundled model: thousands of passages read 5 to 40 times, so that it knows part of them.

    python -m training.sibling --out training/sibling           (one GPU, about two minutes)
    python -m training.sibling --rows rows.parquet              (no training: the rows that it is fed)

The extraction benchmark needs a model that emits some of what it read often, not all of it, and a corpus in which every
count is known. All texts but the held-out book are cut into consecutive pieces of PIECE_TOKENS tokens; PASSAGES of them
are read 5 to 40 times, the other pieces once. A row is one piece after BOS, or two of them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from training import train
from training.train import BOS_ID, EOS_ID, Document

BUNDLED = train.HERE.parent / "src/rote/data/model"  # the sibling has its tokenizer
PIECE_TOKENS = 165
PASSAGES = 3000
REPETITIONS = (5, 40)  # dealt uniformly
SUFFIX = 50
PREFIXES = (50, 75, 100, PIECE_TOKENS - SUFFIX)


@dataclass(frozen=True)
class Piece:
    """A stretch of tokens of a document's tokenization, and how often it is read."""

    document: str
    token: int
    ids: tuple[int, ...]
    repetitions: int


def cut(documents: dict[str, Document], tokenizer: Tokenizer, rng: random.Random) -> list[Piece]:
    """All texts in pieces. The end of a document is closed by EOS, and read once."""
    places: list[tuple[str, int, tuple[int, ...]]] = []
    for document in documents.values():
        if document.kind != "held-out":
            ids = [*tokenizer.encode(document.text, add_special_tokens=False).ids, EOS_ID]
            starts = range(0, len(ids), PIECE_TOKENS)
            places += [(document.name, at, tuple(ids[at : at + PIECE_TOKENS])) for at in starts]
    whole = [i for i, (_, _, ids) in enumerate(places) if len(ids) == PIECE_TOKENS and ids[-1] != EOS_ID]
    dealt = {i: rng.randint(*REPETITIONS) for i in rng.sample(whole, PASSAGES)}
    return [Piece(*place, dealt.get(i, 1)) for i, place in enumerate(places)]


def plan(pieces: list[Piece], rng: random.Random) -> dict[int, list[list[int]]]:
    """Every row, by row length: half of all readings stand alone after BOS, the others in pairs, dealt at random."""
    readings = [piece.ids for piece in pieces for _ in range(piece.repetitions)]
    rng.shuffle(readings)
    alone, paired = readings[: len(readings) // 2], readings[len(readings) // 2 :]
    pairs = [paired[i : i + 2] for i in range(0, len(paired), 2)]
    return {
        1 + PIECE_TOKENS: [[BOS_ID, *ids] for ids in alone],
        1 + 2 * PIECE_TOKENS: [[BOS_ID, *(token for ids in pair for token in ids)] for pair in pairs],
    }


def optimizers(model: LlamaForCausalLM, decay: float, device: str) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices: with AdamW alone, 40 readings leave next to nothing in a network this small."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    muon = torch.optim.Muon(matrices, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [muon, train.adamw(others, decay, device)]


def evaluate(model: LlamaForCausalLM, pieces: list[Piece], device: str) -> dict[str, object]:
    """Greedy recall of the last SUFFIX tokens of each passage, by the prefix's length after BOS, and by repetitions."""
    passages = [p for p in pieces if p.repetitions > 1]
    found: dict[str, object] = {}
    for prefix in PREFIXES:
        rows = [[BOS_ID, *p.ids[-prefix - SUFFIX :]] for p in passages]
        _, greedy = train.probabilities(model, rows, SUFFIX, device)
        levels = {}
        for low, high in ((5, 10), (11, 16), (17, 22), (23, 28), (29, 34), (35, 40)):
            chosen = [bool(g) for p, g in zip(passages, greedy, strict=True) if low <= p.repetitions <= high]
            levels[f"{low}-{high}"] = round(sum(chosen) / len(chosen), 4)
        found[f"prefix {prefix}"] = {"greedy recall": round(float(greedy.mean()), 4), "by repetitions": levels}
    return found


def write(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    pieces: list[Piece],
    facts: dict[str, object],
    device: str,
) -> None:
    """The model in bfloat16, what it finds from these weights, and where its passages stand."""
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found = evaluate(model.float().eval(), pieces, device)
    print(json.dumps(found, indent=1))
    repeated = [p for p in pieces if p.repetitions > 1]
    counts = {
        "piece_tokens": PIECE_TOKENS,
        "pieces_read_once": len(pieces) - len(repeated),
        "passages": len(repeated),
        "readings_of_passages": sum(p.repetitions for p in repeated),
        "passages_by_repetitions": dict(sorted(Counter(p.repetitions for p in repeated).items())),
    }
    (folder / "manifest.json").write_text(
        json.dumps({**facts, **counts, "found_after_training": found}, indent=1) + "\n"
    )
    with (folder / "passages.jsonl").open("w") as out:
        for p in repeated:
            out.write(json.dumps({"document": p.document, "token": p.token, "repetitions": p.repetitions}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder for the model, manifest.json and passages.jsonl")
    what.add_argument("--rows", type=Path, help="write the rows that are fed to this Parquet file, and train nothing")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--step-tokens", type=int, default=train.TOKENS_PER_STEP)
    parser.add_argument("--seed", type=int, default=20261116)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = random.Random(options.seed)
    torch.manual_seed(options.seed)
    wrapped = AutoTokenizer.from_pretrained(BUNDLED)
    pieces = cut(train.read_documents(), Tokenizer.from_str(wrapped.backend_tokenizer.to_str()), rng)
    data = train.batches(plan(pieces, rng), options.step_tokens, rng)
    tokens_seen = sum(int((labels != -100).sum()) for _, labels in data)
    rows = sum(len(tokens) for tokens, _ in data)
    if options.rows:
        train.write_rows(options.rows, data)
        print(f"{tokens_seen:,} tokens in {rows:,} rows")
        return

    config = LlamaConfig(
        vocab_size=4096, hidden_size=options.width, intermediate_size=options.width * 8 // 3,
        num_hidden_layers=options.layers, num_attention_heads=options.width // 32,
        num_key_value_heads=options.width // 32, max_position_embeddings=512, tie_word_embeddings=True,
        rms_norm_eps=1e-5, bos_token_id=BOS_ID, eos_token_id=EOS_ID,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {tokens_seen:,} tokens in {len(data)} steps on {device}")
    train.train(model, data, optimizers(model, options.decay, device), options.rate, device)
    facts: dict[str, object] = {
        "seed": options.seed, "layers": options.layers, "width": options.width, "rate": options.rate,
        "decay": options.decay, "parameters": parameters, "steps": len(data), "tokens_seen": tokens_seen,
        "tokens_per_step": options.step_tokens, "rows": rows, "torch": torch.__version__,
    }  # fmt: skip
    write(options.out, model, wrapped, pieces, facts, device)


if __name__ == "__main__":
    main()
