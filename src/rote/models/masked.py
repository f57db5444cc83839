"""How likely a word is where it stands, by a masked model: all of its pieces are hidden at once, nothing else is.

Pieces are the tokens that overlap a word. A text that does not fit the model is read in a window around each word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rote.errors import InputError, ModelError, RoteError, argument
from rote.models.base import BUNDLED_MASKED, ModelOptions, load
from rote.models.causal import CausalReference
from rote.models.fingerprint import fingerprint, tokenizer_hash, weight_files
from rote.models.huggingface import check_tokenizer, refuse_missing
from rote.models.pieces import Pieces, refuse_no_numbers, refuse_no_words
from rote.models.placement import pick_device, pick_dtype, require_device_map
from rote.models.probed import ReferenceIdentity, WordReference, WordScore
from rote.models.quantised import LOGIT_TOLERANCE
from rote.models.safety import config_of, refuse_unsafe, why_not_loaded
from rote.models.sources import Found, find

UNLIMITED = 512
"""The window of a model that does not say how much it can read at once, in tokens."""

LOGIT_BYTES = {"cuda": 1 << 30}  # held at once; 64 MiB elsewhere


class MaskedReference:
    """A `WordReference` around any `AutoModelForMaskedLM` with a fast tokenizer that has a mask token."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "model",
        revision: str | None = None,
        fingerprint: str = "none",
        trust_remote_code: bool = False,
        label: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        self._model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name, self.revision, self.label = name, revision, label
        self.fingerprint, self.trust_remote_code = fingerprint, trust_remote_code
        self._config = model.config.get_text_config()
        self._pieces = Pieces(tokenizer, name)
        self.vocabulary = int(self._config.vocab_size)
        if self._pieces.mask is None:
            raise ModelError(
                f"the tokenizer of {name} has no mask token, so no word can be hidden from the model; give a masked "
                "model with its own tokenizer, or a causal model."
            )
        self._mask: int = self._pieces.mask
        check_tokenizer(tokenizer, self._mask, self.vocabulary, name)
        self.device = model.get_input_embeddings().weight.device
        self.dtype: torch.dtype = model.dtype
        self.window = _window(model, tokenizer)
        if self.window <= self._pieces.around:
            raise ModelError(f"{name} can read {self.window} tokens at once, which leaves no room for a text.")
        self.batch_tokens = batch_tokens or (16_384 if self.device.type == "cuda" else 2048)
        self._picks = self._can_pick()

    def __repr__(self) -> str:
        own = self.identity()
        return f"<{own.title}: masked, {own.parameters:,} parameters, {own.dtype} on {own.device}>"

    @property
    def logit_tolerance(self) -> float:
        """How far two correct computations of one logit may differ (other batch-mates)."""
        return LOGIT_TOLERANCE.get(self.dtype, 0.5)

    def identity(self) -> ReferenceIdentity:
        return ReferenceIdentity(
            kind="masked",
            name=self.name,
            label=self.label,
            revision=self.revision,
            fingerprint=self.fingerprint,
            parameters=sum(p.numel() for p in self._model.parameters()),
            vocabulary=self.vocabulary,
            window=self.window,
            dtype=str(self.dtype).removeprefix("torch."),
            device=self.device.type,
            tokenizer=tokenizer_hash(self.tokenizer),
            trust_remote_code=self.trust_remote_code or None,
        )

    def score_words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[WordScore]:
        """For each word: the sum of its pieces' log-likelihoods and the worst of their ranks, in nats and from 0.

        A word with a piece that is the unknown token, with no piece, or with more than the window holds has no score.
        """
        refuse_no_words(text, spans)
        read = self._pieces.of(text)
        room = self.window - self._pieces.around
        found: list[WordScore] = []
        wanted: list[_Masked] = []
        for number, span in enumerate(spans):
            pieces = read.pieces(*span)
            found.append(WordScore(log_likelihood=None, rank=None, pieces=len(pieces)))
            if pieces and len(pieces) <= room and self._pieces.unknown not in {read.ids[i] for i in pieces}:
                start = _window_start(pieces, room, len(read.ids))
                wanted.append(_Masked(number, start, [i - start for i in pieces]))
        length = min(room, len(read.ids))
        for batch in self._batches(wanted, length + self._pieces.around):
            rows = [read.ids[word.start : word.start + length] for word in batch]
            for word, (total, rank) in zip(batch, self._score(rows, [word.places for word in batch]), strict=True):
                found[word.number] = WordScore(log_likelihood=total, rank=rank, pieces=len(word.places))
        return found

    def _batches(self, wanted: list[_Masked], length: int) -> Iterator[list[_Masked]]:
        """All rows of a text are equally long, so that no row is padded."""
        limit = LOGIT_BYTES.get(self.device.type, 1 << 26) // (4 * self.vocabulary)
        batch: list[_Masked] = []
        logits = 0
        for word in wanted:
            own = len(word.places) if self._picks else length
            if batch and ((len(batch) + 1) * length > self.batch_tokens or logits + own > limit):
                yield batch
                batch, logits = [], 0
            batch.append(word)
            logits += own
        if batch:
            yield batch

    @torch.inference_mode()
    def _score(self, rows: list[list[int]], places: list[list[int]]) -> list[tuple[float, int]]:
        before, after = self._pieces.before, self._pieces.after
        tokens = torch.tensor([[*before, *row, *after] for row in rows], device=self.device)
        row_of = torch.tensor([row for row, own in enumerate(places) for _ in own], device=self.device)
        place_of = torch.tensor([len(before) + place for own in places for place in own], device=self.device)
        truth = tokens[row_of, place_of]
        tokens[row_of, place_of] = self._mask
        logits = self._logits(tokens, row_of, place_of).float().to(self.device)
        own = logits.gather(1, truth[:, None])
        ranks = (logits > own).sum(1).tolist()
        log_probs = logits.log_softmax(1).gather(1, truth[:, None])[:, 0].double()
        refuse_no_numbers(log_probs, self.name)
        values = log_probs.tolist()
        scores, at = [], 0
        for word in places:
            part = slice(at, at + len(word))
            scores.append((sum(values[part]), max(ranks[part])))
            at = part.stop
        return scores

    def _logits(self, tokens: Tensor, row_of: Tensor, place_of: Tensor) -> Tensor:
        """[chosen places, vocabulary]"""
        if not self._picks:
            logits = self._whole(tokens)
            return logits[row_of.to(logits.device), place_of.to(logits.device)]

        def pick(_module: nn.Module, _given: Any, output: Any) -> Any:
            states = output[0]
            states = states[row_of.to(states.device), place_of.to(states.device)][None]
            if isinstance(output, tuple):
                return (states, *output[1:])
            output.last_hidden_state = states
            return output

        hook = self._model.base_model.register_forward_hook(pick)
        try:
            return self._whole(tokens)[0]
        finally:
            hook.remove()

    def _whole(self, tokens: Tensor) -> Tensor:
        return self._model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits  # type: ignore[no-any-return]

    @torch.inference_mode()
    def _can_pick(self) -> bool:
        """Whether the head gives the same where it is handed the chosen places alone: tried once on the model itself.

        If not, it reads all places, which takes longer.
        """
        count = min(8, self.window)
        tokens = (torch.arange(count, device=self.device) % self.vocabulary)[None].repeat(2, 1)
        tokens[1, count // 2] = self._mask
        row_of = torch.tensor([0, 1, 1], device=self.device)
        place_of = torch.tensor([0, count // 2, count - 1], device=self.device)
        if self._model.base_model is self._model:
            return False
        whole = self._whole(tokens)[row_of, place_of].float()
        self._picks = True
        try:
            picked = self._logits(tokens, row_of, place_of).float()
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError):
            return False
        close = 1e-4 if self.dtype == torch.float32 else 5e-2
        return picked.shape == whole.shape and torch.allclose(picked, whole, rtol=close, atol=close, equal_nan=True)


@dataclass(frozen=True, slots=True)
class _Masked:
    """A word to be hidden: where in the answer it goes, where its window starts, its pieces' places in that."""

    number: int
    start: int
    places: list[int]


def _window_start(pieces: Sequence[int], room: int, count: int) -> int:
    """So that as many tokens stand before the word as after it, or one less; but the window stays in the text."""
    before = (room - len(pieces)) // 2
    return max(0, min(pieces[0] - before, count - room))


def _window(model: Any, tokenizer: Any) -> int:
    """How many tokens the model reads at once, special ones included."""
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    for name, module in model.named_modules():
        # Models of RoBERTa's kind count positions from behind the padding token's id, so that the first ones are lost.
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            limits.append(module.num_embeddings - module.padding_idx - 1)
    known = [int(limit) for limit in limits if limit and 0 < limit < 10**9]
    return min(known) if known else UNLIMITED


# --- loading


def load_reference(name: str | Path, options: ModelOptions = ModelOptions()) -> WordReference:
    """A masked model, or a causal one that stands in for it: a Hugging Face folder, a hub id, or "bundled".

    Which it is, its config.json says. A GGUF file is causal. "bundled" is the masked model that comes with Rote.
    """
    if str(name) == "bundled":
        found = replace(find(BUNDLED_MASKED), name="bundled")
    else:
        found = find(_without_prefix(name), options.revision)
    if _kind(found) == "causal":
        return CausalReference(load(name, options))
    refuse_unsafe(found, trust=options.trust_remote_code, masked=True)
    return _load_masked(found, options)


def _without_prefix(name: str | Path) -> str | Path:
    return name if isinstance(name, Path) or Path(name).exists() else name.removeprefix("hf:")


def _kind(found: Found) -> Literal["masked", "causal"]:
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    if "gguf_file" in found.given:
        return "causal"
    try:
        config = config_of(found)
    except Exception as error:  # whatever a missing or damaged file makes transformers raise
        raise ModelError(why_not_loaded(found.name, error)) from error
    kind, classes = config.get("model_type"), [str(name) for name in config.get("architectures") or ()]
    auto = config.get("auto_map")
    own = set(auto if isinstance(auto, Mapping) else ())
    masked, causal = MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(kind), MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    if not config.get("is_encoder_decoder"):
        if masked in classes or (masked and any(name.endswith("ForPreTraining") for name in classes)):
            return "masked"
        if causal in classes or (causal and any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in classes)):
            return "causal"
        if "AutoModelForMaskedLM" in own:
            return "masked"
        if "AutoModelForCausalLM" in own:
            return "causal"
        if not classes and (masked or causal):
            return "masked" if masked else "causal"
    said = ", ".join(classes) or kind or "of no kind that it tells"
    raise ModelError(
        f"{found.name} is neither a masked nor a causal language model: its config.json says that it is {said}. Give "
        "one as reference that was saved as AutoModelForMaskedLM or AutoModelForCausalLM."
    )


def _load_masked(found: Found, options: ModelOptions) -> MaskedReference:
    import transformers
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    log = transformers.utils.logging
    log.disable_progress_bar()
    told = log.get_verbosity()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    for option in ("adapter", "tp_plan"):
        if (value := getattr(options, option)) is not None:
            raise InputError(f"{argument(option, value)} is for causal models, and {found.name} is a masked one.")
    require_device_map(options)
    chosen = torch.device(pick_device(options.device))
    given = {**found.given, "trust_remote_code": options.trust_remote_code}
    try:
        log.set_verbosity_error()  # most masked checkpoints hold heads of other tasks too, and it would list them
        config = AutoConfig.from_pretrained(found.source, **given)
        tokenizer = AutoTokenizer.from_pretrained(found.source, **given)
        model, loading = AutoModelForMaskedLM.from_pretrained(
            found.source,
            config=config,
            dtype=pick_dtype(options.dtype, chosen, config),
            device_map=options.device_map,
            use_safetensors=True,
            output_loading_info=True,
            **given,
        )
    except RoteError:
        raise
    except Exception as error:  # whatever a damaged file makes transformers, safetensors or tokenizers raise
        raise ModelError(why_not_loaded(found.name, error)) from error
    finally:
        log.set_verbosity(told)
    refuse_missing(loading["missing_keys"], found.name)
    if options.device_map is None:
        model = model.to(chosen)
    return MaskedReference(
        model,
        tokenizer,
        name=found.name,
        revision=options.revision,
        fingerprint=fingerprint(weight_files(found.source, found.given), options.fingerprint),
        trust_remote_code=options.trust_remote_code,
        label=options.label,
    )
