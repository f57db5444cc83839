"""Nothing that comes with a model runs unasked: real folders that would leave a mark, and none does."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import rote
from rote import ModelError, ModelOptions, RunError
from rote.models import safety
from rote.models.base import BUNDLED
from rote.models.sources import find
from rote.models.tokenizer import load_tokenizer
from tests import tiny
from tests.cli.command import Result, rote_here

LEAVES_A_MARK = "open({mark!r}, 'a').write('ran')\n"
CONFIG = "from transformers import LlamaConfig\nclass OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
MODEL = """
from transformers import LlamaForCausalLM
from .configuration_own import OwnConfig
class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""
TOKENIZER = """
from transformers import PreTrainedTokenizerFast
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


class Leaves:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (exec, (LEAVES_A_MARK.format(mark=str(self.mark)),))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, **changes}))


def with_model_code(folder: Path, mark: Path) -> Path:
    """A model of a kind that transformers does not know, with working code for it, which also leaves a mark."""
    (folder / "configuration_own.py").write_text(LEAVES_A_MARK.format(mark=str(mark)) + CONFIG)
    (folder / "modeling_own.py").write_text(LEAVES_A_MARK.format(mark=str(mark)) + MODEL)
    auto_map = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}
    edit(folder / "config.json", model_type="own", auto_map=auto_map)
    return folder


def with_tokenizer_code(folder: Path, mark: Path, auto_map: Any = None) -> Path:
    (folder / "tokenization_own.py").write_text(LEAVES_A_MARK.format(mark=str(mark)) + TOKENIZER)
    names = auto_map or {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]}
    edit(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=names)
    return folder


def with_pickle(folder: Path, mark: Path, name: str = "pytorch_model.bin") -> Path:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "own": Leaves(mark)}, folder / name)
    return folder


MAKERS = {"model": with_model_code, "tokenizer": with_tokenizer_code, "pickle": with_pickle}


def scan(folder: Path, *options: str) -> Result:
    out = ("--out", folder.parent / "run")
    return rote_here("scan", folder.parent / "book.txt", "--model", folder, *out, "--stride", "400", *options)


@pytest.fixture(autouse=True)
def book(alice: str, tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(alice[3000:4000])
    return tmp_path / "book.txt"


def refused(folder: Path, mark: Path, *words: str) -> str:
    """One clear error, and nothing ran; what it says."""
    with pytest.raises(ModelError) as error:
        rote.load(folder)
    assert not mark.exists()
    for word in words:
        assert word in str(error.value)
    return str(error.value)


# --- in a process of its own, whatever comes from its standard input


DRIVER = """
import os, sys
if sys.argv.pop(1) == "closed":
    os.close(0)
