"""The tape's walk, the switches, functional gradients and their check. `torch.autograd`."""

from ox.autograd.backward import backward, grad
from ox.autograd.gradcheck import gradcheck, gradgradcheck
from ox.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]
