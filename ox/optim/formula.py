"""Optimizers whose update is one formula, element by element: written once, for arrays and for tensors.

Eager training runs it on pieces of arrays that stay in the cache, a recording runs it on tensors: `xp` is `numpy` or
`ox.functions`, which know the same names, and the numbers are Python floats or float64 tensors of no dimensions. On a
GPU it runs once on expressions, which become a kernel (`ox.optim.device_update`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

import numpy as np

from ox import functions, ops
from ox.core.constants import scalar
from ox.core.mode import MODE
from ox.core.multi_tensor import count_kernel_write
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.devices import cuda_state
from ox.dtypes import float64, onnx_type
from ox.optim import device_update, kernels
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer, narrow_or_same
from ox.tensors.tensor import Tensor

Numbers = SimpleNamespace  # a group's numbers by name, and what `_derive` adds


class Formula(Optimizer, ABC):
    """A subclass names its state (`_moments`) and gives `_rule`, and `_derive` where numbers depend on the step."""

    _counts = True  # whether there is a step count in the state

    def _moments(self, group: Group) -> dict[str, float]:
        """State tensors of the parameter's shape, and what they start with."""
        return {}

    def _starts(self, group: Group) -> dict[str, float]:
        """State of no dimensions besides the step count, and what it starts with."""
        return {}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        """Add numbers to `n` that depend on the step; state of no dimensions is in `n` and changed there."""

    @abstractmethod
    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        """The new parameter; new state is put into `s`. The gradient `g` has its sign and its weight decay."""

    def _decoupled(self, group: Group) -> bool:
        """Whether weight decay acts on the parameter itself rather than through the gradient."""
        return bool(group.get("decoupled_weight_decay"))

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        starts = {**({"step": 0.0} if self._counts else {}), **self._starts(group)}
        return {
            **{name: make_tensor(np.asarray(value, np.float32)) for name, value in starts.items()},
            **{name: make_tensor(np.full_like(p.array, value)) for name, value in self._moments(group).items()},
        }

    def _state_of(self, p: Tensor, group: Group) -> dict[str, Any]:
        """The parameter's state; entries that a changed setting needs are added."""
        state = self.state[p]
        if any(state.get(name) is None for name in self._moments(group)):  # PyTorch saves a None for SGD
            state.update({name: t for name, t in self._initial(p, group).items() if state.get(name) is None})
        return state

    def _full_update(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        if group.get("maximize"):
            g = -g
        if group.get("weight_decay"):
            if self._decoupled(group):
                p = p * (1 - n.lr * n.weight_decay)
            else:
                g = g + p * n.weight_decay
        return self._rule(xp, p, g, s, n, group)

    def _run(self, params: list[Tensor], group: Group) -> None:
        left = params
        if cuda_state.in_use and MODE.get().executor is None:
            there = [p for p in params if device_update.takes(p)]
            if there and self._on_device(there, group):
                left = [p for p in params if not device_update.takes(p)]
        if left:
            self._fast(left, group)

    def _on_device(self, params: list[Tensor], group: Group) -> bool:
        """Update parameters on a GPU; whether that was done."""
        return device_update.update(self, params, group, group)

    def _skips_on_device(self) -> bool:
        trained = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        return (
            type(self).step is Optimizer.step
            and all(device_update.takes(p) for p, _ in trained)
            and all(device_update.source(self, group, group, "float") is not None for group in self.param_groups)
        )

    def _fast(self, params: list[Tensor], group: Group) -> None:
        name = f"{type(self).__name__}.step"
        moments, scalars = list(self._moments(group)), self._starts(group)
        fixed = {key: float(t.array) for key, t in group.tensors.items()}

        def update(arrays: list[Any], _: list[Any], n: Numbers) -> None:
            p, g, *held = arrays
            state = dict(zip(moments, held, strict=True))
            p[...] = self._full_update(np, p, g, state, n, group)
            for key, array in zip(moments, held, strict=True):
                array[...] = state[key]

        for p in params:
            state = self._state_of(p, group)
            n = Numbers(**fixed, **{key: float(state[key].array) for key in scalars})
            if self._counts:
                state["step"].array += 1
                count_kernel_write(state["step"], name)
                self._derive(np, n, float(state["step"].array))
            # NumPy's own numbers would widen float32 arrays
            n = Numbers(**{key: float(value) for key, value in vars(n).items()})
            for key in scalars:
                state[key].array[...] = getattr(n, key)
                count_kernel_write(state[key], name)
            held = [state[key] for key in moments]
            tensors: Any = [p, p.grad, *held]
            kernels.in_pieces(update, tensors, 0, n)
            for tensor in (p, *held):
                count_kernel_write(tensor, name)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        name = f"{type(self).__name__}.step"
        kind = narrow_or_same(p)
        double = onnx_type(float64)
        scalars = self._starts(group)
        n = Numbers(**group.tensors, **{key: ops.Cast(state[key], to=double) for key in scalars})
        if self._counts:
            step = state["step"].assign(ops.Add(state["step"], scalar(1, state["step"].array.dtype)), name)
            self._derive(functions, n, ops.Cast(step, to=double))
        for key in scalars:
            state[key].assign(getattr(n, key), name)
        held = self._state_of(p, group)
        moments = {key: cast(held[key], kind) for key in self._moments(group)}
        value = self._full_update(functions, cast(p, kind), cast(grad, kind), moments, n, group)
        for key, tensor in moments.items():
            state[key].assign(tensor, name)
        p.assign(value, name)
