"""One passage of one or several runs: found by id, by a quotation or by its place, with all that is stored about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl

from rote.analysis.quotes import best_window, occurrences, similar
from rote.corpus.windows import cut_at
from rote.errors import InputError, ModelError, RoteError, argument, counted
from rote.jobs.compare import Side, open_sides
from rote.jobs.open import RunLike
from rote.odds import at_least_once, queries_needed
from rote.options import Option, require_kind, whole
from rote.report.text.passage import NearOfPassage, PassageOfRun, ShownPassage, TokenOfPassage
from rote.store.run import Passages
from rote.store.table import Row

CHANCES = (0.5, 0.9, 0.999)
NEAR = ("lower", "upper", "lower_by_tolerance", "upper_by_tolerance", "verdict", "estimate", "estimate_error",
        "greedy_distance", "candidates")  # fmt: skip
QUERIES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which example was chosen, and why, in a sentence."""

    example_id: str
    why: str


def show(
    runs: Annotated[
        RunLike | Sequence[RunLike], Option("Finished runs; several over the same passages go side by side.")
    ],
    *,
    example: Annotated[str | None, Option("The passage's id: wSTART in a scan, else as given.")] = None,
    quote: Annotated[str | None, Option("Words of the text: the window whose suffix holds most of them.")] = None,
    at: Annotated[
        int | None, Option("A character of the text, from 0: the likeliest window whose suffix covers it.")
    ] = None,
) -> ShownPassage:
    """Everything that the runs store about one passage, ready for JSON. Give exactly one way to find it.

    `example`: its id. `quote`: the window whose suffix holds the most of this text. `at`: the window whose suffix
    covers this character of the text and has the largest p_z. Where there are several runs, the first one decides
    which window it is, and the others show the same.
    """
    if sum(way is not None for way in (example, quote, at)) != 1:
        raise InputError(f"give exactly one of {argument('example')}, {argument('quote')} and {argument('at')}.")
    for name, words in (("example", example), ("quote", quote)):
        require_kind(name, "" if words is None else words, str, "a text")
    if at is not None and not whole(at):
        raise InputError(f"{argument('at')} must be a whole number, not {at!r}.")
    sides = open_sides(runs)
    tables = {side.key: side.table() for side in sides}
    rows = tables[sides[0].key]
    if example is None:  # look among the passages that every run has
        for other in [*tables.values()][1:]:
            rows = rows.join(other.select("example_id"), on="example_id", how="semi")
    texts = sides[0].run.texts
    if not rows.height:
        raise InputError("no window was scored in all of these runs; give one of them.")
    unscored = _unscored(sides, rows)
    if example is not None:
        choice = Choice(_by_id(sides[0], rows, example), "")
    elif at is not None:
        choice = _by_place(sides[0], rows, texts, at, unscored)
    else:
        choice = _by_quote(sides[0], rows, texts, quote or "", unscored)
    return ShownPassage(
        example_id=choice.example_id,
        chosen=choice.why,
        kind=sides[0].manifest.kind,
        source=sides[0].manifest.source,
        runs=[_shown(side, tables[side.key], choice.example_id) for side in sides],
    )


def _unscored(sides: Sequence[Side], rows: pl.DataFrame) -> pl.DataFrame | None:
    """Windows of the first run that have no number in all runs, where that is because scans in stages left them out."""
    if all(side.run.places is None for side in sides):
        return None
    every = sides[0].rows() if sides[0].run.places is None else sides[0].run.places
    return every.filter(~pl.col("start").is_in(rows["start"].implode()))


def _left_out(unscored: pl.DataFrame | None, places: list[tuple[int, int]], least: int) -> str:
    """How many windows without a number hold so many characters of one of the places."""
    if unscored is None:
        return ""
    start, end = pl.col("suffix_start"), pl.col("suffix_end")
    held = pl.any_horizontal(
        pl.min_horizontal(end, pl.lit(last)) - pl.max_horizontal(start, pl.lit(first)) >= least
        for first, last in places
    )
    count = unscored.filter(held).height
    told = f" Left out of a scan in stages, and without a number: {counted(count, 'more such window')}."
    return told if count else ""


def _by_id(side: Side, rows: pl.DataFrame, example: str) -> str:
    if told := side.run.left_out(example):
        raise InputError(told)
    if not (rows["example_id"] == example).any():
        known = ", ".join(repr(name) for name in rows["example_id"].head(3))
        more = ", ..." if rows.height > 3 else ""
        raise InputError(f"{side.run.folder} has no example {example!r}; it has {known}{more}.")
    return example


