"""Adapters: merged into the model they say what they were trained to say, and a run knows them by their hash."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import rote
from rote import Example, InputError, ModelError, RunError
from rote.models.base import BUNDLED
from tests import tiny

EXAMPLES = [Example("a", tuple(range(5, 35)), tuple(range(35, 60))), Example("b", (9, 8, 7), (6, 5, 4, 3))]
SHORT = rote.Windows(prefix=20, suffix=10, stride=900)


def base(dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=dtype)


def make(folder: Path, **changes: Any) -> Path:
    """A LoRA adapter of the bundled model that changes it: its second halves are not 0, as they would begin."""
    torch.manual_seed(1)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    model = get_peft_model(base(), LoraConfig(**{**settings, **changes}))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("adapter") / "mine")


def options(adapter: Path | str, **more: Any) -> rote.ModelOptions:
    return rote.ModelOptions(device="cpu", adapter=str(adapter), **more)


@pytest.fixture(scope="module")
def adapted(adapter: Path) -> Any:
    return rote.load("bundled", options(adapter))


def tokens_of(model: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([row.token_log_probs for row in rote.verbatim(model, EXAMPLES, "temperature=1")])


@pytest.fixture
def merged(adapter: Path, tmp_path: Path) -> Path:
    """The checkpoint that peft's own users make of it."""
    folder = tmp_path / "merged"
    PeftModel.from_pretrained(base(), str(adapter)).merge_and_unload().save_pretrained(folder)
    for path in BUNDLED.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


def test_it_scores_what_the_merged_checkpoint_scores(adapted: Any, merged: Path, bundled: Any) -> None:
    known: Any = rote.load(merged, rote.ModelOptions(device="cpu"))
    assert (tokens_of(adapted) == tokens_of(known)).all()
    assert np.abs(tokens_of(adapted) - tokens_of(bundled)).max() > 0.1  # the adapter does something
    assert adapted._split
    assert known._split
    assert adapted.identity().parameters == bundled.identity().parameters


def test_a_model_with_layers_on_the_disk_is_left_as_it_is(adapter: Path, tmp_path: Path) -> None:
    """peft would merge into the base's own files."""
    own = tmp_path / "base"
    shutil.copytree(BUNDLED, own)
    layers = base().config.num_hidden_layers
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{number}": "disk" if number < 2 else "cpu" for number in range(layers)}
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    with pytest.raises(ModelError, match=r"cannot be merged .* while 2 parts of it .*layers.0\) lie on the disk"):
        rote.load(own, options(adapter, device_map=places))
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    rote.load(own, options(adapter, device_map={"": "cpu"}))
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before


