"""rote rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rote.cli.options import (
    AsJson,
    BatchSize,
    Bos,
    Debug,
    Device,
    DeviceMap,
    Dtype,
    Model,
    Out,
    Prefix,
    Revision,
    StopEarly,
    Suffix,
    Tau,
    Temperature,
    TopK,
    TopP,
    as_batch_size,
    as_scheme,
    default_folder,
    load_model,
)
from rote.cli.screen import app, print_summary, progress, resumable


@app.command(epilog="Example: rote rate corpus.jsonl --held-out unseen.jsonl --model ./my-model --documents 1000")
def rate(
    corpus: Annotated[
        Path, typer.Argument(help="A folder of texts, a JSONL or Parquet file, or a dataset saved to disk.")
    ],
    model: Model = "bundled",
    out: Out = None,
    held_out: Annotated[
        Path | None, typer.Option(help="A corpus the model has not seen, to compare with.", show_default=False)
    ] = None,
    documents: Annotated[
        int | None, typer.Option(help="Documents drawn in each run [1000, or all].", show_default=False)
    ] = None,
    examples: Annotated[int, typer.Option(help="Examples drawn from each document; they do not overlap.")] = 10,
    runs: Annotated[int, typer.Option(help="How often to draw.")] = 3,
    prefix: Prefix = 50,
    suffix: Suffix = 50,
    seed: Annotated[int, typer.Option(help="Decides the draw.")] = 0,
    text_column: Annotated[
        str | None, typer.Option(help=escape("Key or column that holds the text [text]."), show_default=False)
    ] = None,
    glob: Annotated[
        str | None, typer.Option(help="Which files of a folder are texts [*.txt].", show_default=False)
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    tau: Tau = 1e-3,
    stop_early: StopEarly = False,
    batch_size: BatchSize = "auto",
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    bos: Bos = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """How much of a corpus does the model give back on average? Scores examples drawn at random; with an error bar."""
    scheme = as_scheme(temperature, top_k, top_p)
    folder = out or default_folder(corpus, model)
    loaded = load_model(model, device, dtype, device_map, revision, bos)
    from rote.jobs.rate import rate as run_rate

    with progress() as tell, resumable(folder):
        run = run_rate(
            corpus, loaded, out=folder, held_out=held_out, documents=documents, examples=examples, runs=runs,
            prefix=prefix, suffix=suffix, seed=seed, text_column=text_column, glob=glob, schemes=[scheme], tau=tau,
            stop_early=stop_early, batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_summary(run, as_json)