def _by_place(side: Side, rows: pl.DataFrame, texts: Passages, at: int, unscored: pl.DataFrame | None) -> Choice:
    if texts.text is None:
        raise InputError(
            f"{side.run.folder} is no scan of a text, so it has no character {at}; give {argument('example')} or "
            f"{argument('quote')}."
        )
    if not 0 <= at < len(texts.text):
        raise InputError(f"{argument('at', at)}: the text has characters 0 to {len(texts.text) - 1}.")
    best = best_window(rows, [(at, at + 1)])
    if best is None:
        raise InputError(f"no window's suffix covers character {at} of the text. {_near_by(rows, at)}")
    row, _, ties = best
    which = f"Of {ties:,} windows" if ties > 1 else "The only window"
    if unscored is not None:
        which = f"Of {ties:,} scored windows" if ties > 1 else "The only scored window"
    why = f"{which} whose suffix covers character {at:,}{', the likeliest' if ties > 1 else ''}."
    why += _left_out(unscored, [(at, at + 1)], 1)
    return Choice(rows["example_id"][row], why)


def _near_by(rows: pl.DataFrame, at: int) -> str:
    """Which suffix comes nearest to a character that none covers."""
    away = pl.max_horizontal(pl.col("suffix_start") - at, at - pl.col("suffix_end") + 1)
    start, end = rows.sort(away, maintain_order=True).select("suffix_start", "suffix_end").row(0)
    return (
        f"The nearest suffix spans characters {start} to {end}; try {argument('at', start if start > at else end - 1)}."
    )


def _by_quote(side: Side, rows: pl.DataFrame, texts: Passages, quote: str, unscored: pl.DataFrame | None) -> Choice:
    if not quote.strip():
        raise InputError(f"{argument('quote')} is empty; give a few words of the text.")
    if texts.text is None:
        return _by_decoded_quote(side, rows, texts, quote)
    places = list(occurrences(texts.text, quote))
    if not places:
        raise InputError(_not_found(side.manifest.source.name, quote, texts.text, None))
    best = best_window(rows, places)
    if best is None:
        raise InputError(
            f"the quotation stands in the text at character {places[0][0]}, but in no window's suffix. "
            f"{_near_by(rows, places[0][0])}"
        )
    row, (start, end), ties = best
    held = "all" if end - start == len(quote) else f"{end - start:,}"
    times = f", {len(places)} times in the text" if len(places) > 1 else ""
    why = f"Its suffix holds {held} of the quotation's {counted(len(quote), 'character')}{times}"
    more = _left_out(unscored, places, end - start)
    return Choice(rows["example_id"][row], f"{why}; {_of_ties(ties)}{more}")


def _by_decoded_quote(side: Side, rows: pl.DataFrame, texts: Passages, quote: str) -> Choice:
    """Among given examples: each example's own text is searched, as no text has them all."""
    best: tuple[int, float] | None = None
    chosen, ties = "", 0
    for name, log_prob in rows.select("example_id", "log_prob").iter_rows():
        prefix, suffix = texts.decoded[name]
        held = max((min(end - len(prefix), len(quote)) for _, end in occurrences(prefix + suffix, quote)), default=0)
        if held <= 0 or (best is not None and held < best[0]):
            continue
        ties = ties + 1 if best is not None and held == best[0] else 1
        if best is None or (held, log_prob) > best:
            best, chosen = (held, log_prob), name
    if best is None:
        joined = {name: "".join(texts.decoded[name]) for name in rows["example_id"]}
        like = next((name for name, text in joined.items() if similar(text, quote)), None)
        where = f"example {like!r}" if like else side.manifest.source.name
        raise InputError(_not_found(where, quote, joined[like] if like else "", like))
    held_words = "all" if best[0] == len(quote) else f"{best[0]:,}"
    why = f"Its suffix holds {held_words} of the quotation's {counted(len(quote), 'character')}"
    return Choice(chosen, f"{why}; {_of_ties(ties)}")


def _of_ties(ties: int) -> str:
    return "no other holds as much." if ties == 1 else f"of {ties:,} that hold as much, the likeliest."


def _not_found(where: str, quote: str, text: str, example: str | None) -> str:
    place = similar(text, quote)
    if place is None:
        return f"{where} does not contain {quote!r}; check the wording, or give fewer words."
    start, end = place
    use = argument("at", start) if example is None else argument("example", example)
    return (
        f"{where} does not contain {quote!r} exactly as typed. At character {start} it has {text[start:end]!r}, which "
        f"differs only in white space, quotation marks, dashes or capitals: quote it like that, or use {use}."
    )


