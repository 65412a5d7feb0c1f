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
        self._blocks: OrderedDict[bytes, Any] = OrderedDict()  # of `CacheSlots.read_blocks`

    @property
    def blocks(self) -> int:
        return len(self._blocks)

    def limit(self, most: int) -> None:
        """At most so many bytes from now on."""
        self._most = most
        self._make_room(0)

    def save(self, tokens: Sequence[int], row: int) -> None:
        """Keeps the whole blocks of tokens, whose keys and values lie in a row, as far as there is room."""
        room = max(0, self._most) // self.block_bytes
        keys = _keys(tokens)[:room]
        new = {key: number * BLOCK for number, key in enumerate(keys) if key not in self._blocks}
        self._use([key for key in keys if key not in new])
        self._make_room(len(new))
        self._blocks |= zip(new, self._slots.read_blocks(row, [*new.values()], BLOCK), strict=True)
        self._use(keys)

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
        starts = [number * BLOCK for number in range(len(found))]
        self._slots.write_blocks(row, starts, BLOCK, [self._blocks[key] for key in found])
        self._use(found)
        return len(found) * BLOCK

    def clear(self) -> None:
        self._blocks.clear()

    def _make_room(self, count: int) -> None:
        """For so many further blocks."""
        while self._blocks and (len(self._blocks) + count) * self.block_bytes > self._most:
            self._blocks.popitem(last=False)

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
