"""Results as tables for other programs: columns that cannot be misread, and their text as CSV or JSON lines."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from rote.models.probed import ChatIdentity
from rote.store.manifest import Manifest
from rote.store.membership import MemberView
from rote.store.probing import ProbeView
from rote.store.run import Passages
from rote.store.submissions import ScoreResult
from rote.store.summary import RateName
from rote.store.sweep import SweepResult

Kind = Literal["text", "boolean", "integer", "number", "json"]
"""What the values of one key of the metadata are; `json`: of several kinds, or nested, so each is written as JSON."""

MOST_KEYS = 100
"""Metadata with more keys than this, over all examples, stays in one column: nobody reads a table that wide."""

_OWN_COLUMNS = ("repetitions", "split")  # keys of the metadata that the score table has columns for
_DTYPES: dict[Kind, Any] = {
    "text": pl.String, "boolean": pl.Boolean, "integer": pl.Int64, "number": pl.Float64, "json": pl.String,
}  # fmt: skip
_EXACT = 2**53  # whole numbers up to here are floats, too
_LONE = re.compile("[\ud800-\udfff]")
_NEAR = {
    "lower": "near_lower",
    "upper": "near_upper",
    "verdict": "near_verdict",
    "lower_by_tolerance": "near_lower_by_tolerance",
    "upper_by_tolerance": "near_upper_by_tolerance",
    "eos_mass": "near_eos_mass",
    "estimate": "near_estimate",
    "estimate_error": "near_estimate_error",
    "greedy_distance": "near_greedy_distance",
    "near_token_evals": "near_token_evals",
    "candidates": "near_candidates",
}
_BY_TOKEN = ("token_log_probs", "base_log_probs", "ranks", "margins", "token_ends")
# A spreadsheet takes text that begins so for a formula, white space and invisible characters aside. The last four are
# the full-width forms, which some of them take too.
_FORMULA = r"^(?:'|[\s\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])"


def metadata_kinds(metadata: Iterable[str]) -> dict[str, Kind] | None:
    """The keys of all examples' metadata (JSON texts) in order of appearance, each with the kind of its values.

    None where there are more than MOST_KEYS. `repetitions` and `split` are left out: they have columns of their own.
    """
    kinds_by_key: dict[str, set[Kind]] = {}
    for text in metadata:
        for key, value in json.loads(text).items():
            if key not in _OWN_COLUMNS:
                kinds = kinds_by_key.setdefault(key, set())
                kinds |= set() if value is None else {_kind(value)}
        if len(kinds_by_key) > MOST_KEYS:
            return None
    return {key: _common(kinds) for key, kinds in kinds_by_key.items()}


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if abs(value) <= _EXACT else "json"
    return "number" if isinstance(value, float) else "text" if isinstance(value, str) else "json"


def _common(kinds: set[Kind]) -> Kind:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "number" if kinds == {"integer", "number"} else "json"


def score_rows(
    scores: pl.DataFrame,
    *,
    manifest: Manifest,
    passages: Passages,
    kinds: Mapping[str, Kind] | None,
) -> pl.DataFrame:
    """Rows of a score table for other programs: one per example and scheme, in the table's order.

    A stopped row's `p_z` and `log_prob` are null, because they are not known: `p_z_upper` and `log_prob_upper` are the
    bounds on them, and in all other rows the same numbers. (A bound of 0 leaves no doubt: then p_z is 0.) p_z is
    exp(log_prob), so it is 0 also where that is below the least float.
    `stage`, of a scan in stages alone, says which scored it, from 0: the last one is the audit.
    `kinds`: what `metadata_kinds` says of the whole run; None keeps the metadata in one column.
    """
    places = scores.select("example_id", "start", "suffix_start", "suffix_end").to_dicts()
    texts = [passages[place] for place in places]
    ways = [passages.tokenised.get(place["example_id"]) for place in places] if passages.tokenised else None
    exact = pl.col("bounded").not_() | pl.col("log_prob").is_infinite()
    return scores.select(
        "example_id",
        _always("model", manifest.model.name, pl.String),
        "scheme",
        _always("bos_token", manifest.model.bos_token, pl.Int64),
        "start",
        "suffix_start",
        "suffix_end",
        pl.when(exact).then(pl.col("log_prob").exp()).alias("p_z"),
        pl.when(exact).then("log_prob").alias("log_prob"),
        pl.col("log_prob").exp().alias("p_z_upper"),
        pl.col("log_prob").alias("log_prob_upper"),
        "bounded",
        "greedy",
        "repetitions",
        "split",
        *_metadata(scores["metadata"], kinds),
        pl.Series("prefix", [whole(prefix) for prefix, _ in texts], pl.String),
        pl.Series("suffix", [whole(suffix) for _, suffix in texts], pl.String),
        *([] if ways is None else [pl.Series("tokenised", ways, pl.String)]),
        *([] if manifest.refined is None else ["stage"]),
        *(pl.col(name).alias(new) for name, new in _NEAR.items() if manifest.near is not None),
        "token_evals",
        *_BY_TOKEN,
    )


def _always(name: str, value: Any, dtype: Any) -> pl.Expr:
    return pl.lit(whole(value) if isinstance(value, str) else value, dtype).alias(name)


def whole(text: str) -> str:
    """The text with lone surrogates, which no file can hold as UTF-8, replaced."""
    return _LONE.sub("\ufffd", text)


def _metadata(metadata: pl.Series, kinds: Mapping[str, Kind] | None) -> list[pl.Series]:
    if kinds is None:
        return [metadata.alias("metadata")]
    parsed = [json.loads(text) for text in metadata]
    return [
        pl.Series(f"metadata.{key}", [_value(each.get(key), kind) for each in parsed], _DTYPES[kind])
        for key, kind in kinds.items()
    ]


def _value(value: Any, kind: Kind) -> Any:
    if value is None or kind in ("boolean", "integer"):
        return value
    if kind == "number":
        return float(value)
    return whole(value if kind == "text" else json.dumps(value, ensure_ascii=False))


_COLUMNS: dict[RateName, str] = {
    "greedy_rate": "greedy_rate",
    "rate_at_tau": "rate_at_tau",
    "rate_at_1e_4": "rate_at_0.0001",
    "maximum_rate": "maximum_rate",
}


def curve_rows(score: ScoreResult) -> pl.DataFrame:
    """The error-recall curves of scored guesses: a row wherever one of them solves more examples."""
    rows = [
        {
            "submission": whole(one.name),
            "errors": point.errors,
            "solved": point.solved,
            "recall": point.recall,
            "precision": point.precision,
        }
        for one in score.submissions
        for point in one.curve
    ]
    kinds = {"submission": pl.String, "errors": pl.Int64, "solved": pl.Int64, "recall": pl.Float64}
    return pl.DataFrame(rows, schema=kinds | {"precision": pl.Float64})


def text_rows(run: MemberView) -> pl.DataFrame:
    """The scores of texts: a row per text, with the scores that were asked for, and its tokens' log-probs."""
    manifest = run.manifest
    by_token = ["scored_start", "token_ends", "token_log_probs", "token_z"]
    known = ["part", "id", "label", "group", "date", "repetitions", "characters", "tokens", "windows", "token_evals"]
    passes = ["lowercase", "reference", "prefixed"]
    others = [*(f"{name}_loss" for name in passes), *(f"{name}_evals" for name in (*passes, "windows"))]
    others += ["windows_tried", "best_start"]
    return run.rows.select(
        *known,
        _always("model", manifest.model.name, pl.String),
        _always("bos_token", manifest.model.bos_token, pl.Int64),
        *manifest.scores,
        *(name for name in others if run.rows[name].count() > 0),
        "text",
        *by_token,
    )


