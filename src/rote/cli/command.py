"""Commands made from the library's functions.

What a command can be told is read off the function of its name: arguments, options, their types, defaults and help. A
dataclass of options becomes one option for each of its fields. What is left to write for a command is what it prints.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import rote
from rote.cli.items import Item, items, job_of, kind_of, shown_default
from rote.cli.screen import interrupted_by, messages, print_json, progress
from rote.errors import InputError, RoteError, argument
from rote.models.base import is_served

Asked = Mapping[str, Any]
"""What the library's function was called with."""

PANELS = {
    "near": "Near-verbatim extraction", "refine": "Scans in stages", "model": "Model", "schemes": "Decoding",
    "words": "Words", "endpoint": "Served models", "engine": "Cluster",
}  # fmt: skip
"""Where the help puts the options of a group, by the name of the function's argument."""


@dataclass(frozen=True)
class Command:
    """A command: what prints the result of the library's function of its name, and an example of its use."""

    show: Callable[[Any, Asked], None]
    example: str
    group: str = ""

    @property
    def name(self) -> str:
        """As it is typed after `rote`: with the name of its group, if it has one, before its own."""
        return f"{self.group} {self.show.__name__}".lstrip()

    def register(self, app: typer.Typer, panel: str | None) -> None:
        """Its name and help, for the list of commands. Its options are not looked at."""
        self._add(app, lambda: None, panel)

    def parser(self) -> Any:
        """The command with all its options. That imports the library's function."""
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

        def call(**values: Any) -> None:
            self._call(values)

        call.__signature__ = Signature(list(self._parameters()))  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in self._parameters()}
        self._add(app, call, None)
        return flags_as_flags(typer.main.get_command(app))

    def _add(self, app: typer.Typer, call: Callable[..., None], panel: str | None) -> None:
        app.command(
            self.show.__name__, help=self.show.__doc__, epilog=f"Example: {self.example}", rich_help_panel=panel
        )(call)

    def _parameters(self) -> Iterator[Parameter]:
        for item in items(self.name):
            yield _parameter(item)
        as_json = typer.Option("--json", help="Print the result as JSON and nothing else.")
        debug = typer.Option("--debug", help="Show the traceback of an error.")
        for name, option in (("as_json", as_json), ("debug", debug)):
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])

    def _call(self, values: dict[str, Any]) -> None:
        as_json, debug = values.pop("as_json"), values.pop("debug")
        try:
            result, asked = self._result(values)
            self._print(result, asked, as_json=as_json)
            if not getattr(result, "verified", True):
                sys.exit(1)
        except KeyboardInterrupt as stop:
            left = getattr(stop, "__notes__", ["nothing was written. Run the same command again."])[-1]
            messages.print(f"stopped: {escape(left)}", soft_wrap=True)
            sys.exit(130)
        except RoteError as error:
            if debug:
                raise
            told = error.told(lambda name, value: spelled(items(self.name), name, value))
            messages.print(f"[bold red]error:[/] {escape(told)}", soft_wrap=True)
            sys.exit(1)

    def _print(self, result: Any, asked: Asked, *, as_json: bool) -> None:
        if as_json:
            print_json(content_of(asked.get("folder") if isinstance(result, Path) else result))
        if not as_json or result is None:  # why there is none is said on standard error
            self.show(result, asked)

    def _result(self, values: dict[str, Any]) -> tuple[Any, Asked]:
        job = job_of(self.name)
        asked = arguments(items(self.name), values)
        with interrupted_by(signal.default_int_handler), progress() as shown:  # before, a stop ends the process at once
            follows = {"progress": shown.tell, "on_stage": shown.stage}
            wanted = {name: follow for name, follow in follows.items() if name in job.__annotations__}
            return job(**asked, **wanted), asked


