"""Models: what is fed, what comes out, and which weights they were, for the architectures people have."""

from __future__ import annotations

import math
import shutil
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import rote
from rote import GREEDY, Example, InputError, LogitModel, ModelError, Scheme
from rote.models.base import BUNDLED, Hashed
from rote.models.huggingface import HuggingFaceModel
from tests import tiny
from tests.reference import verbatim as reference

SCHEMES = [Scheme(), Scheme(temperature=0.7, top_k=None), Scheme(top_k=40, top_p=0.9), GREEDY]


def random_examples(seed: int = 0) -> list[Example]:
    """Of several lengths, so that some are padded; the longest reach past the sliding windows of `tests.tiny`."""
    rng = np.random.default_rng(seed)
    sizes = [(1, 1), (3, 4), (20, 3), (10, 6)]
    draw = [tuple(rng.integers(2, tiny.VOCABULARY, a + b).tolist()) for a, b in sizes]
    return [Example(str(i), ids[:a], ids[a:]) for i, (ids, (a, _)) in enumerate(zip(draw, sizes, strict=True))]


def most_likely(model: Any, example: Example) -> Example:
    """The example with a suffix that the model would give: one whose probability is not 0."""
    ids = [*([] if model.bos_id is None else [model.bos_id]), *example.prefix]
    for _ in example.suffix:
        ids.append(int(model._model(torch.tensor([ids])).logits[0, -1].argmax()))
    return Example(f"likely {example.id}", example.prefix, tuple(ids[-len(example.suffix) :]))


def agrees_with_raw_transformers(model: Any, bos: int | None) -> None:
    examples = random_examples()
    examples += [most_likely(model, example) for example in examples]
    results = iter(rote.verbatim(model, examples, SCHEMES))
    finite = 0
    for example in examples:
        rows = reference.suffix_logits(model._model, list(example.prefix), list(example.suffix), bos)
        for scheme in SCHEMES:
            got = next(results)
            if (np.abs(got.margins) < model.logit_tolerance).any():
                continue
            want = reference.log_p_z(rows, list(example.suffix), scheme.temperature, scheme.top_k, scheme.top_p)
            assert got.log_prob == pytest.approx(want, abs=1e-4)
            finite += math.isfinite(want)
    assert finite > len(examples)


# --- the bundled model


def test_bundled(bundled: Any) -> None:
    assert (bundled.context_length, bundled.vocabulary) == (512, 4096)
    assert (bundled.bos_id, bundled.eos_ids) == (0, {1})
    assert bundled.identity().dtype == "float32"  # although it is stored in bfloat16
    assert next(bundled._model.parameters()).dtype == torch.float32
    assert str(bundled.device) == "cpu"
    assert not bundled._model.training
    assert isinstance(bundled, LogitModel)
    assert bundled.warnings == ()


def test_the_fingerprint_is_that_of_the_stored_weights(bundled: Any, tmp_path: Path) -> None:
    folder = tiny.copy_bundled(tmp_path / "moved")
    same = [
        bundled,
        rote.load("bundled", rote.ModelOptions(device="cpu")),
        rote.load(folder, rote.ModelOptions(device="cpu", dtype="bfloat16")),
    ]
    assert [model.identity().dtype for model in same] == ["float32", "float32", "bfloat16"]
    (fingerprint,) = {model.identity().fingerprint for model in same}
    assert len(fingerprint) == 32

    weights = load_file(BUNDLED / "model.safetensors")
    name = "model.layers.4.mlp.up_proj.weight"
    weights[name][3, 5] += 0.01
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert rote.load(folder, rote.ModelOptions(device="cpu")).identity().fingerprint != fingerprint


def test_the_fingerprint_of_large_files_sees_every_mebibyte(tmp_path: Path) -> None:
    from rote.models.fingerprint import fingerprint

    path = tmp_path / "model.safetensors"
    mebi = 1 << 20
    with path.open("wb") as out:
        out.truncate(70 * mebi)  # a hole: it takes no room
    seen = {fingerprint([path])}
    for place in (0, mebi - 1, 40 * mebi, 69 * mebi + 100):
        with path.open("r+b") as out:
            out.seek(place)
            out.write(b"x")
        seen.add(fingerprint([path]))
    with path.open("r+b") as out:
        out.truncate(70 * mebi + 1)
    seen.add(fingerprint([path]))
    assert len(seen) == 6


