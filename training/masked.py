"""Train the embedded masked model: the reference that says which words of a passage are surprising.

    python -m training.masked --out src/rote/data/masked        (one GPU, about two minutes)
    python -m training.masked --rows rows.jsonl                 (no training: the stretches of text that it is fed)

It reads the speeches and the three books, without the passages of the bundled set of members and non-members and the
text around them; Alice and Gatsby not at all. So it can be the reference for all of those. Its tokenizer is made from
the same text.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM, PreTrainedTokenizerFast

from training.train import HERE, LADDER_BOOKS, adamw, read_documents

MEMBERS = HERE.parent / "src/rote/data/members.jsonl"
MARGIN = 200  # characters before and after each passage that are left out with it
SHORTEST = 400  # characters; what is left between two passages is read if it is longer
HELD_OUT = 20  # every so manieth stretch of text is kept for the held-out loss, and not read
WINDOW = 256  # tokens
MEASURED = 1024  # windows that a loss is measured on, at most
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNKNOWN, CLS, SEP, MASK = range(5)
TYPOGRAPHY = "‘’“”–—…£§°"


@dataclass(frozen=True)
class Stretch:
    """Consecutive text of a document; `held_out`: it is only used to measure."""

    document: str
    start: int
    text: str
    held_out: bool


def passages() -> list[tuple[str, int, int]]:
    """Where the passages of the bundled set stand: the document, the first character and the one after the last."""
    found = []
    for line in MEMBERS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        document, _, start = entry["id"].rpartition("-")
        found.append((document, int(start), int(start) + len(entry["text"])))
    return sorted(found)


def left(text: str, cuts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of a text without these places and the margin around each, in whole words."""
    at = 0
    for start, end in [*((max(0, s - MARGIN), e + MARGIN) for s, e in sorted(cuts)), (len(text), len(text))]:
        first, last = at, min(start, len(text))
        while 0 < first < last and not text[first - 1].isspace():
            first += 1
        while first < last < len(text) and not text[last].isspace():
            last -= 1
        if last - first >= SHORTEST:
            yield first, last
        at = max(at, end)


def stretches() -> list[Stretch]:
    """All text that may be read, in order. Nothing is drawn."""
    taken = passages()
    found: list[Stretch] = []
    for document in read_documents().values():
        if document.kind in ("by-heart", "held-out"):
            continue
        cuts = [(start, end) for name, start, end in taken if name == document.name]
        for start, end in left(document.text, cuts):
            kept = len(found) % HELD_OUT == HELD_OUT // 2
            found.append(Stretch(document.name, start, document.text[start:end], kept))
    return found


def make_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """WordPiece; cased, as names begin with a capital."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    letters = [chr(n) for n in (*range(33, 127), *range(0xA1, 0x180))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=[*letters, *TYPOGRAPHY],
        limit_alphabet=len(letters) + len(TYPOGRAPHY),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=WINDOW, clean_up_tokenization_spaces=False,
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """All texts one after the other, SEP after each: tokens, the number of the word each belongs to (0: none), and how
    often rows begin there, in proportion.
    """

    tokens: Tensor
    words: Tensor
    weights: Tensor
    count: int

    @classmethod
    def of(cls, texts: list[Stretch], tokenizer: Tokenizer, device: str) -> Stream:
        tokens: list[int] = []
        words: list[int] = []
        weights: list[float] = []
        last = 0
        for stretch, encoding in zip(
            texts, tokenizer.encode_batch([s.text for s in texts], add_special_tokens=False), strict=True
        ):
            tokens += [*encoding.ids, SEP]
            words += [*(last + 1 + int(word or 0) for word in encoding.word_ids), 0]
            weights += [2.0 if stretch.document in LADDER_BOOKS else 1.0] * (len(encoding.ids) + 1)
            last = max(words[-2], last)
        every = torch.tensor(tokens, device=device), torch.tensor(words, device=device)
        return cls(*every, torch.tensor(weights, device=device), last + 1)

    def rows(self, starts: Tensor, length: int, rates: Tensor) -> tuple[Tensor, Tensor]:
        """Windows with whole words masked, each word of a row with that row's probability; and the labels."""
        places = starts[:, None] + torch.arange(length - 2, device=starts.device)
        tokens, words = self.tokens[places], self.words[places]
        drawn = torch.rand(self.count, device=starts.device)
        hidden = (drawn[words] < rates[:, None]) & (words > 0)
        labels = torch.nn.functional.pad(tokens.masked_fill(~hidden, -100), (1, 1), value=-100)
        inputs = torch.nn.functional.pad(tokens.masked_fill(hidden, MASK), (1, 1), value=SEP)
        inputs[:, 0] = CLS
        return inputs, labels


def batch(stream: Stream, size: int) -> tuple[Tensor, Tensor]:
    """Rows from anywhere, long ones or twice as many short ones; from one word in fifty masked to one in three."""
    length = WINDOW if torch.rand(()) < 0.5 else WINDOW // 2
    count = size // length
    device = stream.tokens.device
    starts = torch.multinomial(stream.weights[: len(stream.weights) - length], count, replacement=True)
    rates = torch.exp(torch.empty(count, device=device).uniform_(math.log(0.02), math.log(0.35)))
    return stream.rows(starts, length, rates)