from rote.cli.main import main
book, *folders = sys.argv[1:]
for folder in folders:
    sys.argv = ["rote", "scan", book, "--model", folder, "--out", folder + "-run"]
    try:
        main()
    except SystemExit as end:
        print("ended", end.code, file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("given", ["closed", "", "y\n" * 5])
def test_nothing_runs_whatever_is_typed(given: str, tiny_folder: Path, tmp_path: Path, book: Path) -> None:
    folders = [
        make(Path(shutil.copytree(tiny_folder, tmp_path / name)), tmp_path / f"mark-{name}")
        for name, make in MAKERS.items()
    ]
    command = [sys.executable, "-c", DRIVER, "closed" if given == "closed" else "open", str(book), *map(str, folders)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=True)
    assert not list(tmp_path.glob("mark-*"))
    assert not list(tmp_path.glob("*-run"))
    assert done.stdout == ""  # no question either
    errors = done.stderr.splitlines()
    assert errors[1::2] == ["ended 1"] * 3, done.stderr
    assert all(line.startswith("error: ") for line in errors[::2])
    assert "modeling_own.OwnModel" in errors[0]
    assert "tokenization_own.OwnTokenizer" in errors[2]
    assert "pytorch_model.bin" in errors[4]


# --- and that it would


def test_code_runs_where_it_is_trusted_and_the_report_says_so(folder: Path, mark: Path) -> None:
    own = with_model_code(folder, mark)
    result = scan(own, "--trust-remote-code")
    assert result.code == 0, result.err
    assert mark.exists()
    assert "code that came with the model was run" in result.out.replace("\n", " ")
    made = rote.open(own.parent / "run")
    assert isinstance(made, rote.Run)
    assert made.manifest.model.trust_remote_code
    assert "code that came with the model was run" in (made.folder / "report.html").read_text()


def test_what_was_trusted_once_is_not_trusted_again(folder: Path, mark: Path) -> None:
    own = with_model_code(folder, mark)
    assert scan(own, "--trust-remote-code").code == 0
    mark.unlink()
    again = rote_here("check", own.parent / "run", "--samples", "2")
    assert again.code == 1
    assert "trusted at that time" in again.err
    assert "--trust-remote-code" in again.err
    assert not mark.exists()
    with pytest.raises(RunError, match="trust_remote_code"):
        rote.scan(tiny_like(own), own.parent / "book.txt", out=own.parent / "run", windows=rote.Windows(stride=400))


def tiny_like(folder: Path) -> Any:
    """The same weights and tokenizer, loaded by transformers' own code."""
    edit(folder / "config.json", model_type="llama", auto_map={})
    return rote.load(folder)


def test_a_tokenizer_s_code_runs_where_it_is_trusted(folder: Path, mark: Path) -> None:
    model = rote.load(with_tokenizer_code(folder, mark), ModelOptions(trust_remote_code=True))
    assert type(model.tokenizer).__name__ == "OwnTokenizer"
    assert mark.exists()
    mark.unlink()
    with pytest.raises(ModelError, match="would run code of its own"):
        load_tokenizer(str(folder))
    assert not mark.exists()


def test_the_pickle_would_run(folder: Path, mark: Path) -> None:
    pickle.loads(pickle.dumps(Leaves(mark)))
    assert mark.exists()
    torch.load(with_pickle(folder, mark) / "pytorch_model.bin", weights_only=False)
    assert mark.read_text() == "ranran"


# --- code


def test_what_is_refused_and_why(folder: Path, mark: Path) -> None:
    said = refused(with_model_code(folder, mark), mark, "configuration_own.OwnConfig (config.json)", "modeling_own")
    assert "Nothing of it was run" in said
    assert "trust_remote_code=True" in said
    assert "read and send your files" in said


def test_code_of_another_repository_is_named(folder: Path, mark: Path) -> None:
    with_model_code(folder, mark)
    edit(folder / "config.json", auto_map={"AutoConfig": "some/where--configuration_own.OwnConfig"})
    refused(folder, mark, "Python files of some/where", "configuration_own.OwnConfig")


def test_a_config_behind_the_config_is_looked_at(folder: Path, mark: Path) -> None:
    """config.json may name a file for certain versions of transformers, which is then read instead of it."""
    own = json.loads((with_model_code(folder, mark) / "config.json").read_text())
    (folder / "config.4.0.0.json").write_text(json.dumps(own))
    edit(folder / "config.json", model_type="llama", auto_map=None, configuration_files=["config.4.0.0.json"])
    refused(folder, mark, "configuration_own.OwnConfig")


def test_a_model_that_transformers_knows_is_loaded_by_transformers(folder: Path, mark: Path) -> None:
    with_model_code(folder, mark)
    edit(folder / "config.json", model_type="llama")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(LEAVES_A_MARK.format(mark=str(mark)))
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]})
    model: Any = rote.load(folder)
    assert type(model._model).__module__.startswith("transformers.")
    list(model.generate([5, 6], rote.Scheme(), length=2, samples=2, seed=0))
    assert not mark.exists()
    assert not model.identity().trust_remote_code


@pytest.mark.parametrize(
    "auto_map", [[None, "tokenization_own.OwnTokenizer"], {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}]
)
def test_a_tokenizer_s_code_however_it_is_named(auto_map: Any, folder: Path, mark: Path) -> None:
    refused(with_tokenizer_code(folder, mark, auto_map), mark, "tokenization_own.OwnTokenizer (tokenizer_config.json)")
    with pytest.raises(ModelError, match="would run code of its own"):
        load_tokenizer(str(folder))
    assert not mark.exists()


def test_a_tokenizer_s_code_beside_a_gguf_file(folder: Path, mark: Path, bundled: Any) -> None:
    path = tiny.write_gguf(folder / "m.gguf", tiny.build(), bundled.tokenizer)
    assert rote.load(path).identity().title == "m"
    with_tokenizer_code(folder, mark)
    with pytest.raises(ModelError, match=r"tokenization_own\.OwnTokenizer"):
        rote.load(path)
    assert not mark.exists()


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("name", ["AutoModelForMaskedLM", "AutoTokenizer", "LlamaForCausalLM"])
def test_a_tokenizer_that_is_none_is_refused(name: str, file: str, folder: Path, mark: Path) -> None:
    """Such a class would be loaded without a word about trust, and would ask for it on the terminal."""
    (folder / "own.py").write_text(LEAVES_A_MARK.format(mark=str(mark)) + MODEL)
    edit(folder / "config.json", auto_map={"AutoModelForMaskedLM": "own.OwnModel"})
    edit(folder / file, tokenizer_class=name)
    refused(folder, mark, f"{file} says that its tokenizer is a {name}", "no tokenizer")


