"""The command line: parse, call, print. Numbers go to standard output, progress and messages to standard error."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from rote.errors import InputError, RoteError

if TYPE_CHECKING:
    from rote.decoding import Scheme
    from rote.extraction.near import Near
    from rote.models.base import LogitModel
    from rote.runs.store import Run

app = typer.Typer(
    help="Measure what a language model knows by rote: how much of a text it can be made to repeat, and how likely.",
    epilog="Start with: rote scan   (bundled text, bundled model, no network)",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
messages = Console(stderr=True, highlight=False)

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
AsJson = Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command(epilog="Example: rote scan book.txt --model ./my-model --out runs/book")
def scan(
    text: Annotated[
        Path | None,
        typer.Argument(help="A UTF-8 text file. Default: Alice in Wonderland, bundled.", show_default=False),
    ] = None,
    model: Model = "bundled",
    out: Out = None,
    prefix: Prefix = 50,
    suffix: Suffix = 50,
    stride: Annotated[int, typer.Option(help="Characters from one window to the next.")] = 10,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    tau: Tau = 1e-3,
    stop_early: StopEarly = False,
    near: NearFlag = False,
    tolerance: Tolerance = None,
    distance: Distance = None,
    budget: Budget = None,
    method: Method = None,
    variant: Variant = None,
    width: Width = None,
    samples: Samples = None,
    eos: Eos = None,
    gap: Gap = None,
    until: Until = None,
    seed: Seed = None,
    batch_size: BatchSize = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    bos: Bos = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Where in this text has the model learned it by rote? Scores sliding windows; stop and continue at any time."""
    from rote.corpus.formats import read_text
    from rote.models.base import BUNDLED_TEXT

    scheme = _scheme(temperature, top_k, top_p)
    wanted = _near(
        near, distance=distance, tolerance=tolerance, method=method, budget=budget, eos=eos, gap=gap, until=until,
        variant=variant, width=width, samples=samples, seed=seed,
    )  # fmt: skip
    path = text or BUNDLED_TEXT
    content = read_text(path)
    folder = out or _default_folder(path, model)
    loaded = _load(model, device, dtype, device_map, revision, bos)
    from rote.runs.engine import scan as run_scan

    with _progress() as tell, _resumable(folder):
        run = run_scan(
            content, loaded, out=folder, name=path.name, prefix=prefix, suffix=suffix, stride=stride, schemes=[scheme],
            tau=tau, stop_early=stop_early, near=wanted, batch_size=_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    _print_summary(run, as_json)


@app.command(epilog="Example: rote score examples.jsonl --model ./my-model --out runs/examples")
def score(
    examples: Annotated[
        Path, typer.Argument(help=escape('JSONL: {"prefix": [ids], "suffix": [ids]} or {"text": "..."} a line.'))
    ],
    model: Model = "bundled",
    out: Out = None,
    prefix: Annotated[
        int | None, typer.Option(help="Tokens of a text that are the prompt [50].", show_default=False)
    ] = None,
    suffix: Annotated[
        int | None, typer.Option(help="Tokens of a text that must come back [50].", show_default=False)
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    tau: Tau = 1e-3,
    stop_early: StopEarly = False,
    near: NearFlag = False,
    tolerance: Tolerance = None,
    distance: Distance = None,
    budget: Budget = None,
    method: Method = None,
    variant: Variant = None,
    width: Width = None,
    samples: Samples = None,
    eos: Eos = None,
    gap: Gap = None,
    until: Until = None,
    seed: Seed = None,
    batch_size: BatchSize = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    bos: Bos = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score given examples. --prefix and --suffix say where a {"text": ...} line is split, in tokens."""
    from rote.corpus.formats import read_examples

    scheme = _scheme(temperature, top_k, top_p)
    wanted = _near(
        near, distance=distance, tolerance=tolerance, method=method, budget=budget, eos=eos, gap=gap, until=until,
        variant=variant, width=width, samples=samples, seed=seed,
    )  # fmt: skip
    folder = out or _default_folder(examples, model)
    loaded = _load(model, device, dtype, device_map, revision, bos)
    given = read_examples(examples, loaded.tokenizer, prefix=prefix, suffix=suffix)
    from rote.runs.engine import score as run_score

    with _progress() as tell, _resumable(folder):
        run = run_score(
            given, loaded, out=folder, name=examples.name, schemes=[scheme], tau=tau, stop_early=stop_early,
            near=wanted, batch_size=_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    _print_summary(run, as_json)


@app.command(epilog="Example: rote report runs/alice-bundled")
def report(
    folder: Annotated[Path, typer.Argument(help="A finished run folder.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write report.html anew from a run folder and print its summary."""
    from rote.runs.store import Run

    run = Run.open(folder)
    run.report()
    _print_summary(run, as_json)


@app.command(epilog="Example: rote doctor")
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """What is installed, which devices there are, which extras are missing and how to get them."""
    from rote.doctor import examine

    with messages.status("looking around"):
        found = examine()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in found.items():
        table.add_row(f"[bold]{escape(key)}[/]", escape(str(value)))
    Console(highlight=False).print(table)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    if show:
        import rote

        print(f"rote {rote.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; mistakes of the user end in one line that says what to do."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # tqdm reads it when imported: transformers would draw bars of its own
    try:
        with _interrupted_by(_leave):
            code = app(standalone_mode=False)
    except RoteError as error:
        if "--debug" in sys.argv:
            raise
        messages.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except Exception as error:
        show = getattr(error, "show", None)  # click's own usage errors print themselves
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _scheme(temperature: float, top_k: int | None, top_p: float | None) -> Scheme:
    from rote.decoding import GREEDY, Scheme

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


def _near(asked: bool, **options: Any) -> Near | None:
    """What --near asks for; by default a scan stops searching where going on would hardly change a number."""
    from rote.extraction.near import Near

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


def _batch_size(value: str) -> Any:
    if value == "auto":
        return value
    if not value.isdigit() or int(value) < 1:
        raise InputError(f"--batch-size must be 'auto' or a whole number of at least 1, not {value!r}.")
    return int(value)


def _default_folder(source: Path, model: str) -> Path:
    return Path("runs") / f"{source.stem}-{Path(model).name.removesuffix('.gguf')}"


def _load(model: str, device: str, dtype: str, device_map: str | None, revision: str | None, bos: str) -> LogitModel:
    with messages.status(f"loading {model}"):
        from rote.models.base import load

        return load(model, device=device, dtype=dtype, device_map=device_map, revision=revision, bos=bos)  # type: ignore[arg-type]


@contextmanager
def _progress() -> Iterator[Any]:
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=messages, transient=True) as bar:
        tasks: dict[str, Any] = {}
        names = {"windows": "cutting windows", "scored": "scoring"}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(names[what], total=total, rate="", completed=done)
            task = bar.tasks[tasks[what]]
            bar.update(tasks[what], completed=done, rate=f"{task.speed:,.0f}/s" if task.speed else "")

        yield tell


def _leave(number: int, frame: object) -> None:
    """End the process at once: libraries that are being imported catch KeyboardInterrupt and go on, or misreport it."""
    messages.show_cursor(True)
    messages.print("stopped: no run was under way. Run the same command again.", soft_wrap=True)
    os._exit(130)


@contextmanager
def _interrupted_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # as in a background job: whoever started it wants it so
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    try:
        with _interrupted_by(signal.default_int_handler):
            yield
    except KeyboardInterrupt:
        from rote.runs.store import Run

        stored = Run.open(folder).progress() if (folder / "manifest.json").is_file() else "nothing stored yet"
        messages.print(f"stopped: {stored} in {folder}. Run the same command again to go on.", soft_wrap=True)
        sys.exit(130)


def _print_summary(run: Run, as_json: bool) -> None:
    summary = run.summary
    if as_json:
        print(json.dumps(summary, indent=1, ensure_ascii=False))
        return
    from rote.report.words import summary_lines

    out = Console(highlight=False)
    for line in summary_lines(run.manifest, summary):
        out.print(escape(line), soft_wrap=True)
    out.print(f"\nreport   {run.folder / 'report.html'}\ntable    {run.folder / 'scores'}", soft_wrap=True)


if __name__ == "__main__":
    main()
