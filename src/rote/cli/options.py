"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from rote.cli.screen import messages
from rote.errors import InputError

if TYPE_CHECKING:
    from rote.extraction.near.search import Near
    from rote.models.base import LogitModel
    from rote.scheme import Scheme

Model = Annotated[str, typer.Option("--model", "-m", help="Model folder, hub id, .gguf file, or 'bundled'.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Run folder. Default: runs/TEXT-MODEL.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
DeviceMap = Annotated[str | None, typer.Option(help="Spread a large model over devices: auto.", show_default=False)]
Revision = Annotated[str | None, typer.Option(help="Revision of a hub model.", show_default=False)]
Bos = Annotated[str, typer.Option(help="BOS before every prefix: auto (if the tokenizer has one), always, never.")]
Prefix = Annotated[int, typer.Option(help="Tokens in the prompt.")]
Suffix = Annotated[int, typer.Option(help="Tokens that must come back.")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")]
TopK = Annotated[
    int | None, typer.Option(help="Keep the k most likely tokens (ties kept); 0 keeps all [40].", show_default=False)
]
TopP = Annotated[float | None, typer.Option(help="Keep the smallest set with this probability.", show_default=False)]
Tau = Annotated[float, typer.Option(help="Smallest probability that counts as extraction.")]
StopEarly = Annotated[
    bool, typer.Option("--stop-early", help="Give up what is certain to end below tau. Same numbers at or above it.")
]


def _of_near(help: str) -> Any:
    return typer.Option(help=escape(help), show_default=False, rich_help_panel="Near-verbatim extraction")


NearFlag = Annotated[
    bool,
    typer.Option(
        "--near",
        help="Also bound the probability of outputs a few edits away.",
        rich_help_panel="Near-verbatim extraction",
    ),
]
Tolerance = Annotated[int | None, _of_near("Edits (in tokens) that still count [5].")]
Distance = Annotated[str | None, _of_near("levenshtein or hamming [levenshtein].")]
Budget = Annotated[
    int | None, _of_near("Token evaluations per example; prefix + suffix - 1 is one pass [what a beam costs].")
]
Method = Annotated[str | None, _of_near("fork, beam or sample [fork].")]
Variant = Annotated[str | None, _of_near("Of a beam: closing, or as published pruned or baseline [closing].")]
Width = Annotated[int | None, _of_near("Of a beam [20].")]
Samples = Annotated[
    int | None, _of_near("Samples of method sample [1000]; with fork: for an estimate on top of the bounds.")
]
Eos = Annotated[
    str | None, _of_near("stop: EOS ends an output; exclude: what ends early does not count; ignore [stop].")
]
Gap = Annotated[float | None, _of_near("Enough once the bounds are this close [0.01].")]
Until = Annotated[str | None, _of_near("Search until: budget, decision (at tau), worthwhile [worthwhile].")]
Seed = Annotated[int | None, _of_near("Of samples [0].")]
BatchSize = Annotated[str, typer.Option(help="Examples per batch, or 'auto'.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def as_scheme(temperature: float, top_k: int | None, top_p: float | None) -> Scheme:
    from rote.scheme import GREEDY, Scheme

    if top_k is not None and top_k < 0:
        raise InputError(f"--top-k must be 0 (keep all) or more, not {top_k}.")
    if temperature == 0:
        if top_k or top_p is not None:
            raise InputError(
                "--temperature 0 is greedy decoding, to which --top-k and --top-p do not apply; "
                "leave them out, or give a temperature above 0."
            )
        return GREEDY
    return Scheme(temperature=temperature, top_k=(40 if top_k is None else top_k) or None, top_p=top_p)


def as_near(asked: bool, **options: Any) -> Near | None:
    """What --near asks for; by default a scan stops searching where going on would hardly change a number."""
    from rote.extraction.near.search import Near

    given = {name: value for name, value in options.items() if value is not None}
    if asked:
        method = given.get("method", "fork")
        needs = {
            "variant": (method == "beam", "--method beam"),
            "width": (method == "beam" or (method == "fork" and "budget" not in given), "--method beam"),
            "seed": (method == "sample" or "samples" in given, "--samples"),
        }
        for name, (used, wanted) in needs.items():
            if name in given and not used:
                raise InputError(f"--{name} changes nothing here; it goes with {wanted}.")
        return Near(**{"gap": 0.01, "until": "worthwhile", **given})
    if given:
        raise InputError(f"--{next(iter(given))} is an option of --near; give --near as well, or leave it out.")
    return None


def as_batch_size(value: str) -> Any:
    if value == "auto":
        return value
    if not value.isdigit() or int(value) < 1:
        raise InputError(f"--batch-size must be 'auto' or a whole number of at least 1, not {value!r}.")
    return int(value)


def default_folder(source: Path, model: str) -> Path:
    return Path("runs") / f"{source.stem}-{Path(model).name.removesuffix('.gguf')}"


def load_model(
    model: str, device: str, dtype: str, device_map: str | None, revision: str | None, bos: str
) -> LogitModel:
    with messages.status(f"loading {model}"):
        from rote.models.base import load

        return load(model, device=device, dtype=dtype, device_map=device_map, revision=revision, bos=bos)  # type: ignore[arg-type]
