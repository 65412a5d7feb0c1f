"""Keys and values of the tokens that a decoder has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.errors import ArgumentError
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Window:
    """The new tokens of a call.

    Attributes:
        positions: of the new tokens, int64 [batch, new], or [1, new] where they are the same for all texts.
        mask: which tokens each new one may see, bool [batch, 1, new, all]; None where `causal`, or where it sees all.
        causal: the new tokens are all that there is, and each sees itself and those before it.
    """

    positions: Tensor
    mask: Tensor | None
    causal: bool


class KVCache:
    """Keys and values of all layers, with room for `capacity` tokens of each text.

    A model's forward calls `extend` once, and in each layer `update`. Texts of different lengths begin with padding: it
    is never seen, and positions count from the first real token.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ArgumentError("a cache has room for one token or more", got=str(capacity))
        self.capacity, self.length = capacity, 0
        self._layers: list[tuple[Array, Array]] = []
        self._real: Array | None = None  # bool [batch, capacity], if there is padding

    def extend(self, batch: int, new: int, attention_mask: Array | None = None) -> Window:
        """Make room for the next `new` tokens of each text.

        Args:
            attention_mask: [batch, new], 0 for padding; with the first tokens only.

        Raises:
            ArgumentError: no room is left; padding behind a text.
        """
        start = self.length
        if start + new > self.capacity:
            raise ArgumentError(
                "the cache has no room", expected=f"at most {self.capacity} tokens", got=f"{start} and {new} more"
            )
        if attention_mask is not None and not np.all(attention_mask):
            self._real = np.ones((batch, self.capacity), bool)
            self._real[:, start : start + new] = attention_mask != 0
            if start or (np.diff(self._real[:, :new].astype(np.int8)) < 0).any() or not self._real[:, new - 1].all():
                raise ArgumentError("padding stands before a text, not inside of or behind it", got="attention_mask")
        self.length = start + new
        if self._real is None:
            positions = np.arange(start, self.length)[None]
            if start == 0 or new == 1:
                return Window(make_tensor(positions), None, causal=start == 0 and new > 1)
            seen = np.arange(self.length) <= positions[0][:, None]
            return Window(make_tensor(positions), make_tensor(seen[None, None]), causal=False)
        real = self._real[:, : self.length]
        positions = np.maximum(real.cumsum(1) - 1, 0)[:, start:]
        seen = np.arange(self.length) <= np.arange(start, self.length)[:, None]
        return Window(make_tensor(positions), make_tensor(seen[None, None] & real[:, None, None]), causal=False)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values [batch, heads, new, size] of the new tokens of a layer.

        Returns:
            those of all tokens, [batch, heads, all, size]: views, until the next `update`.
        """
        arrays = key.detach().array, value.detach().array
        if layer == len(self._layers):
            self._layers.append((self._room(arrays[0]), self._room(arrays[1])))
        start = self.length - key.shape[2]
        for kept, array in zip(self._layers[layer], arrays, strict=True):
            kept[:, :, start : self.length] = array
        keys, values = (kept[:, :, : self.length] for kept in self._layers[layer])
        return make_tensor(keys), make_tensor(values)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts of the batch, in this order; one may be there several times."""
        index = np.asarray(rows, np.int64)
        if self._real is not None:
            self._real = self._real[index]
        self._layers = [(self._selected(keys, index), self._selected(values, index)) for keys, values in self._layers]

    def _selected(self, array: Array, index: Array) -> Array:
        chosen = array[:, :, : self.length][index]
        room = array[: len(index)] if len(index) <= len(array) else self._room(chosen)
        room[:, :, : self.length] = chosen
        return room

    def _room(self, like: Array) -> Array:
        batch, heads, _, size = like.shape
        xp = like.__array_namespace__() if hasattr(like, "__array_namespace__") else np
        return xp.empty((batch, heads, self.capacity, size), like.dtype)  # type: ignore[no-any-return]
