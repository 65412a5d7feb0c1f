"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ox import functions as F
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.devices import cuda_state
from ox.errors import ArgumentError, RecordError
from ox.optim.line_search import Point, strong_wolfe
from ox.optim.optimizer import Optimizer
from ox.tensors.tensor import Tensor


class LBFGS(Optimizer):
    """Newton's method with an inverse Hessian that the last `history_size` gradients tell (Nocedal, 1980).
    `torch.optim.LBFGS`: one group, and `step(closure)`, where the closure zeroes gradients, computes the loss, runs
    backward and returns the loss. It decides by values, so a step cannot be recorded.

    Args:
        max_iter: iterations a step; max_eval: losses a step (None: 5/4 of that).
        tolerance_grad: the largest gradient that counts as 0; tolerance_change: the least progress that counts.
        line_search_fn: None takes steps of `lr`, "strong_wolfe" searches.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(f"LBFGS has no line search {line_search_fn!r}", expected="None or 'strong_wolfe'")
        most = max_iter * 5 // 4 if max_eval is None else max_eval
        settings = {"lr": lr, "max_iter": max_iter, "max_eval": most, "history_size": history_size}
        tolerances = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        super().__init__(params, {**settings, **tolerances, "line_search_fn": line_search_fn})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise ArgumentError("LBFGS has one group", hint="all parameters in one list")
        super().add_param_group(param_group)

    def _shape(self, name: str, p: Tensor) -> tuple[int, ...] | None:
        return None  # vectors over all parameters

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to `max_iter` iterations. Returns the loss at the start. Raises ArgumentError without a closure."""
        if closure is None:
            raise ArgumentError("LBFGS evaluates the loss several times per step", hint="optimizer.step(closure)")
        if MODE.get().recording is not None:
            cannot_record(RecordError("a step of LBFGS depends on values, and cannot be recorded", hint="Adam or SGD"))
        with switch_mode(grad=True):
            loss = closure()
        with switch_mode(grad=False):
            self._iterate(closure, float(loss))
        return loss

    def _iterate(self, closure: Callable[[], Any], value: float) -> None:
        group = self.param_groups[0]
        state = self.state[group["params"][0]]
        for name in ("func_evals", "n_iter"):
            state.setdefault(name, 0)
        state["func_evals"] += 1
        evaluations = 1
        gradient = self._gradient()
        if largest(gradient) <= group["tolerance_grad"]:
            return
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, gradient, group["history_size"])
            first = state["n_iter"] == 1
            t = min(1.0, 1.0 / float(F.sum(F.abs(gradient)))) * group["lr"] if first else group["lr"]
            state.update(d=d, t=t, prev_flat_grad=gradient, prev_loss=value)
            before, slope = value, dot(gradient, d)
            if slope > -group["tolerance_change"]:
                break
            evaluations_in_step = 0
            if group["line_search_fn"]:
                point, evaluations_in_step = self._search(
                    closure, d, Point(0.0, value, gradient, slope), t, group["max_eval"] - evaluations
                )
                state["t"], value, gradient = point.t, point.loss, point.gradient
                self._move(state["t"], d)
            else:
                self._move(t, d)
                if iteration != group["max_iter"]:
                    value, gradient, evaluations_in_step = *self._evaluate(closure), 1
            evaluations += evaluations_in_step
            state["func_evals"] += evaluations_in_step
            done = evaluations >= group["max_eval"] or largest(gradient) <= group["tolerance_grad"]
            if done or largest(d) * state["t"] <= group["tolerance_change"]:
                break
            if iteration != group["max_iter"] and abs(value - before) < group["tolerance_change"]:
                break

    def _direction(self, state: dict[str, Any], gradient: Tensor, most: int) -> Tensor:
        """Minus the inverse Hessian times the gradient, by the two loops over remembered steps."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return gradient.neg()
        y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = dot(y, s)
        changes, moves, inverse = state["old_dirs"], state["old_stps"], state["ro"]
        if curvature > 1e-10:
            if len(changes) == most:
                for remembered in (changes, moves, inverse):
                    remembered.pop(0)
            changes.append(y)
            moves.append(s)
            inverse.append(1.0 / curvature)
            state["H_diag"] = curvature / dot(y, y)
        q = -gradient
        alphas = []
        for y, s, r in zip(reversed(changes), reversed(moves), reversed(inverse), strict=True):
            alphas.append(dot(s, q) * r)
            q = q - y * alphas[-1]
        d = q * state["H_diag"]
        for y, s, r, alpha in zip(changes, moves, inverse, reversed(alphas), strict=True):
            d = d + s * (alpha - dot(y, d) * r)
        return d

    def _search(self, closure: Callable[[], Any], d: Tensor, start: Point, t: float, most: int) -> tuple[Point, int]:
        params = self.param_groups[0]["params"]
        kept = [cuda_state.copy(p.array) for p in params]

        def at(t: float) -> Point:
            self._move(t, d)
            loss, gradient = self._evaluate(closure)
            for p, array in zip(params, kept, strict=True):
                p.assign(make_tensor(array), "LBFGS.step")
            return Point(t, loss, gradient, dot(gradient, d))

        return strong_wolfe(at, start, t, largest(d), most)

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[float, Tensor]:
        with switch_mode(grad=True):
            loss = float(closure())
        return loss, self._gradient()

    def _gradient(self) -> Tensor:
        """All gradients as one vector."""
        params = self.param_groups[0]["params"]
        return F.cat(
            [make_tensor(p.array * 0).reshape(-1) if p.grad is None else p.grad.to_dense().reshape(-1) for p in params]
        )

    def _move(self, t: float, d: Tensor) -> None:
        """Every parameter by its part of t·d."""
        start = 0
        for p in self.param_groups[0]["params"]:
            part = d[start : start + p.array.size].reshape(*p.static_shape)
            p.assign(p + cast(part, p.array.dtype) * t, "LBFGS.step")
            start += p.array.size


def dot(a: Tensor, b: Tensor) -> float:
    return float(np.asarray(F.matmul(a, b)))


def largest(x: Tensor) -> float:
    return float(F.amax(F.abs(x))) if x.array.size else 0.0
