"""pytest -p on_moved_tensors: tests that know no GPU run with the tensors that they make on "cuda", of a stand-in.

What a test makes with ox's functions and gives to a module is moved, and NumPy takes arrays of the device in a test.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strict_numpy
from strict_numpy.array import TYPES, ndarray

TESTS = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("moved_left_out.txt")

strict_numpy.install()

import ox  # noqa: E402 (after the stand-in)
from ox import tolerance  # noqa: E402
from ox.devices import cuda  # noqa: E402
from ox.tensors.tensor import make_tensor  # noqa: E402

MAKERS = [
    "tensor", "as_tensor", "asarray", "from_numpy", "ones", "zeros", "full", "empty", "arange", "linspace", "logspace",
    "eye", "rand", "randn", "randint", "randperm", "normal", "tril_indices", "triu_indices", "hann_window",
]  # fmt: skip


def moved(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose new tensors are on "cuda", if no device is asked for and CuPy has their type."""

    @functools.wraps(make)
    def call(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        if "device" in options or "out" in options or not isinstance(made, ox.Tensor) or made.grad_fn is not None:
            return made
        if not isinstance(made.array, np.ndarray) or made.array.dtype not in TYPES:
            return made
        if any(made is given for given in args):
            return made
        return made.detach().to("cuda").requires_grad_(made.requires_grad)

    return call


class HostNumpy(types.ModuleType):
    """NumPy for tests: arrays of the device are copied to the host."""

    def __init__(self, module: Any) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return HostNumpy(found)
        if isinstance(found, type) or not callable(found):
            return found
        return HostFunction(found)


class HostFunction:
    """One of NumPy's functions, which has attributes of its own."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*map(on_host, args), **{name: on_host(value) for name, value in options.items()})

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return HostFunction(found) if callable(found) else found


def on_host(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value.get()
    if isinstance(value, ox.Tensor) and isinstance(value.array, ndarray):
        return value.detach().cpu()
    return type(value)(map(on_host, value)) if type(value) in (list, tuple) else value


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    function: moved(function) for name in MAKERS if (function := getattr(ox, name, None))
}
for _function, _moved in FUNCTIONS.items():
    setattr(ox, _function.__name__, _moved)
# ox itself uses these; tests get others
FUNCTIONS |= {make_tensor: moved(make_tensor), tolerance.compare: HostFunction(tolerance.compare)}

_numpy = ox.Tensor.numpy
_call = ox.nn.Module.__call__
_parameter = ox.nn.Parameter.__init__


def numpy_of(tensor: Any, **options: Any) -> Any:
    return _numpy(on_host(tensor), **options)


def call_on_device(module: Any, *args: Any, **options: Any) -> Any:
    if any(isinstance(x, ox.Tensor) and isinstance(x.array, ndarray) for x in args):
        module.to("cuda")
    return _call(module, *args, **options)


def parameter_on_device(parameter: Any, data: Any, requires_grad: bool = True) -> None:
    _parameter(parameter, data, requires_grad)
    if isinstance(parameter.array, np.ndarray) and parameter.array.dtype in TYPES:
        parameter.array = cuda.to_device(parameter.array)


ox.Tensor.numpy = numpy_of
ox.nn.Parameter.__init__ = parameter_on_device
ox.nn.Module.__call__ = call_on_device


def left_out() -> dict[str, str]:
    """The tests that cannot move, with the reason: headings in a file, and the tests below."""
    reasons, reason = {}, ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            reasons[line] = reason
    return reasons


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    functions = [item for item in items if isinstance(item, pytest.Function)]
    modules = [module for module in sys.modules.values() if str(TESTS) in str(getattr(module, "__file__", ""))]
    for module in {*modules, *(item.module for item in functions)}:
        for name, value in list(vars(module).items()):
            if value is np and module.__name__ != __name__ and "strict_numpy" not in module.__name__:
                setattr(module, name, HostNumpy(np))
            elif isinstance(value, types.FunctionType) and value in FUNCTIONS:
                setattr(module, name, FUNCTIONS[value])
    reasons = left_out()
    names = {f"{item.path.relative_to(TESTS).as_posix()}::{item.originalname}" for item in functions}
    files = {name.partition("::")[0] for name in names}
    gone = {name for name in reasons if name.partition("::")[0] in files} - names
    assert not gone, f"{FILE.name} names tests that are gone: {sorted(gone)}"
    for item in functions:
        reason = reasons.get(f"{item.path.relative_to(TESTS).as_posix()}::{item.originalname}")
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
