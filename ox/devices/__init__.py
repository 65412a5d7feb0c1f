"""Executors: where and how a kernel runs. NumPy for everything; compiled kernels and ONNX Runtime for float32 work;
CuPy on a GPU. Imports ox.dtypes, ox.errors, ox.installation and ox.kernels only; loads onnxruntime and CuPy inside
functions.
"""

from __future__ import annotations

from ox.devices import compiled as compiled  # the imports of both add their offers
from ox.devices import cuda
from ox.devices import dispatch_table as dispatch_table
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
