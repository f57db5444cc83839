"""What in a model's files would run when it is loaded: looked for by name, and refused before anything is opened."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rote.errors import ModelError, argument
from rote.models.sources import GIVE, Found, quietly

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_VOCABULARIES = {"vocab.pkl", "vocab.bin"}
DISTRIBUTED = re.compile(r"\.metadata|.*\.distcp|shard-\d+-model-.*")


def refuse_unsafe(found: Found, *, trust: bool, masked: bool = False) -> None:
    """Raise a ModelError where transformers would run code that came with the model, or open a pickle of it.

    `masked`: it is to be loaded as a masked model, not as a causal one. `trust` lets Python files run, as their reader
    has decided. It opens no pickles: those can be converted, not read.
    """
    _never_ask()
    gguf = "gguf_file" in found.given
    try:
        config = {} if gguf else config_of(found)
        tokenizer = _tokenizer_config(found)
    except Exception as error:  # whatever a missing or damaged file makes transformers raise
        raise ModelError(why_not_loaded(found.name, error)) from error
    _refuse_adapter(found)
    if not trust:
        refuse_code(found, config, tokenizer, masked=masked)
    if not gguf:
        _refuse_pickled_weights(found, config)
    refuse_pickled_tokenizer(found)


def refuse_unsafe_tokenizer(found: Found) -> None:
    """The same of the tokenizer alone; nobody is asked to trust anything for it."""
    _never_ask()
    config = {} if "gguf_file" in found.given else config_of(found)
    refuse_code(found, {"model_type": config.get("model_type")}, _tokenizer_config(found))
    refuse_pickled_tokenizer(found)


def why_not_loaded(name: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"could not load the model {name!r}: {first} {GIVE}"


def _never_ask() -> None:
    """No question on the terminal, whatever loads a class of a folder: transformers reads its answer from stdin."""
    with quietly():
        from transformers import dynamic_module_utils

    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0


def config_of(found: Found) -> dict[str, Any]:
    """config.json as transformers reads it: it may name another file that holds the real one."""
    from transformers import PreTrainedConfig

    return dict(PreTrainedConfig.get_config_dict(found.source, **found.given)[0])


def _tokenizer_config(found: Found) -> dict[str, Any]:
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    return dict(get_tokenizer_config(found.source, **{k: v for k, v in found.given.items() if k != "gguf_file"}))


# --- code


def refuse_code(found: Found, config: Mapping[str, Any], tokenizer: Mapping[str, Any], *, masked: bool = False) -> None:
    """Refuse a model that cannot be loaded without Python files of its own.

    One that transformers knows by itself is loaded by transformers' own code, whatever else its folder offers.
    """
    wanted = [*_model_classes(config, masked), *_tokenizer_classes(config, tokenizer)]
    if wanted:
        upstream = sorted({ref.partition("--")[0] for _, ref in wanted if "--" in ref})
        where = f"Python files of {' and '.join(upstream)}" if upstream else "Python files that come with it"
        named = " and ".join(dict.fromkeys(f"{ref.rpartition('--')[2]} ({file})" for file, ref in wanted))
        _refuse_running(found, f"it wants to run {named}: {where}")
    for kernel in _kernels(config):
        _refuse_running(found, f"config.json wants attention to be computed by {kernel}: code from the hub")
    for file, name in (("tokenizer_config.json", tokenizer), ("config.json", config)):
        _refuse_odd_class(found, file, name.get("tokenizer_class"))


def _refuse_running(found: Found, what: str) -> None:
    raise ModelError(
        f"{found.name} does not load without code that transformers does not have: {what}. Such code can do all that "
        "you can do on this machine: read and send your files, or give out numbers that are not the model's. Nothing "
        f"of it was run. If you have read it and trust it, {argument('trust_remote_code', True)} runs it, and every "
        "report will say so."
    )


def _model_classes(config: Mapping[str, Any], masked: bool) -> Iterator[tuple[str, str]]:
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kinds = MODEL_FOR_MASKED_LM_MAPPING if masked else MODEL_FOR_CAUSAL_LM_MAPPING
    wanted = "AutoModelForMaskedLM" if masked else "AutoModelForCausalLM"
    own, kind = config.get("auto_map"), config.get("model_type")
    own = own if isinstance(own, Mapping) else {}
    native = kind in CONFIG_MAPPING
    if not native and "AutoConfig" in own:
        yield "config.json", str(own["AutoConfig"])
    if wanted in own and not (native and CONFIG_MAPPING[kind] in kinds):
        yield "config.json", str(own[wanted])


def _tokenizer_classes(config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A tokenizer that names no class of transformers is taken at its word: another might cut the text differently."""
    from transformers import CONFIG_MAPPING, TOKENIZER_MAPPING

    own, kind, name = tokenizer.get("auto_map"), config.get("model_type"), tokenizer.get("tokenizer_class")
    own = own.get("AutoTokenizer") if isinstance(own, Mapping) else own
    if not own:
        return
    if name is None and kind in CONFIG_MAPPING and CONFIG_MAPPING[kind] in TOKENIZER_MAPPING:
        return
    if name is None or _known_class(name) is None:
        for ref in [own] if isinstance(own, str) else [ref for ref in own if ref]:
            yield "tokenizer_config.json", str(ref)


