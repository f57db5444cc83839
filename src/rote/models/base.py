"""What a model can do, as types; how it is loaded; and `load`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from rote.errors import InputError, ModelError, argument
from rote.options import Option, refuse_idle, require_flag, require_kind, require_known, require_number, require_whole
from rote.progress import Progress
from rote.scheme import Scheme
from rote.tokens import BosPolicy, Example

if TYPE_CHECKING:  # what is read of models here needs no torch
    from torch import Tensor

    from rote.listed import ListedScores
    from rote.models.memory import Memory
    from rote.models.workers import Work

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Hashed = Literal["sampled", "whole"]
DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is loaded.

    `dtype="auto"`: float32 on the CPU; on a GPU the checkpoint's own 16-bit type, or bfloat16. `bos="auto"` puts the
    tokenizer's BOS before every prefix if it has one. `device_map` spreads a large model over devices, the processor's
    memory and the disk (accelerate): a rule, or in Python a mapping of modules to devices, "cpu" or "disk". `tp_plan`
    cuts each layer across the processes that torchrun started. `adapter` is merged into the model (PEFT).
    `threads`: those of the processor; what is left to torch may change with what else runs on the machine.
    `compile="auto"` compiles the layers on CUDA, where Triton is installed. `trust_remote_code` lets Python files that
    come with a model run; without it nothing of a model's folder does. `fingerprint="whole"` hashes every byte of the
    weights; "sampled" reads a part of every MiB of large files. `label` is what titles and tables call the model.

    The last five are for served models, and of the others `bos` and `label` alone. `tokenizer`: a model folder, a .gguf
    file or a hub id that has the server's tokenizer; by default the served model's own name. `listed`: how many
    log-probs are asked for at each position: well above a scheme's top_k, since tokens may tie. `key`: the name of the
    environment variable that holds the server's key. `timeout`: seconds for a whole reply.
    """

    device: Annotated[str, Option("auto, cpu, cuda, cuda:N or mps.")] = "auto"
    dtype: Annotated[Dtype, Option("What the model computes in.")] = "auto"
    device_map: Annotated[
        str | Mapping[str, Any] | None,
        Option("Spread a large model over devices: auto, balanced, balanced_low_0 or sequential."),
    ] = None
    tp_plan: Annotated[
        Literal["auto"] | None, Option("Cut every layer across the processes of torchrun (tensor parallel).")
    ] = None
    adapter: Annotated[str | None, Option("PEFT adapter: a folder or hub id; merged into the model.")] = None
    revision: Annotated[str | None, Option("Revision of a hub model.")] = None
    bos: Annotated[BosPolicy, Option("BOS before every prefix; auto: if the tokenizer has one.")] = "auto"
    threads: Annotated[int | None, Option("Processor threads.", default="torch's choice")] = None
    compile: bool | Literal["auto"] = "auto"
    trust_remote_code: Annotated[
        bool, Option("Let Python files that come with the model run. They can do anything you can.")
    ] = False
    fingerprint: Annotated[Hashed, Option("How much of large weight files is hashed.")] = "sampled"
    label: Annotated[str | None, Option("What to call the model, instead of its name or path.")] = None
    tokenizer: Annotated[
        str | None,
        Option("Of a served model: the folder or hub id that has its tokenizer.", default="the model's name"),
    ] = None
    listed: Annotated[int, Option("Of a served model: log-probs asked for at each position.")] = 64
    key: Annotated[str | None, Option("Of a served model: environment variable that holds the key, by its NAME.")] = (
        None
    )
    concurrency: Annotated[int, Option("Of a served model: requests on their way at once.")] = 8
    timeout: Annotated[float, Option("Of a served model: seconds that a reply may take.")] = 600.0

    def __post_init__(self) -> None:
        require_known("dtype", self.dtype, get_args(Dtype))
        require_known("bos", self.bos, get_args(BosPolicy))
        require_kind("device", self.device, str, "auto, cpu, cuda, cuda:N or mps")
        require_known("compile", str(self.compile).lower(), ("true", "false", "auto"))
        require_flag("trust_remote_code", self.trust_remote_code)
        require_known("fingerprint", self.fingerprint, get_args(Hashed))
        if self.threads is not None:
            require_whole("threads", self.threads)
        if isinstance(self.device_map, str):
            require_known("device_map", self.device_map, get_args(DeviceMap))
        elif self.device_map is not None:
            require_kind("device_map", self.device_map, Mapping, "a mapping of modules to devices")
        if self.tp_plan not in (None, "auto"):
            raise InputError(f"{argument('tp_plan')} must be auto, not {self.tp_plan!r}.")
        if self.adapter is not None:
            require_kind("adapter", self.adapter, str, "the folder or hub id of an adapter")
            if not self.adapter.strip():
                raise InputError(f"{argument('adapter')} is empty; give an adapter's folder, or leave it out.")
        if self.label is not None:
            require_kind("label", self.label, str, "a name for the model")
            if not self.label.strip():
                raise InputError(f"{argument('label')} is empty; give a name for the model, or leave it out.")
        if self.tokenizer is not None:
            require_kind("tokenizer", self.tokenizer, str, "a model folder, a .gguf file or a hub id")
        require_whole("listed", self.listed)
        require_whole("concurrency", self.concurrency, most=1024)
        if not 0 < require_number("timeout", self.timeout) < math.inf:
            raise InputError(f"{argument('timeout')} must be a number of seconds above 0, not {self.timeout}.")


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """What is known of a model that a server runs: nothing about its weights.

    `url`: the server's address up to /v1. `model`: the model's name there. `version`: what the server says it is; None
    where it does not. `tokenizer`: where ours is from. `listed`: how many log-probs are asked for at each position;
    None: none are. `sent`: everything that is sent beside a prompt that is scored.
    """

    url: str
    protocol: str
    model: str | None = None
    version: str | None = None
    tokenizer: str | None = None
    listed: int | None = None
    sent: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AdapterIdentity:
    """An adapter that was merged into a model: its kind, as `LORA rank 8`, and a hash of every byte of its files."""

    name: str
    kind: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Everything about a model that decides a number; the fingerprint is a hash of the weights on any device.

    `hashed`: whether that hash is one of every byte. `label` decides nothing: it is what the model is to be called.
    Of a model that is `served`, weights cannot be looked at: neither hashed nor counted; and `dtype` is the coarsest
    type whose rounding its numbers show, whatever the server computes in.
    `quantised`: how, if its checkpoint is. `tensor_parallel`: over how many processes each layer was cut. `placement`:
    what lay where, if it was spread; that decides nothing, as `device` is where all of it is computed.
    """

    name: str
    label: str | None = None
    revision: str | None
    trust_remote_code: bool
    fingerprint: str | None
    hashed: Hashed | None
    parameters: int | None
    dtype: str
    device: str
    compiled: bool
    tokenizer: str | None
    bos: BosPolicy
    bos_token: int | None
    bos_text: str | None
    served: ServedModel | None = None
    adapter: AdapterIdentity | None = None
    quantised: str | None = None
    tensor_parallel: int | None = None
    placement: str | None = None

    @property
    def title(self) -> str:
        """What the model is called wherever it need not be found again; with the key of what it is made of."""
        return full_title(self)


class Titled(Protocol):
    """What a title is made of."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def adapter(self) -> AdapterIdentity | None: ...


