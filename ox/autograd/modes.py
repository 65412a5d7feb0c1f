"""Switching gradients off and on, as context managers and decorators; context-local."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ox.ops.mode import MODE, switched


@contextmanager
def no_grad() -> Iterator[None]:
    """Nothing is remembered for backward. `torch.no_grad`."""
    with switched(grad=False):
        yield


@contextmanager
def enable_grad() -> Iterator[None]:
    """Remember again, inside `no_grad`. `torch.enable_grad`."""
    with switched(grad=True, inference=False):
        yield


@contextmanager
def inference_mode(mode: bool = True) -> Iterator[None]:
    """`no_grad`, and tensors made inside can never require a gradient. `torch.inference_mode`."""
    with switched(grad=False, inference=True) if mode else enable_grad():
        yield


@contextmanager
def set_grad_enabled(mode: bool) -> Iterator[None]:
    """`enable_grad` or `no_grad`, by a flag."""
    with switched(grad=mode):
        yield


def is_grad_enabled() -> bool:
    return MODE.get().grad


def is_inference_mode_enabled() -> bool:
    return MODE.get().inference
