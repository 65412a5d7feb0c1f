"""Rows of a table whose gradient is sparse: only the rows that were read are in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ox import ops
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.node import CustomNode, Leaf
from ox.core.operator import make_tensor
from ox.errors import RecordError
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor


class SparseRows(CustomNode):
    """The node of `rows`."""

    op = SimpleNamespace(name="SparseRows", single_output=False)

    def __init__(self, weight: Tensor, index: Any, padding: int | None) -> None:
        self.shape, self.index, self.padding = weight.static_shape, index, padding
        self.dense = not isinstance(weight.node, Leaf)  # what comes before a computed table wants an ordinary gradient
        self.connect([weight])

    def rule(self, g: Any) -> Any:
        index = self.index.reshape(-1)
        values = g.reshape(len(index), *self.shape[1:])
        if self.padding is not None:
            kept = np.flatnonzero(index != self.padding)
            index, values = index[kept], values[make_tensor(kept)]
        found = SparseTensor(make_tensor(index[None]), values, self.shape)
        return [found.to_dense() if self.dense else found]


def rows(weight: Tensor, input: Tensor, padding: int | None = None) -> Tensor:
    """``weight[input]``; the row `padding` gets no gradient. A recording has no sparse tensors: there, and where no
    gradient is wanted, this is an ordinary Gather."""
    mode = MODE.get()
    if not mode.grad or weight.node is None or (mode.recording is not None and not mode.recording.guarded):
        return ops.Gather(weight, input, axis=0)
    if mode.recording is not None:
        cannot_record(RecordError("a sparse gradient depends on values, and cannot be recorded", hint="sparse=False"))
    with switch_mode(grad=False):
        made = ops.Gather(weight, input, axis=0)
    index = np.asarray(input.detach().cpu().array).astype(np.int64) % max(weight.static_shape[0], 1)
    made.node = SparseRows(weight, index, padding)
    return made
