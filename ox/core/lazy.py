"""Lazy imports of submodules (PEP 562), and errors that name the replacement of a missing PyTorch name."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from types import ModuleType
from typing import Any

from ox.core import legacy_paths, operator

# PyTorch names that ox has under another path, or not at all: the hint of the AttributeError.
_COMPLEX = "ONNX operators do not support complex numbers; ox.fft stores real and imaginary part in a last dimension"
_DATA_PARALLEL = "nn.parallel.DistributedDataParallel, with a process for each device: ox launch --nproc 2 script.py"
_DEVICES = "ox runs on cpu and cuda"
_QUANTIZED = "ox.export.quantize for files; ox.ao.quantization for training, where types are ox.uint8 and ox.int8"
_SHARDED = "every process holds the whole model: ox.nn.parallel.DistributedDataParallel"
_STORAGE = "ox has no storages; the memory of a tensor is its NumPy or CuPy array, x.array"
_TRACED = "ox has no symbolic tracing; use ox.export.save to record a call"
REPLACEMENTS = {
    "ox._six": "removed from PyTorch; use math.inf, str or collections.abc",
    "ox.ao.quantization.prepare": "ox.export.quantize(file, path, 'int8', calibration=samples)",
    "ox.ao.quantization.quantize": "ox.export.quantize(file, path, 'int8', calibration=samples)",
    "ox.ao.quantization.quantize_dynamic": "ox.export.quantize(file, path, 'int8-dynamic')",
    "ox.FloatStorage": _STORAGE,
    "ox.Storage": _STORAGE,
    "ox.UntypedStorage": _STORAGE,
    "ox.autograd.forward_ad": "ox.func.jvp",
    "ox.autograd.profiler": "ox.profiler",
    "ox.backends.quantized": _QUANTIZED,
    "ox.backends.xnnpack": "the exported file runs in other runtimes as it is",
    "ox.cdouble": _COMPLEX,
    "ox.cfloat": _COMPLEX,
    "ox.classes": "an operator is written in Python; see ox.core.operator",
    "ox.complex64": _COMPLEX,
    "ox.complex128": _COMPLEX,
    "ox.cuda.CUDAGraph": "ox.export.save writes a model as a graph",
    "ox.cuda.comm": _DATA_PARALLEL,
    "ox.cuda.graph": "ox.export.save writes a model as a graph",
    "ox.cuda.nccl": "ox.distributed",
    "ox.cuda.profiler": "ox.profiler",
    "ox.cuda.utilization": "nvidia-smi",
    "ox.batch_norm_stats": "F.batch_norm",
    "ox.embedding_bag": "F.embedding_bag",
    "ox.native_batch_norm": "F.batch_norm",
    "ox.native_layer_norm": "F.layer_norm",
    "ox.distributed.FileStore": "ox has no stores; `ox launch` connects the processes",
    "ox.distributed.TCPStore": "ox has no stores; `ox launch` connects the processes",
    "ox.distributed.all_to_all": "ox.distributed.all_to_all_single",
    "ox.distributed.checkpoint": "ox.save and ox.load on rank 0; every process holds the whole model",
    "ox.distributed.fsdp": _SHARDED,
    "ox.distributed.rpc": "ox.distributed.send and recv, or several processes of your own",
    "ox.distributed.tensor": _SHARDED,
    "ox.distributions.ContinuousBernoulli": "a subclass of ox.distributions.Distribution with its log_prob",
    "ox.distributions.ExponentialFamily": "ox.distributions.Distribution",
    "ox.distributions.GeneralizedPareto": "ox.distributions.Pareto, or a subclass of Distribution with its log_prob",
    "ox.distributions.LKJCholesky": "a subclass of ox.distributions.Distribution with its log_prob",
    "ox.distributions.LogisticNormal": "TransformedDistribution(Normal(loc, scale), StickBreakingTransform())",
    "ox.distributions.VonMises": "a subclass of ox.distributions.Distribution with its log_prob",
    "ox.distributions.Wishart": "a subclass of ox.distributions.Distribution with its log_prob",
    "ox.distributions.biject_to": "the transform by its name, as ExpTransform() for positive numbers",
    "ox.distributions.transform_to": "the transform by its name, as ExpTransform() for positive numbers",
    "ox.eig": "removed from PyTorch; use ox.linalg.eigh where the matrix is symmetric",
    "ox.fx.GraphModule": _TRACED,
    "ox.fx.Graph": _TRACED,
    "ox.fx.Interpreter": _TRACED,
    "ox.fx.Node": _TRACED,
    "ox.fx.Tracer": _TRACED,
    "ox.fx.symbolic_trace": _TRACED,
    "ox.func.make_functional": "removed from PyTorch; use ox.func.functional_call",
    "ox.gru": "ox.nn.GRU",
    "ox.get_file_path": "pathlib",
    "ox.library": "an operator is written in Python; see ox.core.operator",
    "ox.lstm": "ox.nn.LSTM",
    "ox.lstsq": "removed from PyTorch; use ox.linalg.lstsq",
    "ox.masked": "ox.where, or Tensor.masked_fill before the reduction",
    "ox.matrix_rank": "removed from PyTorch; use ox.linalg.matrix_rank",
    "ox.monitor": "ox.train.loggers, or tensorboardX",
    "ox.mtia": _DEVICES,
    "ox.nested": "a padded batch and its mask: ox.nn.utils.rnn.pad_sequence",
    "ox.nn.Container": "removed from PyTorch; use ox.nn.Module",
    "ox.nn.attention.bias": "F.scaled_dot_product_attention with attn_mask= or is_causal=True",
    "ox.nn.attention.flex_attention": "F.scaled_dot_product_attention with attn_mask=",
    "ox.nn.grad": "ox.autograd.grad",
    "ox.nn.intrinsic": _QUANTIZED,
    "ox.nn.parallel.gather": _DATA_PARALLEL,
    "ox.nn.parallel.parallel_apply": _DATA_PARALLEL,
    "ox.nn.parallel.replicate": _DATA_PARALLEL,
    "ox.nn.parallel.scatter": _DATA_PARALLEL,
    "ox.nn.parallel.scatter_gather": _DATA_PARALLEL,
    "ox.nn.qat": _QUANTIZED,
    "ox.nn.quantized": _QUANTIZED,
    "ox.onnx.dynamo_export": "ox.onnx.export, or ox.export.save",
    "ox.onnx.register_custom_op_symbolic": "an operator is written in Python; see ox.core.operator",
    "ox.onnx.symbolic_helper": "an operator is written in Python; see ox.core.operator",
    "ox.optim.adam.adam": "ox.optim.Adam",
    "ox.optim.adamw.adamw": "ox.optim.AdamW",
    "ox.optim.sgd.sgd": "ox.optim.SGD",
    "ox.overrides.TorchFunctionMode": "functions of ox cannot be overridden; call a function of your own",
    "ox.package": "ox.save(model.state_dict(), path), or ox.export.save for a model as a file",
    "ox.quasirandom": "scipy.stats.qmc",
    "ox.complex": "ox.fft.complex(real, imag), pairs for ox.fft; ONNX operators do not support complex numbers",
    "ox.polar": "ox.fft.complex(size * angle.cos(), size * angle.sin()); ONNX operators do not support complex numbers",
    "ox.qint8": _QUANTIZED,
    "ox.quint8": _QUANTIZED,
    "ox.solve": "removed from PyTorch; use ox.linalg.solve",
    "ox.storage": _STORAGE,
    "ox.symeig": "removed from PyTorch; use ox.linalg.eigh",
    "ox.torch_version": "ox.version",
    "ox.return_types": "a named tuple; isinstance(x, tuple)",
    "ox.utils._pytree": "a comprehension over your dicts and lists",
    "ox.utils.bottleneck": "ox.profiler",
    "ox.utils.collect_env": "ox doctor",
    "ox.utils.data.datapipes": "removed from PyTorch; use ox.data.Dataset or IterableDataset",
    "ox.utils.flop_counter": "ox.profiler.profile(with_flops=True)",
    "ox.Tensor.H": _COMPLEX,
    "ox.Tensor.mH": _COMPLEX,
    "ox.Tensor.imag": _COMPLEX,
    "ox.Tensor.real": _COMPLEX,
    "ox.Tensor.names": "dimensions have numbers, not names",
    "ox.Tensor.set_data": "x.data = other",
    "ox.Tensor.is_same_size": "x.shape == other.shape",
    "ox.Tensor.volatile": "removed from PyTorch; use ox.no_grad()",
    "ox.nn.Module.dump_patches": "removed from PyTorch",
    "ox.nuclear_norm": "ox.linalg.norm(x, 'nuc')",
    "ox.range": "ox.arange, which excludes the end",
    "ox.vision.datasets.utils": "ox downloads nothing",
    "ox.vision.io": "ox.vision.datasets.read_image for pictures; videos need a library of their own",
    "ox.vision.utils.draw_bounding_boxes": "PIL.ImageDraw",
    "ox.qr": "ox.linalg.qr",
    "ox.quantization": _QUANTIZED,
    "ox.sparse_csr_tensor": "sparse tensors are COO: ox.sparse_coo_tensor",
    "ox.svd": "ox.linalg.svd, which gives the transposed V",
    "ox.view_as_complex": _COMPLEX,
    "ox.view_as_real": _COMPLEX,
    "ox.utils.cpp_extension": "an operator is written in Python; see ox.core.operator",
    "ox.utils.mobile_optimizer": "the exported file runs in other runtimes as it is",
}
REPLACEMENTS |= dict.fromkeys(
    (
        f"ox.distributions.{name}"
        for name in (
            "Beta", "Binomial", "Cauchy", "Chi2", "Dirichlet", "Gamma", "Geometric", "Gumbel", "HalfNormal",
            "MixtureSameFamily", "Multinomial", "OneHotCategorical", "Poisson", "RelaxedBernoulli",
            "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "VonMises", "Weibull", "transforms",
        )
    ),
    "dir(ox.distributions) lists those there; a subclass of ox.distributions.Distribution makes another",
)  # fmt: skip


# what to do about any other name that a package has not
_PACKAGES = {
    "ox.distributed": "dir(ox.distributed) lists what is there",
    "ox.distributions": "dir(ox.distributions) lists what is there",
    "ox.linalg": "dir(ox.linalg) lists what is there",
    "ox.vision.models": "dir(ox.vision.models) lists what is there; a model file of your own moves over with ox port",
}


def missing(package: str, name: str) -> str | None:
    """What there is in place of a name that a package has not; None where nothing is known."""
    hint = REPLACEMENTS.get(f"{package}.{name}")
    if hint is None:
        path = f"torch{package.removeprefix('ox')}.{name}"
        hint = _left_out().get(path) or _left_out().get(path.replace("torch.vision", "torchvision"))
    if hint is None and package == "ox" and not name.startswith("_") and hasattr(operator.tensor_class, name):
        hint = f"a method or attribute of tensors: x.{name}"
    return hint if hint or name.startswith("_") else _PACKAGES.get(package)


@cache
def _left_out() -> dict[str, str]:
    """PyTorch's documented names that ox leaves out, and why; `ox port` prints the reasons."""
    file = resources.files("ox").joinpath("porting", "left_out.json")
    table: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return table