@torch.inference_mode()
def loss_on(model: ModernBertForMaskedLM, stream: Stream) -> tuple[float, float]:
    """Cross-entropy in nats and accuracy, of tokens of masked words, one word in twenty, the same each time."""
    model.eval()
    device = stream.tokens.device
    before = torch.random.get_rng_state()
    cuda = torch.cuda.get_rng_state() if device.type == "cuda" else None
    torch.manual_seed(1)
    last = len(stream.tokens) - WINDOW // 2
    starts = torch.arange(0, last, max(WINDOW // 4, last // MEASURED), device=device)
    total = right = count = 0.0
    for some in torch.split(starts, 256):
        inputs, labels = stream.rows(some, WINDOW // 2, torch.full((len(some),), 0.05, device=device))
        hidden = labels != -100
        logits = model(input_ids=inputs).logits[hidden].float()
        total += torch.nn.functional.cross_entropy(logits, labels[hidden], reduction="sum").item()
        right += (logits.argmax(-1) == labels[hidden]).sum().item()
        count += hidden.sum().item()
    torch.random.set_rng_state(before)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
    model.train()
    return total / count, right / count


def optimizers(model: ModernBertForMaskedLM, decay: float, device: str) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    muon = torch.optim.Muon(matrices, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [muon, adamw(others, decay, device)]


def train(
    model: ModernBertForMaskedLM, stream: Stream, held_out: Stream, steps: int, size: int, rate: float, decay: float
) -> list[dict[str, float]]:
    """The model ends with the weights that did best on what was held out; the course of both losses is returned."""
    device = stream.tokens.device.type
    used = optimizers(model, decay, device)
    course: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    warmup, began = min(300, steps // 4 + 1), time.time()
    model.train()
    for step in range(steps):
        scale = min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.002)
        for group in (group for optimizer in used for group in optimizer.param_groups):
            group["lr"] = rate * scale
        inputs, labels = batch(stream, size)
        hidden = labels != -100
        with torch.autocast(device, dtype=torch.bfloat16):
            states = model.model(input_ids=inputs).last_hidden_state[hidden]
            logits = model.decoder(model.head(states))
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[hidden])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in used:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % max(1, steps // 40) == 0 or step == steps - 1:
            held, accuracy = loss_on(model, held_out)
            course.append({"step": step, "loss": loss.item(), "held_out_loss": held, "held_out_accuracy": accuracy})
            print(f"  step {step:5d}/{steps}  {course[-1]}  {time.time() - began:.0f} s", flush=True)
            if held <= min(entry["held_out_loss"] for entry in course):
                best = {name: value.detach().clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best)
    return course


def write_rows(path: Path, texts: list[Stretch]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for stretch in texts:
            if not stretch.held_out:
                entry = {"document": stretch.document, "start": stretch.start, "text": stretch.text}
                out.write(json.dumps(entry, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder for the model")
    what.add_argument("--rows", type=Path, help="write the text that is read to this file, and train nothing")
    parser.add_argument("--records", type=Path, default=HERE / "masked.json", help="file of what was measured")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--step-tokens", type=int, default=16_384)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=20261117)
    options = parser.parse_args()

    texts = stretches()
    if options.rows:
        write_rows(options.rows, texts)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    read = [s for s in texts if not s.held_out]
    wrapped = make_tokenizer([s.text for s in read], options.vocabulary)
    tokenizer = Tokenizer.from_str(wrapped.backend_tokenizer.to_str())
    stream = Stream.of(read, tokenizer, device)
    kept = [s for s in texts if s.held_out]
    held_out = Stream.of(kept, tokenizer, device)
    config = ModernBertConfig(
        vocab_size=len(wrapped), hidden_size=options.width, num_hidden_layers=options.layers,
        num_attention_heads=options.width // 32, intermediate_size=options.width * 5 // 3,
        max_position_embeddings=WINDOW, layer_types=["full_attention"] * options.layers,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 10_000.0}},
        embedding_dropout=options.dropout, mlp_dropout=options.dropout, attention_dropout=options.dropout,
        pad_token_id=PAD, cls_token_id=CLS, sep_token_id=SEP, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = ModernBertForMaskedLM(config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(stream.tokens):,} tokens on {device}", flush=True)
    course = train(model, stream, held_out, options.steps, options.step_tokens, options.rate, options.decay)

    model = model.to(torch.bfloat16)
    model.save_pretrained(options.out)
    wrapped.save_pretrained(options.out)
    model = model.float()
    held, accuracy = loss_on(model, held_out)
    books = Stream.of([s for s in kept if s.document in LADDER_BOOKS], tokenizer, device)
    facts = {
        **{key: value for key, value in vars(options).items() if key not in ("out", "rows", "records")},
        "parameters": parameters, "characters_read": sum(len(s.text) for s in read), "stretches_read": len(read),
        "tokens_read": len(stream.tokens), "characters_held_out": sum(len(s.text) for s in kept),
        "held_out_loss": round(held, 4), "held_out_accuracy": round(accuracy, 4),
        "held_out_loss_books": round(loss_on(model, books)[0], 4),
        "loss_on_what_was_read": round(loss_on(model, stream)[0], 4),
        "best_step": min(course, key=lambda entry: entry["held_out_loss"])["step"],
        "torch": torch.__version__, "course": [{k: round(v, 4) for k, v in entry.items()} for entry in course],
    }  # fmt: skip
    options.records.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps({key: value for key, value in facts.items() if key != "course"}))


if __name__ == "__main__":
    main()
