"""rote score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rote.cli.options import (
    AsJson,
    BatchSize,
    Bos,
    Budget,
    Debug,
    Device,
    DeviceMap,
    Distance,
    Dtype,
    Eos,
    Gap,
    Method,
    Model,
    NearFlag,
    Out,
    Revision,
    Samples,
    Seed,
    StopEarly,
    Tau,
    Temperature,
    Tolerance,
    TopK,
    TopP,
    Until,
    Variant,
    Width,
    as_batch_size,
    as_near,
    as_scheme,
    default_folder,
    load_model,
)  # fmt: skip
from rote.cli.screen import app, print_summary, progress, resumable


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

    scheme = as_scheme(temperature, top_k, top_p)
    wanted = as_near(
        near, distance=distance, tolerance=tolerance, method=method, budget=budget, eos=eos, gap=gap, until=until,
        variant=variant, width=width, samples=samples, seed=seed,
    )  # fmt: skip
    folder = out or default_folder(examples, model)
    loaded = load_model(model, device, dtype, device_map, revision, bos)
    given = read_examples(examples, loaded.tokenizer, prefix=prefix, suffix=suffix)
    from rote.jobs.score import score as run_score

    with progress() as tell, resumable(folder):
        run = run_score(
            given, loaded, out=folder, name=examples.name, schemes=[scheme], tau=tau, stop_early=stop_early,
            near=wanted, batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_summary(run, as_json)
