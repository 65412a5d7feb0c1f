"""Executors: where and how a kernel runs. NumPy for everything; ONNX Runtime for large float32 work; CuPy on a GPU."""

from __future__ import annotations

from ox.devices import cuda, worth  # the import of worth adds the offers of one-node sessions
from ox.devices.choice import Accelerated, accelerated, accelerators, cpu, namespace
from ox.devices.executors import NoKernelError, forced

cuda_in_use = False  # set by ox.devices.cuda when the first array is made there; until then no call looks for one

__all__ = [
    "Accelerated",
    "NoKernelError",
    "accelerated",
    "accelerators",
    "cpu",
    "cuda",
    "cuda_in_use",
    "forced",
    "namespace",
    "worth",
]