def full_title(model: Titled) -> str:
    """A model's title, with the adapter that was merged into it; a label says all by itself."""
    own = title_of(model.name, model.label)
    return own if model.label or model.adapter is None else f"{own} + {title_of(model.adapter.name, None)}"


def title_of(name: str, label: str | None) -> str:
    """A model's label; without one, the last part of its path or hub id."""
    return label or re.split(r"[/\\]", name.rstrip("/\\"))[-1].removesuffix(".gguf") or name


@runtime_checkable
class TokenModel(Protocol):
    """What every source of a model tells about it, whatever it can do."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def bos_id(self) -> int | None:
        """The token put before every prefix under this model's BOS policy; None: nothing is."""

    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def context_length(self) -> int | None:
        """The most positions the model takes, BOS included; None: unlimited."""

    @property
    def logit_tolerance(self) -> float:
        """How far two correct computations of one logit may differ (other batch-mates, other lengths)."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there was to warn of when the model was loaded: runs made with it say so too."""

    def identity(self) -> ModelIdentity:
        """Everything about the model that decides a number: name, revision, weights, dtype, tokenizer, BOS."""


@runtime_checkable
class SuffixScorer(TokenModel, Protocol):
    """It says how likely given suffixes are, and little about other tokens: enough for p_z, scans and rates."""

    def refuse(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> None:
        """Raise an InputError that names what can be seen to be impossible, before anything is scored."""

    def score_suffixes(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> Iterator[ListedScores]:
        """For each example, in order: its suffix tokens' scores under every scheme, or bounds where it cannot tell."""


@runtime_checkable
class LogitModel(TokenModel, Protocol):
    """Next-token logits for given token ids, in two halves so that only the positions that matter pay for the head.

    `hidden` maps right-padded token ids [batch, length] to one state per position; since each position depends only on
    the ones before it, padding on the right changes nothing. `head` maps chosen states [rows, size] to logits
    [rows, vocabulary]. Near-verbatim searches and reconstruction need it; scores follow from it.
    """

    @property
    def batch_tokens(self) -> int:
        """How many positions to feed at once when the caller leaves it to us."""

    @property
    def compiled(self) -> bool: ...
    @property
    def device(self) -> Any: ...
    def hidden(self, tokens: Tensor) -> Tensor: ...
    def head(self, hidden: Tensor) -> Tensor: ...
    @property
    def memory_positions(self) -> int:
        """How many positions a memory may hold without crowding out everything else."""

    def memory(self, positions: int) -> Memory:
        """An empty memory for so many positions: searches read with it instead of `hidden`."""


@runtime_checkable
class GeneratingModel(TokenModel, Protocol):
    """It generates by itself, apart from anything Rote computes: enough for an outside check."""

    def generate(
        self, prompt: Sequence[int], scheme: Scheme, *, length: int, samples: int, seed: int
    ) -> Iterator[tuple[int, ...]]:
        """`samples` independent outputs of `length` tokens, or ended by EOS, which is then the last token.

        `prompt` has its BOS already. The same seed gives the same outputs on the same kind of machine.
        """


@runtime_checkable
class ServedGenerator(GeneratingModel, Protocol):
    """It generates behind a server, which may read a prompt as other tokens, or sample in another way."""

    def unwritable(self, examples: Sequence[Example]) -> list[str]:
        """The ids of examples whose prefix the server would read as other tokens."""

    def refuse_writing(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> None:
        """Raise an InputError that names what cannot be generated: a prefix, or a scheme. Nothing is sent."""


@runtime_checkable
class SpreadModel(TokenModel, Protocol):
    """A model that workers of a cluster have loaded. Nothing is computed here: functions are sent to where it is."""

    @property
    def batch_tokens(self) -> int: ...
    @property
    def memory_positions(self) -> int: ...
    @property
    def device(self) -> Any: ...
    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(model, *arguments)`, on one worker."""

    def work(self, function: Callable[..., Any], tasks: Mapping[Any, tuple[Any, ...]], tell: Progress) -> Work:
        """The same for many tasks by their keys, on all workers."""


ScoringModel = LogitModel | SuffixScorer | SpreadModel
"""What p_z can be computed with."""

ON_ENGINES = "on engines"
RunModel = Annotated[ScoringModel, ON_ENGINES]
"""The model of a job that scores shard by shard: workers of a cluster may do that, and the command says so."""


def searchable(model: TokenModel, method: str, what: str) -> None:
    """Refuse a model that cannot be searched by this method: for samples it is enough that it generates."""
    if not (method == "sample" and isinstance(model, GeneratingModel)):
        with_logits(model, what)


def with_logits(model: TokenModel, what: str) -> LogitModel:
    """The model, if its logits are at hand, which `what` needs; some sources of models only score given suffixes."""
    if isinstance(model, SpreadModel):
        raise ModelError(
            f"{model.identity().name} is on workers of a cluster, and {what} needs its logits here: load the model "
            "itself."
        )
    if not isinstance(model, LogitModel):
        raise ModelError(
            f"{model.identity().name} gives the probabilities of given tokens alone, and {what} needs its logits: load "
            "the model itself."
        )
    return model


BUNDLED = Path(__file__).parent.parent / "data" / "model"
BUNDLED_MASKED = Path(__file__).parent.parent / "data" / "masked"
BUNDLED_TEXT = Path(__file__).parent.parent / "data" / "alice.txt"
BUNDLED_CHAT = Path(__file__).parent.parent / "data" / "chat"
BUNDLED_PASSAGES = Path(__file__).parent.parent / "data" / "passages.jsonl"
BUNDLED_MEMBERS = Path(__file__).parent.parent / "data" / "members.jsonl"

SOURCES = {
    "hf": "rote.models.sources:load_found",
    "vllm": "rote.models.completions:load_vllm",
    "server": "rote.models.completions:load_server",
}
"""Where models come from, by the prefix of their names: the function that loads one, given the name after it."""

SERVED = ("tokenizer", "listed", "key", "concurrency", "timeout")
HERE = (
    "device", "dtype", "device_map", "tp_plan", "adapter", "revision", "threads", "compile", "trust_remote_code",
    "fingerprint",
)  # fmt: skip
"""The options of models that are served, and of those that run here."""


def is_served(name: str | Path) -> bool:
    """Whether a server runs the model of this name."""
    return re.match(r"(vllm|server):https?://", str(name), re.IGNORECASE) is not None


def load(
    name: Annotated[
        str | Path,
        Option("Model folder, hub id, .gguf file, 'bundled', or vllm:URL/v1/NAME, server:URL/v1/NAME.", "--model/-m"),
    ],
    options: ModelOptions = ModelOptions(),
) -> LogitModel:
    """Load a causal language model: a Hugging Face folder or hub id, a GGUF file, or "bundled".

    A prefix says where it comes from: `hf:NAME`, which is also what a name without one means. `vllm:http://HOST/v1/NAME`
    and `server:http://HOST/v1/NAME` are served: such a model scores given suffixes and generates (`SuffixScorer`,
    `GeneratingModel`), and what needs its logits is refused.
    """
    require_kind("model", name, str | Path, "the name or the path of a model")  # type: ignore[arg-type]
    require_kind("options", options, ModelOptions, "a rote.ModelOptions")
    if not str(name).strip():
        raise InputError(f"{argument('model')} is empty; give a model folder, a .gguf file, a hub id or 'bundled'.")
    source = source_of(name)
    served = source in ("vllm", "server")
    for option in HERE if served else SERVED:
        what = "a model that runs here" if served else "a served model, vllm:http://HOST/v1/NAME or server:http://..."
        refuse_idle(options, option, False, what)
    module, function = SOURCES[source].split(":")
    loader: Callable[[str | Path, ModelOptions], LogitModel] = getattr(import_module(module), function)
    named = str(name).startswith(f"{source}:") and not Path(name).exists()
    return loader(str(name).removeprefix(f"{source}:") if named else name, options)


def source_of(name: str | Path) -> str:
    """Which source of models a name is of, by its prefix; one that does not exist is refused."""
    source, separator, _ = str(name).partition(":")
    if not separator or Path(name).exists() or len(source) == 1:  # a path of its own, or a drive's letter
        return "hf"
    if source not in SOURCES:
        raise InputError(
            f"there is no source of models called {source!r}, as {argument('model')} {str(name)!r} asks for; there is "
            f"{', '.join(SOURCES)}. A model folder, .gguf file or hub id needs no prefix."
        )
    return source
