"""References for words: a masked model, and a causal one that stands in for it, against slow ones."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote import InputError, ModelError, ModelOptions
from rote.models.base import BUNDLED
from rote.models.causal import RIGHT, CausalReference
from rote.models.huggingface import HuggingFaceModel
from rote.models.masked import MaskedReference, load_reference
from rote.models.memory import Replay
from rote.models.pieces import Pieces, Read
from rote.models.probed import WordReference, WordScore
from tests import masked, tiny
from tests.cases import cases
from tests.models.test_safety import LEAVES_A_MARK, edit, with_pickle, with_tokenizer_code
from tests.reference.words import causal_totals, masked_score, overlapping

ROOM = 40
KINDS = ["wordpiece", "bytes", "unigram", "glued"]
ODD = [
    "Alice",
    "CAFÉ",
    "cafe\u0301",
    "naïve",
    "日本語",
    "🐇",
    "Ωmega",
    "don’t",
    "White-Rabbit",
    "1,200",
    "<mask>",
    "</s>",
    "x" * 60,
]
GLUE = [" ", " ", " ", ", ", "—", "“", "” ", "’s ", ".", "\n\n", ""]


@cache
def reference(kind: str, architecture: str = "bert", batch_tokens: int | None = None) -> MaskedReference:
    return MaskedReference(*masked.build(architecture, kind, room=ROOM), batch_tokens=batch_tokens)


def words_in(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\w+", text)]


def agrees(own: MaskedReference, text: str, spans: list[tuple[int, int]]) -> None:
    slack = 10 * own.logit_tolerance
    for span, score in zip(spans, own.score_words(text, spans), strict=True):
        total, ranks, pieces = masked_score(own._model, own.tokenizer, text, span, own.window, slack)
        assert score.pieces == pieces
        if total is None or ranks is None:
            assert (score.log_likelihood, score.rank) == (None, None)
        else:
            assert score.log_likelihood == pytest.approx(total, abs=slack * pieces)
            assert score.rank is not None
            assert ranks[0] <= score.rank <= ranks[1]


@st.composite
def passages(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A text of known and odd words, and spans in it: words, and any others."""
    known = ["the", "rabbit", "was", "very", "Queen", "of", "remarkable", "thought", "said", "croquet"]
    parts = draw(st.lists(st.tuples(st.sampled_from(known + ODD), st.sampled_from(GLUE)), min_size=1, max_size=25))
    text = "".join(word + glue for word, glue in parts)
    spans = draw(st.lists(st.sampled_from(words_in(text) or [(0, 1)]), max_size=4))
    start = draw(st.integers(0, len(text) - 1))
    return text, [*spans, (start, draw(st.integers(start + 1, min(len(text), start + 12))))]


@pytest.mark.parametrize("kind", KINDS)
@cases(40)
@given(case=passages())
def test_words_are_scored_as_one_at_a_time(kind: str, case: tuple[str, list[tuple[int, int]]]) -> None:
    """Short passages and ones that need windows; unknown words; tokens that words share."""
    agrees(reference(kind), *case)


@pytest.mark.parametrize("architecture", masked.ARCHITECTURES)
def test_any_architecture(architecture: str, alice: str) -> None:
    """Where the head is handed the masked places alone, it says the same; and all positions that there are are used."""
    own = reference("bytes", architecture)
    assert own._picks
    assert own.window == ROOM
    text = alice[2000:2200]
    agrees(own, text, words_in(text)[::6])


def test_a_head_that_needs_all_places_is_given_them(alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = alice[2000:2300]
    expected = reference("wordpiece").score_words(text, words_in(text))
    own = MaskedReference(*masked.build("bert", "wordpiece", room=ROOM))
    original = own._model.cls.forward

    def needs_a_row(states: Any) -> Any:
        if states.shape[0] == 1:
            raise RuntimeError("only whole batches")
        return original(states)

    monkeypatch.setattr(own._model.cls, "forward", needs_a_row)
    assert not own._can_pick()
    own._picks = False
    monkeypatch.undo()
    same(own.score_words(text, words_in(text)), expected)


def same(found: list[WordScore], expected: list[WordScore], slack: float = 0.01) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.pieces == other.pieces
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=slack)
        assert (one.rank is None) == (other.rank is None)
        assert one.rank is None or other.rank is None or abs(one.rank - other.rank) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_whatever_the_batch(kind: str, alice: str) -> None:
    text = alice[2000:2400]
    spans = words_in(text)
    together = reference(kind).score_words(text, spans)
    same(reference(kind, batch_tokens=1).score_words(text, spans), together)
    same(reference(kind, batch_tokens=3 * ROOM).score_words(text, spans[::-1]), together[::-1])
    assert reference(kind).score_words(text, []) == []


