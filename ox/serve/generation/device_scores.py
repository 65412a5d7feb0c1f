"""Scores that a run leaves on a GPU, of which what is needed is copied to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.staged_buffer import StagedBuffer, pinned_array
from ox.devices.gpu.top_k import MOST_BEST, best_from_words, best_of_rows, forbid
from ox.dtypes import bfloat16
from ox.serve.generation.scores import Array, BestScores, Needs, ScoreRows, Scores

ALL = np.uint32(0xFFFFFFFF)  # tokens
NO_SCORES = BestScores(np.zeros(0, np.int64), np.zeros(0, np.float32), np.nan)


def stored(dtype: Any) -> Any:
    """The type of CuPy's arrays for numbers of a type: it has no bfloat16, so that their bits lie in uint16."""
    return np.dtype(np.uint16) if dtype == bfloat16 else dtype


def score_bytes(vocab_size: int, dtype: np.dtype[Any]) -> int:
    """Of a row of `DeviceScores` on the device."""
    widened = vocab_size * np.dtype(np.float32).itemsize if dtype == bfloat16 else 0
    best = (MOST_BEST + 1) * np.dtype(np.int64).itemsize
    return vocab_size * dtype.itemsize + widened + best + _words(vocab_size) * np.dtype(np.uint32).itemsize


def _words(vocab_size: int) -> int:
    """Of 32 bits, a bit for each token."""
    return -(-vocab_size // 32)


class DeviceScores:
    """Scores [rows, vocabulary] on a GPU, and pinned memory for the best of each row and for as many rows as were used
    as a whole. Scores of bfloat16 come as float32.

    Args:
        shape, dtype, number: as of `StagedBuffer`.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, number: int = 0) -> None:
        xp = cupy()
        self._dtype, self._number = dtype, number
        with xp.cuda.Device(number):
            self.device: Any = xp.empty(tuple(shape), stored(dtype))
            self._whole: Any = xp.empty(tuple(shape), np.float32) if dtype == bfloat16 else self.device
        self._host: Array = np.empty((0, shape[1]))
        self._words = StagedBuffer((shape[0] * (MOST_BEST + 1),), np.int64, number)
        self._allowed = StagedBuffer((shape[0], _words(shape[1])), np.uint32, number)

    @property
    def address(self) -> int:
        """Where the scores are on the GPU."""
        return int(self.device.data.ptr)

    def copy(self, count: int, needs: Needs | None, stream: Any) -> Callable[[], ScoreRows]:
        """Orders copies of what is needed of the first rows on a stream, the current one.

        Args:
            needs: of each row; None for all scores of all rows.

        Returns:
            what gives the scores when the stream has been waited for; the next run overwrites them.
        """
        needs = [None] * count if needs is None else needs
        host = self._host_rows(sum(need is None for need in needs))
        copied = 0
        for is_whole, group in groupby(range(count), lambda row: needs[row] is None):
            rows = [*group]
            if is_whole:
                part = slice(rows[0], rows[-1] + 1)
                if self._whole is not self.device:
                    bits = self._whole[part].view(np.uint32)
                    cupy().left_shift(self.device[part], 16, out=bits, dtype=np.uint32)
                self._whole[part].get(stream=stream, out=host[copied : copied + len(rows)], blocking=False)
                copied += len(rows)
        of_best = [(row, need) for row, need in enumerate(needs) if need is not None and need.best]
        if not of_best:
            return lambda: self._scores(needs, host, 0, 0, self._words.host[:0])
        masks = {row: need.allowed for row, need in of_best if need.allowed is not None}
        if masks:
            self._forbid(masks, stream)
        first, rows_of_best = of_best[0][0], of_best[-1][0] + 1 - of_best[0][0]
        k = min(max(need.best for _, need in of_best), self.device.shape[1])
        sums = any(need.log_sum for _, need in of_best)
        best_of_rows(self.device[first : first + rows_of_best], self._words.device, k, sums, self._dtype)
        words = slice(rows_of_best * (k + 1))
        self._words.device[words].get(stream=stream, out=self._words.host[words], blocking=False)
        return lambda: self._scores(needs, host, first, k, self._words.host[words])

    def _forbid(self, masks: Mapping[int, Array], stream: Any) -> None:
        """Makes the scores of tokens that rows do not allow minus infinity."""
        first, end = min(masks), max(masks) + 1
        allowed = self._allowed.part((end - first, self._allowed.host.shape[1]))
        allowed.host.fill(ALL)
        for row, bits in masks.items():
            allowed.host[row - first] = bits
        allowed.to_device(stream)
        forbid(self.device[first:end], allowed.device, self._dtype)

    def _host_rows(self, count: int) -> Array:
        """Pinned memory for at least so many rows. It grows by doubling, as the pool keeps what is outgrown."""
        if len(self._host) < count:
            most, vocab_size = self.device.shape
            shape = min(most, 1 << (count - 1).bit_length()), vocab_size
            self._host = pinned_array(shape, self._whole.dtype, self._number)
        return self._host

    def _scores(self, needs: Needs, host: Array, first: int, k: int, words: Array) -> ScoreRows:
        if all(need is None for need in needs):
            return host[: len(needs)]
        tokens, best, sums = best_from_words(words.reshape(-1, k + 1), k)
        whole, rows = iter(host), list[Scores]()
        for row, need in enumerate(needs):
            if need is None:
                rows.append(next(whole))
            elif not need.best:
                rows.append(NO_SCORES)
            else:
                log_sum = float(np.log(sums[row - first])) if need.log_sum else np.nan
                rows.append(BestScores(tokens[row - first, : need.best], best[row - first, : need.best], log_sum))
        return rows
