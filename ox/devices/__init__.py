"""Executors: where and how a kernel runs. NumPy for everything; compiled kernels and ONNX Runtime for float32 work;
CuPy on a GPU. Imports ox.dtypes, ox.errors, ox.installation and ox.kernels only; loads onnxruntime and CuPy inside
functions.
"""

from __future__ import annotations

from ox.devices.cpu_kernels import kernel_table as kernel_table  # the imports of both tables add their offers
from ox.devices.dispatch import Accelerated, accelerated, accelerators, cpu, namespace
from ox.devices.executors import NoKernelError, forced
from ox.devices.gpu import cupy_device as cuda
from ox.devices.onnxruntime import dispatch_table as dispatch_table

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