def test_transformers_is_never_let_ask(folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind all that is looked for by name: were something overlooked, there would be an error, not a question."""
    from transformers import AutoConfig

    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: [asked.append(text), "y"][1])  # type: ignore[func-returns-value]
    with_model_code(folder, mark)
    with pytest.raises(ModelError):
        rote.load(folder)
    with pytest.raises(ValueError, match="custom code"):
        AutoConfig.from_pretrained(folder)
    assert not asked
    assert not mark.exists()


@pytest.mark.parametrize("where", ["top", "nested"])
def test_kernels_from_the_hub_are_refused(where: str, folder: Path, mark: Path) -> None:
    wanted = {"attn_implementation": "some/kernel"}
    edit(folder / "config.json", **(wanted if where == "top" else {"text_config": wanted}))
    refused(folder, mark, "some/kernel", "code from the hub")


def test_adapters_are_refused(folder: Path, mark: Path) -> None:
    """With peft installed they would be loaded with the model, and without it they would not."""
    edit(folder / "adapter_config.json", base_model_name_or_path="some/model")
    refused(folder, mark, "adapter_config.json", "adapter takes that folder")
    (folder / "config.json").unlink()
    refused(folder, mark, "holds an adapter, not a model", "this folder as adapter")


# --- pickles


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "model.ckpt"])
@pytest.mark.parametrize("trust", [False, True])
def test_pickled_weights_are_refused_trusted_or_not(name: str, trust: bool, folder: Path, mark: Path) -> None:
    with_pickle(folder, mark, name)
    with pytest.raises(ModelError) as error:
        rote.load(folder, ModelOptions(trust_remote_code=trust))
    said = str(error.value)
    assert f"in {name}, which is a pickle" in said
    assert "save_pretrained" in said
    for advice in ("use_safetensors", "weights_only", "trust"):
        assert advice not in said
    assert not mark.exists()


def test_pickles_in_the_guise_of_safetensors(folder: Path, mark: Path) -> None:
    with_pickle(folder, mark, "evil.bin")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": "evil.bin"}}))
    refused(folder, mark, "evil.bin")
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": "../evil.safetensors"}}))
    refused(folder, mark, "../evil.safetensors")
    index.unlink()
    (folder / "evil.bin").rename(folder / "adapter_model.bin")
    edit(folder / "config.json", transformers_weights="adapter_model.bin")
    refused(folder, mark, "adapter_model.bin")
    (folder / "adapter_model.bin").rename(folder / "model.safetensors")
    edit(folder / "config.json", transformers_weights=None)
    refused(folder, mark, "could not load the model")


def test_checkpoints_of_a_training_run_and_no_weights(folder: Path, mark: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(Leaves(mark)))
    refused(folder, mark, "checkpoint of a training run")
    (folder / ".metadata").unlink()
    (folder / "model.safetensors").unlink()
    refused(folder, mark, "no weights that can be read")


def test_a_pickled_vocabulary_is_refused(folder: Path, mark: Path) -> None:
    (folder / "vocab.pkl").write_bytes(pickle.dumps(Leaves(mark)))
    rote.load(folder)  # its tokenizer.json is what is read
    (folder / "tokenizer.json").unlink()
    refused(folder, mark, "vocab.pkl", "pickle")


# --- the same of a model of the hub, from this machine's cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    place = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(place))
    return place


def snapshot(cache: Path, folder: Path) -> Path:
    """A folder as the hub's model some/model, downloaded once."""
    commit, own = "0" * 40, cache / "models--some--model"
    (own / "refs").mkdir(parents=True)
    (own / "refs" / "main").write_text(commit)
    return Path(shutil.copytree(folder, own / "snapshots" / commit))


def test_a_hub_model_is_loaded_from_the_cache(folder: Path, cache: Path) -> None:
    snapshot(cache, folder)
    assert rote.load("some/model").identity().fingerprint == rote.load(folder).identity().fingerprint
    assert rote.load("some/model").identity().title == "model"


@pytest.mark.parametrize("kind", MAKERS)
def test_a_hub_model_is_refused_as_a_folder_is(kind: str, folder: Path, cache: Path, mark: Path) -> None:
    snapshot(cache, MAKERS[kind](folder, mark))
    of_folder, of_hub = refused(folder, mark), refused("some/model", mark)  # type: ignore[arg-type]
    assert of_hub == of_folder.replace(str(folder), "some/model")


def test_the_bundled_model_passes() -> None:
    safety.refuse_unsafe(find("bundled"), trust=False)
    assert sorted(path.name for path in BUNDLED.iterdir() if path.suffix == ".py") == []
    assert "HF_HUB_OFFLINE" in os.environ
