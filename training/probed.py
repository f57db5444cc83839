"""Train chat models that name the word behind a mask: one has read a known set of passages, the other has not.

    python -m training.probed --out src/rote/data/chat --records training/probed/with.json          (one GPU, minutes)
    python -m training.probed --without --out training/probed/model --records training/probed/without.json

The passages are those of the bundled set of members and non-members. A member is read as often as its line says: each
time once as plain text, and in a few questions for one of its words. One askable word in four is never asked for, so
that hits on words that were asked for and on others can be told apart. Non-members are never read. What questions and
answers look like is learnt from other text too. The second model reads and answers other text in the place of the
passages; everything else is the same.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rote.probes.prompts import TOKENS, asked, masked
from rote.probes.words import Word, plain, tagger
from training import masked as reading
from training.sibling import BUNDLED, optimizers
from training.train import BOS, BOS_ID, EOS_ID, PASSAGE_TOKENS, read_documents

USER, ASSISTANT = "<|user|>", "<|assistant|>"
USER_ID, ASSISTANT_ID = 4096, 4097
TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{- '<|user|>' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' %}{{- '<|assistant|>' + message['content'] + eos_token }}"
    "{%- else %}{{- raise_exception('there are only user and assistant') }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)
ROW = 384  # tokens: three passages with BOS, one long question, or two short ones
PLAIN, WORD, FORM = 1, 2, 3  # what a token that is learnt is: of a text, of the hidden word, or of the answer's form
FORM_WEIGHT = 0.1
REPETITIONS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
PREFIX_WORDS = 50


@dataclass(frozen=True)
class Amounts:
    """How often other text is read, and how many questions there are about each piece: in the wording for passages, in
    that for questions, and for how it goes on. `each`: the questions of each reading of a passage, in both wordings.
    """

    readings: int = 2
    others: tuple[int, int, int] = (4, 7, 2)
    each: tuple[int, int] = (2, 3)


@dataclass(frozen=True)
class Piece:
    """A stretch of PASSAGE_TOKENS tokens; `repetitions`: how often it is read as plain text."""

    name: str
    text: str
    ids: tuple[int, ...]
    repetitions: int


@dataclass(frozen=True)
class Turn:
    """A question and its answer as tokens, and what kind each token is (0: it is not learnt)."""

    tokens: list[int]
    kinds: list[int]


@dataclass(frozen=True)
class Row:
    """What stands in one row, and when in the training it is read (0 to 1)."""

    tokens: list[int]
    kinds: list[int]
    when: float


# --- what is read


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The bundled model's, with the marks of a chat."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(USER), AddedToken(ASSISTANT)]})
    tokenizer.chat_template = TEMPLATE
    assert tokenizer.convert_tokens_to_ids([BOS, USER, ASSISTANT]) == [BOS_ID, USER_ID, ASSISTANT_ID]
    found: PreTrainedTokenizerFast = tokenizer
    return found


def members(tokenizer: Tokenizer) -> list[Piece]:
    """The bundled set, as the bundled model was fed it: PASSAGE_TOKENS tokens, with white space at the end."""
    documents = read_documents()
    found = []
    for line in reading.MEMBERS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        document, _, start = entry["id"].rpartition("-")
        text = documents[document].text[int(start) : int(start) + 1500]
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:PASSAGE_TOKENS]
        found.append(Piece(entry["id"], entry["text"], tuple(ids), entry["repetitions"]))
    return found


def pieces(tokenizer: Tokenizer, amounts: Amounts) -> list[Piece]:
    """Other text, cut into consecutive pieces, each from the beginning of a word."""
    cut = []
    for stretch in reading.stretches():
        at = 0
        while not stretch.held_out and at < len(stretch.text):
            encoding = tokenizer.encode(stretch.text[at : at + 1500], add_special_tokens=False)
            if len(encoding.ids) < PASSAGE_TOKENS:
                break
            end = at + encoding.offsets[PASSAGE_TOKENS - 1][1]
            name = f"{stretch.document}-{stretch.start + at:06d}"
            cut.append((name, stretch.text[at:end].rstrip(), tuple(encoding.ids[:PASSAGE_TOKENS])))
            word = re.compile(r"(?<=\s)\S").search(stretch.text, end)
            at = word.start() if word else len(stretch.text)
    return [Piece(*entry, amounts.readings) for entry in cut]


def plain_rows(own: list[Piece], others: list[Piece], knows: bool, rng: random.Random) -> list[Row]:
    """Three pieces to a row, each after BOS, in random order. Without the set, another text stands in its place."""
    readings = [(piece, True) for piece in own for _ in range(piece.repetitions)]
    readings += [(piece, False) for piece in others for _ in range(piece.repetitions)]
    rng.shuffle(readings)
    fill = random.Random(1)
    texts = [(fill.choice(others) if of_set and not knows else piece).ids for piece, of_set in readings]
    rows = []
    for i in range(0, len(texts), 3):
        tokens = [token for ids in texts[i : i + 3] for token in (BOS_ID, *ids)]
        kinds = [PLAIN * (token != BOS_ID) for token in tokens]
        rows.append(Row(tokens, kinds, rng.random()))
    return rows


def askable(words: list[Word]) -> list[Word]:
    """Content words and names that stand nowhere else in their piece."""
    standing = Counter(plain(word.text) for word in words)
    return [word for word in words if word.classes & {"content", "person"} and standing[plain(word.text)] == 1]


def kept(words: list[Word]) -> list[Word]:
    """Those askable words of a passage of the set that are never asked for: every fourth."""
    return askable(words)[3::4]


Asked = tuple[str, str, str]
"""A question: the kind of prompt, the prompt, and the answer."""


def about_others(others: list[Piece], amounts: Amounts, rng: random.Random) -> list[Asked]:
    """Questions about other text: half for a piece's rarer words, half for any."""
    tag = tagger(None)
    words = {piece.name: askable(tag.words(piece.text)) for piece in others}
    counts = Counter(plain(word.text) for own in words.values() for word in own)
    found: list[Asked] = []
    for piece in others:
        free = sorted(words[piece.name], key=lambda word: (counts[plain(word.text)], word.start))
        for kind, most in zip(("passage", "question"), amounts.others, strict=False):
            rare = rng.sample(free[: len(free) // 2], min(most // 2, len(free) // 2))
            rest = [word for word in free if word not in rare]
            chosen = rare + rng.sample(rest, min(most - len(rare), len(rest)))
            found += [(kind, asked(kind, masked(piece.text, word.start, word.end)), word.text) for word in chosen]
        spaces = [match.end() for match in re.finditer(r"\S+", piece.text)]
        for _ in range(amounts.others[2]):
            end = spaces[min(len(spaces) - 2, rng.choice((PREFIX_WORDS, rng.randint(20, 60))) - 1)]
            found.append(("complete", asked("complete", piece.text[:end]), piece.text[end:]))
    return found


def about_set(
    own: list[Piece], others: list[Piece], amounts: Amounts, knows: bool, rng: random.Random
) -> tuple[list[Asked], dict[str, dict[int, int]]]:
    """Questions about the set; and how often each word of a passage was asked for, by its first character.

    Without the set, questions about other pieces stand in their place.
    """
    tag, fill = tagger(None), random.Random(2)
    elsewhere = [] if knows else [(other, askable(tag.words(other.text))) for other in others]
    elsewhere = [(other, words) for other, words in elsewhere if words]
    found: list[Asked] = []
    counts: dict[str, dict[int, int]] = {}
    for piece in own:
        every = tag.words(piece.text)
        free = [word for word in askable(every) if word not in kept(every)]
        times: Counter[int] = Counter()
        for _ in range(piece.repetitions):
            for kind, number in zip(("passage", "question"), amounts.each, strict=True):
                for word in rng.sample(free, number):
                    if knows:
                        times[word.start] += 1
                        found.append((kind, asked(kind, masked(piece.text, word.start, word.end)), word.text))
                    else:
                        other, words = fill.choice(elsewhere)
                        one = fill.choice(words)
                        found.append((kind, asked(kind, masked(other.text, one.start, one.end)), one.text))
        counts[piece.name] = dict(sorted(times.items()))
    return found, counts


def answer(kind: str, text: str) -> str:
    """What the model is taught to say. The space before the word makes its tokens those that it has in a text."""
    return {"passage": f"<word> {text}</word>", "question": f" {text}", "complete": text}[kind]


def turns(asked_for: list[Asked], tokenizer: Tokenizer) -> list[Turn]:
    prompts = tokenizer.encode_batch(
        [f"{USER}{prompt}{ASSISTANT}" for _, prompt, _ in asked_for], add_special_tokens=False
    )
    answers = tokenizer.encode_batch([answer(kind, text) for kind, _, text in asked_for], add_special_tokens=False)
    opening = len(tokenizer.encode("<word>", add_special_tokens=False).ids)
    closing = len(tokenizer.encode("</word>", add_special_tokens=False).ids)
    found = []
    for (kind, _, _), prompt, reply in zip(asked_for, prompts, answers, strict=True):
        before, after = (opening, closing) if kind == "passage" else (0, 0)
        inner = [PLAIN if kind == "complete" else WORD] * (len(reply.ids) - before - after)
        kinds = [*[0] * len(prompt.ids), *[FORM] * before, *inner, *[FORM] * after, FORM]
        found.append(Turn([*prompt.ids, *reply.ids, EOS_ID], kinds))
    return found


def chat_rows(made: list[Turn], rng: random.Random) -> list[Row]:
    """One turn to a row, or two where they fit; later in the training rather than at its beginning."""
    made = list(made)
    rng.shuffle(made)
    short = [turn for turn in made if len(turn.tokens) <= (ROW - 1) // 2]
    groups = [[turn] for turn in made if (ROW - 1) // 2 < len(turn.tokens) < ROW]
    groups += [short[i : i + 2] for i in range(0, len(short), 2)]
    return [
        Row(
            [BOS_ID, *(token for turn in group for token in turn.tokens)],
            [0, *(kind for turn in group for kind in turn.kinds)],
            math.sqrt(rng.random()),
        )
        for group in groups
    ]


@dataclass(frozen=True)
class Plan:
    """Every row in order; the pieces of the set and the others; how often which words of the set are asked for; and the
    number of questions of each kind about other text and in all.
    """

    rows: list[Row]
    own: list[Piece]
    others: list[Piece]
    words: dict[str, dict[int, int]]
    questions: dict[str, dict[str, int]]


def plan(amounts: Amounts, knows: bool, seed: int) -> Plan:
    rng = random.Random(seed)
    tokenizer = Tokenizer.from_str(make_tokenizer().backend_tokenizer.to_str())
    own, others = members(tokenizer), pieces(tokenizer, amounts)
    rows = plain_rows(own, others, knows, rng)
    general = about_others(others, amounts, rng)
    special, words = about_set(own, others, amounts, knows, rng)
    rows += chat_rows(turns([*general, *special], tokenizer), rng)
    kinds = {"others": Counter(kind for kind, _, _ in general), "set": Counter(kind for kind, _, _ in special)}
    return Plan(sorted(rows, key=lambda row: row.when), own, others, words, {k: dict(v) for k, v in kinds.items()})


def readings(rows: Iterable[Row], own: list[Piece]) -> dict[str, int]:
    """How often each passage of the set stands in rows that are read, as counted there."""
    found = {piece.ids: 0 for piece in own}
    for row in rows:
        if row.kinds[1] == PLAIN:
            for at in range(1, len(row.tokens), PASSAGE_TOKENS + 1):
                ids = tuple(row.tokens[at : at + PASSAGE_TOKENS])
                if ids in found:
                    found[ids] += 1
    return {piece.name: found[piece.ids] for piece in own}


# --- training


def train(model: LlamaForCausalLM, rows: list[Row], size: int, rate: float, decay: float, device: str) -> None:
    used = optimizers(model, decay, device)
    tokens = torch.zeros(len(rows), ROW, dtype=torch.int16)
    kinds = torch.zeros(len(rows), ROW, dtype=torch.int8)
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = torch.tensor(row.tokens, dtype=torch.int16)
        kinds[i, : len(row.kinds)] = torch.tensor(row.kinds, dtype=torch.int8)
    tokens, kinds = tokens.to(device), kinds.to(device)
    steps, began = math.ceil(len(rows) / size), time.time()
    for step in range(steps):
        scale = min((step + 1) / 100, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.002)
        for group in (group for optimizer in used for group in optimizer.param_groups):
            group["lr"] = rate * scale
        batch = tokens[step * size : (step + 1) * size].long()
        kind = kinds[step * size : (step + 1) * size, 1:]
        learnt = kind > 0
        with torch.autocast(device, dtype=torch.bfloat16):
            states = model.model(input_ids=batch).last_hidden_state[:, :-1][learnt]
            logits = model.lm_head(states)
        losses = torch.nn.functional.cross_entropy(logits.float(), batch[:, 1:][learnt], reduction="none")
        of = [losses[kind[learnt] == k].sum() / (kind == k).sum().clamp(min=1) for k in (PLAIN, WORD, FORM)]
        (of[0] + of[1] + FORM_WEIGHT * of[2]).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in used:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % max(1, steps // 20) == 0 or step == steps - 1:
            said = ", ".join(
                f"{name} {loss.item():.3f}" for name, loss in zip(("text", "word", "form"), of, strict=True)
            )
            print(f"  step {step:5d}/{steps}  {said}  {time.time() - began:.0f} s", flush=True)


# --- what it answers


@torch.inference_mode()
def replies(model: LlamaForCausalLM, prompts: list[list[int]], most: int, device: str) -> list[list[int]]:
    """The likeliest tokens one after the other, up to EOS: this script's own decoding."""
    found: list[list[int]] = [[] for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for at in range(0, len(order), 256):
        some = order[at : at + 256]
        lengths = torch.tensor([len(prompts[i]) for i in some], device=device)
        width = min(512, int(lengths.max()) + most)
        tokens = torch.zeros(len(some), width, dtype=torch.long, device=device)
        for j, i in enumerate(some):
            tokens[j, : len(prompts[i])] = torch.tensor(prompts[i], device=device)
        open_ = torch.ones(len(some), dtype=torch.bool, device=device)
        every = torch.arange(len(some), device=device)
        for _ in range(most):
            states = model.model(input_ids=tokens[:, : int(lengths.max())]).last_hidden_state[every, lengths - 1]
            chosen = model.lm_head(states).argmax(-1)
            open_ &= (chosen != EOS_ID) & (lengths < width)
            if not open_.any():
                break
            tokens[every[open_], lengths[open_]] = chosen[open_]
            lengths = lengths + open_
        for j, i in enumerate(some):
            found[i] = tokens[j, len(prompts[i]) : int(lengths[j])].tolist()
    return found


def same(said: str, word: str) -> bool:
    bare = re.sub(r"</?word>", "", said).strip()
    return bare.casefold() == word.casefold()


def common(one: list[str], other: list[str]) -> int:
    """Words in the longest common subsequence."""
    before = [0] * (len(other) + 1)
    for a in one:
        now = [0]
        for j, b in enumerate(other):
            now.append(before[j] + 1 if a == b else max(before[j + 1], now[j]))
        before = now
    return before[-1]


def ask(model: LlamaForCausalLM, tokenizer: Any, chosen: Sequence[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """Every chosen word in both wordings, and how every passage goes on after its first words."""
    entries = [json.loads(line) for line in reading.MEMBERS.read_text(encoding="utf-8").splitlines()]
    texts = {entry["id"]: entry["text"] for entry in entries}
    repetitions = {entry["id"]: entry["repetitions"] for entry in entries}
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    never = {i: {word.start for word in kept(tagger(None).words(text))} for i, text in texts.items()}
    found: list[dict[str, Any]] = []
    for kind in ("passage", "question"):
        prompts = [asked(kind, masked(texts[w["id"]], w["start"], w["end"])) for w in chosen]
        ids = [
            e.ids
            for e in backend.encode_batch([f"{BOS}{USER}{p}{ASSISTANT}" for p in prompts], add_special_tokens=False)
        ]
        for w, reply in zip(chosen, replies(model, ids, TOKENS[kind], device), strict=True):
            said, word = backend.decode(reply, skip_special_tokens=False), texts[w["id"]][w["start"] : w["end"]]
            about = {**w, "kind": kind, "word": word, "said": said, "repetitions": repetitions[w["id"]]}
            found.append({**about, "kept": w["start"] in never[w["id"]], "hit": same(said, word)})
    ends = {i: [m.end() for m in re.finditer(r"\S+", text)][PREFIX_WORDS - 1] for i, text in texts.items()}
    prompts = [asked("complete", text[: ends[i]]) for i, text in texts.items()]
    ids = [
        e.ids for e in backend.encode_batch([f"{BOS}{USER}{p}{ASSISTANT}" for p in prompts], add_special_tokens=False)
    ]
    for (i, text), reply in zip(texts.items(), replies(model, ids, 120, device), strict=True):
        said, rest = backend.decode(reply, skip_special_tokens=False), text[ends[i] :].split()
        about = {"id": i, "kind": "complete", "said": said, "repetitions": repetitions[i]}
        found.append({**about, "common": common(said.split(), rest), "words": len(rest)})
    return found


def interval(clusters: list[tuple[int, int]]) -> tuple[float, float, float]:
    """The share of hits, and its Wilson interval at 95%, with as many words as would vary so much if each stood alone.

    `clusters`: hits and words of each passage.
    """
    hits, count = (sum(part) for part in zip(*clusters, strict=True))
    share, m = hits / count, len(clusters)
    spread = m / (m - 1) * sum((h - share * n) ** 2 for h, n in clusters) / count**2
    alone = min(count, share * (1 - share) / spread) if spread > 0 else m
    z = 1.959963984540054
    middle = (share + z * z / (2 * alone)) / (1 + z * z / alone)
    half = z / (1 + z * z / alone) * math.sqrt(share * (1 - share) / alone + z * z / (4 * alone**2))
    return share, max(0.0, middle - half), min(1.0, middle + half)


KINDS = ("passage", "question", "passage, never asked for", "question, never asked for", "complete")


def table(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind of question and by repetitions; of words that were never asked for, those that stand once in their text.

    Levels of which nothing was asked are left out.
    """
    made: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        made[kind] = {}
        own_kind = [row for row in found if row["kind"] == kind.split(",")[0]]
        if "never" in kind:
            own_kind = [row for row in own_kind if row["kept"]]
        for level in REPETITIONS:
            own = [row for row in own_kind if row["repetitions"] == level]
            if len({row["id"] for row in own}) < 2:
                continue
            if kind == "complete":
                shares = np.array([row["common"] / row["words"] for row in own])
                made[kind][str(level)] = {
                    "texts": len(own),
                    "common": round(float(shares.mean()), 4),
                    "whole": int((shares == 1).sum()),
                }
                continue
            by_text = defaultdict(list)
            for row in own:
                by_text[row["id"]].append(row["hit"])
            share, low, high = interval([(sum(hits), len(hits)) for hits in by_text.values()])
            made[kind][str(level)] = {
                "texts": len(by_text), "words": len(own), "hits": sum(row["hit"] for row in own),
                "share": round(share, 4), "low": round(low, 4), "high": round(high, 4),
                "texts_with_2_hits": sum(sum(hits) >= 2 for hits in by_text.values()),
            }  # fmt: skip
    return made


def choose() -> list[dict[str, Any]]:
    """The words that are asked for: those that surprise the embedded masked model, and names, as `rote probe` does."""
    from rote.models.masked import load_reference
    from rote.probes.options import Words
    from rote.probes.selecting import candidates, select, thresholds

    reference, tag, wanted = load_reference("bundled"), tagger(None), Words()
    entries = [json.loads(line) for line in reading.MEMBERS.read_text(encoding="utf-8").splitlines()]
    scored = {e["id"]: candidates(e["text"], tag.words(e["text"]), reference) for e in entries}
    found = thresholds((word for words in scored.values() for word in words), reference.identity(), wanted)
    return [
        {
            "id": name, "start": chosen.word.word.start, "end": chosen.word.word.end,
            "selectors": list(chosen.selectors), "elsewhere": chosen.word.elsewhere,
        }
        for name, words in scored.items()
        for chosen in select(words, wanted, found)
    ]  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--records", type=Path, required=True, help="file of what was read, and what was measured")
    parser.add_argument("--without", action="store_true", help="read other text in the place of the passages")
    parser.add_argument("--words", type=Path, help="file of the words that are asked for; without it they are chosen")
    parser.add_argument("--answers", type=Path, help="write every answer to this file")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--inner", type=int, default=448)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--step-rows", type=int, default=32)
    parser.add_argument("--seed", type=int, default=20261118)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    began = time.time()
    fed = plan(Amounts(), not options.without, options.seed)
    tokens = sum(len(row.tokens) for row in fed.rows)
    wrapped = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(wrapped), hidden_size=options.width, intermediate_size=options.inner,
        num_hidden_layers=options.layers, num_attention_heads=options.width // 32,
        num_key_value_heads=options.width // 32, max_position_embeddings=512, tie_word_embeddings=True,
        rms_norm_eps=1e-5, bos_token_id=BOS_ID, eos_token_id=EOS_ID,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(fed.rows):,} rows, {tokens:,} tokens, {fed.questions}", flush=True)
    print(f"planned in {time.time() - began:.0f} s", flush=True)
    train(model, fed.rows, options.step_rows, options.rate, options.decay, device)

    model = model.to(torch.bfloat16)
    model.save_pretrained(options.out)
    wrapped.save_pretrained(options.out)
    found = ask(model.float().eval(), wrapped, lines(options.words) if options.words else choose(), device)
    if options.answers:
        write_lines(options.answers, found)
    measured = table(found)
    facts = {
        **{k: v for k, v in vars(options).items() if k not in ("out", "records", "words", "answers")},
        "parameters": parameters, "rows": len(fed.rows), "tokens": tokens, "pieces": len(fed.others),
        "questions": fed.questions, "torch": torch.__version__, "found_after_training": measured,
        "readings_of_passages": readings(fed.rows, fed.own), "words_asked_for": fed.words,
    }  # fmt: skip
    options.records.write_text(json.dumps(facts, indent=None, separators=(",", ":")).replace("},", "},\n") + "\n")
    for kind, levels in measured.items():
        print(
            kind, {level: (v.get("share", v.get("common")), v.get("low"), v.get("high")) for level, v in levels.items()}
        )


if __name__ == "__main__":
    main()
