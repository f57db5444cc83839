"""rote scan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    Prefix,
    Revision,
    Samples,
    Seed,
    StopEarly,
    Suffix,
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

    scheme = as_scheme(temperature, top_k, top_p)
    wanted = as_near(
        near, distance=distance, tolerance=tolerance, method=method, budget=budget, eos=eos, gap=gap, until=until,
        variant=variant, width=width, samples=samples, seed=seed,
    )  # fmt: skip
    path = text or BUNDLED_TEXT
    content = read_text(path)
    folder = out or default_folder(path, model)
    loaded = load_model(model, device, dtype, device_map, revision, bos)
    from rote.jobs.scan import scan as run_scan

    with progress() as tell, resumable(folder):
        run = run_scan(
            content, loaded, out=folder, name=path.name, prefix=prefix, suffix=suffix, stride=stride, schemes=[scheme],
            tau=tau, stop_early=stop_early, near=wanted, batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_summary(run, as_json)
