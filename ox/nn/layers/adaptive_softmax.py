"""AdaptiveLogSoftmaxWithLoss: frequent classes in a small head, rare ones in clusters behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ox import ops
from ox.core.constants import ints, on_device_of, scalar_like, zeros
from ox.core.mode import MODE, values_are_checked
from ox.core.operator import as_input
from ox.devices import cpu
from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.reduction import classes
from ox.nn.layers.containers import ModuleList, Sequential
from ox.nn.layers.linear import Linear
from ox.ops.index.in_range import check_in_later_runs
from ox.tensors.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class ASMoutput(NamedTuple):
    """What AdaptiveLogSoftmaxWithLoss returns: the log-probability of each target [N], and minus their mean []."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over many classes, sorted from frequent to rare. `torch.nn.AdaptiveLogSoftmaxWithLoss`, after Grave,
    Joulin, Cissé, Grangier, Jégou, "Efficient softmax approximation for GPUs" (ICML 2017).

    Eager, a cluster is computed for the rows whose targets lie in it; a recording computes every cluster for all rows.

    Args:
        cutoffs: where the clusters begin, increasing, less than n_classes; those before the first are the head's.
        div_value: each cluster projects to so many times fewer features than the one before.
        head_bias: whether the head has a bias.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        rising = cuts == sorted(set(cuts)) and all(isinstance(c, (int, np.integer)) for c in cuts)
        if not cuts or not rising or cuts[0] <= 0 or cuts[-1] > n_classes - 1:
            raise ArgumentError(
                "cutoffs are rising positive integers", expected=f"less than {n_classes}", got=str(list(cutoffs))
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cuts, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            middle = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, middle, bias=False, dtype=dtype), Linear(middle, size, bias=False, dtype=dtype)
                )
            )

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        self.head.reset_parameters()
        for tail in self.tail:
            for layer in tail.children():
                layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """input [N, in_features] and target [N], or [in_features] and []."""
        single = input.array.ndim == 1
        x = ops.Unsqueeze(input, ints(0)) if single else input
        if x.array.ndim != 2:
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss needs input [N, in_features]", got=str(list(input.static_shape))
            )
        classes("AdaptiveLogSoftmaxWithLoss", target, input.static_shape[:-1], input.static_shape)
        t = ops.Unsqueeze(target, ints(0)) if single else target
        known = MODE.get().recording is None
        here = t.array.size and isinstance(t.array, np.ndarray)
        if values_are_checked() and here and (int(t.array.min()) < 0 or int(t.array.max()) >= self.n_classes):
            raise ShapeError("a class is out of range", expected=f"0 to {self.n_classes - 1}")
        t = check_in_later_runs(t, 0, self.n_classes - 1, "a class is out of range", classes=True, on_device=True)
        head = F.log_softmax(self.head(x), 1)
        cluster = self._cluster_of(t)
        short = scalar_like(self.shortlist_size, t)
        first = ops.Where(ops.Less(cluster, scalar_like(0, t)), t, ops.Add(short, cluster))
        output = _picked(head, first)
        for i in range(self.n_clusters):
            low = self.cutoffs[i]
            here = ops.Equal(cluster, scalar_like(i, t))
            if known:
                (rows,) = np.nonzero(cpu(here.array))
                if not rows.size:
                    continue
                places = on_device_of(as_input(rows.astype(np.int64)), x)
                own = F.log_softmax(self.tail[i](ops.Gather(x, places, axis=0)), 1)
                found = _picked(own, ops.Sub(ops.Gather(t, places, axis=0), scalar_like(low, t)))
                apart = zeros(output.shape, output)
                output = ops.Add(output, ops.ScatterElements(apart, places, found, axis=0))
            else:
                own = F.log_softmax(self.tail[i](x), 1)
                inside = ops.Where(here, ops.Sub(t, scalar_like(low, t)), scalar_like(0, t))
                output = ops.Add(output, ops.Where(here, _picked(own, inside), scalar_like(0.0, output)))
        loss = ops.Neg(ops.ReduceMean(output, keepdims=0))
        return ASMoutput(ops.Squeeze(output, ints(0)) if single else output, loss)

    def _cluster_of(self, target: Tensor) -> Tensor:
        """The cluster of each class, -1 for those of the head."""
        cluster: Any = ops.Sub(ops.Mul(target, scalar_like(0, target)), scalar_like(1, target))
        for cut in self.cutoffs[:-1]:
            beyond = ops.GreaterOrEqual(target, scalar_like(cut, target))
            cluster = ops.Where(beyond, ops.Add(cluster, scalar_like(1, target)), cluster)
        return cluster

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes [N, n_classes]."""
        head = F.log_softmax(self.head(input), 1)
        parts = [ops.Slice(head, ints(0), ints(self.shortlist_size), ints(1))]
        for i, tail in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(ops.Add(F.log_softmax(tail(input), 1), ops.Slice(head, ints(at), ints(at + 1), ints(1))))
        return ops.Concat(*parts, axis=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row, int64 [N]."""
        return ops.ArgMax(self.log_prob(input), axis=1, keepdims=0)


def _picked(logp: Tensor, index: Tensor) -> Tensor:
    return ops.Squeeze(ops.GatherElements(logp, ops.Unsqueeze(index, ints(1)), axis=1), ints(1))