def test_how_much_is_read_at_once() -> None:
    """The least that config, tokenizer and positions say; what is beyond all sense is not said."""
    model, tokenizer = masked.build("roberta", "bytes", room=ROOM)
    assert model.config.max_position_embeddings == ROOM + 2
    assert MaskedReference(model, tokenizer).window == ROOM
    tokenizer.model_max_length = 20
    assert MaskedReference(model, tokenizer).window == 20
    model, tokenizer = masked.build("modernbert", "bytes")
    model.config.max_position_embeddings = 0
    assert tokenizer.model_max_length > 10**9
    assert MaskedReference(model, tokenizer).window == 512
    tokenizer.model_max_length = 2
    with pytest.raises(ModelError, match="can read 2 tokens at once, which leaves no room"):
        MaskedReference(model, tokenizer)


def test_every_piece_of_a_word_is_hidden_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    own = MaskedReference(*masked.build("bert", "wordpiece", room=ROOM))
    fed: list[list[str]] = []
    whole = own._whole

    def noted(rows: Any) -> Any:
        fed.extend(own.tokenizer.convert_ids_to_tokens(row) for row in rows.tolist())
        return whole(rows)

    monkeypatch.setattr(own, "_whole", noted)
    text = "The rabbit’s waistcoat, naïve!"
    (score,) = own.score_words(text, [(13, 22)])
    pieces = ["the", "rabbit", "’", "s", *["<mask>"] * score.pieces, ",", "n", "##a", "##i", "##ve", "!"]
    assert score.pieces > 1
    assert fed == [["<s>", *pieces, "</s>"]]


# --- which tokens are a word's pieces


def spelled(kind: str, text: str, word: str) -> list[str]:
    own = masked.tokenizer(kind)
    read = Pieces(own, "it").of(text)
    start = text.index(word)
    return [text[slice(*read.offsets[i])] for i in read.pieces(start, start + len(word))]


def test_pieces() -> None:
    assert spelled("wordpiece", "A cafe\u0301 here", "cafe\u0301")[0] == "ca"  # accents are gone, places are true
    assert "".join(spelled("wordpiece", "a CAFÉ here", "CAFÉ")) == "CAFÉ"
    assert spelled("bytes", "in the rabbit", "the") == [" the"]  # with the space before it
    assert spelled("bytes", "“the rabbit", "the") == ["t", "he"]
    assert spelled("bytes", "a é b", "é") == ["é", "é"]  # a byte each
    assert spelled("unigram", "by the rabbit’s", "rabbit") == [" rabbit"]
    assert spelled("unigram", "by naïve", "naïve") == ["n", "a", "ï", "ve"]  # the space is a token of its own
    assert spelled("glued", "Alice’s", "s") == ["’s"]  # shared with the apostrophe: hidden whole


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=8), st.integers(0, 8), st.integers(1, 4))
def test_pieces_are_all_tokens_that_overlap(steps: list[tuple[int, int]], start: int, length: int) -> None:
    offsets = sorted((at, at + size) for at, size in steps)
    assert Read([0] * len(offsets), offsets).pieces(start, start + length) == overlapping(
        offsets, start, start + length
    )


def test_unknown_words_have_no_score() -> None:
    own = reference("wordpiece")
    text = "the 日本 rabbit"
    scores = own.score_words(text, words_in(text))
    assert [score.log_likelihood is None for score in scores] == [False, True, False]
    assert scores[1] == WordScore(log_likelihood=None, rank=None, pieces=2)


