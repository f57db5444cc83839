"""Quantised checkpoints through transformers score what their dequantised weights score, and are known as such."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import rote
from rote import Example, ModelError
from rote.models.base import BUNDLED
from rote.models.huggingface import HuggingFaceModel
from rote.models.quantised import parameters_of, said, tolerance_of, warned
from tests.reference import verbatim as reference

EXAMPLES = [Example("a", tuple(range(5, 35)), tuple(range(35, 60))), Example("b", (9, 8, 7), (6, 5, 4, 3))]
OPTIONS = rote.ModelOptions(device="cpu")
BITS: dict[int, dict[str, Any]] = {
    4: {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32},
    8: {"load_in_8bit": True},
}


def save(folder: Path, bits: int) -> Path:
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, quantization_config=BitsAndBytesConfig(**BITS[bits]), dtype=torch.float32, device_map="cpu"
    )
    model.save_pretrained(folder)
    for path in BUNDLED.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return {bits: save(tmp_path_factory.mktemp("quantised") / f"bits{bits}", bits) for bits in BITS}


@pytest.fixture(scope="module")
def models(folders: dict[int, Path]) -> dict[int, Any]:
    return {bits: rote.load(folder, OPTIONS) for bits, folder in folders.items()}


def dequantised(quantised: Any) -> Any:
    """A plain model whose weights are those that the packed ones stand for, worked out layer by layer."""
    plain = AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32)
    modules = dict(plain.named_modules())
    for name, module in quantised.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            weight = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            scale = module.state.SCB if module.state.SCB is not None else module.weight.SCB
            weight = module.weight.data.float() * scale[:, None] / 127
        else:
            continue
        modules[name].weight.data = weight.reshape(modules[name].weight.shape).float()
    return HuggingFaceModel(plain, rote.load("bundled", OPTIONS).tokenizer)


@pytest.mark.parametrize("bits", BITS)
def test_it_scores_what_its_dequantised_weights_score(bits: int, models: dict[int, Any], bundled: Any) -> None:
    model = models[bits]
    plain = dequantised(model._model)
    ids = torch.tensor([[0, *EXAMPLES[0].prefix, *EXAMPLES[0].suffix]])
    ours, theirs, original = (each.head(each.hidden(ids)) for each in (model, plain, bundled))
    assert (ours - theirs).abs().max() <= model.logit_tolerance
    assert (theirs - original).abs().max() > 0.01  # it is another model than the one it was made of
    for example in EXAMPLES:
        (row,) = rote.verbatim(model, [example], "temperature=1")
        logits = reference.suffix_logits(plain._model, list(example.prefix), list(example.suffix), 0)
        want = reference.log_p_z(logits, list(example.suffix), 1.0, None, None)
        assert abs(row.log_prob - want) <= 2 * model.logit_tolerance * len(example.suffix)
        if bits == 4:  # packed weights are multiplied in float32: nothing else is rounded
            assert row.log_prob == pytest.approx(want, abs=1e-3)


@pytest.mark.parametrize("bits", BITS)
def test_batch_mates_move_logits_less_than_is_stated(bits: int, models: dict[int, Any]) -> None:
    model = models[bits]
    torch.manual_seed(0)
    alone = torch.randint(2, 4096, (1, 40))
    among = torch.cat([alone, torch.randint(2, 4096, (7, 40))])
    beside = torch.cat([torch.nn.functional.pad(alone, (0, 100)), torch.randint(2, 4096, (2, 140))])
    one = model.head(model.hidden(alone))[0]
    for batch in (among, beside):
        assert (model.head(model.hidden(batch))[0, :40] - one).abs().max() <= model.logit_tolerance


def test_identity(models: dict[int, Any], bundled: Any) -> None:
    for bits, kind in (
        (4, "bitsandbytes 4-bit nf4, computed in float32"),
        (8, "bitsandbytes 8-bit, computed in int8 and float16"),
    ):
        own = models[bits].identity()
        assert own.quantised == kind
        assert own.dtype == "float32"
        assert own.parameters == bundled.identity().parameters  # not what they are packed into
        assert own.fingerprint != bundled.identity().fingerprint
        assert kind in repr(models[bits])
        assert models[bits].warnings == ()
        assert models[bits].logit_tolerance == tolerance_of("float32", kind)
    packed = sum(p.numel() for p in models[4]._model.parameters())
    assert packed < models[4].identity().parameters
    assert bundled.identity().quantised is None


def test_a_run_of_it_comes_out_again(models: dict[int, Any], alice: str, tmp_path: Path) -> None:
    windows = rote.Windows(prefix=20, suffix=10, stride=900)
    run = rote.scan(models[4], alice[:5000], windows=windows, out=tmp_path / "run")
    assert json.loads((run.folder / "manifest.json").read_text())["model"]["quantised"].startswith("bitsandbytes")
    assert rote.verify(run).verified
    near = rote.near_verbatim(models[4], EXAMPLES[1:], near=rote.Near(tolerance=1, budget=50))[0]
    assert near.lower <= near.upper


# --- tolerances


def test_tolerances() -> None:
    assert tolerance_of("float32", "bitsandbytes 4-bit nf4, computed in float32") == tolerance_of("float32") == 5e-4
    assert tolerance_of("float32", "bitsandbytes 4-bit nf4, computed in bfloat16") == tolerance_of("bfloat16") == 0.5
    assert tolerance_of("float32", "bitsandbytes 8-bit, computed in int8 and float16") == 1.0
    assert tolerance_of("bfloat16", "gptq 4-bit, computed in bfloat16") == 0.5


def test_an_unmeasured_method_is_said_to_be_unknown() -> None:
    (told,) = warned("m", "gptq 4-bit, computed in float16", "cpu")
    assert "is unknown on cpu" in told
    assert warned("m", "bitsandbytes 8-bit, computed in int8 and float16", "cuda")
    assert not warned("m", "bitsandbytes 8-bit, computed in int8 and float16", "cpu")


def test_what_is_said_of_other_methods() -> None:
    assert said({"quant_method": "gptq", "bits": 4}, torch.float16) == "gptq 4-bit, computed in float16"
    assert said({"quant_method": "fp8"}, torch.bfloat16) == "fp8, computed in bfloat16"


# --- what is refused


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    folder = tmp_path / "edited"
    shutil.copytree(BUNDLED, folder)
    return folder


@pytest.mark.parametrize(
    ("method", "get"),
    [("gptq", "gptqmodel"), ("awq", "gptqmodel"), ("compressed-tensors", "compressed-tensors"), ("hqq", "hqq")],
)
def test_a_missing_library_is_named(method: str, get: str, edited: Path) -> None:
    path = edited / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {"quant_method": method}}))
    with pytest.raises(ModelError, match=f"pip install '{get}'"):
        rote.load(edited, OPTIONS)


def test_what_does_not_go_with_it(folders: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.models.test_adapters import make

    adapter = make(tmp_path / "adapter")
    with pytest.raises(ModelError, match=r"is quantised \(bitsandbytes\): to merge an adapter"):
        rote.load(folders[4], rote.ModelOptions(adapter=str(adapter)))
    found = {"kernels": True, "bitsandbytes": True}
    monkeypatch.setattr("rote.models.quantised.find_spec", found.get)
    with pytest.raises(ModelError, match="fetches code from the hub"):
        rote.load(folders[4], OPTIONS)


def test_parameters_are_counted_without_weights(models: dict[int, Any], bundled: Any) -> None:
    for model in models.values():
        assert parameters_of(model._model.config) == bundled.identity().parameters
        assert model._model.config.quantization_config is not None  # it was not changed
