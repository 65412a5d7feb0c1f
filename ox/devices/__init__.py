"""Executors: where and how a kernel runs. NumPy for everything; ONNX Runtime for large float32 work; CuPy on a GPU.

Imports ox.dtypes and ox.errors only; loads onnxruntime and CuPy inside functions.
"""

from __future__ import annotations

from ox.devices import cuda
from ox.devices import dispatch_table as dispatch_table  # its import adds the offers of one-node sessions
from ox.devices.dispatch import Accelerated, accelerated, accelerators, cpu, namespace
from ox.devices.executors import NoKernelError, forced

__all__ = [
    "Accelerated",
    "NoKernelError",
    "accelerated",
    "accelerators",
    "cpu",
    "cuda",
    "forced",
    "namespace",
]
