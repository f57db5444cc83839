"""Results in the shape that EleutherAI's lm-evaluation-harness writes: a task per scheme, a sample per example.

A task has the output type `loglikelihood`: the prefix is the context, the suffix the continuation. The harness's own
log-likelihoods are those of the model's plain distribution; here they are those of the task's scheme.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.groups import document_interval, documents_of, effective_examples, with_origin
from rote.odds import wilson
from rote.report.export.rows import whole
from rote.store.files import plain
from rote.store.manifest import Manifest
from rote.store.summary import Rate, Summary
from rote.store.table import Row

Texts = Callable[[Row], tuple[str, str]]

MISSING = "N/A"  # what the harness writes, and its readers expect, where a standard error is not known
_LONGEST = 100  # bytes of a name that file names are made of

_HASHES = ("doc_hash", "prompt_hash", "target_hash")
_DOC = ("example_id", "start", "suffix_start", "suffix_end", "repetitions", "split", "metadata")


@dataclass(frozen=True, slots=True)
class Task:
    """One scheme of a run, or of the rows of one corpus; `corpus` is "main" or "held-out" where examples were drawn."""

    name: str
    scheme: str
    corpus: str | None


def tasks(manifest: Manifest, schemes: Sequence[str]) -> list[Task]:
    """The tasks that these schemes of a run become. A held-out corpus is a task of its own, not a part of the other."""
    sources: list[tuple[str, str | None]] = [(manifest.source.name, None)]
    if sampling := manifest.sampling:
        names = {"main": manifest.source.name, "held-out": sampling.held_out_name or ""}
        sources = [(names[corpus], corpus) for corpus in sampling.corpora]
    listed = []
    for scheme in schemes:
        for source, corpus in sources:
            held_out = "_held_out" if corpus == "held-out" else ""
            stem = _short(_word(source.rsplit(".", 1)[0] or source))
            listed.append(Task(f"rote_{stem}_{_word(scheme)}{held_out}", scheme, corpus))
    return listed


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def folder_name(model: str) -> str:
    """The model's name as a folder's, with what the harness replaces replaced."""
    return _short(re.sub(r'["<>:/|\\?*\[\]\x00]+', "__", model)).strip(". ") or "model"


def _short(name: str) -> str:
    return whole(name).encode()[:_LONGEST].decode("utf-8", "ignore")


def file_date(manifest: Manifest) -> str:
    """When the run was begun, as the harness writes it into file names; it has no underscore."""
    created = datetime.fromisoformat(manifest.created).replace(tzinfo=None)
    return created.isoformat(timespec="microseconds").replace(":", "-")


def own_rows(scores: pl.DataFrame, task: Task) -> pl.DataFrame:
    """The rows of a score table that belong to the task."""
    rows = scores.filter(pl.col("scheme") == task.scheme)
    if task.corpus is None or not rows.height:
        return rows
    return with_origin(rows).filter(pl.col("corpus") == task.corpus)


def metrics(rows: pl.DataFrame, manifest: Manifest) -> pl.DataFrame:
    """What each row counts for, a column per metric; in a run that may stop early, two bounds in the place of p_z.

    What a served model's list leaves open counts as 0, and for the metrics that end in `_upper` as 1.
    """
    tau = manifest.tau
    p_z = pl.col("log_prob").exp()
    greedy, reaches, served = pl.col("greedy"), _reaches("log_prob", math.log(tau)), manifest.model.served is not None
    certain = pl.when("bounded").then(0.0).otherwise(reaches) if served else reaches
    columns = {"exact_match": greedy.fill_null(False).cast(pl.Float64), "extractable": certain}
    if served:
        columns |= {"exact_match_upper": greedy.fill_null(True).cast(pl.Float64), "extractable_upper": reaches}
    if manifest.stop_early or served:
        columns |= {"p_z_lower": pl.when("bounded").then(0.0).otherwise(p_z), "p_z_upper": p_z}
    else:
        columns |= {"p_z": p_z}
    if manifest.near is not None:
        columns |= {"near_extractable": _reaches("lower", tau)}
        columns |= {"near_lower": pl.col("lower"), "near_upper": pl.col("upper")}
    return rows.select(value.alias(name) for name, value in columns.items())


def _reaches(name: str, threshold: float) -> pl.Expr:
    # A row that stopped early is certain to end below tau, so what is stored for it says so as well.
    return (pl.col(name) >= threshold).cast(pl.Float64)


class Samples:
    """The samples of one task as they come in, shard by shard, and what their means and their hash take."""

    def __init__(self, task: Task, manifest: Manifest) -> None:
        self.task, self.manifest = task, manifest
        self._values: list[pl.DataFrame] = []
        self._origins: list[pl.DataFrame] = []
        self._digest = hashlib.sha256()

    def lines(self, scores: pl.DataFrame, passages: Texts) -> bytes:
        """A line for each row of the score table that belongs to the task."""
        rows = own_rows(scores, self.task)
        values, first = metrics(rows, self.manifest), sum(each.height for each in self._values)
        self._values.append(values)
        if self.task.corpus is not None and rows.height:
            self._origins.append(rows.select("corpus", "document"))
        lines = []
        kept = rows.select(*_DOC, "bounded", "log_prob", "greedy").iter_rows(named=True)
        for number, (row, value) in enumerate(zip(kept, values.iter_rows(named=True), strict=True), first):
            sample = _sample(number, row, value, passages)
            self._digest.update("".join(sample[name] for name in _HASHES).encode())
            lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
        return "".join(lines).encode()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def values(self) -> pl.DataFrame:
        return pl.concat(self._values)

    @property
    def document(self) -> NDArray[np.int64] | None:
        """Which document each sample is of; None where examples were not drawn from documents."""
        return documents_of(pl.concat(self._origins)) if self._origins else None


def _sample(number: int, row: Row, value: Mapping[str, float], passages: Texts) -> dict[str, Any]:
    prefix, suffix = map(whole, passages(dict(row)))
    log_prob = row["log_prob"]
    unknown = row["bounded"] and log_prob > -math.inf  # then log_prob is only an upper bound
    doc = {name: row[name] for name in _DOC} | {"prefix": prefix, "suffix": suffix}
    doc |= {"bounded": row["bounded"], "log_prob_upper": log_prob if unknown else None}
    answer = ["nan" if unknown else str(log_prob), str(row["greedy"])]  # the harness, too, writes them as text
    return {
        "doc_id": number,
        "doc": doc,
        "target": suffix,
        "arguments": {"gen_args_0": {"arg_0": prefix, "arg_1": suffix}},
        "resps": [[answer]],
        "filtered_resps": [answer],
        "filter": "none",
        "metrics": list(value),
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _hash(prefix),
        "target_hash": _hash(suffix),
        **value,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def results(manifest: Manifest, summary: Summary, all_samples: Sequence[Samples]) -> dict[str, Any]:
    """What goes into results_*.json."""
    model, versions = manifest.model, manifest.versions
    names = [samples.task.name for samples in all_samples]
    return {
        "results": {samples.task.name: _task_results(samples, summary) for samples in all_samples},
        "group_subtasks": {name: [] for name in names},
        "configs": {samples.task.name: _config(samples, summary) for samples in all_samples},
        "versions": dict.fromkeys(names, versions["rote"]),
        "n-shot": dict.fromkeys(names, 0),
        "higher_is_better": {samples.task.name: dict.fromkeys(samples.values.columns) for samples in all_samples},
        "n-samples": {samples.task.name: _counts(samples, summary) for samples in all_samples},
        "config": _run_config(manifest),
        "git_hash": None,
        "date": datetime.fromisoformat(manifest.created).timestamp(),
        "transformers_version": versions["transformers"],
        "rote_version": versions["rote"],
        "task_hashes": {samples.task.name: samples.digest for samples in all_samples},
        "model_source": "rote",
        "model_name": whole(str(model.name)),
        "model_name_sanitized": folder_name(str(model.name)),
        "system_instruction": None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": None,
        "chat_template": None,
        "chat_template_sha": None,
        "total_evaluation_time_seconds": str(summary.seconds),
    }


def _task_results(samples: Samples, summary: Summary) -> dict[str, Any]:
    """The means of the samples; of a scan that left windows out, what they say of all windows: their lower ends."""
    values, document = samples.values, samples.document
    windows = samples.manifest.kind == "scan"
    whole = _rates_over_all(samples, summary)
    entry: dict[str, Any] = {"name": samples.task.name, "alias": samples.task.name, "sample_len": values.height}
    for name in values.columns:
        column = values[name].to_numpy()
        entry[f"{name},none"] = float(column.mean()) if column.size else MISSING
        if whole:  # the samples were chosen: their means are those of nothing else
            entry[f"{name},none"] = whole[name].rate if name in whole else MISSING
        entry[f"{name}_stderr,none"] = standard_error(column, document, windows=windows)
    return entry


def _rates_over_all(samples: Samples, summary: Summary) -> dict[str, Rate]:
    """The two rates over all windows of a scan that left some out; of no other run."""
    numbers = summary.schemes[samples.task.scheme]
    if numbers.audit is None or numbers.audit.drawn == numbers.audit.left_out:
        return {}
    return {"exact_match": numbers.rates.greedy_rate, "extractable": numbers.rates.rate_at_tau}


def _counts(samples: Samples, summary: Summary) -> dict[str, int]:
    scored = samples.values.height
    windows = scored if summary.staged is None else summary.staged.windows
    return {"original": windows + (summary.dropped or 0), "effective": scored}


def standard_error(values: NDArray[np.float64], document: NDArray[np.int64] | None, *, windows: bool) -> float | str:
    """The standard error of the mean of examples, or MISSING where none would be true.

    A scan's windows are all of a text's and overlap: they are no sample. Values that are all alike hide their scatter.
    Of drawn examples (`document` says which document each is of), those of one document count together.
    """
    if windows or values.size < 2 or not float(values.var()):
        return MISSING
    if document is None:
        return float(values.std(ddof=1)) / math.sqrt(values.size)
    return math.sqrt(float(values.var()) / effective_examples(values, document))


def _intervals(samples: Samples, summary: Summary) -> dict[str, list[float]]:
    """The 95% intervals of the two rates, as rote gives them; a scan's windows are no sample and have none.

    But for those of a scan that left windows out: from what was found to what its audit allows.
    """
    values, document = samples.values, samples.document
    if whole := _rates_over_all(samples, summary):
        return {name: list(rate.interval) for name, rate in whole.items()}
    if samples.manifest.kind == "scan" or not values.height:
        return {}
    intervals = {}
    for name in ("exact_match", "extractable"):
        # From the lower end of what is certain to the upper end of what may be, where a server's list leaves that open.
        ends = []
        for end, column in enumerate((name, f"{name}_upper" if f"{name}_upper" in values.columns else name)):
            hits = values[column].to_numpy()
            both = wilson(hits.sum(), hits.size) if document is None else document_interval(hits, document)[:2]
            ends.append(float(both[end]))
        intervals[name] = ends
    return intervals


def _config(samples: Samples, summary: Summary) -> dict[str, Any]:
    """The task's configuration; `metadata` says what decides its numbers."""
    task, manifest = samples.task, samples.manifest
    model, decided = manifest.model, plain(manifest)
    decisive = ("source", "windows", "refined", "sweep", "sampling", "tau", "stop_early", "near")
    return {
        "task": task.name,
        "dataset_path": whole(str(manifest.source.name)),
        "output_type": "loglikelihood",
        "doc_to_text": "{{prefix}}",
        "doc_to_target": "{{suffix}}",
        "description": "",
        "target_delimiter": "",
        "fewshot_delimiter": "",
        "num_fewshot": 0,
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": None} for name in samples.values.columns
        ],
        "repeats": 1,
        "should_decontaminate": False,
        "metadata": {
            "version": manifest.versions["rote"],
            "scheme": task.scheme,
            "corpus": task.corpus,
            "bos": model.bos,
            "bos_token": model.bos_token,
            "fingerprint": model.fingerprint,
            "intervals_95": _intervals(samples, summary),
            **{key: decided[key] for key in decisive if key in decided},
        },
    }


def _run_config(manifest: Manifest) -> dict[str, Any]:
    model = manifest.model
    arguments = {"pretrained": model.name, "revision": model.revision, "dtype": model.dtype}
    return {
        "model": "rote",
        "model_args": whole(",".join(f"{key}={value}" for key, value in arguments.items() if value is not None)),
        "model_num_parameters": model.parameters,
        "model_dtype": model.dtype,
        "model_revision": model.revision,
        "batch_size": str(manifest.batch_size),
        "batch_sizes": [],
        "device": model.device,
        "use_cache": None,
        "limit": None,
        "bootstrap_iters": 0,
        "gen_kwargs": None,
    }