def _shown(side: Side, rows: pl.DataFrame, example_id: str) -> PassageOfRun:
    number = (rows["example_id"] == example_id).arg_max() if rows.height else None
    if number is None or rows["example_id"][number] != example_id:
        raise InputError(
            side.run.left_out(example_id)
            or f"{side.run.folder} has no example {example_id!r}: cut with its tokenizer, that window is too short, at "
            "the end of the text. Choose another passage, or leave this run out."
        )
    row = (rows[number] if side.run.kept else side.run.in_full([number], side.scheme)).row(0, named=True)
    prefix, suffix = side.run.texts[row]
    ids, texts, problem = _tokens(side, row)
    probability = math.exp(row["log_prob"])
    near = side.manifest.near
    return PassageOfRun(
        key=side.key,
        name=side.name,
        folder=str(side.run.folder),
        model=side.manifest.model,
        scheme=side.scheme,
        tau=side.manifest.tau,
        place=[row["start"], row["suffix_start"], row["suffix_end"]],
        prefix=prefix,
        suffix=suffix,
        tokenised=side.run.texts.tokenised.get(example_id),
        log_prob=None if row["log_prob"] == -math.inf else row["log_prob"],
        p_z=probability,
        bounded=row["bounded"],
        greedy=row["greedy"],
        queries_needed={f"{p:g}": _whole(queries_needed(probability, at_least=p)) for p in CHANCES},
        at_least_once={str(n): at_least_once(probability, n) for n in QUERIES},
        tokens=_token_rows(row, ids, texts),
        tokens_unknown=problem,
        near=None if near is None else NearOfPassage(options=near, **{name: row[name] for name in NEAR}),
    )


def _whole(n: float) -> int | None:
    return None if n == math.inf else int(n)


def _token_rows(row: Row, ids: Sequence[int] | None, texts: Sequence[str] | None) -> list[TokenOfPassage]:
    tokens, total = [], 0.0
    for i, (rank, log_prob, base) in enumerate(
        zip(row["ranks"], row["token_log_probs"], row["base_log_probs"], strict=True)
    ):
        total += math.nan if log_prob is None else log_prob
        tokens.append(
            TokenOfPassage(
                position=i + 1,
                id=None if ids is None else ids[i],
                text=None if texts is None else texts[i],
                rank=rank,
                probability=None if log_prob is None else math.exp(log_prob),
                base_probability=math.exp(base),
                cumulative_log_prob=total if math.isfinite(total) else None,
            )
        )
    return tokens


def _tokens(side: Side, row: Row) -> tuple[list[int] | None, list[str] | None, str | None]:
    """The suffix's token ids and their texts, as far as they can be known, and why not where they cannot.

    A scan stores no ids: the window is cut anew with the run's own tokenizer. Examples have theirs stored.
    """
    model = side.manifest.model
    from rote.models.tokenizer import load_tokenizer

    ids = None if side.of.scanned else _stored_ids(side, row["example_id"])
    source = model.name if model.served is None else model.served.tokenizer or model.name
    try:
        tokenizer = load_tokenizer(source, revision=model.revision, expected=model.tokenizer)
        prefix, suffix = ids or _cut_again(side, row, tokenizer)
    except RoteError as error:
        return (ids[1] if ids else None), None, str(error)
    return suffix, token_texts(tokenizer, prefix, suffix), None


def _stored_ids(side: Side, example_id: str) -> tuple[list[int], list[int]]:
    entry = next(entry for entry in side.run.examples if entry.id == example_id)
    return entry.prefix, entry.suffix


def _cut_again(side: Side, row: Row, tokenizer: Any) -> tuple[list[int], list[int]]:
    cut = cut_at(side.run.text or "", tokenizer, side.of.windows, side.manifest.source.steps, [row["start"]])
    if not cut or [cut[0].suffix_start, cut[0].suffix_end] != [row["suffix_start"], row["suffix_end"]]:
        raise ModelError(f"{side.run.folder}: its tokenizer no longer cuts the text into the tokens that were scored.")
    return list(cut[0].prefix), list(cut[0].suffix)


def token_texts(tokenizer: Any, prefix: Sequence[int], suffix: Sequence[int]) -> list[str]:
    """Each suffix token as the text that it adds; a token that holds part of a character as the tokenizer names it."""
    texts, before = [], str(tokenizer.decode(list(prefix)))
    for i, token in enumerate(suffix):
        after = str(tokenizer.decode([*prefix, *suffix[: i + 1]]))
        added = after[len(before) :] if after.startswith(before) else ""
        texts.append(added if added and "\ufffd" not in added else str(tokenizer.convert_ids_to_tokens(token)))
        before = after
    return texts
