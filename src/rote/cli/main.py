"""The command line as a whole: its commands, what starts it and what ends it."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer
import typer.core
from rich.markup import escape

from rote.cli import (
    bench,
    check,
    compare,
    doctor,
    export,
    figures,
    index,
    longer,
    member,
    probe,
    rate,
    reconstruct,
    report,
    scan,
    score,
    show,
    spots,
    sweep,
    verify,
)  # fmt: skip
from rote.cli.command import Command, flags_as_flags
from rote.cli.screen import interrupted_by, leave, messages
from rote.errors import RoteError

COMMANDS = {
    "Look at a text": (scan.scan, show.show, spots.spots, longer.longer, reconstruct.reconstruct),
    "Look at a corpus": (
        rate.rate,
        score.score,
        sweep.sweep,
        member.member,
        index.build,
        index.count,
        index.find,
        index.next,
        index.trace,
    ),
    "No logits": (probe.probe,),
    "Attack": (bench.build, bench.inspect, bench.attack, bench.score),
    "Be sure": (check.check, compare.compare, verify.verify),
    "Show it": (report.report, figures.figures, export.export, doctor.doctor),
}
"""By what people come for, and in the order in which they come to need them."""

GROUPS = {
    "index": "Search a corpus exactly: how often a text stands in it, where, and what follows.",
    "bench": "Extraction as a benchmark: examples from a corpus, attacks on a model, and their score.",
}
"""What the help says of each group of commands."""

BY_NAME: dict[str, Command] = {command.name: command for group in COMMANDS.values() for command in group}


class Commands(typer.core.TyperGroup):
    """The list of commands. Only the one that is called is put together: their list needs none of their options."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        flags_as_flags(self)
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of COMMANDS, in which groups stand among the others."""
        names: list[str] = super().list_commands(ctx)
        order = [name.split()[0] for name in BY_NAME]
        return names if ctx.parent is not None else sorted(names, key=order.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        whole = name if ctx.parent is None else f"{ctx.info_name} {name}"
        return name, BY_NAME[whole].parser() if whole in BY_NAME else command, rest


app = typer.Typer(
    cls=Commands,
    help="Measure what a language model knows by rote: how much of a text it can be made to repeat, and how likely.",
    epilog="Start with: rote scan   (bundled text, bundled model, no network)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
groups = {name: typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="rich") for name in GROUPS}
for panel, commands in COMMANDS.items():
    for command in commands:
        command.register(groups.get(command.group, app), panel if not command.group else None)
    for name in dict.fromkeys(command.group for command in commands if command.group):
        app.add_typer(groups[name], name=name, help=GROUPS[name], rich_help_panel=panel)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and leave.", metavar="", is_eager=True)] = (
        False
    ),
) -> None:
    if show:
        import rote

        print(f"rote {rote.__version__}")
        raise typer.Exit


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning in a line of its own, without the place in the code from which it comes."""
    messages.print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True)


def main() -> None:
    """Run the command line; mistakes of the user end in one line that says what to do."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # tqdm reads it when imported: transformers would draw bars of its own
    # Torch's threads wait for work by turning in circles. Beside another torch process on the same cores they take
    # turns at doing so, and both are several times slower. OpenMP reads it when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with interrupted_by(leave), warnings.catch_warnings():
            warnings.showwarning = _warn
            code = app(prog_name="rote", standalone_mode=False)
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