def question_rows(run: ProbeView) -> pl.DataFrame:
    """Questions and answers: a row for each, with the model's name and what is known of the text."""
    manifest, texts = run.manifest, run.texts
    models: dict[str, Sequence[ChatIdentity | None]] = {
        "target": manifest.targets,
        "filter": manifest.filters,
        "paraphrase": [manifest.paraphraser],
        "slot": [manifest.picker],
    }
    pairs = run.questions.select("role", "model").rows()
    names = [None if (own := models[role][place]) is None else whole(own.name) for role, place in pairs]
    own = [texts[text] for text in run.questions["text"]]
    return run.questions.select(
        "role",
        pl.Series("name", names, pl.String),
        pl.exclude("role"),
        pl.Series("label", [text.label for text in own], pl.Boolean),
        pl.Series("group", [text.group for text in own], pl.String),
        pl.Series("repetitions", [text.repetitions for text in own], pl.Int64),
    )


def sweep_rows(sweep: SweepResult) -> pl.DataFrame:
    """The points of a sweep: a row per scheme, prompt length and suffix length, with every rate and its interval."""
    rows: list[dict[str, Any]] = []
    for point in sweep.points:
        rates = point.rates
        row: dict[str, Any] = {
            "model": whole(sweep.model.name),
            "scheme": point.scheme,
            "bos_token": sweep.model.bos_token,
            "prefix": point.prefix,
            "suffix": point.suffix,
            "examples": rates.examples,
            "tau": rates.tau,
        }
        for name, rate in rates.named.items():
            low, high = rate.interval
            column = _COLUMNS[name]
            row |= {column: rate.rate, f"{column}_low": low, f"{column}_high": high}
        quartiles: Sequence[float | None] = point.perplexity.quartiles or [None] * 3
        row |= dict(zip(("perplexity_q1", "perplexity_median", "perplexity_q3"), quartiles, strict=True))
        names = ("n", "p", "count", "rate", "rate_upper", "interval")
        row["perplexity_finite"] = point.perplexity.finite
        row["np_table"] = [{name: getattr(cell, name) for name in names} for cell in rates.np_table]
        rows.append(row)
    return pl.DataFrame(rows, schema_overrides={"bos_token": pl.Int64, "tau": pl.Float64}, infer_schema_length=None)


def as_jsonl(table: pl.DataFrame) -> bytes:
    """One JSON object a line. JSON has no infinities: polars writes null in their place."""
    out = io.BytesIO()
    table.write_ndjson(out)
    return out.getvalue()


def as_csv(table: pl.DataFrame, *, header: bool) -> bytes:
    """Comma-separated UTF-8 that a spreadsheet shows as it is: lists as JSON, text never taken for a formula.

    Every text is quoted. One that begins like a formula, or with ', gets one more ' in front; so a first ' is never
    part of the text. With the `header` comes the mark by which spreadsheets tell UTF-8.
    """
    nested = [name for name, dtype in table.schema.items() if dtype.is_nested()]
    flat = table.with_columns(_json_text(name) for name in nested)
    guarded = flat.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'${0}"))
    out = io.BytesIO()
    guarded.write_csv(out, include_header=header, include_bom=header, quote_style="non_numeric")
    return out.getvalue()


def _json_text(name: str) -> pl.Expr:
    text = pl.struct(pl.col(name)).struct.json_encode()
    unwrapped = text.str.strip_prefix("{" + json.dumps(name) + ":").str.strip_suffix("}")
    return pl.when(pl.col(name).is_not_null()).then(unwrapped).alias(name)