def _known_class(name: object) -> Any:
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    return tokenizer_class_from_name(name) if isinstance(name, str) else None


def _refuse_odd_class(found: Found, file: str, name: object) -> None:
    """A tokenizer's class is looked up among all of transformers: AutoModel would load anything, and ask nobody."""
    from transformers import PreTrainedTokenizerBase

    known = _known_class(name)
    if known is None or (isinstance(known, type) and issubclass(known, PreTrainedTokenizerBase)):
        return
    if type(known).__name__ != "DummyObject":  # a tokenizer whose package is missing says so itself
        raise ModelError(
            f"{found.name}: {file} says that its tokenizer is a {name}, which is no tokenizer. Nothing of it was "
            "loaded; use the files of the model's own makers."
        )


def _kernels(content: object) -> Iterator[str]:
    """What config.json, in any part of it, wants fetched from the hub to compute attention or experts with."""
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if str(key).strip("_") not in ("attn_implementation", "experts_implementation"):
            yield from _kernels(value)
            continue
        for name in value.values() if isinstance(value, Mapping) else [value]:
            flash = str(name).removeprefix("paged|").startswith("flash") and find_spec("flash_attn") is None
            if "/" in str(name) or (flash and find_spec("kernels") is not None):
                yield str(name)


def _refuse_adapter(found: Found) -> None:
    if "adapter_config.json" in found.files:
        raise ModelError(
            f"{found.name} has an adapter beside its weights (adapter_config.json), which counts or not with what else "
            f"is installed. Move the adapter's files to a folder of their own: {argument('adapter')} takes that "
            "folder, and without it the model is measured as it is."
        )


# --- pickles


def _refuse_pickled_weights(found: Found, config: Mapping[str, Any]) -> None:
    chosen = config.get("transformers_weights")
    there = [name for name in ((chosen,) if chosen else WEIGHTS) if name in found.files]
    pickles = sorted(name for name in found.files if name.endswith((*PICKLES, ".bin.index.json")))
    if any(DISTRIBUTED.fullmatch(name) for name in found.files):
        raise ModelError(
            f"{found.name} is a checkpoint of a training run on several devices, and part of it may be pickled. Save "
            "the model from where it was trained: model.save_pretrained(folder)."
        )
    if not there:
        if pickles:
            _refuse_pickle(found, pickles[0])
        raise ModelError(f"{found.name} has no weights that can be read: neither {' nor '.join(WEIGHTS)} is there.")
    for part in [there[0], *(_shards(found, there[0]) if there[0].endswith(".index.json") else ())]:
        if not part.endswith((".safetensors", ".safetensors.index.json")) or Path(part).name != part:
            _refuse_pickle(found, part)


def _shards(found: Found, index: str) -> list[str]:
    from transformers.utils.hub import cached_file

    try:
        listed = json.loads(Path(str(cached_file(found.source, index, **found.given))).read_text("utf-8"))
        return sorted({str(name) for name in listed["weight_map"].values()})
    except Exception as error:  # damaged, or not to be had
        raise ModelError(why_not_loaded(found.name, error)) from error


def _refuse_pickle(found: Found, file: str) -> None:
    raise ModelError(
        f"{found.name}: its weights are in {file}, which is a pickle or may be one. Reading a pickle can run any code "
        "that somebody put into it, so it was not opened. Get the same model as safetensors, or convert it where "
        "nothing can be harmed or taken, such as a container without a network: "
        "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW), and copy the "
        "tokenizer's files. safetensors hold numbers and nothing that runs."
    )


def refuse_pickled_tokenizer(found: Found) -> None:
    pickled = sorted(PICKLED_VOCABULARIES & found.files)
    if pickled and "tokenizer.json" not in found.files:
        raise ModelError(
            f"{found.name}: its tokenizer is in {pickled[0]}, which is a pickle. Reading a pickle can run any code "
            "that somebody put into it, so it was not opened. Use a folder of the model that has a tokenizer.json."
        )