def test_another_tokenizer_has_another_identity(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "other")
    path = tmp_path / "other" / "tokenizer.json"
    path.write_text(path.read_text().replace('"add_prefix_space": false', '"add_prefix_space": true', 1))
    one, other = (
        rote.load(folder, rote.ModelOptions(device="cpu")).identity() for folder in (tiny_folder, tmp_path / "other")
    )
    assert {name for name in vars(one) if getattr(one, name) != getattr(other, name)} == {"name", "tokenizer"}


# --- BOS


@pytest.mark.parametrize(("policy", "fed"), [("auto", 0), ("always", 0), ("never", None)])
def test_bos_policies_feed_what_they_say(policy: Any, fed: int | None, tiny_folder: Path) -> None:
    model: Any = rote.load(tiny_folder, rote.ModelOptions(device="cpu", bos=policy))
    assert model.bos_id == model.identity().bos_token == fed
    assert model.identity().bos == policy
    agrees_with_raw_transformers(model, fed)
    assert [r.token_evals for r in rote.verbatim(model, random_examples())] == [1, 6, 22, 15]


def test_a_tokenizer_without_bos(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tiny.without_bos(Path(shutil.copytree(tiny_folder, tmp_path / "model")))
    for policy in ("auto", "never"):
        model: Any = rote.load(folder, rote.ModelOptions(device="cpu", bos=policy))
        assert model.bos_id is None
    agrees_with_raw_transformers(model, None)
    with pytest.raises(InputError, match=r"bos='always', but the tokenizer of .* has no BOS token; use bos='auto'"):
        rote.load(folder, rote.ModelOptions(device="cpu", bos="always"))
    with pytest.raises(InputError, match="empty prefix"):
        rote.verbatim(model, [Example("x", (), (5,))])


def test_bos_takes_a_place_in_the_context(tiny_folder: Path) -> None:
    example = Example("x", (5,) * 100, (6,) * 29)  # 128 positions are fed
    assert rote.verbatim(rote.load(tiny_folder, rote.ModelOptions(device="cpu", bos="never")), [example])
    with pytest.raises(InputError, match=r"context of 128 positions: 'x' \(129 positions\)"):
        rote.verbatim(rote.load(tiny_folder, rote.ModelOptions(device="cpu")), [example])


# --- architectures


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_architectures(architecture: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / architecture, architecture)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a model whose head must be used whole would warn
        model: Any = rote.load(folder, rote.ModelOptions(device="cpu"))
    assert (model.context_length, model.vocabulary, model.eos_ids) == (128, tiny.VOCABULARY, {1})
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, tiny.VOCABULARY, (3, 40)))
    with torch.no_grad():
        whole = model._model(input_ids=tokens).logits
    assert torch.equal(model.head(model.hidden(tokens)), whole)
    padded = torch.nn.functional.pad(tokens, (0, 17))
    torch.testing.assert_close(model.hidden(padded)[:, :40], model.hidden(tokens), rtol=0, atol=1e-4)
    agrees_with_raw_transformers(model, 0)


@pytest.mark.parametrize(
    ("architecture", "change"),
    [
        ("gemma2", {"final_logit_softcapping": None}),
        ("cohere", {"logit_scale": 1.0}),
        ("granite", {"logits_scaling": 1.0}),
    ],
)
def test_the_scales_and_caps_tried_here_matter(architecture: str, change: dict[str, Any]) -> None:
    tokens = torch.arange(2, 20)[None]
    plain, changed = (tiny.build(architecture, **c)(tokens).logits for c in (change, {}))
    assert (plain - changed).abs().max() > 0.5


@pytest.mark.parametrize("factor", [3.0, 1.001])
def test_a_head_that_cannot_be_split_off_is_used_whole(factor: float) -> None:
    raw = tiny.build("llama")
    forward = raw.forward

    def stretched(*args: Any, **options: Any) -> Any:
        result = forward(*args, **options)
        result.logits = result.logits * factor
        return result

    raw.forward = stretched
    with pytest.warns(UserWarning, match=r"odd: base model and output embedding do not give the model's logits"):
        model: Any = HuggingFaceModel(raw, name="odd")
    assert model.vocabulary == tiny.VOCABULARY
    agrees_with_raw_transformers(model, None)