def test_a_word_that_does_not_fit_the_window_has_no_score() -> None:
    (score,) = reference("bytes").score_words("q" * 60 + " the", [(0, 60)])
    assert score == WordScore(log_likelihood=None, rank=None, pieces=60)


def test_a_word_without_a_token_has_no_score() -> None:
    (score,) = reference("wordpiece").score_words("the \u200d rabbit", [(4, 5)])  # removed as a control character
    assert score == WordScore(log_likelihood=None, rank=None, pieces=0)


@pytest.mark.parametrize("span", [(0, 0), (3, 2), (-1, 2), (0, 9)])
def test_spans_that_are_no_word(span: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="no word of a text of 8 characters"):
        reference("wordpiece").score_words("the hare", [span])


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError, match="character 4 of the text is half"):
        reference("bytes").score_words("the \ud800", [(0, 3)])


# --- loading


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return masked.save(tmp_path / "model")


def test_a_folder_is_loaded(folder: Path) -> None:
    own = load_reference(folder, ModelOptions(device="cpu", label="mine"))
    assert isinstance(own, MaskedReference)
    assert isinstance(own, WordReference)
    told = own.identity()
    assert (told.kind, told.title, told.vocabulary, told.window) == ("masked", "mine", 400, ROOM)
    assert (told.dtype, told.device, told.substitutes) == ("float32", "cpu", None)
    assert told.fingerprint == load_reference(folder, ModelOptions(fingerprint="whole")).identity().fingerprint
    assert "masked" in repr(own)
    text = "The rabbit was late"
    same(own.score_words(text, words_in(text)), reference("wordpiece").score_words(text, words_in(text)))
    other = masked.save(folder.parent / "other", seed=1)
    assert load_reference(str(other)).identity().fingerprint != told.fingerprint
    assert load_reference(f"hf:{other}").identity().name == str(other)


def test_bfloat16(folder: Path) -> None:
    own = load_reference(folder, ModelOptions(device="cpu", dtype="bfloat16"))
    assert isinstance(own, MaskedReference)
    assert own.identity().dtype == "bfloat16"
    text = "The rabbit was late"
    slack = 4 * own.logit_tolerance
    for one, other in zip(
        own.score_words(text, words_in(text)), reference("wordpiece").score_words(text, words_in(text)), strict=True
    ):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=slack)


def test_the_bundled_one(alice: str) -> None:
    own = load_reference("bundled", ModelOptions(device="cpu"))
    assert isinstance(own, MaskedReference)
    assert (own.identity().name, own.identity().kind) == ("bundled", "masked")
    assert own._picks
    text = alice[2000:4000]  # more than it reads at once
    assert len(own._pieces.of(text).ids) > own.window
    agrees(own, text, words_in(text)[::60])


def test_a_checkpoint_of_pretraining_is_masked(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForPreTraining

    own = masked.tokenizer("wordpiece")
    options = masked.COMMON | masked.SIZE | {"vocab_size": len(own), "max_position_embeddings": ROOM}
    BertForPreTraining(BertConfig(**options)).save_pretrained(tmp_path)
    own.save_pretrained(tmp_path)
    assert load_reference(tmp_path).identity().kind == "masked"


def test_a_causal_folder_is_causal(tiny_folder: Path) -> None:
    assert load_reference(tiny_folder).identity().kind == "causal"
    assert load_reference(BUNDLED).identity().substitutes == 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "is neither a masked nor a causal language model"),
        ({"architectures": ["BertModel"]}, "it is BertModel"),
        ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "it is T5ForConditionalGeneration"),
        ({"architectures": ["BartForConditionalGeneration"], "model_type": "bart", "is_encoder_decoder": True}, "Bart"),
    ],
)
def test_what_is_no_language_model(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder / "config.json", **changes)
    with pytest.raises(ModelError, match=words):
        load_reference(folder)


def test_no_mask_token(folder: Path) -> None:
    masked.tokenizer("wordpiece", mask=False).save_pretrained(folder)
    with pytest.raises(ModelError, match="has no mask token"):
        load_reference(folder)


