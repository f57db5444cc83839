"""Models spread over memory and the disk: they give the same numbers to the last bit, and say what that costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import rote
from rote import Example, InputError
from rote.models import placement
from rote.models.placement import device_of, offloaded, positions_that_fit

EXAMPLES = [Example("a", tuple(range(5, 35)), tuple(range(35, 60))), Example("b", (9, 8, 7), (6, 5, 4, 3))]
AROUND = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
ON_DISK = {**AROUND, **{f"model.layers.{i}": "disk" if i < 3 else "cpu" for i in range(8)}}


def load(device_map: Any) -> Any:
    return rote.load("bundled", rote.ModelOptions(device_map=device_map))


@pytest.fixture(scope="module")
def on_disk() -> Any:
    with pytest.warns(UserWarning, match="3 parts with 32% of its parameters lie on the disk"):
        return load(ON_DISK)


@pytest.mark.parametrize("device_map", [{"": "cpu"}, "auto"])
def test_in_one_place_nothing_is_said_of_places(device_map: Any, bundled: Any) -> None:
    model = load(device_map)
    assert model.identity() == bundled.identity()
    assert model.warnings == ()


def test_the_disk_gives_the_same_numbers(on_disk: Any, bundled: Any) -> None:
    assert next(on_disk._model.model.layers[0].parameters()).device.type == "meta"  # it really is elsewhere
    one, other = (rote.verbatim(model, EXAMPLES) for model in (on_disk, bundled))
    for a, b in zip(one, other, strict=True):
        assert (a.token_log_probs == b.token_log_probs).all()
        assert a.log_prob == b.log_prob
    near = rote.Near(tolerance=1, budget=100)
    c, d = (rote.near_verbatim(model, EXAMPLES[1:], near=near)[0] for model in (on_disk, bundled))
    assert (c.lower, c.upper) == (d.lower, d.upper)
    assert type(on_disk.memory(9)).__name__ == "KeyMemory"  # keys are kept here too
    draw = {"length": 6, "samples": 3, "seed": 1}
    assert list(on_disk.generate([0, 5, 6], rote.Scheme(), **draw)) == list(
        bundled.generate([0, 5, 6], rote.Scheme(), **draw)
    )


def test_an_embedding_on_the_disk(bundled: Any) -> None:
    """Its weight is nowhere between passes; inputs and the head's states go where it computes."""
    with pytest.warns(UserWarning, match="on the disk"):
        model = load({**AROUND, "model.embed_tokens": "disk", "lm_head": "disk", "model.layers": "cpu"})
    assert model.device == torch.device("cpu")
    assert rote.verbatim(model, EXAMPLES)[0].log_prob == rote.verbatim(bundled, EXAMPLES)[0].log_prob


def test_what_is_recorded_decides_nothing(on_disk: Any, bundled: Any, alice: str, tmp_path: Any) -> None:
    own = on_disk.identity()
    assert own.placement == "cpu: 5,065,472 parameters, disk: 2,409,984 parameters"
    assert sum(int(part.split()[1].replace(",", "")) for part in own.placement.split(", d")[:1]) == 5_065_472
    assert own.parameters == bundled.identity().parameters == 5_065_472 + 2_409_984
    windows = rote.Windows(prefix=20, suffix=10, stride=400)
    run = rote.scan(on_disk, alice[:2500], windows=windows, out=tmp_path / "run")
    assert any("on the disk" in warning for warning in run.summary.warnings)
    again = rote.scan(bundled, alice[:2500], windows=windows, out=tmp_path / "run")  # the same run, not another
    assert again.manifest.model.placement == own.placement


@pytest.mark.parametrize(
    ("device_map", "words"),
    [
        ("round", "must be auto, balanced, balanced_low_0 or sequential, not 'round'"),
        ({"model": "cloud"}, "'model' is to lie on 'cloud'; give cpu, disk"),
        ({"": "disk"}, "puts everything on the disk"),
        ({"": 0}, "cuda:0.*torch sees no CUDA GPU"),
        (3, "must be a mapping of modules to devices"),
    ],
)
def test_impossible_maps(device_map: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(device_map)


# --- several GPUs, which are not here: what follows from a map alone


class Spread(nn.Module):
    """Four layers of ten parameters each, an embedding and a head, wherever a map says."""

    def __init__(self, **places: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(10, 1, bias=False) for _ in range(4))
        self.embed = nn.Linear(10, 1, bias=False)
        self.hf_device_map = {"embed": places["embed"], **{f"layers.{i}": places[f"l{i}"] for i in range(4)}}


GPUS = {"embed": 0, "l0": 0, "l1": 0, "l2": 1, "l3": "cpu"}


def test_what_waits_is_told() -> None:
    (told,) = offloaded(Spread(**GPUS), "big")
    assert told.startswith(
        "big: 1 part with 20% of its parameters lie in the memory of the processor. They are fetched"
    )
    (told,) = offloaded(Spread(**{**GPUS, "l2": "disk"}), "big")
    assert "1 part with 20% of its parameters lie in the memory of the processor and 1 part with 20%" in told
    assert offloaded(Spread(**{**GPUS, "l3": 1}), "big") == ()
    assert placement.placement(Spread(**GPUS)) == "cpu: 10 parameters, cuda:0: 30 parameters, cuda:1: 10 parameters"


def test_keys_fit_the_fullest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        total_memory = 4000

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())
    gpu = torch.device("cuda:0")
    # One position is 4 bytes, a byte for each layer: 1600 bytes hold 400 of them, where all layers are on one GPU.
    assert positions_that_fit(nn.Linear(1, 1), gpu, 4, 4) == 400
    assert positions_that_fit(Spread(**{**GPUS, "l2": 1, "l3": 1}), gpu, 4, 4) == 800  # two layers on each
    assert positions_that_fit(Spread(**GPUS), gpu, 4, 4) == 533  # what waits in memory computes on the first: three


def test_a_hook_knows_where_a_module_computes() -> None:
    module = nn.Linear(2, 2, device="meta")
    assert device_of(module).type == "meta"
    for given, device in ((1, "cuda:1"), ("cpu", "cpu"), (torch.device("cpu"), "cpu")):
        module._hf_hook = type("Hook", (), {"execution_device": given})()
        assert device_of(module) == torch.device(device)
