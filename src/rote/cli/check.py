"""rote check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rote.cli.options import AsJson, Debug, Device, DeviceMap, Dtype, Revision, load_model
from rote.cli.screen import app, print_json, progress

if TYPE_CHECKING:
    from rote.jobs.check import Checked


@app.command(epilog="Example: rote check runs/alice-bundled --passages 10 --samples 1000")
def check(
    folder: Annotated[Path, typer.Argument(help="A finished run folder.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Where the run's model is now. Default: where it was.", show_default=False),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help=escape("Which of the run's schemes, as it names it [its first]."), show_default=False),
    ] = None,
    samples: Annotated[int, typer.Option(help="Generations per passage.")] = 1000,
    passages: Annotated[int, typer.Option(help="How many passages, spread over the range of p_z.")] = 10,
    example: Annotated[
        list[str] | None, typer.Option(help="Check this example instead. Repeat it for more.", show_default=False)
    ] = None,
    show: Annotated[int, typer.Option(help="Print so many generations of each passage.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the first passage; the next ones count up.")] = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Does the model do what p_z says? Generates from the prefixes, with transformers' own sampler, and counts."""
    from rote.store.open import open_run

    was = open_run(folder).manifest.model
    loaded = load_model(model or was.name, device, dtype, device_map, revision or was.revision, was.bos)
    from rote.jobs.check import check as run_check

    with progress() as tell:
        checked = run_check(
            folder, loaded, scheme=scheme, samples=samples, passages=passages, examples=example or (), keep=show,
            seed=seed, progress=lambda done, total: tell("generated", done, total),
        )  # fmt: skip
    if as_json:
        print_json(checked)
    else:
        _print(checked)


def _print(checked: Checked) -> None:
    from rote.report.text import numbers

    out = Console(highlight=False)
    first = checked.passages[0]
    counts = [attempts.n for attempts in first.attempts if attempts.n > 1]
    table = Table("example", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("p_z", "generated", "95% interval", *(f"in {n}" for n in counts)):
        table.add_column(name, no_wrap=True)
    for row in checked.passages:
        low, high = row.interval
        mark = "" if low <= row.p_z <= high else " !"
        tries = [f"{a.computed:.3f}/{a.sampled:.3f}" for a in row.attempts if a.n > 1]
        table.add_row(
            escape(row.example_id), f"{row.p_z:.3g}", f"{numbers.count(row.hits)}/{numbers.count(row.samples)}",
            f"{low:.4f}–{high:.4f}{mark}", *tries,
        )  # fmt: skip
    out.print(table)
    out.print("\n95% interval: of the generated share; ! where p_z lies outside.")
    if counts:
        out.print("in n: the chance of the suffix at least once in n generations, computed/from the samples.")
    total = len(checked.passages)
    out.print(
        f"{checked.outside_interval} of {total} computed probabilities lie outside the 95% interval of the generated "
        f"share; {0.05 * total:.2g} are expected by chance. The most surprising passage has a p-value of "
        f"{checked.smallest_p_value:.2g}; among {total}, one as surprising has probability "
        f"{checked.smallest_of_all:.2g}.",
        soft_wrap=True,
    )
    model = checked.model
    out.print(f"{'model':<12}{escape(numbers.literal(model.name))}, weights {model.fingerprint[:16]}…")
    out.print(f"{'scheme':<12}{checked.scheme}")
    out.print(f"{'bos':<12}{numbers.bos(model.bos, model.bos_token)}", soft_wrap=True)
    for row in checked.passages:
        for number, output in enumerate(row.outputs, 1):
            mark = "[green]the suffix[/]" if output.same else "[yellow]something else[/]"
            out.print(f"\n[bold]{escape(row.example_id)}[/], generation {number}: {mark}")
            out.print(Text(numbers.literal(output.text)), soft_wrap=True)
