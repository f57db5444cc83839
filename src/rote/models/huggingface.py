"""Causal language models through transformers: a folder, a hub id or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args
from warnings import warn

import torch
from torch import Tensor, nn

from rote.errors import InputError, ModelError, RoteError, argument
from rote.frames import html_card, html_table, html_text
from rote.models.adapters import merge, read_adapter
from rote.models.base import AdapterIdentity, Hashed, ModelIdentity, ModelOptions
from rote.models.fingerprint import fingerprint, tokenizer_hash, weight_files
from rote.models.memory import KeyMemory, Memory, Replay, position_bytes, remembers
from rote.models.placement import (
    device_of,
    offload_folder,
    offloaded,
    pick_device,
    pick_dtype,
    placement,
    positions_that_fit,
    require_device_map,
    spread,
)
from rote.models.quantised import (
    compute_as_said,
    parameters_of,
    refuse_quantised,
    said,
    settings_of,
    tolerance_of,
    warned,
)
from rote.models.safety import why_not_loaded
from rote.models.sources import Found, quietly
from rote.options import require_known
from rote.scheme import Scheme
from rote.tokens import BosPolicy

with quietly():
    from transformers import GenerationConfig

GENERATED_AT_ONCE = 1024


class HuggingFaceModel:
    """A `LogitModel` around any `AutoModelForCausalLM`."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str = "model",
        revision: str | None = None,
        fingerprint: str = "none",
        hashed: Hashed = "sampled",
        bos: BosPolicy = "auto",
        compile: bool = False,
        trust_remote_code: bool = False,
        label: str | None = None,
        adapter: AdapterIdentity | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self._model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name, self.revision, self.label = name, revision, label
        self.fingerprint, self.hashed, self.trust_remote_code = fingerprint, hashed, trust_remote_code
        self.bos_policy = bos
        self.bos_id = resolve_bos(tokenizer, bos, name)
        self._config = model.config.get_text_config()
        self.eos_ids = _eos_ids(model, tokenizer)
        self.device = device_of(model.get_input_embeddings())
        self.dtype: torch.dtype = model.dtype
        settings = settings_of(model.config)
        self.adapter, self.quantised = adapter, None if settings is None else said(settings, self.dtype)
        self._parameters = (
            sum(p.numel() for p in model.parameters()) if settings is None else parameters_of(model.config)
        )
        self._output = model.get_output_embeddings()
        self._base = model.base_model
        self.warnings: tuple[str, ...] = warn_of_chat(tokenizer, self.bos_id, name)
        unsure = () if self.quantised is None else warned(name, self.quantised, self.device.type)
        for message in (*warnings, *offloaded(model, name), *unsure):
            self.warnings += (message,)
            warn(message, stacklevel=2)
        self.compiled = False
        self._split = self._can_split()
        self._keeps_keys: bool | None = None
        self.vocabulary = int(self._output.weight.shape[0]) if self._split else int(self._config.vocab_size)
        check_tokenizer(tokenizer, self.bos_id, self.vocabulary, name)
        if compile:
            for layer in _layers(self._base):
                layer.compile()  # one graph serves every layer: compiling takes seconds, not a minute
            self.compiled = True

    def __repr__(self) -> str:
        return f"<{_headline(self.identity())}>"

    def _repr_html_(self) -> str:
        own = self.identity()
        return html_card(html_text(_headline(own)), html_table((), [f for f in vars(own).items() if f[1] is not None]))

    @property
    def context_length(self) -> int | None:
        length = getattr(self._config, "max_position_embeddings", None)
        return int(length) if length else None

    @property
    def logit_tolerance(self) -> float:
        return tolerance_of(str(self.dtype).removeprefix("torch."), self.quantised)

    @property
    def batch_tokens(self) -> int:
        if self.device.type == "cuda":
            # Live activations per position: the residual stream, one layer's projections and MLP, in the model's dtype.
            width = 12 * self._config.hidden_size + 3 * (getattr(self._config, "intermediate_size", None) or 0)
            memory = torch.cuda.get_device_properties(self.device).total_memory
            return max(1024, min(26_000, int(0.1 * memory / (width * self.dtype.itemsize))))
        return 1600  # on two cores a little faster than half or twice as much

    def identity(self) -> ModelIdentity:
        return ModelIdentity(
            name=self.name,
            label=self.label,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            fingerprint=self.fingerprint,
            hashed=self.hashed,
            parameters=self._parameters,
            dtype=str(self.dtype).removeprefix("torch."),
            device=self.device.type,
            compiled=self.compiled,
            tokenizer=tokenizer_hash(self.tokenizer),
            bos=self.bos_policy,
            bos_token=self.bos_id,
            bos_text=None if self.bos_id is None else str(self.tokenizer.convert_ids_to_tokens(self.bos_id)),
            adapter=self.adapter,
            quantised=self.quantised,
            placement=placement(self._model),
        )

    @torch.inference_mode()
    def hidden(self, tokens: Tensor) -> Tensor:
        # No attention mask: rows are padded on the right and attention is causal, so no real position sees the padding.
        if not self._split:
            return self._model(input_ids=tokens, use_cache=False).logits  # type: ignore[no-any-return]
        return self._base(input_ids=tokens, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        if not self._split:
            return hidden
        logits: Tensor = self._output(hidden.to(device_of(self._output)))
        if scale := getattr(self._config, "logit_scale", None):
            logits = logits * scale
        if scale := getattr(self._config, "logits_scaling", None):
            logits = logits / scale
        if cap := getattr(self._config, "final_logit_softcapping", None):
            logits = torch.tanh(logits / cap) * cap
        return logits

    @torch.inference_mode()
    def generate(
        self, prompt: Sequence[int], scheme: Scheme, *, length: int, samples: int, seed: int
    ) -> Iterator[tuple[int, ...]]:
        """With transformers' own sampler, in batches, as they are made."""
        draw: dict[str, Any] = {"do_sample": True, "temperature": scheme.temperature, "top_k": scheme.top_k or 0}
        draw |= {"top_p": scheme.top_p or 1.0, "min_p": scheme.min_p}
        ends = {"max_new_tokens": length, "eos_token_id": sorted(self.eos_ids) or None, "pad_token_id": 0}
        settings = GenerationConfig(**ends, **({} if scheme.greedy else draw))
        rows = max(1, min(samples, GENERATED_AT_ONCE, self.memory_positions // (len(prompt) + length)))
        for batch, first in enumerate(range(0, samples, rows)):
            prompts = torch.tensor([prompt], device=self.device).expand(min(rows, samples - first), -1)
            own, self._model.generation_config = self._model.generation_config, settings  # else it would be mixed in
            try:
                with torch.random.fork_rng([] if self.device.type == "cpu" else [self.device]):
                    torch.manual_seed(seed * 2**20 + batch)
                    written = self._model.generate(prompts, attention_mask=torch.ones_like(prompts))
            finally:
                self._model.generation_config = own
            for row in written[:, len(prompt) :].tolist():
                end = next((i for i, token in enumerate(row) if token in self.eos_ids), len(row) - 1)
                yield tuple(row[: end + 1])  # behind EOS there is only padding

    @property
    def memory_positions(self) -> int:
        one = position_bytes(self._config, self.dtype.itemsize)
        return positions_that_fit(self._model, self.device, one, self._config.num_hidden_layers)

    def memory(self, positions: int) -> Memory:
        if self._keeps_keys is None:
            self._keeps_keys = self._can_keep_keys()
        if not self._keeps_keys:
            return Replay(self, positions)
        return self._key_memory(positions)

    def _key_memory(self, positions: int) -> KeyMemory:
        read = self._base if self._split else self._model
        return KeyMemory(read, self._config, positions, logits=not self._split, device=self.device)

    def _can_keep_keys(self) -> bool:
        """Whether reading in parts gives what reading at once does: tried once on the model itself."""
        try:
            if not remembers(self._config):
                raise ValueError("layers of another kind")
            count = min(self.context_length or 300, 300) // 2  # longer than the windows of models that have their own
            memory = self._key_memory(3 * count)
            tokens = torch.arange(1, 2 * count + 1, device=self.device)[None] % int(self._config.vocab_size)
            places = torch.arange(2 * count, device=self.device)[None]
            # The first half, then in one row: the second half after it, and the second half after its first two alone.
            causal = torch.ones(1, count, count, dtype=torch.bool, device=self.device).tril()
            memory.feed(tokens[:, :count], places[:, :0], places[:, :count], causal)
            seen = torch.zeros(1, 2 * count, 3 * count, dtype=torch.bool, device=self.device)
            seen[:, :count, :count], seen[:, :count, count : 2 * count] = True, causal
            seen[:, count:, :2], seen[:, count:, 2 * count :] = True, causal
            again = tokens[:, count:].repeat(1, 2)
            read = memory.feed(
                again, places[:, :count], count + torch.arange(2 * count, device=self.device)[None], seen
            )
            whole = self.hidden(tokens)[0, count:]
            short = self.hidden(torch.cat([tokens[:, :2], tokens[:, count:]], 1))[0, 2:]
            expected, in_parts = self.head(torch.cat([whole, short])).float(), self.head(read[0]).float()
            close = max(self.logit_tolerance, 1e-3)
            if torch.allclose(in_parts, expected, rtol=0, atol=close, equal_nan=True):
                return True
            why = f"logits differ by up to {float((in_parts - expected).abs().max()):.2g}"
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a model raises that knows no such cache, mask or position
            why = f"{type(error).__name__}: {error}"
        message = (
            f"{self.name}: reading in parts does not give what reading at once does ({why}); searches feed every "
            "history anew, which is exact but slow."
        )
        self.warnings += (message,)
        warn(message, stacklevel=2)
        return False

    def _can_split(self) -> bool:
        """Whether base model plus head gives the model's own logits: tried once on the model itself, at load."""
        self._split = True
        if self._output is None or self._base is self._model:
            return False
        tokens = torch.arange(1, 9, device=self.device)[None] % int(self._config.vocab_size)
        with torch.inference_mode():
            whole = self._model(input_ids=tokens, use_cache=False).logits.float()
        try:
            halves = self.head(self.hidden(tokens)).float()
        except (AttributeError, TypeError, ValueError, RuntimeError):
            halves = whole[..., :0]
        close = 1e-5 if self.dtype == torch.float32 else 1e-2
        if halves.shape == whole.shape and torch.allclose(halves, whole, rtol=close, atol=close, equal_nan=True):
            return True
        message = (
            f"{self.name}: base model and output embedding do not give the model's logits; using whole forward passes, "
            "which need more memory."
        )
        self.warnings += (message,)
        warn(message, stacklevel=2)
        return False


def _headline(own: ModelIdentity) -> str:
    kind = own.dtype if own.quantised is None else f"{own.dtype} ({own.quantised})"
    return f"{own.title}: {own.parameters:,} parameters, {kind} on {own.device}, BOS {own.bos}"


def load_huggingface(found: Found, options: ModelOptions) -> HuggingFaceModel:
    """Load what was found, and refused to be unsafe (`rote.models.safety`), with transformers."""
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    transformers.utils.logging.disable_progress_bar()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    require_device_map(options)
    chosen = torch.device(pick_device(options.device))
    name, source, trust = found.name, found.source, options.trust_remote_code
    given = {**found.given, "trust_remote_code": trust}  # left out, transformers would ask on the terminal
    safetensors = None if "gguf_file" in given else True
    adapter = None if options.adapter is None else read_adapter(options.adapter)
    where: dict[str, Any] = {}
    if options.tp_plan is not None:
        from transformers.distributed import DistributedConfig

        from rote.models import parallel

        chosen = parallel.join(options, gguf=safetensors is None)
        where = {"distributed_config": DistributedConfig(tp_plan=options.tp_plan)}
    elif options.device_map is not None:
        where = {"device_map": options.device_map, "offload_folder": offload_folder()}
    try:
        config = AutoConfig.from_pretrained(source, **given)
        if (settings := settings_of(config)) is not None:
            refuse_quantised(name, settings, options)
            where = where or {"device_map": {"": chosen}}
        if options.tp_plan is not None:
            parallel.refuse_uneven(config, name)
        kind = pick_dtype(options.dtype, chosen, config)
        tokenizer = AutoTokenizer.from_pretrained(source, **given)
        model, loading = AutoModelForCausalLM.from_pretrained(  # given its config, it need not parse a GGUF file for it
            source,
            config=config,
            dtype=kind,
            use_safetensors=safetensors,
            output_loading_info=True,
            **where,
            **given,
        )
    except RoteError:
        raise
    except Exception as error:  # whatever a damaged file makes transformers, safetensors or tokenizers raise
        raise ModelError(why_not_loaded(name, error)) from error
    refuse_missing(loading["missing_keys"], name)
    vars(model).pop("generate", None)  # of a custom_generate folder: the check is of transformers' own sampler
    if "gguf_file" in given:
        model.hf_quantizer = None
    if settings is not None:
        compute_as_said(model)
    if not where:
        model = model.to(chosen)
    told: tuple[str, ...] = ()
    if adapter is not None:
        model, told = merge(model, adapter, name, source)
    about: dict[str, Any] = {
        "name": name,
        "revision": options.revision,
        "fingerprint": fingerprint(weight_files(source, found.given), options.fingerprint),
        "hashed": options.fingerprint,
        "bos": options.bos,
        "trust_remote_code": trust,
        "label": options.label,
        "adapter": None if adapter is None else adapter.identity(),
        "warnings": told,
    }
    if options.tp_plan is not None:
        return parallel.load_parallel(model, tokenizer, **about)
    plain = not spread(model) and settings is None
    triton = chosen.type == "cuda" and find_spec("triton") is not None
    return HuggingFaceModel(
        model, tokenizer, compile=plain and triton if options.compile == "auto" else options.compile, **about
    )


def refuse_missing(tensors: Iterable[str], name: str | Path) -> None:
    """transformers fills in random numbers for tensors that the weight files lack; nothing could be said of those."""
    if missing := sorted(tensors):
        raise ModelError(
            f"{name}: its weight files lack {len(missing)} of the model's tensors (the first: {missing[0]}); "
            "get the model's files again, weights and config.json from the same place."
        )


def resolve_bos(tokenizer: Any, policy: BosPolicy, name: str) -> int | None:
    require_known("bos", policy, get_args(BosPolicy))
    own = getattr(tokenizer, "bos_token_id", None)
    if policy == "always" and own is None:
        raise InputError(
            f"{argument('bos', 'always')}, but the tokenizer of {name} has no BOS token; use {argument('bos', 'auto')} "
            "or never."
        )
    return None if policy == "never" or own is None else int(own)


OPENERS = re.compile(r"im_start|start_of_turn|start_header|start_of_role|\b(user|system|human)\b", re.IGNORECASE)
ROLE = r"""['"]?[\s+~{}-]*['"]?\s*(message(\[['"]|\.)role|role\b|system\b|user\b|assistant\b)"""


def warn_of_chat(tokenizer: Any, bos_id: int | None, name: str) -> tuple[str, ...]:
    """A sentence where BOS is what opens a turn of a chat, by its own text or by the tokenizer's chat template."""
    if bos_id is None:
        return ()
    text, templates = str(tokenizer.convert_ids_to_tokens(bos_id)), getattr(tokenizer, "chat_template", None)
    every = templates.values() if isinstance(templates, Mapping) else [templates or ""]
    if not OPENERS.search(text) and not any(re.search(f"({re.escape(text)}|bos_token){ROLE}", str(t)) for t in every):
        return ()
    message = (
        f"{name}: its BOS {text!r} (id {bos_id}) opens a turn of a chat, and here it stands before every prefix, as "
        "if a role followed; a text may then look less known than it is. --bos never puts nothing there."
    )
    warn(message, stacklevel=2)
    return (message,)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    own = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if own is None:
        own = getattr(tokenizer, "eos_token_id", None)
    if own is None:
        return frozenset()
    return frozenset([own] if isinstance(own, int) else own)


def check_tokenizer(tokenizer: Any, bos_id: int | None, vocabulary: int, name: str) -> None:
    """Refuse a tokenizer that could give ids the model does not have.

    Special tokens do not count, but for BOS: no text becomes one, and loaders (of GGUF files) add some of their own.
    """
    if tokenizer is not None and len(tokenizer) > vocabulary:
        special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special and i != bos_id}
        top = max(i for i in tokenizer.get_vocab().values() if i not in special)
        if top >= vocabulary:
            raise ModelError(
                f"{name}: the tokenizer has ids up to {top}, but the model's vocabulary ends at {vocabulary - 1}; "
                "the tokenizer belongs to another model: put the model's own files beside its weights."
            )


def _layers(base: nn.Module) -> list[nn.Module]:
    """The decoder's layers: the longest list of modules in it."""
    lists = [m for m in base.modules() if isinstance(m, nn.ModuleList)]
    return list(max(lists, key=len, default=[]))
