"""Automatic differentiation: backward, gradient modes, functional gradients and `gradcheck`. `torch.autograd`."""

from typing import TYPE_CHECKING

from ox.autograd.anomaly_mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from ox.autograd.backward_pass import backward, grad
from ox.autograd.function import Function
from ox.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ox.autograd.gradcheck import gradcheck, gradgradcheck
from ox.autograd.variable import Variable
from ox.core.lazy import lazy_modules

if TYPE_CHECKING:
    from ox.autograd import functional as functional
    from ox.autograd import graph as graph

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__getattr__, __dir__ = lazy_modules(__name__, ("checkpoint", "functional", "graph"), {"profiler": "ox"})
