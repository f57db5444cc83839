"""rote sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rote.cli.options import (
    BatchSize,
    Bos,
    Debug,
    Device,
    DeviceMap,
    Dtype,
    Model,
    Revision,
    Tau,
    as_batch_size,
    default_folder,
    load_model,
)  # fmt: skip
from rote.cli.screen import app, print_json, progress, resumable
from rote.errors import InputError

if TYPE_CHECKING:
    from rote.jobs.open import Sweep
    from rote.scheme import Scheme

FORM = "as in top_k=5,40  or  temperature=0.7,1 top_k=40  or  greedy"


@app.command(
    epilog="Example: rote sweep book.txt --model ./my-model --scheme top_k=1,5,40,0 --scheme top_p=0.1,0.5,0.9 "
    "--prefix 10,25,50"
)
def sweep(
    source: Annotated[
        Path | None,
        typer.Argument(help="A text, or examples as .jsonl. Default: the bundled text.", show_default=False),
    ] = None,
    model: Model = "bundled",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: runs/SOURCE-MODEL-sweep.", show_default=False)
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(help=f"Schemes to compare, {FORM}. Repeat it for more. Default: top_k=40.", show_default=False),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Prompt lengths in tokens, as in 10,25,50.", show_default=False)
    ] = None,
    suffix: Annotated[
        str | None, typer.Option(help="Suffix lengths in tokens, as in 10,25,50.", show_default=False)
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Of a text: characters from one window to the next [100].", show_default=False)
    ] = None,
    tau: Tau = 1e-3,
    batch_size: BatchSize = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    bos: Bos = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print sweep.json and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """How the rate varies with the scheme (one pass for all), the prompt's length and the suffix's."""
    schemes, prefixes, suffixes = parse_schemes(scheme or []), _numbers("prefix", prefix), _numbers("suffix", suffix)
    if not schemes and prefixes is None and suffixes is None:
        raise InputError("there is nothing to vary; give schemes (--scheme), --prefix or --suffix lengths.")
    from rote.models.base import BUNDLED_TEXT

    source = source or BUNDLED_TEXT
    if source.suffix == ".jsonl" and stride is not None:
        raise InputError("--stride is for a text; examples are used as they are.")
    folder = out or default_folder(source, model).with_name(default_folder(source, model).name + "-sweep")
    from rote.corpus.formats import read_examples, read_text
    from rote.corpus.windows import windows
    from rote.scheme import Scheme

    text = None if source.suffix == ".jsonl" else read_text(source)
    loaded = load_model(model, device, dtype, device_map, revision, bos)
    longest = [None if numbers is None else max(numbers) for numbers in (prefixes, suffixes)]
    if text is None:
        given = read_examples(source, loaded.tokenizer, prefix=longest[0], suffix=longest[1], longer=True)
    else:
        given = windows(text, loaded.tokenizer, prefix=longest[0] or 50, suffix=longest[1] or 50, stride=stride or 100)
        if not given:
            raise InputError(f"{source.name} is too short for windows of these lengths; use shorter ones.")
    from rote.jobs.sweep import sweep as run_sweep

    with progress() as tell, resumable(folder, lambda: _stored(folder)):
        swept = run_sweep(
            given, loaded, out=folder, name=source.name, schemes=schemes or [Scheme()], prefixes=prefixes,
            suffixes=suffixes, tau=tau, batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_sweep(swept, as_json)


def _stored(folder: Path) -> str:
    from rote.store.open import open_run

    parts = sorted(path.parent for path in folder.glob("prefix-*/manifest.json"))
    return "; ".join(f"{part.name}: {open_run(part).progress()}" for part in parts)


def parse_schemes(asked: Sequence[str]) -> list[Scheme]:
    """`temperature=0.7,1 top_k=40` stands for two schemes: one of each value given. top_k=0 keeps the vocabulary."""
    from rote.scheme import GREEDY, Scheme

    schemes: list[Scheme] = []
    for text in asked:
        if text.strip() == "greedy":
            schemes.append(GREEDY)
            continue
        values: dict[str, list[float]] = {}
        for part in text.split():
            name, _, numbers = part.partition("=")
            if name in values:
                raise InputError(f"--scheme {text!r} has {name} twice; write several values with commas, {FORM}.")
            try:
                values[name] = [float(number) for number in numbers.split(",")]
            except ValueError:
                values = {}
            if not values or name not in ("temperature", "top_k", "top_p"):
                raise InputError(f"--scheme {text!r} is not understood; write it {FORM}.")
        if not values:
            raise InputError(f"--scheme {text!r} is not understood; write it {FORM}.")
        for choice in product(*values.values()):
            one = dict(zip(values, choice, strict=True))
            top_k = one.get("top_k", 0.0)
            if top_k < 0 or top_k != int(top_k):
                raise InputError(f"--scheme {text!r}: top_k is a whole number, or 0 to keep all.")
            if one.get("temperature") == 0:
                raise InputError(f"--scheme {text!r}: temperature 0 is greedy decoding; write --scheme greedy.")
            schemes.append(Scheme(one.get("temperature", 1.0), int(top_k) or None, one.get("top_p")))
    twice = next((s for i, s in enumerate(schemes) if s in schemes[:i]), None)
    if twice is not None:
        raise InputError(f"the scheme {twice} is asked for twice; name each once.")
    return schemes


def _numbers(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--{option} {text}: give whole numbers of at least 1 with commas between, as in 10,25,50.")
    return [int(part) for part in parts]


def print_sweep(swept: Sweep, as_json: bool) -> None:
    result, folder = swept.result, swept.folder
    if as_json:
        print_json(result)
        return
    from rote.report.text.sweep import facts, headline, lede, sweep_tables

    out = Console(highlight=False)
    for line in (headline(result), *lede(result), ""):
        out.print(line, soft_wrap=True, markup=False)
    for each in sweep_tables(result):
        table = Table(*each.columns, box=SIMPLE_HEAD, title=each.title, title_justify="left", pad_edge=False)
        table.columns[0].min_width = 15  # `temperature=0.5` in one piece
        for row in each.rows:
            table.add_row(*map(escape, row))
        out.print(table)
        out.print(f"{each.caption}\n" if each.caption else "", soft_wrap=True, markup=False)
    for name, value in facts(result):
        out.print(f"{name.lower():<12}{value}", soft_wrap=True, markup=False)
    out.print(f"\nreport   {folder / 'report.html'}\ntable    {folder / 'sweep.json'}", soft_wrap=True, markup=False)