def flags_as_flags(parser: Any) -> Any:
    """A flag takes no value, so its help names none."""
    for parameter in parser.get_params(typer.Context(parser)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parser


def command(example: str, group: str = "") -> Callable[[Callable[[Any, Asked], None]], Command]:
    """Makes a command of a function that prints a result; its docstring is the command's help."""
    return lambda show: Command(show, example, group)


def _parameter(item: Item) -> Parameter:
    """What the parser is told. Options have no default here: what is not given is left to the library."""
    kind, shown = kind_of(item), shown_default(item)
    about: dict[str, Any] = {"help": escape(f"{item.option.help} [default: {shown}]" if shown else item.option.help)}
    about["show_default"] = False
    if item.positional:
        info = typer.Argument(metavar=item.option.metavar or item.name.upper(), **about)
    else:
        info = typer.Option(*item.flags, rich_help_panel=PANELS.get(item.of), **about)
    default = Parameter.empty if item.required else False if kind is bool else None
    hint = kind if item.required or kind is bool else kind | None
    return Parameter(item.key, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


def spelled(known: tuple[Item, ...], name: str, value: str | None) -> str:
    """An argument of the library as this command line has it: `top_k=40` as `--top-k 40`."""
    item = next((item for item in known if item.key == name), None)
    if item is None:  # it stands in a scheme's label, where 0 is what keeps all
        return name if value is None else f"{name}={'0' if value == 'None' else value}"
    if value is None or kind_of(item) is bool:
        return item.spelled
    return f"{item.spelled} {item.option.none or 'none' if value == 'None' else value.strip(chr(39))}"


# --- what the library's function is called with


def arguments(known: tuple[Item, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """The function's arguments, made of what the parser gave: groups put together, folders opened, the model loaded."""
    said = {item: values[item.key] for item in known}
    given = {item: _value(item, value) for item, value in said.items() if not _silent(value)}
    asked: dict[str, Any] = {}
    for item, value in given.items():
        if item.of == item.name and not item.group:
            asked[item.name] = item.opened(value)
    for of in dict.fromkeys(item.of for item in known if item.group and item.of != "model"):
        _put_together(of, known, given, asked)
    if any(item.of == "model" for item in known):
        _load(known, given, asked)
    return asked


def _silent(value: Any) -> bool:
    return value is None or value is False or value == []


def _value(item: Item, value: Any) -> Any:
    """What was typed, as the library has it."""
    if item.option.none and str(value) == item.option.none:
        return None
    try:
        return value if item.option.parse is None else item.option.parse(value)
    except ValueError as error:
        raise InputError(f"{argument(item.key, value)}: {error}") from error


def _put_together(of: str, known: tuple[Item, ...], given: Mapping[Item, Any], asked: dict[str, Any]) -> None:
    own = {item.name: value for item, value in given.items() if item.group and item.of == of}
    group = next(item.group for item in known if item.of == of and item.group)
    flag = next((item for item in known if item.name == of and not item.group), None)
    if flag is not None and own and flag not in given:
        raise InputError(
            f"{argument(next(iter(own)))} is an option of {argument(of)}; give {argument(of)} as well, or leave it out."
        )
    if (flag is not None and flag in given) or (flag is None and own):
        asked[of] = made = type(group)(**own)
        for name, value in own.items():
            kept = getattr(made, name)
            if kept != value and kept in (
                None,
                getattr(group, name),
            ):  # set aside without a word, as a default would be
                beside = ", ".join(argument(other, said) for other, said in own.items() if other != name)
                raise InputError(f"{argument(name, value)} changes nothing beside {beside}; leave it out.")


def _load(known: tuple[Item, ...], given: Mapping[Item, Any], asked: dict[str, Any]) -> None:
    """Load the model. A command on a finished run loads the run's own, unless something is said about it."""
    own = {item.name: value for item, value in given.items() if item.of == "model"}
    name, engine = own.pop("name", None), asked.pop("engine", rote.Engine())
    for item, path in given.items():  # before the minute that loading a model may take
        if isinstance(path, Path) and item.name != "out" and not path.exists():
            raise InputError(f"{path}: there is no such file or folder. Check the path.")
    held = asked.get("run", asked.get("evidence"))
    if held is None:
        chosen = "bundled" if name is None else name
        with messages.status(f"loading {escape(chosen)}"):
            asked["model"] = rote.load_on(engine, chosen, rote.ModelOptions(**own))
    elif (name is not None or own or engine != rote.Engine()) and held.intact:
        was = held.model_options
        if name is not None:  # where one is served and the other is not, BOS alone holds
            alike = is_served(name) == (was.tokenizer is not None)
            was = replace(was, revision=None, label=None, adapter=None) if alike else rote.ModelOptions(bos=was.bos)
        options = replace(was, **own)
        with messages.status("loading the model"):
            asked["model"] = (
                held.load_model(name, options) if engine == rote.Engine() else held.load_model_on(engine, name, options)
            )


def content_of(result: Any) -> Any:
    """What --json prints: the file that a folder is summed up in, or the result itself."""
    for name in ("result", "summary", "facts", "manifest"):
        if hasattr(result, name):
            return getattr(result, name)
    return result
