"""Keys and values of texts that do not run, in blocks of a few tokens: of begins that other prompts share, and of texts
that wait for a slot again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from ox.serve.generation.cache_slots import CacheSlots

Array = np.ndarray[Any, Any]

BLOCK = 16  # tokens


class PrefixCache:
    """Blocks by the tokens that they hold and all tokens before; those that were not used for longest go first.

    Args:
        slots: where blocks are copied from and to.
        most: bytes.
    """

    def __init__(self, slots: CacheSlots, most: int) -> None:
        self._slots, self._most = slots, most
        self.block_bytes = BLOCK * slots.token_bytes
        self._blocks: OrderedDict[bytes, list[Array]] = OrderedDict()

    @property
    def blocks(self) -> int:
        return len(self._blocks)

    def limit(self, most: int) -> None:
        """At most so many bytes from now on."""
        self._most = most
        while self._blocks and len(self._blocks) * self.block_bytes > most:
            self._blocks.popitem(last=False)

    def save(self, tokens: Sequence[int], row: int) -> None:
        """Keeps the whole blocks of tokens, whose keys and values lie in a row, as far as there is room."""
        room = max(0, self._most) // self.block_bytes
        keys = _keys(tokens)[:room]
        for number, key in enumerate(keys):
            if key not in self._blocks:
                self._blocks[key] = self._slots.read(row, number * BLOCK, (number + 1) * BLOCK)
        self._use(keys)
        self.limit(self._most)

    def restore(self, tokens: Sequence[int], row: int) -> int:
        """Copies the longest known begin of tokens into a row.

        Returns:
            how many tokens: fewer than there are, because the scores of the last one have to be computed.
        """
        found = []
        for key in _keys(tokens[: len(tokens) - 1]):
            if key not in self._blocks:
                break
            found.append(key)
        for number, key in enumerate(found):
            self._slots.write(row, number * BLOCK, self._blocks[key])
        self._use(found)
        return len(found) * BLOCK

    def clear(self) -> None:
        self._blocks.clear()

    def _use(self, keys: Sequence[bytes]) -> None:
        """The last of a chain goes first: the others are of use without it, but not it without them."""
        for key in reversed(keys):
            self._blocks.move_to_end(key)


def _keys(tokens: Sequence[int]) -> list[bytes]:
    """A key for each whole block, of all tokens up to its end."""
    digest = blake2b(digest_size=16)
    keys = []
    ids = np.asarray(tokens, np.int64)
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        digest.update(ids[start : start + BLOCK].tobytes())
        keys.append(digest.copy().digest())
    return keys
