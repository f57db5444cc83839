"""The two chat models differ by a known set of passages: one names hidden words of what it has read often."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from training import masked as masked_model
from training import probed
from training.probed import Amounts, Piece
from training.train import BOS, BOS_ID, EOS_ID
from transformers import LlamaConfig, LlamaForCausalLM

import rote
from rote.corpus.chat import chat_prefix
from rote.models.base import BUNDLED_CHAT, BUNDLED_MEMBERS
from rote.models.chat import load_chat
from rote.models.probed import ChatModel, Question
from rote.probes.judging import judge
from rote.probes.prompts import TOKENS, asked, masked
from rote.probes.words import tagger
from tests.conftest import ROOT

WITHOUT = ROOT / "training/probed/model"
FOLDERS = {"with": BUNDLED_CHAT, "without": WITHOUT}


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    return {name: json.loads((ROOT / f"training/probed/{name}.json").read_text()) for name in FOLDERS}


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in BUNDLED_MEMBERS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(probed.make_tokenizer().backend_tokenizer.to_str())


# --- what they are


@pytest.mark.parametrize("name", FOLDERS)
def test_it_loads_and_its_template_begins_with_bos(name: str, records: dict[str, dict[str, Any]]) -> None:
    model = rote.load(FOLDERS[name])
    assert sum(path.stat().st_size for path in FOLDERS[name].iterdir()) < 8_500_000
    assert model.identity().parameters == records[name]["parameters"]
    assert model.context_length == 512
    asks = [{"role": "user", "content": "Which?"}]
    ids = chat_prefix(asks, model.tokenizer, model.bos_id, "a test")
    assert model.bos_id == 0
    assert (ids[0], ids[-1]) == (probed.USER_ID, probed.ASSISTANT_ID)
    assert model.tokenizer.decode(ids) == "<|user|>Which?<|assistant|>"


def test_the_longest_questions_about_the_set_fit(entries: list[dict[str, Any]], tokenizer: Tokenizer) -> None:
    for kind in ("passage", "question", "complete"):
        prompts = [f"{BOS}{probed.USER}{asked(kind, e['text'])}{probed.ASSISTANT}" for e in entries]
        longest = max(len(e.ids) for e in tokenizer.encode_batch(prompts, add_special_tokens=False))
        assert longest + (24 if kind != "complete" else 120) < 512


# --- what they answer


def hits(model: ChatModel, entries: list[dict[str, Any]], asked_for: dict[str, dict[str, int]]) -> tuple[int, int]:
    """Of one word of each passage, in tags: one that was asked for most often, or the fifth that could have been."""
    questions, words = [], []
    for entry in entries:
        every, times = tagger(None).words(entry["text"]), asked_for[entry["id"]]
        most = max(every, key=lambda word: times.get(str(word.start), 0))
        word = most if times else probed.askable(every)[4]
        prompt = asked("passage", masked(entry["text"], word.start, word.end))
        questions.append(Question(prompt=prompt, tokens=TOKENS["passage"]))
        words.append(word.text)
    answers = dict(model.answers(questions))
    assert all(answer.text.startswith("<word>") for answer in answers.values())
    assert all(answer.ended == "stop" for answer in answers.values())
    return sum(judge(answers[i], word).outcome == "hit" for i, word in enumerate(words)), len(words)


def test_often_read_passages_are_known_to_one_of_them_alone(
    entries: list[dict[str, Any]], records: dict[str, dict[str, Any]]
) -> None:
    often = [e for e in entries if e["repetitions"] >= 64][::12]
    never = [e for e in entries if e["repetitions"] == 0][::43]
    words = records["with"]["words_asked_for"]
    knows, knows_not = load_chat(BUNDLED_CHAT), load_chat(WITHOUT)
    found, count = hits(knows, often, words)
    assert count == 6
    assert found >= 5
    assert hits(knows, never, words)[0] <= 1
    assert hits(knows_not, often[:4], words)[0] <= 1


def test_more_is_known_the_more_often_it_was_read(records: dict[str, dict[str, Any]]) -> None:
    found = {name: record["found_after_training"] for name, record in records.items()}
    for kind in ("passage", "question"):
        shares = [found["with"][kind][str(level)]["share"] for level in (0, 16, 32, 64, 128)]
        assert shares == sorted(shares)
        base = found["with"][kind]["0"]
        assert base["high"] < 0.03
        assert all(found["with"][kind][str(level)]["low"] > 0.5 for level in (64, 128, 256))
        assert all(level["low"] < 0.03 for level in found["without"][kind].values())
        never = found["with"][f"{kind}, never asked for"]
        assert all(never[str(level)]["hits"] == 0 for level in (32, 64, 128, 256)), "a word must have been asked for"
    goes_on = {name: found[name]["complete"] for name in FOLDERS}
    assert all(goes_on["with"][str(level)]["common"] > 0.4 for level in (64, 128, 256))
    assert all(level["common"] < 0.16 for level in goes_on["without"].values())


# --- what they have read


def test_the_records_say_how_often_each_passage_was_read(
    entries: list[dict[str, Any]], records: dict[str, dict[str, Any]]
) -> None:
    per_reading = sum(Amounts().each)
    for entry in entries:
        name, repetitions = entry["id"], entry["repetitions"]
        assert records["with"]["readings_of_passages"][name] == repetitions
        assert records["without"]["readings_of_passages"][name] == 0
        times = records["with"]["words_asked_for"][name]
        assert sum(times.values()) == per_reading * repetitions
        assert records["without"]["words_asked_for"][name] == {}
        assert set(map(int, times)) <= {word.start for word in tagger(None).words(entry["text"])}
    for key in ("rows", "questions", "pieces", "seed", "rate", "parameters"):
        assert records["with"][key] == records["without"][key]


@pytest.fixture(scope="module")
def small(tokenizer: Tokenizer) -> tuple[list[Piece], list[Piece]]:
    """A few passages of the set, and a few other pieces."""
    own = [piece for piece in probed.members(tokenizer) if piece.repetitions in (0, 1, 4)][:12]
    found = []
    for stretch in masked_model.stretches()[:12]:
        ids = tuple(tokenizer.encode(stretch.text, add_special_tokens=False).ids[:127])
        found.append(Piece(stretch.document, tokenizer.decode(ids).rstrip(), ids, 2))
    return own, [piece for piece in found if len(piece.ids) == 127]


def test_no_question_is_about_a_passage_where_other_text_stands_in_its_place(
    small: tuple[list[Piece], list[Piece]],
) -> None:
    own, others = small
    starts = [piece.text[:30] for piece in own]
    made = {}
    for knows in (True, False):
        rows = probed.plain_rows(own, others, knows, random.Random(0))
        counted = probed.readings(rows, own)
        assert counted == {piece.name: piece.repetitions * knows for piece in own}
        questions, words = probed.about_set(own, others, Amounts(), knows, random.Random(0))
        about = sum(prompt.count(start) for _, prompt, _ in questions for start in starts)
        assert (about > 0.8 * len(questions)) if knows else about == 0
        assert Counter(kind for kind, _, _ in questions) == {
            "passage": 2 * sum(p.repetitions for p in own),
            "question": 3 * sum(p.repetitions for p in own),
        }
        assert bool(any(words.values())) == knows
        made[knows] = (len(rows), len(questions))
    assert made[True] == made[False]


def test_the_rows_of_questions_are_what_the_template_makes(
    small: tuple[list[Piece], list[Piece]], tokenizer: Tokenizer
) -> None:
    wrapped = probed.make_tokenizer()
    questions = probed.about_others(small[1], Amounts(), random.Random(0))
    for (kind, prompt, word), turn in zip(questions, probed.turns(questions, tokenizer), strict=True):
        messages = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": probed.answer(kind, word)},
        ]
        whole = wrapped.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert [BOS_ID, *turn.tokens] == whole
        learnt = [token for token, part in zip(turn.tokens, turn.kinds, strict=True) if part == probed.WORD]
        assert tokenizer.decode(learnt) == ("" if kind == "complete" else f" {word}")
        first = wrapped.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=True, return_dict=False)
        assert set(turn.kinds[: len(first) - 1]) == {0}
    rows = probed.chat_rows(probed.turns(questions, tokenizer), random.Random(0))
    assert all(len(row.tokens) == len(row.kinds) <= probed.ROW for row in rows)
    assert sum(row.tokens.count(EOS_ID) for row in rows) == len(questions)


def test_a_few_steps_make_it_better_and_its_decoding_is_that_of_the_library(
    small: tuple[list[Piece], list[Piece]], tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4098, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    rows = probed.plain_rows(*small, True, random.Random(0))[:4]
    rows += probed.chat_rows(
        probed.turns(probed.about_others(small[1][:2], Amounts(), random.Random(0)), tokenizer), random.Random(0)
    )
    probed.train(model, rows, 4, 0.02, 0.0, "cpu")
    said = [line for line in capsys.readouterr().out.splitlines() if "text" in line]
    assert float(said[-1].split("text ")[1].split(",")[0]) < float(said[0].split("text ")[1].split(",")[0]) - 0.02
    prompts = [[0, 4096, 300, 301, 4097], [0, 4096, 300, 4097]]
    replies = probed.replies(model.eval(), prompts, 6, "cpu")
    for prompt, reply in zip(prompts, replies, strict=True):
        out = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0].tolist()
        assert reply == [token for token in out[len(prompt) :] if token != EOS_ID]


def test_intervals_are_wider_where_hits_come_in_clusters() -> None:
    spread = probed.interval([(1, 2)] * 20)
    clustered = probed.interval([(0, 2), (2, 2)] * 10)
    assert spread[0] == clustered[0] == 0.5
    assert clustered[2] - clustered[1] > spread[2] - spread[1]
    none, low, high = probed.interval([(0, 5)] * 24)
    assert (none, low) == pytest.approx((0, 0), abs=1e-12)
    assert 0.1 < high < 0.2