def test_a_base_model_that_fails_on_its_own_is_not_used() -> None:
    raw = tiny.build("gpt_neox")
    raw.get_output_embeddings = lambda: None
    model: Any = HuggingFaceModel(raw)
    agrees_with_raw_transformers(model, None)


def test_end_of_text_ids_come_from_the_generation_settings() -> None:
    raw = tiny.build()
    raw.generation_config.eos_token_id = [1, 7]
    assert HuggingFaceModel(raw).eos_ids == {1, 7}


def test_a_model_without_a_stated_context_is_unlimited() -> None:
    from transformers import BloomConfig, BloomForCausalLM

    model: Any = HuggingFaceModel(
        BloomForCausalLM(BloomConfig(vocab_size=tiny.VOCABULARY, hidden_size=32, n_layer=2, n_head=2))
    )
    assert model.context_length is None
    agrees_with_raw_transformers(model, None)


# --- 16 bits


def test_bfloat16_stays_within_the_stated_tolerance(bundled: Any, alice: str, gatsby: str) -> None:
    """One logit, alone and beside longer rows; and against float32, which rounds the same stored weights nowhere."""
    model: Any = rote.load("bundled", rote.ModelOptions(device="cpu", dtype="bfloat16"))
    assert model.logit_tolerance > bundled.logit_tolerance
    windows = rote.windows(alice[9_000:11_000], model.tokenizer, rote.Windows(stride=200))
    windows += [
        Example(f"g{e.id}", e.prefix, e.suffix)
        for e in rote.windows(gatsby[:2000], model.tokenizer, rote.Windows(stride=400))
    ]
    long = rote.windows(alice[:3000], model.tokenizer, rote.Windows(prefix=200, suffix=50, stride=3000))
    together = rote.verbatim(model, [*windows, *long], SCHEMES, batch_size=64)[: len(windows) * len(SCHEMES)]
    alone = [result for example in windows for result in rote.verbatim(model, [example], SCHEMES, batch_size=1)]
    exempt = total = 0
    for a, b in zip(together, alone, strict=True):
        at_border = (np.abs(a.margins) < model.logit_tolerance) | (np.abs(b.margins) < model.logit_tolerance)
        exempt, total = exempt + int(at_border.sum()), total + len(at_border)
        np.testing.assert_array_equal(np.isinf(a.token_log_probs[~at_border]), np.isinf(b.token_log_probs[~at_border]))
        difference = np.abs(a.base_log_probs - b.base_log_probs)
        assert difference.max() <= 2 * model.logit_tolerance
        kept = ~at_border & np.isfinite(a.token_log_probs)
        temperature = a.scheme.temperature or 1
        moved = np.abs(a.token_log_probs[kept] - b.token_log_probs[kept])
        assert moved.max(initial=0) <= 2 * model.logit_tolerance / temperature
    assert exempt < 0.1 * total

    tokens = torch.tensor([[0, *windows[0].prefix, *windows[0].suffix]])
    exact, rounded = bundled.head(bundled.hidden(tokens)), model.head(model.hidden(tokens)).float()
    assert 0 < (exact - rounded).abs().max() <= model.logit_tolerance


# --- files that are not what they should be


def test_missing_tensors_are_not_made_up(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 of the model's tensors \(the first: model\.layers\.1\.mlp\.up_proj"):
        rote.load(folder, rote.ModelOptions(device="cpu"))


def test_special_tokens_beyond_the_vocabulary_do_no_harm_unless_fed(tiny_folder: Path, tmp_path: Path) -> None:
    """Loaders add some that a model does not have; no text becomes one. As BOS it would be fed."""
    from transformers import AutoTokenizer

    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|unused|>"]})
    tokenizer.save_pretrained(folder)
    model = rote.load(folder, rote.ModelOptions(device="cpu"))
    text = "What does <|unused|> mean here, and <|unused|> there? " * 3
    assert rote.verbatim(model, rote.windows(text, model.tokenizer, rote.Windows(prefix=10, suffix=5, stride=40)))

    tokenizer.bos_token = "<|unused|>"
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match="ids up to 4096, but the model's vocabulary ends at 4095"):
        rote.load(folder, rote.ModelOptions(device="cpu"))


# --- GGUF


