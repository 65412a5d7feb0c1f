"""ox: train eagerly, export a standard ONNX file that proves itself, serve it.

``import ox`` gives tensors, autograd and operators; the rooms above (`ox.nn`, `ox.optim`, `ox.data`, `ox.train`,
`ox.export`, `ox.serve`) open when they are first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from ox.tensor import Tensor  # isort: skip
from ox import autograd, errors, functions, ops, random
from ox.autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ox.creation import arange, as_tensor, empty, eye, from_numpy, full, linspace, ones, tensor, zeros
from ox.dtypes import (
    bfloat16,
    double,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int8,
    int16,
    int32,
    int64,
    is_floating,
    long,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ox.dtypes import bool_ as bool
from ox.dtypes import float32 as float
from ox.dtypes import int32 as int
from ox.errors import OxError
from ox.files import load, save
from ox.functions import *
from ox.ops.dim import Dim
from ox.random import (
    Generator,
    bernoulli,
    default_generator,
    manual_seed,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
)
if TYPE_CHECKING:
    from ox import data, export, graph, nn, optim, serve, train

_ROOMS = ("data", "devices", "export", "graph", "nn", "optim", "serve", "train")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"ox.{name}")
    raise AttributeError(f"module 'ox' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