def missing_attribute_error(package: str, name: str) -> AttributeError:
    """The error for a name that is not there: what is there instead."""
    package = legacy_paths.PUBLIC.get(package, package)
    hint = missing(package, name)
    return AttributeError(f"module '{package}' has no attribute '{name}'" + (f": {hint}" if hint else ""))


class _MissingModuleFinder:
    """Last entry of `sys.meta_path`: an `import` of a missing ox path names the replacement."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if not name.startswith("ox."):
            return
        package, _, last = name.rpartition(".")
        hint = REPLACEMENTS.get(name) or missing(package, last)
        if hint:
            # no name=: Python passes over a missing module of that name in `from ox import ...`
            raise ModuleNotFoundError(f"No module named '{name}': {hint}")


sys.meta_path.insert(0, legacy_paths.Finder())  # first, for some lie below packages of another name
sys.meta_path.append(_MissingModuleFinder())


def lazy_modules(
    package: str, public: Collection[str] | None = None, also: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose submodules are imported on first access.

    Args:
        package: its name.
        public: the submodules to import on access; None for all.
        also: names that are defined in another module, which is imported for them.
    """
    module = sys.modules[package]
    submodules = {info.name for info in pkgutil.iter_modules(getattr(module, "__path__", None) or [])}
    if public is not None:
        submodules &= set(public)

    elsewhere = also or {}
    path = legacy_paths.PUBLIC.get(package, package)
    older = {name for above, _, name in (each.rpartition(".") for each in legacy_paths.PATHS) if above == path}

    def __getattr__(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name in elsewhere:
            return getattr(importlib.import_module(elsewhere[name]), name)
        if name in older:
            return importlib.import_module(f"{path}.{name}")
        raise missing_attribute_error(package, name)

    def __dir__() -> list[str]:
        return sorted({*vars(module), *submodules, *elsewhere, *older})

    return __getattr__, __dir__


def public_names(namespace: Mapping[str, Any]) -> set[str]:
    """`__all__` of a package whose modules list what they export: the functions, classes and instances of ox in it.

    Args:
        namespace: the package's `globals()`.
    """
    return {
        name
        for name, value in namespace.items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", None) not in (None, __name__)
    }