def test_a_slow_tokenizer(folder: Path) -> None:
    from transformers import ByT5Tokenizer

    for path in folder.glob("*token*"):
        path.unlink()
    ByT5Tokenizer(mask_token="<mask>").save_pretrained(folder)
    with pytest.raises(ModelError, match="not a fast one"):
        load_reference(folder)


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    edit(folder / "config.json", vocab_size=300)
    model, _ = masked.build("bert", "wordpiece")
    model.resize_token_embeddings(300)
    model.save_pretrained(folder)
    with pytest.raises(ModelError, match="ids up to 399"):
        load_reference(folder)


def test_weights_that_lack_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    weights.pop("cls.predictions.transform.dense.weight")
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 of the model's tensors"):
        load_reference(folder)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers(value: float) -> None:
    own = MaskedReference(*masked.build("bert", "wordpiece", room=ROOM), name="broken")
    own._model.cls.predictions.bias.data[7] = value
    with pytest.raises(ModelError, match=r"broken returned logits that are NaN or infinite"):
        own.score_words("the rabbit", [(0, 3)])


# --- nothing of a model's folder runs

MODEL = """
from transformers import BertForMaskedLM, BertConfig
class OwnConfig(BertConfig):
    model_type = 'own'
class OwnModel(BertForMaskedLM):
    config_class = OwnConfig
"""


def with_model_code(folder: Path, mark: Path) -> Path:
    (folder / "modeling_own.py").write_text(LEAVES_A_MARK.format(mark=str(mark)) + MODEL)
    auto_map = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForMaskedLM": "modeling_own.OwnModel"}
    edit(folder / "config.json", model_type="own", architectures=["OwnModel"], auto_map=auto_map)
    return folder


@pytest.mark.parametrize("make", [with_model_code, with_tokenizer_code, with_pickle])
def test_nothing_runs(make: Any, folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "mark")
    with pytest.raises(ModelError):
        load_reference(folder)
    assert not (tmp_path / "mark").exists()


def test_code_of_a_known_kind_does_not_run(folder: Path, tmp_path: Path) -> None:
    with_model_code(folder, tmp_path / "mark")
    edit(folder / "config.json", model_type="bert", architectures=["BertForMaskedLM"])
    assert load_reference(folder).identity().kind == "masked"
    assert not (tmp_path / "mark").exists()


def test_trusted_code_runs_and_is_told(folder: Path, tmp_path: Path) -> None:
    with_model_code(folder, tmp_path / "mark")
    own = load_reference(folder, ModelOptions(trust_remote_code=True))
    assert (tmp_path / "mark").exists()
    assert own.identity().trust_remote_code is True


# --- a causal model in its place


@cache
def causal(context: int = 128, kind: str = "bundled") -> tuple[CausalReference, Any]:
    if kind == "bundled":
        model, tokenizer = tiny.build(max_position_embeddings=context), rote.load("bundled").tokenizer
    else:
        tokenizer = masked.tokenizer(kind)
        model = tiny.build(max_position_embeddings=context, vocab_size=len(tokenizer))
    return CausalReference(HuggingFaceModel(model, tokenizer), substitutes=5), model


