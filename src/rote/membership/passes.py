"""Whole texts, read once: for every token its log-prob, and how far that lies from what the model expected there.

Mean and deviation of log p need the whole vocabulary at every position; they are worked out on the device, chunk by
chunk, from the logits that the log-prob comes from anyway, and two numbers a token leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rote.errors import InputError, ModelError, argument
from rote.extraction.passes import MEND, Passes, cost_of
from rote.membership.options import Reading
from rote.membership.scores import Floats, TextRead
from rote.models.base import LogitModel
from rote.options import BatchSize, require_whole
from rote.progress import Progress, quiet
from rote.tokens import Example

AT_ONCE = {"cpu": 1 << 18}
"""Bytes of logits, in float32, that are worked on at once; 512 MiB elsewhere. In a processor's cache they are several
times faster than 32 MiB of them would be."""

FLOOR = -104.0
"""What lies so far below the likeliest token, in nats, has no probability that float32 can hold."""


def read_texts(
    model: LogitModel,
    texts: Sequence[Sequence[int]],
    *,
    prefix: Sequence[int] = (),
    reading: Reading = Reading(),
    names: Sequence[str] | None = None,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> list[TextRead]:
    """Read each text, given as token ids, once; after `prefix`, if there is one.

    The same tokens are scored with a prefix as without: all, or all but the first where there is no BOS. `names` are
    for messages. `progress` counts windows as "read".
    """
    if batch_size != "auto":
        require_whole("batch_size", batch_size)
    window, stride = reading.settled(model, len(prefix))
    called = [f"text {number}" for number in range(len(texts))] if names is None else list(names)
    owners: list[int] = []
    examples: list[Example] = []
    for number, ids in enumerate(texts):
        for start, first, end in cuts(len(ids), window, stride, bos=model.bos_id is not None):
            owners.append(number)
            examples.append(Example(str(first), (*prefix, *ids[start:first]), tuple(ids[first:end])))
        if not owners or owners[-1] != number:
            raise InputError(nothing_to_score(called[number], len(ids)))
        _check_ids(ids, model.vocabulary, called[number])
    tell, done = progress or quiet, 0

    def count(newly: int) -> None:
        nonlocal done
        done += newly
        tell("read", done, len(examples))

    passes = _Reader(model, examples, [called[owner] for owner in owners], batch_size)
    read = passes.run(np.arange(len(examples)), None, count) if examples else {}
    parts: list[list[int]] = [[] for _ in texts]
    for place, owner in enumerate(owners):
        parts[owner].append(place)
    return [
        TextRead(
            np.concatenate([read[place][0] for place in own]),
            np.concatenate([read[place][1] for place in own]),
            sum(cost_of(examples[place], None) for place in own),
        )
        for own in parts
    ]


def nothing_to_score(name: str, tokens: int) -> str:
    """Why a text cannot be scored, and what to do."""
    if not tokens:
        return f"{name} has no token, so there is nothing to score. Remove it."
    return (
        f"{name} is one token with nothing before it, so there is nothing to score. Remove it, or have BOS before "
        f"every text with {argument('bos', 'always')} where the tokenizer has one."
    )


def cuts(tokens: int, window: int, stride: int, *, bos: bool) -> Iterator[tuple[int, int, int]]:
    """(start, first, end) of every window of a text: it begins at `start` and scores the tokens [first, end)."""
    first, start = 0 if bos else 1, 0
    while first < tokens:
        end = min(start + window, tokens)
        yield start, first, end
        first, start = end, start + stride


def _check_ids(ids: Sequence[int], vocabulary: int, name: str) -> None:
    wrong = next((token for token in (min(ids), max(ids)) if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise InputError(
            f"{name} has token id {wrong}, but the model's vocabulary is 0 to {vocabulary - 1}: it was made with "
            "another tokenizer. Tokenise it again."
        )


def expected(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one target token per row of logits: its log-prob, and its z-score among the log-probs of its position.

    Log-probs and logits differ by a constant, which cancels in (l - mu) / sigma; so sums are over logits less the
    largest, where equal logits give a deviation of exactly 0, and a token near certainty loses nothing. They are
    worked out in float64, so that one look at the logits is enough: the mean square less the squared mean loses nothing
    that matters then.
    """
    values = logits.float()
    values = values - values.amax(-1, keepdim=True)
    own = values.gather(1, targets[:, None])
    values = values.clamp_(min=FLOOR)  # a probability of 0 times minus infinity is 0
    weights = values.exp()
    weighed = weights.double() * values
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    mean = weighed.sum(-1, keepdim=True) / total
    variance = (weighed * values).sum(-1, keepdim=True) / total - mean.square()
    z_scores = torch.where(variance > 0, (own - mean) / variance.sqrt(), 0.0)
    return (own - total.log()).float().squeeze(1), z_scores.float().squeeze(1)


def few_rows(logits: torch.Tensor, targets: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some rows at a time: what is worked out of them takes several times their memory."""
    rows = max(1, AT_ONCE.get(logits.device.type, 1 << 29) // (4 * logits.shape[1]))
    for start in range(0, len(targets), rows):
        yield logits[start : start + rows], targets[start : start + rows]


@cache
def _compiled() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    compiled: Any = torch.compile(expected)
    return compiled  # type: ignore[no-any-return]


class _Reader(Passes[tuple[Floats, Floats]]):
    """Log-probs and z-scores of scored tokens. An example is a window, its id the place of the first that it scores."""

    def __init__(
        self, model: LogitModel, examples: Sequence[Example], names: Sequence[str], batch_size: BatchSize
    ) -> None:
        super().__init__(model, examples, batch_size)
        self.names = {id(example): name for example, name in zip(examples, names, strict=True)}
        self.expected = _compiled() if model.compiled else expected

    def measure(self, logits: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        parts = zip(*(self.expected(*part) for part in few_rows(logits, targets)), strict=True)
        return [torch.cat(part) for part in parts]

    def bad(self, arrays: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        numbers: NDArray[np.bool_] = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
        return ~numbers

    def read(
        self, arrays: Sequence[NDArray[Any]], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[tuple[Floats, Floats]]:
        log_probs, z_scores = arrays
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield log_probs[start:end], z_scores[start:end]

    def called(self, example: Example) -> str:
        return self.names[id(example)]

    def refuse(self, example: Example, token: int) -> ModelError:
        return ModelError(
            f"the model gives token {int(example.id) + token} of {self.called(example)} no probability: its logits "
            f"are NaN or infinite there, so there is no mean. {MEND}"
        )
