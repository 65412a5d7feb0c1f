"""SparseAdam, and adding to the rows of a sparse gradient."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from ox import functions as F
from ox.core.multi_tensor import count_kernel_write
from ox.core.operator import make_tensor
from ox.devices import cuda_state
from ox.errors import ArgumentError, GradientError, RecordError
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer
from ox.sparse.tensor import SparseTensor, at
from ox.tensors.tensor import Tensor


def add_rows(tensor: Tensor, grad: SparseTensor, values: Tensor, by: str) -> None:
    """Add values in place at the coordinates of a sparse gradient, which are each there once."""
    index = grad.indices().numpy()
    array = tensor.array
    if not getattr(array.flags, "writeable", True):
        tensor.array = array = cuda_state.copy(array)
    with cuda_state.at(array):
        array[tuple(index)] += values.array.astype(array.dtype)
    count_kernel_write(tensor, by)


class SparseAdam(Optimizer):
    """Adam that touches, in parameter and state, only what a sparse gradient has: for large embeddings, of which a
    batch reads little. `torch.optim.SparseAdam`; every gradient must be sparse.

    Args:
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if not lr > 0 or not eps > 0:
            raise ArgumentError("lr and eps of SparseAdam are positive", got=f"{lr}, {eps}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        return {"step": 0, **{name: make_tensor(p.array * 0) for name in ("exp_avg", "exp_avg_sq")}}

    def _sparse(self, p: Tensor, grad: SparseTensor, state: dict[str, Any], group: Group) -> None:
        state["step"] += 1
        if not grad._nnz():
            return
        (beta1, beta2), step = group["betas"], state["step"]
        g = -grad.values() if group["maximize"] else grad.values()
        m, v = at(state["exp_avg"], grad), at(state["exp_avg_sq"], grad)
        to_m, to_v = (g - m) * (1 - beta1), (g * g - v) * (1 - beta2)
        add_rows(state["exp_avg"], grad, to_m, "SparseAdam.step")
        add_rows(state["exp_avg_sq"], grad, to_v, "SparseAdam.step")
        rate = group["lr"] * sqrt(1 - beta2**step) / (1 - beta1**step)
        add_rows(p, grad, (m + to_m) / (F.sqrt(v + to_v) + group["eps"]) * -rate, "SparseAdam.step")

    def _fast(self, params: list[Tensor], group: Group) -> None:
        raise GradientError("SparseAdam takes sparse gradients only", hint="Adam, or an Embedding with sparse=True")

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        raise RecordError("a sparse gradient depends on values, and cannot be recorded", hint="Adam")
