"""The k largest of a wide row of logits: what `topk` gives, several times faster, by looking at blocks first."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128  # tokens


def largest(logits: Tensor, k: int) -> Tensor:
    """The k largest values of each row, sorted."""
    chosen = _blocks(logits, k)
    return (logits if chosen is None else _in_blocks(logits, chosen)).topk(k, dim=1).values


def largest_with_ids(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their ids, by falling value and, where equal, rising id.

    Which of several tokens tied for the last place are listed is not defined.
    """
    chosen = _blocks(logits, k)
    names = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
    if chosen is not None:
        logits, names = _in_blocks(logits, chosen), _in_blocks(names, chosen)
    values, places = logits.topk(k, dim=1)
    ids, order = names.gather(1, places).sort(1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _blocks(logits: Tensor, k: int) -> Tensor | None:
    """[rows, k]: blocks of the vocabulary in which the k largest values are; None where topk alone is as fast.

    A value among the k largest lies in a block whose maximum is among the k largest block maxima, or else those k
    maxima are at least as large and stand in for it.
    """
    rows, blocks = logits.shape[0], logits.shape[1] // BLOCK
    if 4 * k > blocks:
        return None
    return logits[:, : blocks * BLOCK].view(rows, blocks, BLOCK).amax(2).topk(k, dim=1, sorted=False).indices


def _in_blocks(values: Tensor, chosen: Tensor) -> Tensor:
    """What these blocks hold, and what is left beside whole blocks at the vocabulary's end."""
    rows, blocks = values.shape[0], values.shape[1] // BLOCK
    head = values[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    held = head.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    return torch.cat([held, values[:, blocks * BLOCK :]], 1)
