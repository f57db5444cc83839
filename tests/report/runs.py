"""Runs made by hand: the manifest and the summary of rows that a test gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from rote.models.base import ModelIdentity
from rote.store.files import FORMAT
from rote.store.manifest import Manifest, NearSearch, Sampling, ScannedWindows, Source
from rote.store.summary import LookedAt, SchemeNumbers, Summary
from tests.reference.coverage import looked_at

Kind = Literal["scan", "score"]

MODEL = ModelIdentity(
    name="a model",
    revision=None,
    trust_remote_code=False,
    fingerprint="cd" * 32,
    hashed="sampled",
    parameters=1_000_000,
    dtype="float32",
    device="cpu",
    compiled=False,
    tokenizer="ef" * 32,
    bos="auto",
    bos_token=0,
    bos_text="<bos>",
)
VERSIONS = {"rote": "0.1.0", "torch": "2", "transformers": "5", "python": "3.12"}
CREATED = "2025-01-02T03:04:05+00:00"


def search(tolerance: int) -> NearSearch:
    """How a run looked for what is near."""
    return NearSearch(tolerance=tolerance, budget=None, samples=None, memory_positions=1000)


def manifest(
    scores: pl.DataFrame,
    *,
    kind: Kind = "scan",
    characters: int,
    schemes: Sequence[str],
    tau: float = 0.001,
    model: ModelIdentity = MODEL,
    near: NearSearch | None = None,
    sampling: Sampling | None = None,
    name: str = "book.txt",
    dropped: int = 0,
) -> Manifest:
    """Of a run that came to these rows. `characters`: of a scan's text; that of a score run is not there."""
    scanned = kind == "scan"
    return Manifest(
        format=FORMAT,
        kind=kind,
        created=CREATED,
        source=Source(name=name, sha256="ab" * 32, characters=characters if scanned else None),
        model=model,
        windows=ScannedWindows(prefix=50, suffix=50, stride=10, unit="tokens") if scanned else None,
        dropped=dropped,
        schemes=list(schemes),
        tau=tau,
        stop_early=model.served is None and bool(scores["bounded"].any()),
        batch_size="auto",
        batch_tokens=None,
        near=near,
        logit_tolerance=5e-4,
        shard_examples=scores.height,
        shards=1,
        sampling=sampling,
        versions=VERSIONS,
    )


def summary(
    manifest: Manifest,
    scores: pl.DataFrame,
    schemes: Mapping[str, SchemeNumbers],
    *,
    seconds: float = 1.5,
    warnings: Sequence[str] = (),
) -> Summary:
    """Of the same run, with what it came to under each scheme."""
    first = scores.filter(pl.col("scheme") == manifest.schemes[0])
    return Summary(
        format=FORMAT,
        kind=manifest.kind,
        source=manifest.source,
        model=manifest.model,
        examples=first.height,
        dropped=manifest.dropped,
        tau=manifest.tau,
        logit_tolerance=0.0005,
        token_evals=int(first["token_evals"].sum()),
        seconds=seconds,
        warnings=list(warnings),
        versions=manifest.versions,
        looked_at=_looked_at(manifest, first),
        sampling=manifest.sampling,
        schemes=dict(schemes),
    )


def _looked_at(manifest: Manifest, rows: pl.DataFrame) -> LookedAt | None:
    if manifest.source.characters is None:
        return None
    spans = list(zip(rows["suffix_start"], rows["suffix_end"], strict=True))
    seen = looked_at(spans)
    gaps = max(seen) + 1 - min(seen) - len(seen) if seen else 0
    return LookedAt(characters=len(seen), share=len(seen) / manifest.source.characters, gaps=gaps)
