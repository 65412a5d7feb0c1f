"""`torch.ao`: of it, quantization-aware training.

Imports ox.nn, ox.ops, ox.functions, ox.autograd, ox.core, ox.devices and ox.tensors only.
"""

from __future__ import annotations

from ox.ao import quantization

__all__ = ["quantization"]
