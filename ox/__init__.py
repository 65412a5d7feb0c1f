"""ox: train a model in eager mode, export it as a verified ONNX file, serve the file.

``import ox`` loads tensors, autograd and operators. The packages above them (`ox.nn`, `ox.optim`, `ox.data`,
`ox.train`, `ox.export`, `ox.serve`) are loaded at their first use.
"""

from __future__ import annotations

import os as _os
from math import e, inf, nan, pi
from typing import TYPE_CHECKING

# ONNX Runtime's wheels for Linux send usage data from 1.29 on, unless this is set before it is imported (SECURITY.md).
# They take an empty value, as env files write it, for consent.
if _os.environ.get("ORT_DISABLE_TELEMETRY") != "0":
    _os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from numpy import dtype, newaxis

from ox._version import __version__ as __version__

from ox.tensors.tensor import Tensor  # isort: skip
from ox import autograd, devices, errors, functions, ops, random
from ox.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ox.core.device import device
from ox.core.lazy import lazy_modules
from ox.core.memory_format import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format
from ox.core.size import Size
from ox.core.symbolic import Dim
from ox.devices import half_precision as _halves
from ox.dtypes import (
    bfloat16,
    double,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    is_floating,
    long,
    set_default_dtype,
    uint2,
    uint4,
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
from ox.functions import *  # noqa: F403
from ox.functions.creation import (
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
from ox.graph import fused_session as _fused
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
from ox.linalg.legacy import qr, svd
from ox.linalg.solvers import pinverse
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
from ox.serialization.files import load, save
from ox.signal.stft import bartlett_window, blackman_window, hamming_window, hann_window, istft, kaiser_window, stft
from ox.tensors.complex_functions import view_as_complex, view_as_real
from ox.tensors.random_sampling import binomial, multinomial, normal, poisson
from ox.tensors.settings import (
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

if TYPE_CHECKING:
    from ox import data as data
    from ox import export as export
    from ox import graph as graph
    from ox import nn as nn
    from ox import optim as optim
    from ox import serve as serve
    from ox import train as train
    from ox.compat import accelerator as accelerator
    from ox.compat import cpu as cpu
    from ox.compat import hub as hub
    from ox.compat import jit as jit
    from ox.compat import onnx as onnx

devices.accelerators += (_fused.offer, _halves.offer)  # graph lies above devices, so the top introduces them

__all__ = [
    "Dim", "Generator", "OxError", "Size", "Tensor", "arange", "are_deterministic_algorithms_enabled", "as_tensor",
    "asarray", "autograd", "bartlett_window", "bernoulli", "bfloat16", "binomial", "blackman_window", "bool",
    "channels_last", "channels_last_3d", "cholesky", "cholesky_inverse", "cholesky_solve", "contiguous_format",
    "default_generator", "det", "device", "double", "dtype", "e", "empty", "enable_grad", "errors", "eye", "float",
    "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float16", "float32",
    "float64", "from_numpy", "frombuffer", "full", "functions", "get_default_device", "get_default_dtype",
    "get_float32_matmul_precision", "get_num_threads", "get_rng_state", "half", "hamming_window", "hann_window", "inf",
    "inference_mode", "initial_seed", "int", "int2", "int4", "int8", "int16", "int32", "int64", "inverse",
    "is_floating", "is_grad_enabled", "is_inference_mode_enabled", "istft", "kaiser_window", "linspace", "load",
    "logdet", "logspace", "long", "manual_seed", "matrix_exp", "matrix_power", "memory_format", "multinomial", "nan",
    "newaxis", "no_grad", "normal", "ones", "ops", "pi", "pinverse", "poisson", "preserve_format", "qr", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "save", "scalar_tensor",
    "seed", "set_default_device", "set_default_dtype", "set_float32_matmul_precision", "set_grad_enabled",
    "set_num_threads", "set_printoptions", "set_rng_state", "short", "slogdet", "stft", "svd", "tensor", "uint2",
    "uint4", "uint8", "uint16", "uint32", "uint64", "use_deterministic_algorithms", "view_as_complex", "view_as_real",
    "zeros",
]  # fmt: skip
if not TYPE_CHECKING:
    __all__ += functions.__all__

_ROOMS = (
    "amp", "ao", "backends", "compiler", "cuda", "data", "devices", "distributed", "distributions", "einops", "export",
    "fft", "func", "futures", "graph", "linalg", "multiprocessing", "nn", "optim", "overrides", "profiler",
    "serialization", "serve", "signal", "sparse", "special", "testing", "train", "utils", "vision",
)  # fmt: skip
# what PyTorch has, with one signature, both in torch and in torch.nn.functional
_LAYERS = (
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "group_norm", "layer_norm", "max_pool1d",
    "max_pool2d", "max_pool3d", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "relu_",
    "rms_norm", "rrelu", "rrelu_", "selu", "selu_", "threshold", "threshold_",
)  # fmt: skip
# what PyTorch has as a method and as a function; and layers that have other arguments here than in nn.functional
_AS_FUNCTIONS = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_",
    "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_", "cos_", "cosh_",
    "deg2rad_", "detach", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_",
    "gcd_", "get_device", "i0_", "index_put_", "is_distributed", "is_neg", "is_same_size", "is_signed", "lcm_",
    "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_",
    "reciprocal_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_",
    "trunc_", "unsafe_split_with_sizes", "xlogy_", "zero_",
)  # fmt: skip
_NATIVE = (
    "adaptive_max_pool1d", "affine_grid_generator", "alpha_dropout", "batch_norm",
    "binary_cross_entropy_with_logits", "constant_pad_nd", "cosine_embedding_loss", "ctc_loss", "dropout",
    "dropout_", "embedding", "feature_alpha_dropout", "feature_dropout", "frobenius_norm", "grid_sampler",
    "grid_sampler_2d", "grid_sampler_3d", "hinge_embedding_loss", "instance_norm", "kl_div", "margin_ranking_loss",
    "norm_except_dim", "poisson_nll_loss", "triplet_margin_loss",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(_LAYERS, "ox.nn.functional"),
    "SymInt": "ox.compat.types",
    "compile": "ox.compiler",
    "from_dlpack": "ox.tensors.dlpack",
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
        "ox.tensors.legacy_types",
    ),
    **dict.fromkeys(_AS_FUNCTIONS, "ox.tensors.method_functions"),
    **dict.fromkeys(_NATIVE, "ox.nn.functional.torch_level"),
    **dict.fromkeys(("layout", "sparse_coo", "strided"), "ox.core.layout"),
    **dict.fromkeys(
        (
            "get_autocast_cpu_dtype",
            "get_autocast_gpu_dtype",
            "is_autocast_cpu_enabled",
            "set_autocast_cpu_dtype",
            "set_autocast_cpu_enabled",
            "set_autocast_gpu_dtype",
        ),
        "ox.amp.device_autocast",
    ),
    **dict.fromkeys(
        (
            "_assert",
            "get_deterministic_debug_mode",
            "get_num_interop_threads",
            "set_default_tensor_type",
            "set_deterministic_debug_mode",
            "set_flush_denormal",
            "set_num_interop_threads",
            "set_warn_always",
        ),
        "ox.tensors.settings",
    ),
    **dict.fromkeys(("Event", "OutOfMemoryError", "Stream"), "ox.cuda"),
    "is_anomaly_enabled": "ox.autograd",
    "is_anomaly_check_nan_enabled": "ox.autograd",
    "set_anomaly_enabled": "ox.autograd.anomaly_mode",
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
    **dict.fromkeys(("dsmm", "smm", "sparse_coo_tensor", "spmm"), "ox.sparse"),
    **dict.fromkeys(("memory_stats", "track_memory"), "ox.tensors.memory_stats"),
}
__getattr__, __dir__ = lazy_modules(__name__, _ROOMS, _ELSEWHERE)
_register_einops()
