"""ox: train eagerly, export a standard ONNX file that proves itself, serve it.

``import ox`` gives tensors, autograd and operators; the rooms above (`ox.nn`, `ox.optim`, `ox.data`, `ox.train`,
`ox.export`, `ox.serve`) open when they are first named.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import TYPE_CHECKING

from numpy import dtype, newaxis

__version__ = "0.1.0"

from ox.tensor import Tensor  # isort: skip
from ox import autograd, devices, errors, functions, ops, random
from ox.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ox.complex_pairs import view_as_complex, view_as_real
from ox.creation import (
    arange,
    as_tensor,
    asarray,
    empty,
    eye,
    from_numpy,
    frombuffer,
    full,
    linspace,
    logspace,
    ones,
    scalar_tensor,
    tensor,
    zeros,
)
from ox.device_type import device
from ox.devices import halves as _halves
from ox.doors import doors
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
from ox.dtypes import int16 as short
from ox.dtypes import int32 as int
from ox.einops.registration import register as _register_einops
from ox.errors import OxError
from ox.files import load, save
from ox.functions import *  # noqa: F403
from ox.functions import __all__ as _functions
from ox.graph import fused as _fused
from ox.linalg import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    det,
    logdet,
    matrix_exp,
    matrix_power,
    slogdet,
)
from ox.linalg import inv as inverse
from ox.linalg.solving import pinverse
from ox.memory import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format
from ox.ops.dim import Dim
from ox.random import (
    Generator,
    bernoulli,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
from ox.sampling import binomial, multinomial, normal, poisson
from ox.settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_float32_matmul_precision,
    get_num_threads,
    set_default_device,
    set_float32_matmul_precision,
    set_num_threads,
    set_printoptions,
    use_deterministic_algorithms,
)
from ox.size import Size
from ox.spectrum import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    istft,
    kaiser_window,
    stft,
)

if TYPE_CHECKING:
    from ox import data as data
    from ox import export as export
    from ox import graph as graph
    from ox import nn as nn
    from ox import optim as optim
    from ox import serve as serve
    from ox import train as train

devices.accelerators += (_fused.offer, _halves.offer)  # graph lies above devices, so the top introduces them

__all__ = [
    "Dim",
    "Generator",
    "OxError",
    "Size",
    "Tensor",
    "arange",
    "are_deterministic_algorithms_enabled",
    "as_tensor",
    "asarray",
    "autograd",
    "bartlett_window",
    "bernoulli",
    "bfloat16",
    "binomial",
    "blackman_window",
    "bool",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "default_generator",
    "det",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "device",
    "memory_format",
    "preserve_format",
    "double",
    "dtype",
    "e",
    "empty",
    "enable_grad",
    "errors",
    "eye",
    "float",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "frombuffer",
    "full",
    "functions",
    "get_default_device",
    "get_default_dtype",
    "get_float32_matmul_precision",
    "get_num_threads",
    "get_rng_state",
    "half",
    "hamming_window",
    "hann_window",
    "inf",
    "inference_mode",
    "initial_seed",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "inverse",
    "is_floating",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "istft",
    "kaiser_window",
    "linspace",
    "load",
    "logdet",
    "logspace",
    "long",
    "manual_seed",
    "matrix_exp",
    "matrix_power",
    "multinomial",
    "nan",
    "newaxis",
    "no_grad",
    "normal",
    "ones",
    "ops",
    "pi",
    "pinverse",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "save",
    "scalar_tensor",
    "seed",
    "set_default_device",
    "set_default_dtype",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "set_num_threads",
    "set_printoptions",
    "set_rng_state",
    "short",
    "slogdet",
    "stft",
    "tensor",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "use_deterministic_algorithms",
    "view_as_complex",
    "view_as_real",
    "zeros",
    *_functions,
]

_ROOMS = (
    "amp", "backends", "cpu", "cuda", "data", "devices", "distributed", "distributions", "einops", "export", "fft",
    "func", "graph", "linalg", "nn", "optim", "profiler", "serve", "signal", "sparse", "special", "testing", "train",
    "utils", "version", "vision",
)  # fmt: skip
# what PyTorch has, with one signature, both in torch and in torch.nn.functional
_LAYERS = (
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "group_norm", "layer_norm", "max_pool1d",
    "max_pool2d", "max_pool3d", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "relu_",
    "rms_norm", "rrelu", "rrelu_", "selu", "selu_", "threshold", "threshold_",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(_LAYERS, "ox.nn.functional"),
    "from_dlpack": "ox.dlpack",
    **dict.fromkeys(
        (
            "BFloat16Tensor",
            "BoolTensor",
            "ByteTensor",
            "CharTensor",
            "DoubleTensor",
            "FloatTensor",
            "HalfTensor",
            "IntTensor",
            "LongTensor",
            "ShortTensor",
        ),
        "ox.typed",
    ),
    "vmap": "ox.func",
    **dict.fromkeys(
        (
            "GradScaler",
            "autocast",
            "clear_autocast_cache",
            "get_autocast_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
        ),
        "ox.amp",
    ),
    **dict.fromkeys(("dsmm", "sparse_coo_tensor", "spmm"), "ox.sparse"),
    **dict.fromkeys(("memory_stats", "track_memory"), "ox.memory_use"),
}
__getattr__, __dir__ = doors(__name__, _ROOMS, _ELSEWHERE)
_register_einops()
