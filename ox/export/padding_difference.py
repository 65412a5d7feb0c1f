"""Whether texts of several lengths may share a batch: each alone, and all of them filled up to one length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ox import tolerance
from ox.devices.onnxruntime.runtime import onnxruntime

Array = np.ndarray[Any, Any]

LENGTHS = (3, 5, 8, 13, 21, 34)
SUMS = ("attention_mask", "token_type_ids")  # inputs that are filled with 0; the ids have a token of their own for it


def padding_difference(path: Path, texts: Mapping[str, Array], pad: int) -> str | None:
    """How a text alone and in a padded batch differ in ONNX Runtime; None if they are equal within `ox.tolerance`.

    Args:
        path: an encoder or classifier.
        texts: its inputs, int64 [batch, length]; texts are cut to several lengths.
        pad: the token that fills.
    """
    session = onnxruntime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [info.name for info in session.get_outputs()]
    count, longest = texts["input_ids"].shape
    lengths = [length for length in LENGTHS if length <= longest]
    rows = [
        {name: np.ascontiguousarray(array[i % count : i % count + 1, :length]) for name, array in texts.items()}
        for i, length in enumerate(lengths)
    ]
    for row, length in zip(rows, lengths, strict=True):
        row["attention_mask"] = np.ones((1, length), np.int64)
    batch = {
        name: np.concatenate([_filled(row[name], lengths[-1], 0 if name in SUMS else pad) for row in rows])
        for name in texts
    }
    together = session.run(names, batch)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        for name, alone, padded in zip(names, session.run(names, row), together, strict=True):
            own = padded[i : i + 1, :length] if alone.ndim == 3 else padded[i : i + 1]
            found = tolerance.compare(own, alone)
            if not found.ok:
                return f"'{name}' of {length} tokens, padded to {lengths[-1]}, differs by {found.max_abs:.1e}"
    return None


def _filled(array: Array, length: int, value: int) -> Array:
    return np.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=value)
