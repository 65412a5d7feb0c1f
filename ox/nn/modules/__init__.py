"""`torch.nn.modules`: what `ox.nn` has."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ox.core.lazy import lazy_modules
from ox.errors import ArgumentError
from ox.nn import *  # noqa: F403
from ox.nn import __all__ as __all__
from ox.nn import functional
from ox.nn import functional as F  # noqa: F401
from ox.nn.base.state import IncompatibleKeys as _IncompatibleKeys  # noqa: F401
from ox.nn.layers.adaptive_pool import _AdaptiveAvgPool as _AdaptiveAvgPoolNd  # noqa: F401
from ox.nn.layers.adaptive_pool import _AdaptiveMaxPool as _AdaptiveMaxPoolNd  # noqa: F401
from ox.nn.layers.batch_norm import _BatchNorm as _BatchNorm
from ox.nn.layers.batch_norm import _InstanceNorm as _InstanceNorm
from ox.nn.layers.batch_norm import _NormBase as _NormBase
from ox.nn.layers.conv import _ConvNd as _ConvNd
from ox.nn.layers.conv_transpose import _ConvTransposeNd as _ConvTransposeNd
from ox.nn.layers.dropout import _DropoutNd as _DropoutNd
from ox.nn.layers.lazy import LazyModuleMixin as LazyModuleMixin
from ox.nn.layers.lazy_norm import _LazyNorm as _LazyNormBase  # noqa: F401
from ox.nn.layers.linear import NonDynamicallyQuantizableLinear as NonDynamicallyQuantizableLinear
from ox.nn.layers.loss import Loss as _Loss  # noqa: F401
from ox.nn.layers.loss import WeightedLoss as _WeightedLoss  # noqa: F401
from ox.nn.layers.padding import _CircularPadNd as _CircularPadNd
from ox.nn.layers.padding import _ConstantPadNd, _ReflectionPadNd, _ReplicationPadNd  # noqa: F401
from ox.nn.layers.pool import _AvgPool as _AvgPoolNd  # noqa: F401
from ox.nn.layers.pool import _LPPool as _LPPoolNd  # noqa: F401
from ox.nn.layers.pool import _MaxPool as _MaxPoolNd  # noqa: F401
from ox.nn.layers.pool import _MaxUnpool as _MaxUnpoolNd  # noqa: F401
from ox.nn.layers.transformer import _copies as _get_clones  # noqa: F401
from ox.nn.utils.rnn import PackedSequence as PackedSequence
from ox.tensors.tensor import Tensor as Tensor


def _get_activation_fn(activation: str) -> Any:
    """`F.relu` or `F.gelu`, by name."""
    if activation not in ("relu", "gelu"):
        raise ArgumentError("no such activation", expected="relu or gelu", got=repr(activation))
    return getattr(functional, activation)


# PyTorch spreads its classes over these files; each has them all here
for _file in (
    "activation", "batchnorm", "container", "conv", "dropout", "flatten", "instancenorm", "linear", "loss",
    "normalization", "padding", "pooling", "rnn", "sparse", "transformer", "upsampling",
):  # fmt: skip
    sys.modules[f"{__name__}.{_file}"] = globals()[_file] = sys.modules[__name__]

# so that `utils` is that file, and not what ox.nn has of this name
_ntuple = importlib.import_module(f"{__name__}.utils")._ntuple
_single, _pair, _triple = map(_ntuple, (1, 2, 3))

__getattr__, __dir__ = lazy_modules(__name__)
