"""Generations as people make them: an outside check of computed probabilities.

They come from the model's own library, which shares no code with Rote's schemes, scorer or searches.
"""

from __future__ import annotations

from collections.abc import Iterator

from rote.errors import InputError
from rote.models.base import GeneratingModel
from rote.options import require_whole
from rote.scheme import Scheme
from rote.tokens import Example


def generations(
    model: GeneratingModel, example: Example, scheme: Scheme, *, samples: int, seed: int
) -> Iterator[tuple[int, ...]]:
    """`samples` independent outputs from the example's prefix, each as long as its suffix or ended by EOS.

    They come in batches, as they are made. The same seed gives the same outputs on the same kind of machine.
    """
    require_whole("samples", samples)
    if any(token in model.eos_ids for token in example.suffix[:-1]):
        raise InputError(
            f"the suffix of example {example.id!r} holds the end-of-text token before its end, where every generation "
            "stops: it cannot be generated. Choose another example."
        )
    prompt = [*([] if model.bos_id is None else [model.bos_id]), *example.prefix]
    if not prompt:
        raise InputError(f"example {example.id!r} has neither a prefix nor a BOS token to generate from.")
    yield from model.generate(prompt, scheme, length=len(example.suffix), samples=samples, seed=seed)
