"""A compiled program beside the same one in eager code: results, weights, gradients and buffers step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import ox
from ox import nn
from ox.errors import OxError
from ox.tolerance import allowed

Step = Callable[..., Any]


class Program:
    """A model with its optimizer and what else a step needs."""

    def __init__(self, model: nn.Module, optimizer: Callable[[Any], Any] | None = None, **more: Any) -> None:
        self.model = model
        self.optimizer = None if optimizer is None else optimizer(model.parameters())
        self.more = more


def close(one: Any, other: Any, what: str) -> None:
    """Both arrays are equal within the table of tolerances."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape and one.dtype == other.dtype, what
    if one.dtype.kind in "iub":
        assert np.array_equal(one, other), what
        return
    assert np.array_equal(np.isfinite(one.astype(np.float64)), np.isfinite(other.astype(np.float64))), what
    one, other = np.nan_to_num(one, posinf=0, neginf=0), np.nan_to_num(other, posinf=0, neginf=0)
    wide = one.astype(np.float64), other.astype(np.float64)
    worst = float(np.abs(wide[0] - wide[1]).max()) if one.size else 0.0
    assert worst <= 4 * allowed(other), f"{what}: {worst}"


def arrays_of(result: Any) -> list[Any]:
    """The arrays of the tensors in a result."""
    if isinstance(result, ox.Tensor):
        return [result.detach().numpy()]
    if isinstance(result, dict):
        return [a for each in result.values() for a in arrays_of(each)]
    if isinstance(result, (list, tuple)):
        return [a for each in result for a in arrays_of(each)]
    return []


def compare(
    make: Callable[[], Any],
    step: Callable[[Any], Step],
    batches: Iterable[tuple[Any, ...]],
    compiled: Callable[[Step], Step] | None = None,
) -> tuple[Any, Any]:
    """Run `step(program)` on each batch, eager and compiled, from the same seeds. Returns the compiled program and the
    compiled function."""
    programs = []
    for _ in range(2):
        ox.manual_seed(3)
        programs.append(make())
    eager, other = programs
    one, two = step(eager), step(other)
    two = (ox.compile(two) if compiled is None else compiled(two)) if two is not None else two
    state = [ox.random.get_state()] * 2
    for number, batch in enumerate(batches):
        results = []
        for i, (run, given) in enumerate(((one, batch), (two, copy.deepcopy(batch)))):
            ox.random.set_state(state[i])
            try:
                results.append(run(*given))
            except OxError as error:  # both must fail
                results.append(type(error))
            state[i] = ox.random.get_state()
        if isinstance(results[0], type):
            assert results[0] is results[1], f"errors of step {number}"
            break
        assert state[0] == state[1], f"the generator after step {number}"
        for a, b in zip(arrays_of(results[0]), arrays_of(results[1]), strict=True):
            close(b, a, f"result of step {number}")
        for (name, a), (_, b) in zip(eager.model.state_dict().items(), other.model.state_dict().items(), strict=True):
            close(b.numpy(), a.numpy(), f"{name} after step {number}")
        for (name, p), q in zip(eager.model.named_parameters(), other.model.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None), name
            if p.grad is not None:
                close(q.grad.numpy(), p.grad.numpy(), f"the gradient of {name} after step {number}")
    return other, two


def recordings(compiled: Any) -> list[Any]:
    """The plans of a compiled function or module."""
    found = getattr(compiled, "_compiled", compiled)
    return [plan for held in found.plans.values() for plan in held if hasattr(plan, "layout")]


def reasons(compiled: Any) -> str:
    """Why calls stayed eager, as text."""
    return "; ".join(getattr(compiled, "_compiled", compiled).eager)