def test_gguf(tmp_path: Path, bundled: Any) -> None:
    raw = tiny.build("llama", tie_word_embeddings=False)
    path = tiny.write_gguf(tmp_path / "tiny.gguf", raw, bundled.tokenizer)
    model: Any = rote.load(path, rote.ModelOptions(device="cpu"))
    tokens = torch.arange(2, 30)[None]
    torch.testing.assert_close(model.head(model.hidden(tokens)), raw(tokens).logits, rtol=0, atol=1e-5)
    assert (model.bos_id, model.eos_ids, model.context_length, model.vocabulary) == (0, {1}, 128, tiny.VOCABULARY)
    assert (model.identity().quantised, model.warnings) == (None, ())  # its weights are plain ones by now
    text = "Alice was beginning to get very tired of sitting by her sister on the bank. Would 10 do?"
    examples = [rote.windows(text, m.tokenizer, rote.Windows(prefix=5, suffix=5, stride=20)) for m in (model, bundled)]
    assert examples[0] == examples[1]
    agrees_with_raw_transformers(model, 0)
    assert (
        model.fingerprint == rote.load(path, rote.ModelOptions(device="cpu", dtype="bfloat16")).identity().fingerprint
    )


# --- what else there is to say of a model


@pytest.mark.parametrize(
    ("bos", "template", "opens"),
    [
        ("<|im_start|>", None, True),
        ("<start_of_turn>", None, True),
        (
            "<go>",
            "{% for message in messages %}{{ '<go>' + message['role'] + '\n' }}{% endfor %}",
            True,
        ),
        ("<go>", "{% for message in messages %}{{ bos_token ~ message.role }}{% endfor %}", True),
        ("<go>", "{{ '<go>system\nBe kind.<end>' }}{{ messages[0]['content'] }}", True),
        ("<go>", {"default": "{{ messages }}", "tool_use": "<go>user\n{{ messages[0]['content'] }}"}, True),
        (
            "<s>",
            "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST]",
            False,
        ),
        ("<bos>", "{{ bos_token }}{{ '<start_of_turn>' + message['role'] }}", False),
        ("<|begin_of_text|>", "{{- bos_token }}{{ '<|start_header_id|>' + message['role'] }}", False),
        ("<|endoftext|>", None, False),
    ],
)
def test_a_chat_opener_as_bos_is_warned_of(bos: str, template: Any, opens: bool, bundled: Any) -> None:
    class Chatty:
        bos_token_id, chat_template = 7, template

        def convert_ids_to_tokens(self, token: int) -> str:
            return {7: bos}[token]

        def __len__(self) -> int:
            return 10

    tokenizer: Any = Chatty()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = HuggingFaceModel(bundled._model, tokenizer, name="m")
        silent = HuggingFaceModel(bundled._model, tokenizer, name="m", bos="never")
    assert [str(w.message) for w in caught] == list(model.warnings)
    assert len(model.warnings) == opens
    assert silent.warnings == ()
    for warning in model.warnings:
        assert f"m: its BOS {bos!r} (id 7) opens a turn of a chat" in warning
        assert "--bos never" in warning


def test_every_byte_can_be_hashed(tmp_path: Path) -> None:
    from rote.models.fingerprint import fingerprint

    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.truncate(80 << 20)
    before = {mode: fingerprint([path], mode) for mode in get_args(Hashed)}
    with path.open("r+b") as file:
        file.seek((70 << 20) + 5000)
        file.write(b"1")
    assert fingerprint([path]) == before["sampled"]
    assert fingerprint([path], "whole") != before["whole"]
    small = tmp_path / "y.safetensors"
    small.write_bytes(b"2" * 1000)
    assert fingerprint([small]) == fingerprint([small], "whole")


def test_how_it_was_hashed_is_known(tiny_folder: Path) -> None:
    whole = rote.load(tiny_folder, rote.ModelOptions(fingerprint="whole", label="Tiny")).identity()
    assert (whole.hashed, whole.label, whole.title) == ("whole", "Tiny", "Tiny")
    with pytest.raises(InputError, match="label is empty"):
        rote.ModelOptions(label=" ")
    with pytest.raises(InputError, match="fingerprint"):
        rote.ModelOptions(fingerprint="half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="trust_remote_code must be True or False"):
        rote.ModelOptions(trust_remote_code="yes")  # type: ignore[arg-type]
