"""rote reconstruct."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rote.cli.options import (
    AsJson,
    Bos,
    Debug,
    Device,
    DeviceMap,
    Dtype,
    Model,
    Revision,
    default_folder,
    load_model,
)
from rote.cli.screen import app, print_json, progress, resumable
from rote.errors import InputError

if TYPE_CHECKING:
    from rote.jobs.open import Reconstruction


@app.command(epilog="Example: rote reconstruct --seed opening.txt --truth book.txt --model ./my-model --out runs/again")
def reconstruct(
    seed: Annotated[str, typer.Option(help="The text's first sentences: a UTF-8 file, or the text itself.")],
    model: Model = "bundled",
    truth: Annotated[
        Path | None, typer.Option(help="The true text, to compare with. It decides nothing.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder. Default: runs/SEED-MODEL.", show_default=False)
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            help=escape("Length of the text, seed included [with --truth: its tokens + 5%]."), show_default=False
        ),
    ] = None,
    beams: Annotated[int, typer.Option(help="Beams; 1 is greedy decoding.")] = 8,
    length_penalty: Annotated[
        float | None,
        typer.Option(help=escape("Of the beam search; above 0 favours long outputs [1.2]."), show_default=False),
    ] = None,
    step: Annotated[int, typer.Option(help="Tokens generated at a time.")] = 50,
    context: Annotated[str, typer.Option(help="sliding (as published) or anchored (cheaper: keeps what was read).")] = (
        "sliding"
    ),
    context_tokens: Annotated[
        int | None,
        typer.Option(
            help=escape("Tokens of context and step together [3000, or what the model takes]."), show_default=False
        ),
    ] = None,
    section_break: Annotated[
        str,
        typer.Option(
            help="What takes the place of an EOS: {number}, {words}, {Words}, {WORDS} are filled in. none: the end."
        ),
    ] = r"\n\nCHAPTER {WORDS}\n",
    missed_after: Annotated[
        int | None,
        typer.Option(
            help=escape("An EOS after so many tokens without one counts for two breaks [10000]."), show_default=False
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    bos: Bos = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Can the model write the whole book from its first sentences? Stop and continue at any time."""
    from rote.corpus.formats import read_text

    text, name = as_seed(seed)
    given: dict[str, Any] = {}
    if length_penalty is not None:
        if beams == 1:
            raise InputError("--length-penalty changes nothing in greedy decoding (--beams 1); leave it out.")
        given["length_penalty"] = length_penalty
    breaks = None if section_break in ("", "none") else section_break.replace(r"\n", "\n").replace(r"\t", "\t")
    if missed_after is not None:
        if breaks is None:
            raise InputError("--missed-after changes nothing without section breaks; leave it out.")
        given["missed_after"] = missed_after
    if truth is None and tokens is None:
        raise InputError("how long should the text get? Give --tokens, or --truth to go by its length.")
    true = None if truth is None else read_text(truth)
    folder = out or default_folder(Path(name), model)
    loaded = load_model(model, device, dtype, device_map, revision, bos)
    from rote.jobs.reconstruct import reconstruct as run_reconstruct
    from rote.store.reconstruction import StoredReconstruction

    with progress() as tell, resumable(folder, lambda: StoredReconstruction(folder).progress()):
        written = run_reconstruct(
            text, loaded, out=folder, truth=true, name=name, truth_name="" if truth is None else truth.name,
            tokens=tokens, context_tokens=context_tokens, step=step, beams=beams, context=context,  # type: ignore[arg-type]
            section_break=breaks, progress=tell, **given,
        )  # fmt: skip
    print_reconstruction(written, as_json)


def as_seed(value: str) -> tuple[str, str]:
    """(the seed, a name for it): a file's text, or the value itself where it can be no file's name."""
    from rote.corpus.formats import read_text

    path = Path(value)
    try:
        there = path.exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        there = False
    if there:
        return read_text(path), path.name
    if not value.strip():
        raise InputError("the seed is empty. Give the text's first sentences, or a file that holds them.")
    if len(value.split()) == 1 or path.suffix.lower() in (".txt", ".md"):
        raise InputError(
            f"{value}: there is no such file. Check the path; to give the seed itself, give at least two words of text."
        )
    return value, "text"


def print_reconstruction(written: Reconstruction, as_json: bool) -> None:
    summary = written.summary
    if as_json:
        print_json(summary)
        return
    from rote.report.text.reconstruction import lines

    out = Console(highlight=False)
    for line in lines(written.manifest, summary):
        out.print(escape(line), soft_wrap=True)
    out.print(
        f"\nreport   {written.folder / 'report.html'}\ntext     {written.folder / 'generated.txt'}", soft_wrap=True
    )
