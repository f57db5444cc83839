"""What a model has read, kept so that nothing is read twice: one entry per position, shared by all its continuations.

A search writes many continuations of one prefix. Each position that is fed gets an entry; a continuation is the list of
the entries on its way from the beginning. Beams that part, spines that fork off one another and samples of one prefix
all point at the same entries, so no keys are ever copied or put in another order.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Memory(Protocol):
    def feed(self, tokens: Tensor, past: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        """Read `tokens` [rows, n] and keep them at the entries `place` [rows, n]; one state per token, [rows, n, size].

        A row may hold several continuations of one text. `past` [rows, length] holds the entries that any of them goes
        back to, in the order of their positions; `seen` [rows, n, length + n] says which of them, and of the row's new
        tokens, each token comes after: all of its past, and itself. Entry -1 is padding and never seen but by itself.
        """


class Replay:
    """A memory for any model: it keeps the tokens alone and feeds every history anew."""

    def __init__(self, model: Any, positions: int) -> None:
        self._model = model
        self._tokens = torch.zeros(positions + 1, dtype=torch.int64, device=model.device)

    @torch.inference_mode()
    def feed(self, tokens: Tensor, past: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        self._tokens[place] = tokens  # -1, padding, is the spare last entry
        known = torch.cat([self._tokens[past], tokens], 1)
        length = past.shape[1]
        # A history that ends with a token that no other new token comes after holds all of its branch.
        ends = (seen[:, :, length:].sum(1) == 1).nonzero().tolist()
        histories = [known[row][seen[row, i]] for row, i in ends]
        state_at: dict[tuple[int, int], Tensor] = {}
        at = 0
        while at < len(ends):
            count = max(1, self._model.batch_tokens // max(len(h) for h in histories[at : at + 64]))
            part = slice(at, at + min(count, 64))
            hidden = self._model.hidden(torch.nn.utils.rnn.pad_sequence(histories[part], batch_first=True))
            for (row, end), states in zip(ends[part], hidden, strict=True):
                where = seen[row, end].cumsum(0) - 1
                for i in seen[row, end, length:].nonzero()[:, 0].tolist():
                    state_at[row, i] = states[where[length + i]]
            at = part.stop
        rows, count = tokens.shape
        return torch.stack([torch.stack([state_at[row, i] for i in range(count)]) for row in range(rows)])


class KeyMemory:
    """A memory of attention keys and values, for transformers models whose only state they are."""

    def __init__(self, base: Any, config: Any, positions: int, logits: bool, device: torch.device) -> None:
        from transformers import Cache

        class Pool(Cache):  # type: ignore[misc]
            """transformers' cache interface over the entries: writes the new positions, hands out whole histories."""

            def __init__(self) -> None:
                super().__init__(layers=[])
                self.entries = positions + 1
                self.stored: dict[int, tuple[Tensor, Tensor]] = {}
                self.place = self.history = torch.empty(0)
                self.length = 0

            def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
                if layer_idx not in self.stored:
                    heads = [(t.shape[1], t.shape[3]) for t in (keys, values)]
                    made = [keys.new_empty(positions + 1, *shape) for shape in heads]
                    for pool in made:
                        pool[-1] = 0  # what padding points at is masked, but must be a number
                    self.stored[layer_idx] = (made[0], made[1])
                gathered = []
                shape = self.history.shape
                for pool, new in zip(self.stored[layer_idx], (keys, values), strict=True):
                    pool.index_copy_(0, self.place.to(pool.device), new.transpose(1, 2).flatten(0, 1))
                    histories = pool.index_select(0, self.history.flatten().to(pool.device))
                    gathered.append(histories.view(*shape, *pool.shape[1:]).transpose(1, 2))
                return gathered[0], gathered[1]

            def get_seq_length(self, layer_idx: int = 0) -> int:
                return self.length

        self._base, self._config, self._logits = base, config, logits
        self._pool = Pool()
        self._positions = torch.zeros(positions + 1, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def feed(self, tokens: Tensor, past: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        pool = self._pool
        pool.place = place.flatten() % pool.entries  # -1, padding, is the spare last entry
        pool.history = torch.cat([past, place], 1) % pool.entries
        pool.length = past.shape[1]
        positions = seen.sum(2) - 1
        self._positions.index_copy_(0, pool.place, positions.flatten())
        with torch.compiler.set_stance("force_eager"):  # compiled layers know nothing of entries
            read = self._base(
                input_ids=tokens,
                attention_mask=self._masks(seen, positions),
                position_ids=positions,
                past_key_values=pool,
                use_cache=True,
            )
        return read.logits if self._logits else read.last_hidden_state  # type: ignore[no-any-return]

    def _masks(self, seen: Tensor, positions: Tensor) -> Any:
        """Additive masks [rows, 1, n, length + n]; some layers do not see the whole past."""
        window = getattr(self._config, "sliding_window", None)
        kinds = set(getattr(self._config, "layer_types", None) or ())
        if window is None or (kinds and "sliding_attention" not in kinds) or seen.shape[2] <= window:
            return self._additive(seen)
        where = self._positions[self._pool.history]
        near = seen & (positions[:, :, None] - where[:, None, :] < window)
        if not kinds or kinds == {"sliding_attention"}:
            return self._additive(near)
        return {"full_attention": self._additive(seen), "sliding_attention": self._additive(near)}

    def _additive(self, seen: Tensor) -> Tensor:
        dtype = self._base.dtype  # of a quantised model, what its activations are
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


def remembers(config: Any) -> bool:
    """Whether keys and values, under the masks built here, are all of this kind of model's state."""
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    return kinds <= {"full_attention", "sliding_attention"}


def position_bytes(config: Any, itemsize: int) -> int:
    """Keys and values of one position in all layers."""
    heads = getattr(config, "num_attention_heads", None) or 1  # none at all: room for one is taken
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or heads) * size * itemsize)
