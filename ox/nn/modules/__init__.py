"""`torch.nn.modules`: what `ox.nn` has."""

import sys

from ox.doors import doors
from ox.nn import *  # noqa: F403
from ox.nn import __all__ as __all__
from ox.nn.conv import _ConvNd as _ConvNd
from ox.nn.conv_transpose import _ConvTransposeNd as _ConvTransposeNd
from ox.nn.dropout import Dropout as _DropoutNd  # noqa: F401
from ox.nn.loss import Loss as _Loss  # noqa: F401
from ox.nn.loss import WeightedLoss as _WeightedLoss  # noqa: F401
from ox.nn.running_norm import _BatchNorm as _BatchNorm
from ox.nn.running_norm import _InstanceNorm as _InstanceNorm
from ox.nn.running_norm import _NormBase as _NormBase

# PyTorch spreads its classes over these files; each has them all here
for _file in (
    "activation", "batchnorm", "container", "conv", "dropout", "flatten", "instancenorm", "linear", "loss",
    "normalization", "padding", "pooling", "rnn", "sparse", "transformer", "upsampling",
):  # fmt: skip
    sys.modules[f"{__name__}.{_file}"] = globals()[_file] = sys.modules[__name__]

__getattr__, __dir__ = doors(__name__)