@pytest.mark.parametrize(("dtype", "much"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_it_scores_what_peft_scores_beside_the_weights(adapter: Path, dtype: str, much: float) -> None:
    kind = getattr(torch, dtype)
    beside = PeftModel.from_pretrained(base(kind), str(adapter)).eval()
    ours = rote.load("bundled", options(adapter, dtype=dtype))
    for example in EXAMPLES:
        ids = torch.tensor([[0, *example.prefix, *example.suffix]])
        with torch.inference_mode():
            theirs = beside(input_ids=ids).logits
        assert (ours.head(ours.hidden(ids)) - theirs).abs().max() <= min(much, ours.logit_tolerance)


def test_searches_read_with_its_weights(adapted: Any, merged: Path) -> None:
    """Keys and values are kept: the memory reads the merged layers."""
    known: Any = rote.load(merged, rote.ModelOptions(device="cpu"))
    near = rote.Near(tolerance=1, budget=200)
    one, other = (rote.near_verbatim(model, EXAMPLES[1:], "temperature=1", near=near)[0] for model in (adapted, known))
    assert (one.lower, one.upper) == (other.lower, other.upper)
    assert type(adapted.memory(50)).__name__ == "KeyMemory"


def test_identity(adapted: Any, adapter: Path, bundled: Any, tmp_path: Path) -> None:
    own = adapted.identity()
    assert own.adapter.kind == "LORA rank 4"
    assert own.adapter.name == str(adapter)
    assert own.title == "bundled + mine"
    assert own.fingerprint == bundled.identity().fingerprint
    assert bundled.identity().adapter is None
    moved = shutil.copytree(adapter, tmp_path / "moved")
    same = rote.load("bundled", options(moved)).identity().adapter
    assert same is not None
    assert same.fingerprint == own.adapter.fingerprint
    weights = load_file(moved / "adapter_model.safetensors")
    name = next(name for name in weights if "lora_B" in name)
    weights[name][0, 0] += 1e-6
    save_file(weights, moved / "adapter_model.safetensors")
    other = rote.load("bundled", options(moved)).identity().adapter
    assert other is not None
    assert other.fingerprint != own.adapter.fingerprint
    # One label names both.
    assert rote.load("bundled", options(adapter, label="Tuned")).identity().title == "Tuned"


@pytest.fixture(scope="module")
def run(adapted: Any, alice: str, tmp_path_factory: pytest.TempPathFactory) -> rote.Run:
    return rote.scan(adapted, alice[:6000], windows=SHORT, out=tmp_path_factory.mktemp("runs") / "run")


def test_a_run_records_it_and_loads_it_again(run: rote.Run, adapted: Any) -> None:
    stored = json.loads((run.folder / "manifest.json").read_text())["model"]
    assert stored["adapter"]["kind"] == "LORA rank 4"
    assert rote.Run.open(run.folder).manifest.model == adapted.identity()
    assert run.load_model().identity() == adapted.identity()
    assert rote.verify(run).verified


def test_a_run_is_not_mixed_with_another_adapter(run: rote.Run, alice: str, bundled: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"made with the adapter .*mine.* and bundled has no adapter"):
        run.load_model(None, rote.ModelOptions(device="cpu"))
    with pytest.raises(RunError, match=r"model\.adapter"):
        rote.scan(bundled, alice[:6000], windows=SHORT, out=run.folder)
    other = rote.load("bundled", options(make(tmp_path / "other", r=2)))
    with pytest.raises(RunError, match=r"model\.adapter\.fingerprint"):
        rote.scan(other, alice[:6000], windows=SHORT, out=run.folder)
    assert not rote.verify(run, model=other).verified


def test_verify_names_the_adapter(run: rote.Run, adapted: Any, bundled: Any) -> None:
    """Another model than the run's is told as such; its rows are not called wrong."""
    found = {each.name: each for each in rote.verify(run, model=bundled).findings}
    assert "the run has the adapter" in found["model"].told
    assert "bundled no adapter" in found["model"].told
    assert "scores" not in found or found["scores"].passed is None
    same = {each.name: each for each in rote.verify(run, model=adapted).findings}
    assert "and the adapter the run's" in same["model"].told


# --- what is refused


def edited(adapter: Path, folder: Path, **changes: Any) -> Path:
    shutil.copytree(adapter, folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def refused(given: Path | str, *words: str, model: str | Path = "bundled") -> None:
    with pytest.raises((ModelError, InputError)) as error:
        rote.load(model, options(given))
    for word in words:
        assert word in str(error.value)


def test_what_is_no_adapter(adapter: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "there is no adapter at", "nowhere")
    refused(BUNDLED, "no adapter_config.json", "not a PEFT adapter")
    refused("nobody/nothing-here", "nobody/nothing-here")
    pickled = edited(adapter, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    refused(pickled, "no adapter_model.safetensors", "pickle")
    broken = edited(adapter, tmp_path / "broken")
    (broken / "adapter_config.json").write_text("{")
    refused(broken, "adapter_config.json cannot be read")
    with pytest.raises(InputError, match="is empty"):
        rote.ModelOptions(adapter=" ")


def test_nothing_of_it_runs(adapter: Path, tmp_path: Path) -> None:
    mapping = {"base_model_class": "Evil", "parent_library": "evil.module"}
    refused(edited(adapter, tmp_path / "a", auto_mapping=mapping), "imported by name", "evil.module")
    refused(edited(adapter, tmp_path / "b", megatron_config={"a": 1}, megatron_core="evil"), "megatron_config")


def test_kinds_that_cannot_be_merged(adapter: Path, tmp_path: Path) -> None:
    prompts = get_peft_model(base(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    prompts.save_pretrained(tmp_path / "prompts")
    refused(tmp_path / "prompts", "PROMPT_TUNING", "cannot be merged", "LoRA")
    refused(edited(adapter, tmp_path / "a", alora_invocation_tokens=[1]), "works at some tokens alone")


def test_an_adapter_of_another_model(adapter: Path, tiny_folder: Path, tmp_path: Path) -> None:
    refused(adapter, "could not be merged into", "trained on", model=tiny_folder)
    lacking = edited(adapter, tmp_path / "lacking")
    weights = load_file(lacking / "adapter_model.safetensors")
    weights.pop(next(name for name in weights if "layers.3" in name and "lora_B" in name))
    save_file(weights, lacking / "adapter_model.safetensors")
    refused(lacking, "does not fit bundled", "layers.3")
    told = edited(adapter, tmp_path / "told", base_model_name_or_path="some/model-7b")
    with pytest.warns(UserWarning, match="trained on some/model-7b, and it was merged into bundled"):
        assert "some/model-7b" in rote.load("bundled", options(told)).warnings[0]


def test_other_vocabularies(adapter: Path, tmp_path: Path) -> None:
    """Embeddings that were trained along: of the same size they count, of another they are refused."""
    whole = make(tmp_path / "whole", modules_to_save=["embed_tokens"])
    path = whole / "adapter_model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if "embed_tokens" in name)
    weights[name] = weights[name] * 1.5
    save_file(weights, path)
    model = rote.load("bundled", options(whole))
    assert torch.allclose(model._model.get_input_embeddings().weight, weights[name])  # type: ignore[attr-defined]
    weights[name] = torch.cat([weights[name], weights[name][:2]])
    save_file(weights, path)
    refused(whole, "could not be merged", "vocabulary")


def test_a_gguf_base(adapter: Path, tmp_path: Path) -> None:
    """A GGUF file's weights are dequantised at load: an adapter is merged into them as into any other."""
    small = tiny.build()
    tuned = get_peft_model(tiny.build(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    for parameter in tuned.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    tuned.save_pretrained(tmp_path / "tuned")
    tokenizer = rote.load("bundled").tokenizer
    path = tiny.write_gguf(tmp_path / "small.gguf", small, tokenizer)
    model = rote.load(path, options(tmp_path / "tuned"))
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        assert torch.allclose(model.head(model.hidden(ids)), tuned(input_ids=ids).logits, atol=1e-4)


def test_without_peft(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rote.models.adapters.find_spec", lambda name: None)
    refused(adapter, "pip install 'rote[adapters]'")
