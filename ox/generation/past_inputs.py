"""The cache of a decoder that is recorded: keys and values come in as inputs and go out as outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.functions.creation import arange
from ox.functions.shapes import cat
from ox.generation.kv_cache import Window
from ox.tensors.tensor import Tensor


class PastInputs:
    """Takes the place of a `KVCache` for one call.

    Args:
        mask: int64 [batch, past + new], 0 for padding.
        positions: of the new tokens, int64 [batch, new].
        past: keys and values [batch, heads, past, size] by ``past_key_values.N.key`` and ``.value``.
    """

    def __init__(self, mask: Tensor, positions: Tensor, past: Mapping[str, Tensor]) -> None:
        self._mask, self._positions, self._past = mask, positions, past
        self.length = mask.shape[1]
        self.present: dict[str, Tensor] = {}  # keys and values of all tokens, by ``present.N.key``

    def extend(self, batch: int, new: int, attention_mask: Any = None) -> Window:
        places = arange(self.length, device=self._mask.device)
        seen = places.unsqueeze(0) <= places[self.length - new :].unsqueeze(1)
        real = self._mask.bool().unsqueeze(1).unsqueeze(1)
        return Window(self._positions, seen.unsqueeze(0).unsqueeze(0) & real, causal=False)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        both = []
        for name, new in (("key", key), ("value", value)):
            whole = cat([self._past[f"past_key_values.{layer}.{name}"], new], 2)
            self.present[f"present.{layer}.{name}"] = whole
            both.append(whole)
        return both[0], both[1]
