"""What a command can be told, read off the library's function of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import rote
from rote.models.base import ON_ENGINES
from rote.options import Option

OF_A_RUN = ("dtype", "revision", "bos", "fingerprint", "label", "tokenizer", "listed", "adapter")
"""The options of a model that a finished run has an answer to: `Run.model_options`."""


@dataclass(frozen=True)
class Item:
    """One argument or option: of the function's argument `of`, or of a field of it.

    `group`: the options that the field belongs to, as they are where nothing is said.
    """

    name: str
    of: str
    hint: Any
    option: Option
    default: Any
    positional: bool = False
    group: Any = None

    @property
    def key(self) -> str:
        """What the parser calls it."""
        return "model" if self.of == "model" and self.name == "name" else self.name

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.option.flag.split("/")) if self.option.flag else (f"--{self.name.replace('_', '-')}",)

    @property
    def spelled(self) -> str:
        """How an error names it."""
        return (self.option.metavar or self.name.upper()) if self.positional else self.flags[0]

    @property
    def required(self) -> bool:
        return self.default is Parameter.empty

    def opened(self, value: Any) -> Any:
        """Of a folder: what it holds."""
        if not self.positional or not _holds_results(self.hint) or isinstance(value, list):
            return value
        if self.name == "evidence":
            from rote.jobs.evidence import Evidence

            return Evidence(value)
        return rote.Run.open(value) if self.name == "run" else rote.open(value)

    def __hash__(self) -> int:
        return hash((self.name, self.of))


@cache
def items(name: str) -> tuple[Item, ...]:
    """Everything that a command can be told, in the order of its function's arguments."""
    return tuple(_items(job_of(name)))


def job_of(name: str) -> Callable[..., Any]:
    """The library's function that a command calls: of its name, in a module of its name, in its group's folder."""
    job: Callable[..., Any] = getattr(import_module(f"rote.jobs.{name.replace(' ', '.')}"), name.split()[-1])
    return job


def _items(job: Callable[..., Any]) -> Iterator[Item]:
    hints = get_type_hints(job, include_extras=True)
    for parameter in signature(job).parameters.values():
        name, hint, default = parameter.name, hints[parameter.name], parameter.default
        option, group = _option(hint), _group(hint, default)
        if name == "model":
            yield from _model(of_a_run=default is None, needed="evidence" not in hints)
            if _on_engines(hint):
                yield from _fields("engine", rote.Engine())
            continue
        if option is not None:  # of a group: as --near, without which nothing of it is wanted
            positional = parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and not option.flag
            yield Item(name, name, hint, option, default, positional)
        if group is not None and (option is None or not option.flag):
            yield from _fields(name, group)


def _model(of_a_run: bool, needed: bool) -> Iterator[Item]:
    option = _option(get_type_hints(rote.load, include_extras=True)["name"])
    assert option is not None
    was = Option(option.help, option.flag, default="none" if not needed else "the run's" if of_a_run else "bundled")
    yield Item("name", "model", str, was, None, group=rote.ModelOptions())
    for item in _fields("model", rote.ModelOptions()):
        own = of_a_run and item.name in OF_A_RUN
        yield Item(item.name, "model", item.hint, item.option, "the run's" if own else item.default, group=item.group)


def _fields(of: str, group: Any) -> Iterator[Item]:
    hints = get_type_hints(type(group), include_extras=True)
    for field in fields(group):
        if (option := _option(hints[field.name])) is not None:
            yield Item(field.name, of, hints[field.name], option, getattr(group, field.name), group=group)


def _on_engines(hint: Any) -> bool:
    """Whether it is a model that workers of a cluster may have."""
    said = getattr(hint, "__metadata__", ())
    return ON_ENGINES in said or any(_on_engines(member) for member in get_args(hint) if not said)


def _option(hint: Any) -> Option | None:
    return next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Option)), None)


def _members(hint: Any) -> list[Any]:
    """What a type may be: the members of a union, without what is said about them, and without None."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [member for part in get_args(hint) for member in _members(part)]
    return [] if hint is type(None) else [hint]


def _group(hint: Any, default: Any) -> Any:
    """The options that an argument stands for, as they are by default; None: it is no group of them."""
    kinds = (
        rote.Scheme, rote.Windows, rote.Near, rote.Refine, rote.Draw, rote.Writing, rote.Reading, rote.Words,
        rote.Endpoint,
    )  # fmt: skip
    kind = next((member for member in _members(hint) if member in kinds), None)
    return None if kind is None else default if isinstance(default, kind) else kind()


def _holds_results(hint: Any) -> bool:
    from rote.store.run import StoredRun

    return StoredRun in _members(hint)


def _several_paths(members: Iterable[Any]) -> bool:
    """Whether there may be a sequence of paths, and not only of what a file holds."""
    return any(get_origin(each) is Sequence and Path in _members(get_args(each)[0]) for each in members)


def kind_of(item: Item) -> Any:
    """The type of what is typed: of one value, or list[...] where there may be several."""
    members, option = _members(item.hint), item.option
    many = any(get_origin(member) in (Sequence, Iterable) for member in members)
    literal = next((member for member in members if get_origin(member) is Literal), None)
    if (item.name == item.of and _group(item.hint, item.default) is not None and not option.flag) or bool in members:
        return bool
    if item.positional:
        return list[Path] if _several_paths(members) else str if members == [str] else Path
    if option.parse is not None:
        return str
    if many:
        return list[str]
    if option.choices is not None:
        return Literal[tuple(option.choices())]
    if literal is not None:
        return literal
    return next((member for member in members if member in (int, float, Path)), str)


def shown_default(item: Item) -> str:
    """What the help says of the default."""
    nothing = item.default is None or item.default is False or item.default in ((), {})
    if item.option.default or nothing or item.required:
        return item.option.default
    text = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    return text.replace("\n", r"\n")