def causal_agrees(own: CausalReference, model: Any, text: str, spans: list[tuple[int, int]]) -> int:
    """How many have a score."""
    context, scored = own.window, 0
    for span, score in zip(spans, own.score_words(text, spans), strict=True):
        found = causal_totals(
            model, own.model.tokenizer, text, span, bos=own.model.bos_id, substitutes=own.substitutes, right=RIGHT,
            context=context, free=min(64, context // 2),
        )  # fmt: skip
        if found is None:
            assert (score.log_likelihood, score.rank) == (None, None)
            continue
        totals, pieces = found
        share = totals[0] - math.log(math.fsum(math.exp(t - max(totals)) for t in totals)) - max(totals)
        assert score.pieces == pieces
        assert score.log_likelihood == pytest.approx(share, abs=0.02)
        assert score.rank is not None
        lower, upper = (sum(t > totals[0] + slack for t in totals[1:]) for slack in (0.02, -0.02))
        assert lower <= score.rank <= upper
        scored += 1
    return scored


def test_a_causal_model_is_read_in_both_contexts(alice: str) -> None:
    own, model = causal()
    text = alice[2000:2200]
    spans = words_in(text)[::5]
    assert causal_agrees(own, model, text, spans) == len(spans)


def test_a_long_text_under_a_causal_model(alice: str) -> None:
    own, model = causal(context=48)
    text = alice[2000:2500]
    spans = words_in(text)[::12]
    assert causal_agrees(own, model, text, spans) == len(spans)


@pytest.mark.parametrize("kind", ["bytes", "unigram"])
def test_a_causal_model_with_other_tokenizers(kind: str, alice: str) -> None:
    own, model = causal(kind=kind)
    text = alice[2000:2100]
    spans = words_in(text)[::4]
    assert causal_agrees(own, model, text, spans) == len(spans)


@cases(15)
@given(case=passages())
def test_odd_texts_under_a_causal_model(case: tuple[str, list[tuple[int, int]]]) -> None:
    for kind in ("bundled", "glued"):
        own, model = causal(context=64, kind=kind)
        causal_agrees(own, model, case[0], case[1][-2:])


def test_what_a_causal_model_does_not_score(alice: str) -> None:
    own, _ = causal(kind="glued")
    text = "Alice’s 日本 rabbit"
    scores = own.score_words(text, [(0, 5), (6, 7), (8, 10), (11, 17)])
    assert [score.log_likelihood is None for score in scores] == [False, True, True, False]
    without = CausalReference(HuggingFaceModel(tiny.build(), rote.load("bundled").tokenizer, bos="never"))
    assert [score.rank is None for score in without.score_words("The rabbit", [(0, 3), (4, 10)])] == [True, False]
    (long,) = causal(context=32)[0].score_words("q" * 60, [(0, 60)])
    assert (long.log_likelihood, long.rank) == (None, None)


def test_a_causal_model_gives_the_same_whatever_else_is_asked(alice: str) -> None:
    own, _ = causal(context=64)
    text = alice[2000:2500]
    spans = words_in(text)[::7]
    together = own.score_words(text, spans)
    alone = [own.score_words(text, [span])[0] for span in spans[::3]]
    same(alone, together[::3])


def test_a_causal_model_that_keeps_no_keys(alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, _ = causal()
    text = alice[2000:2200]
    spans = words_in(text)[::9]
    expected = own.score_words(text, spans)
    monkeypatch.setattr(own.model, "memory", lambda positions: Replay(own.model, positions))
    same(own.score_words(text, spans), expected)


def test_a_word_that_fits_what_follows_gains_by_it(bundled: Any, alice: str) -> None:
    """The bundled model knows Alice by heart: what follows tells the word, though many could stand there."""
    own = CausalReference(bundled)
    start = alice.index("White Rabbit with pink eyes")
    text = alice[start - 200 : start + 200]
    at = text.index("pink")
    (known,) = own.score_words(text, [(at, at + 4)])
    changed = text.replace("pink", "lazy")
    (other,) = own.score_words(changed, [(at, at + 4)])
    assert known.log_likelihood is not None
    assert other.log_likelihood is not None
    assert known.log_likelihood > -0.1
    assert known.rank == 0
    assert other.log_likelihood < -3
    whole = [score for score in own.score_words(text, words_in(text)[30:45]) if score.pieces == 1]
    assert max(score.log_likelihood or -9.0 for score in whole) > -0.1  # half at most, were it its own substitute


def test_a_causal_model_whose_logits_are_no_numbers() -> None:
    model = tiny.build()
    model.lm_head.weight.data[5] = math.nan
    own = CausalReference(HuggingFaceModel(model, rote.load("bundled").tokenizer, name="broken"))
    with pytest.raises(ModelError, match=r"broken returned logits that are NaN or infinite"):
        own.score_words("The rabbit was late", [(4, 10)])


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_how_many_substitutes(number: Any, bundled: Any) -> None:
    with pytest.raises(InputError, match="substitutes must be a whole number"):
        CausalReference(bundled, substitutes=number)
