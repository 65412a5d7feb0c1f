"""Hooks of every module; gradients that pass a watched module."""

from __future__ import annotations

from typing import Any

import pytest

import ox
from ox import nn
from ox.errors import GradientError
from ox.nn.base.hooks import GLOBAL_HOOKS
from ox.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)


def test_hooks_of_every_module() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    seen: list[str] = []

    def note(what: str) -> Any:
        return lambda module, *_: seen.append(f"{what} {type(module).__name__}")

    m[1].register_forward_pre_hook(note("own"))
    handles = [
        register_module_forward_pre_hook(note("before")),
        register_module_forward_hook(note("after")),
        register_module_full_backward_pre_hook(note("gradient of outputs")),
        register_module_full_backward_hook(note("gradient of inputs")),
    ]
    y = m(ox.ones(1, 2, requires_grad=True))
    forward = "before Sequential, before Linear, after Linear, before Tanh, own Tanh, after Tanh, after Sequential"
    assert ", ".join(seen) == forward
    seen.clear()
    y.sum().backward()
    names = ["Sequential", "Tanh", "Linear"]
    outputs = [f"gradient of outputs {name}" for name in names]
    inputs = [f"gradient of inputs {name}" for name in names]
    assert seen == [outputs[0], outputs[1], inputs[1], outputs[2], inputs[2], inputs[0]]
    for handle in handles:
        handle.remove()
        handle.remove()
    assert GLOBAL_HOOKS.count == 0
    seen.clear()
    m(ox.ones(1, 2))
    assert seen == ["own Tanh"]


def test_what_a_watched_module_passes_on_is_not_written() -> None:
    """The tensor before the module and the one inside share memory, and a gradient could follow one of them only."""

    class Halve(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mul_(0.5)

    m = Halve()
    x = ox.ones(2, requires_grad=True) * 2
    m(x).sum().backward()
    m.register_full_backward_hook(lambda module, gi, go: None)
    with pytest.raises(GradientError, match="hooked module"):
        m(ox.ones(2, requires_grad=True) * 2)


def test_untracked_results_stand_as_none() -> None:
    class Several(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2, 5, x.detach()

    m, seen = Several(), []
    m.register_full_backward_hook(lambda module, gi, go: seen.append([g if g is None else g.tolist() for g in go]))
    y, five, _ = m(ox.ones(1, requires_grad=True))
    assert five == 5
    y.backward()
    assert seen == [[[1], None, None]]
