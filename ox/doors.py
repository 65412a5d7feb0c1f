"""Module paths that PyTorch users type: a door opens when it is first named, if there is a room behind it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ox.ops import operator

# What PyTorch has under a path and ox has elsewhere, or not at all: what an AttributeError then says.
_COMPLEX = "ONNX operators compute with no complex numbers; ox.fft keeps the two parts in a last dimension"
_DATA_PARALLEL = "nn.parallel.DistributedDataParallel, with a process for each device: ox launch --nproc 2 script.py"
ELSEWHERE = {
    "ox.ao": "ox.ops has QuantizeLinear and its like where a file brings them",
    "ox.autograd.profiler": "ox.profiler",
    "ox.cfloat": _COMPLEX,
    "ox.compile": "training is eager; ox.export.save writes a model as a graph",
    "ox.complex64": _COMPLEX,
    "ox.complex128": _COMPLEX,
    "ox.cuda.max_memory_allocated": "with ox.track_memory(), or ox.cuda.memory_stats()",
    "ox.hub": "weights come as files: ox.export.load(path) for ONNX, ox.load(path) for what ox.save wrote",
    "ox.jit": "a model becomes a graph by ox.export.save, and a module again by ox.export.load",
    "ox.mps": "ox runs on cpu and cuda",
    "ox.multiprocessing": "the standard library's multiprocessing",
    "ox.nn.DataParallel": _DATA_PARALLEL,
    "ox.nn.parallel.DataParallel": _DATA_PARALLEL,
    "ox.onnx": "ox.export.save(model, 'model.onnx', example) and ox.export.load",
    "ox.polar": _COMPLEX,
    "ox.qr": "ox.linalg.qr",
    "ox.quantization": "ox.ops has QuantizeLinear and its like where a file brings them",
    "ox.set_default_tensor_type": "ox.set_default_dtype(dtype), and device= where a tensor is made",
    "ox.sparse_csr_tensor": "sparse tensors are COO: ox.sparse_coo_tensor",
    "ox.svd": "ox.linalg.svd, which gives the transposed V",
    "ox.utils.model_zoo": "weights come as files: ox.export.load(path) for ONNX, ox.load(path) for what ox.save wrote",
    "ox.view_as_complex": _COMPLEX,
    "ox.view_as_real": _COMPLEX,
    "ox.xpu": "ox runs on cpu and cuda",
    "ox.utils.cpp_extension": "an operator is written in Python; see ox.ops.operator",
    "ox.utils.mobile_optimizer": "the exported file runs in other runtimes as it is",
}
ELSEWHERE |= dict.fromkeys(
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


def missing(package: str, name: str) -> str | None:
    """What there is in place of a name that a package has not; None where nothing is known."""
    hint = ELSEWHERE.get(f"{package}.{name}")
    if hint is None and package == "ox" and not name.startswith("_") and hasattr(operator.tensor_class, name):
        hint = f"a method or attribute of tensors: x.{name}"
    return hint


def refusal(package: str, name: str) -> AttributeError:
    """The error for a name that is not there: what is there instead."""
    hint = missing(package, name)
    return AttributeError(f"module '{package}' has no attribute '{name}'" + (f": {hint}" if hint else ""))


class _Closed:
    """The last of Python's finders: `import` of a path that ox has not says what is there instead."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in ELSEWHERE:
            # no name=: Python passes over a missing module of that name in `from ox import ...`
            raise ModuleNotFoundError(f"No module named '{name}': {ELSEWHERE[name]}")


sys.meta_path.append(_Closed())


def doors(
    package: str, public: Collection[str] | None = None, also: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose modules open when they are first named.

    Args:
        package: its name.
        public: the modules that have a door; None for all.
        also: names that stand in another module, which is opened for them.
    """
    module = sys.modules[package]
    rooms = {info.name for info in pkgutil.iter_modules(module.__path__)}
    if public is not None:
        rooms &= set(public)

    elsewhere = also or {}

    def __getattr__(name: str) -> Any:
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        if name in elsewhere:
            return getattr(importlib.import_module(elsewhere[name]), name)
        raise refusal(package, name)

    def __dir__() -> list[str]:
        return sorted({*vars(module), *rooms, *elsewhere})

    return __getattr__, __dir__
