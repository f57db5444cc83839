"""Folders of `rote member` made by hand: rows of made-up reads, and what they come to in believable numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rote.membership.scores import BY_NAME, SCORES, TextRead, scores_of
from rote.store.files import FORMAT
from rote.store.member import (
    Blind,
    ByRepetitions,
    DatasetTest,
    Evaluated,
    Evaluation,
    Extracted,
    FalsePositives,
    Measured,
    MemberManifest,
    MemberSummary,
    Roc,
    Spread,
    TextsSource,
)
from rote.store.membership import StoredMembership, StoredText, add_shard, begin, finish, text_lines
from tests.report.runs import CREATED, MODEL, VERSIONS

Row = dict[str, Any]
Confound = Literal["chance", "part", "all"]

WORDS = [
    "the",
    "a",
    "sea",
    "and",
    "wind",
    "was",
    "night",
    "old",
    "captain",
    "upon",
    "Nantucket",
    "whale",
    "ſun",
    "naïve",
]
REPETITIONS = (1, 4, 16, 64)
FEATURES = ["words and pairs of words", "runs of 2 to 4 characters", "lengths", "dates"]
BLIND = {"chance": 0.52, "part": 0.71, "all": 0.97}


def membership(
    folder: Path,
    *,
    texts: int = 24,
    held_out: int = 8,
    labels: bool = True,
    blind: Confound = "chance",
    p: float = 0.001,
    blind_p: float = 0.8,
    combined: int = 4,
    reference: bool = False,
    extract: bool = False,
    quick: bool = False,
    ids: Sequence[str] = (),
    contents: Sequence[str] = (),
    shard: int = 10,
    finished: bool = True,
) -> StoredMembership:
    """`texts`, every other one a member where there are `labels`, and `held_out` ones, in a sealed folder.

    `blind`: how far texts differ without any model. `p`, `blind_p`, `combined`: what the test of the whole set came to.
    """
    random_ = random.Random(17)
    draw = np.random.default_rng(17)
    needs = {"text", *(() if quick else ("lowercase", "prefix"))}
    needs |= ({"reference"} if reference else set()) | ({"windows"} if extract else set())
    names = [score.name for score in SCORES if score.needs in needs]
    stored, rows = [], []
    for number in range(texts + held_out):
        part: Literal["texts", "held_out"] = "texts" if number < texts else "held_out"
        member = part == "texts" and number % 2 == 0
        content = contents[number] if number < len(contents) else _written(random_, 12 + number % 17)
        text = StoredText(
            part=part,
            id=ids[number] if number < len(ids) else f"{'t' if part == 'texts' else 'h'}{number:03d}",
            text=content,
            label=member if labels and part == "texts" else None,
            group=f"book {number % 7}" if part == "texts" else None,
            date=f"20{10 + number % 9}-03" if part == "texts" else None,
            repetitions=REPETITIONS[number % 8 // 2] if labels and member else None,
        )
        stored.append(text)
        rows.append(_row(text, member, names, draw))
    size = len(stored)
    prefix = [] if quick else [stored[texts].id if held_out else stored[1].id]
    manifest = MemberManifest(
        format=FORMAT,
        kind="member",
        created=CREATED,
        source=TextsSource(name="passages.jsonl", sha256="ab" * 32, texts=texts),
        held_out=TextsSource(name="unseen.jsonl", sha256="cd" * 32, texts=held_out) if held_out else None,
        model=MODEL,
        reference=replace(MODEL, name="models/small reference") if reference else None,
        scores=names,
        window=1024,
        stride=512,
        reference_window=512 if reference else None,
        reference_stride=256 if reference else None,
        prefix=prefix,
        prefix_tokens=12 if prefix else None,
        prefix_whole=19 if prefix else None,
        extracted=Extracted(prefix=10, suffix=10, every=5, scheme="temperature=1 top_k=40", tolerance=2)
        if extract
        else None,
        match=[],
        seed=0,
        batch_size="auto",
        batch_tokens=4096,
        logit_tolerance=5e-4,
        shard_texts=shard,
        shards=-(-size // shard),
        versions=VERSIONS,
    )
    begin(folder, manifest, text_lines(stored))
    for index in range(manifest.shards):
        add_shard(folder, index, rows[index * shard : (index + 1) * shard], 0.5, [])
    if finished:
        finish(folder, _summary(manifest, rows, blind, p, blind_p, combined))
    return StoredMembership(folder)


def _written(random_: random.Random, words: int) -> str:
    return " ".join(random_.choice(WORDS) for _ in range(words)).capitalize() + "."


def _read(lengths: int, shift: float, draw: np.random.Generator) -> TextRead:
    surprise = draw.gamma(1.3, 2.2, lengths) * shift
    z = draw.normal(0.4 - shift, 1.0, lengths)
    return TextRead((-surprise).astype(np.float32), z.astype(np.float32), lengths)


def _row(text: StoredText, member: bool, names: Sequence[str], draw: np.random.Generator) -> Row:
    ends = [i for i, c in enumerate(text.text) if c == " "] + [len(text.text)]
    often = text.repetitions or 1
    shift = 1.0 if not member else 0.9 - 0.1 * np.log2(often)
    own = _read(len(ends), shift, draw)
    lower, prefixed, other = (_read(len(ends), by, draw) for by in (1.1, shift + 0.05, 1.0))
    found = scores_of(text.text, own, lowercase=lower, reference=other, prefixed=prefixed)
    short = len(ends) < 20
    found |= {"best_window": float(draw.normal(-20, 6)), "near_lower": float("-inf") if not member else -9.5}
    return {
        "part": text.part,
        "id": text.id,
        "label": text.label,
        "group": text.group,
        "date": text.date,
        "repetitions": text.repetitions,
        "characters": len(text.text),
        "tokens": len(ends),
        "windows": 1 + (len(ends) > 25),
        "token_evals": 3 * len(ends),
        "scored_start": 0,
        "token_ends": ends,
        "token_log_probs": own.log_probs.tolist(),
        "token_z": own.z_scores.tolist(),
        "lowercase_loss": -lower.mean if "lowercase" in names else None,
        "reference_loss": -other.mean if "reference" in names else None,
        "prefixed_loss": -prefixed.mean if "recall" in names else None,
        "windows_tried": (0 if short else 3) if "best_window" in names else None,
        "best_start": None if short or "best_window" not in names else 5,
        **{name: None if short and name in ("best_window", "near_lower") else found[name] for name in names},
    }


def _area(members: Sequence[float], others: Sequence[float]) -> float:
    won = sum((m > o) + 0.5 * (m == o) for m in members for o in others)
    return won / (len(members) * len(others))


def _measured(value: float, width: float = 0.06) -> Measured:
    return Measured(value=value, interval=[max(0.0, value - width), min(1.0, value + width)])


def _roc(name: str, members: Sequence[float], others: Sequence[float]) -> Roc:
    levels = sorted({*members, *others}, reverse=True)
    fpr = [0.0, *(sum(o >= level for o in others) / len(others) for level in levels)]
    tpr = [0.0, *(sum(m >= level for m in members) / len(members) for level in levels)]
    return Roc(name=name, fpr=fpr, tpr=tpr)


def _evaluated(name: str, area: float, blind: float, others: int) -> Evaluated:
    fitted = name in ("random", "majority", "blind")
    over = None if fitted else Measured(value=area - blind, interval=[area - blind - 0.07, area - blind + 0.07])
    return Evaluated(
        name=name,
        auroc=_measured(area) if name not in ("random", "majority") else Measured(value=0.5, interval=[0.5, 0.5]),
        tpr_1=_measured(max(0.01, area - 0.5)) if others >= 100 else None,
        tpr_01=_measured(max(0.001, area - 0.7)) if others >= 1000 else None,
        precision=None if name == "loss" else _measured(area),
        recall=Measured(value=1.0, interval=[0.9, 1.0], bound=True) if name == "majority" else _measured(area - 0.3),
        f_beta=_measured(area - 0.02),
        over_blind=over,
    )


def _evaluation(manifest: MemberManifest, rows: Sequence[Row], blind: Confound) -> Evaluation:
    used = [row for row in rows if row["label"] is not None and row["id"] not in manifest.prefix]
    complete = [name for name in manifest.scores if all(row[name] is not None for row in used)]
    oriented = {
        name: (
            [row[name] * BY_NAME[name].sign for row in used if row["label"]],
            [row[name] * BY_NAME[name].sign for row in used if not row["label"]],
        )
        for name in complete
    }
    draw = random.Random(3)
    without = BLIND[blind]
    strength = {0.52: 0.1, 0.71: 0.8, 0.97: 2.7}[without]
    oriented["blind"] = (
        [draw.gauss(strength, 1.0) for _ in oriented["loss"][0]], [draw.gauss(0.0, 1.0) for _ in oriented["loss"][1]]
    )  # fmt: skip
    oriented["combined"] = (
        [a - b for a, b in zip(oriented["min_k_20"][0], oriented["zlib"][0], strict=True)],
        [a - b for a, b in zip(oriented["min_k_20"][1], oriented["zlib"][1], strict=True)],
    )
    areas = {name: _area(*both) for name, both in oriented.items()} | {"blind": without, "random": 0.5, "majority": 0.5}
    best = max(complete, key=lambda name: areas[name])
    members, others = map(len, oriented["loss"])
    return Evaluation(
        members=members,
        non_members=others,
        groups=7,
        fewest=3,
        folds=5,
        resamples=2000,
        beta=0.1,
        unlabelled=0,
        prefix=len(rows) and sum(row["label"] is not None and row["id"] in manifest.prefix for row in rows),
        unmatched=0,
        best=best,
        rows=[
            _evaluated(name, areas[name], without, others)
            for name in [*complete, "combined", "blind", "random", "majority"]
        ],
        blind=Blind(
            features=FEATURES,
            for_members=["word 'whale'", "characters '<b>'"],
            for_non_members=["date", "length"],
            explained=max(0.0, min(1.0, (without - 0.5) / (areas[best] - 0.5))),
        ),
        roc=[_roc(name, *both) for name, both in oriented.items()],
        by_repetitions=[
            ByRepetitions(
                repetitions=often,
                members=3,
                auroc={name: _measured(min(1.0, 0.55 + 0.1 * place)) for name in [*complete, "combined", "blind"]},
            )
            for place, often in enumerate(REPETITIONS)
        ],
    )


def _test(manifest: MemberManifest, rows: Sequence[Row], p: float, blind_p: float, combined: int) -> DatasetTest:
    suspects = [row for row in rows if row["part"] == "texts" and row["label"] is not False]
    held = [row for row in rows if row["part"] == "held_out"] or [row for row in rows if row["label"] is False]
    return DatasetTest(
        suspects=len(suspects),
        held_out=len(held) - len(manifest.prefix),
        groups=7,
        splits=21,
        permutations=999,
        p=p,
        p_values=[min(1.0, max(0.001, p / 2 * (0.5 + place / 20))) for place in range(21)],
        difference=0.83,
        weights={name: 0.1 * place for place, name in enumerate(manifest.scores[:5])},
        features=FEATURES,
        blind=blind_p,
        blind_p_values=[min(1.0, blind_p / 2 * (0.5 + place / 20)) for place in range(21)],
        false_positives=FalsePositives(trials=200, splits=21, single=9, combined=combined),
    )


def _spreads(manifest: MemberManifest, rows: Sequence[Row]) -> list[Spread]:
    found = []
    kinds = sorted({(row["part"], row["label"]) for row in rows}, key=str)
    for name in manifest.scores:
        for part, label in kinds:
            values = [
                row[name] for row in rows
                if (row["part"], row["label"]) == (part, label) and row[name] is not None and np.isfinite(row[name])
            ]  # fmt: skip
            if values:
                quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
                found.append(
                    Spread(
                        score=name, part=part, label=label, texts=len(values), mean=float(np.mean(values)),
                        quantiles=quantiles,
                    )
                )  # fmt: skip
    return found


def _summary(
    manifest: MemberManifest, rows: Sequence[Row], blind: Confound, p: float, blind_p: float, combined: int
) -> MemberSummary:
    labelled = any(row["label"] is not None for row in rows)
    held_out = sum(row["part"] == "held_out" for row in rows)
    tokens = sum(row["tokens"] for row in rows)
    evals = {"text": tokens}
    evals |= {} if "recall" not in manifest.scores else {"lowercase": tokens + 40, "prefix": 3 * tokens}
    evals |= {"reference": tokens} if "reference" in manifest.scores else {}
    evals |= {"windows": 60 * tokens} if "best_window" in manifest.scores else {}
    tested = labelled or held_out > 0
    return MemberSummary(
        format=FORMAT,
        kind="member",
        texts=manifest.source.texts,
        held_out=held_out,
        members=sum(row["label"] is True for row in rows),
        non_members=sum(row["label"] is False for row in rows),
        tokens=tokens,
        token_evals=evals,
        seconds=12.5,
        windowed=sum(row["windows"] > 1 for row in rows),
        short=sum(row["best_window"] is None for row in rows) if "best_window" in manifest.scores else None,
        warnings=[],
        spreads=_spreads(manifest, rows),
        evaluation=_evaluation(manifest, rows, blind) if labelled else None,
        not_evaluated=None if labelled else "None of the texts has a label.",
        test=_test(manifest, rows, p, blind_p, combined) if tested else None,
        not_tested=None if tested else "There are no held-out texts.",
    )
