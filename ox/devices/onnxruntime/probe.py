"""Does a runtime really work here? Asked of a session that runs, because lists of providers promise too much.

`get_available_providers()` names CUDA on machines without a GPU, and a session for CUDA falls back to
the CPU without a warning; only `session.get_providers()[0]` is reliable.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from types import ModuleType

from ox.devices.machine import Driver
from ox.devices.onnxruntime.device_code import code_of
from ox.errors import first_line

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
PROVIDER_HOST = "Provider_GetHost"


@dataclass(frozen=True)
class Probe:
    """Whether a provider ran one node with the right result; `reason` is why it did not."""

    provider: str
    loads: bool
    reason: str | None = None


def runtime_distributions() -> dict[str, str]:
    """The installed distributions that bring the module `onnxruntime`, with versions.

    More than one is a broken installation: they overwrite each other's files without a word.
    """
    found = {}
    for name in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-qnn"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def probe(provider: str) -> Probe:
    """Runs a one-node model on `provider`. Needs ONNX Runtime.

    Raises:
        DeviceError: ONNX Runtime is not installed.
    """
    from ox.devices.onnxruntime.runtime import onnxruntime

    runtime = onnxruntime()
    if provider not in runtime.get_available_providers():
        return Probe(provider, False, "this ONNX Runtime was built without it")
    with captured_output() as printed:
        found = _run_one_node(runtime, provider)
    if not found.loads and (library := next(filter(None, map(_missing_in, printed)), None)) is not None:
        return Probe(provider, False, library)
    return found


def preload(runtime: ModuleType) -> None:
    """Loads the libraries of NVIDIA's wheels, which ONNX Runtime does not find by itself; prints nothing."""
    if hasattr(runtime, "preload_dlls"):
        with redirect_stdout(io.StringIO()):
            runtime.preload_dlls()


def _run_one_node(runtime: ModuleType, provider: str) -> Probe:
    import numpy as np

    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        if provider == CUDA:
            preload(runtime)
        session = runtime.InferenceSession(_one_node(), options, providers=[provider])
        chosen = session.get_providers()[0]
        if chosen != provider:
            return Probe(provider, False, missing_library(runtime, provider) or f"the session chose {chosen}")
        (result,) = session.run(None, {"x": np.array([1.5, -2.0], np.float32)})
    except Exception as error:  # every exception of a broken installation is a result
        return Probe(provider, False, first_line(error))
    if result.tolist() != [3.0, -4.0]:
        return Probe(provider, False, f"wrong result {result.tolist()} for 2 * [1.5, -2.0]")
    return Probe(provider, True)


def missing_library(runtime: ModuleType, provider: str) -> str | None:
    """What the provider's shared library lacks on this machine, such as libcudnn.so.9; None if nothing.

    The library cannot be opened by itself even where all is there: it takes the symbol PROVIDER_HOST from ONNX Runtime,
    which gives it while it makes a session. The loader opens the libraries that are needed before it looks for symbols.
    """
    path = _library(runtime, provider)
    if not path.exists():
        return None
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return None if PROVIDER_HOST in str(error) else _missing_in(str(error)) or str(error)
    return None


def missing_code(runtime: ModuleType, driver: Driver, number: int) -> str | None:
    """That the CUDA provider's library has no code for a GPU: wheels are not compiled for all, and ONNX Runtime says so
    in the first run only. None where it has, or nothing is known."""
    path = _library(runtime, CUDA)
    if not path.exists() or number >= len(driver.capabilities):
        return None
    code, (major, minor) = code_of(path), driver.capabilities[number]
    if code.runs_on((major, minor)):
        return None
    gpu = f"cuda:{number} ({driver.devices[number]}, sm_{major}{minor})"
    return f"ONNX Runtime {runtime.__version__} has no code for {gpu}, but for {', '.join(code.architectures)}"


def _library(runtime: ModuleType, provider: str) -> Path:
    stem = provider.removesuffix("ExecutionProvider").lower()
    return Path(str(runtime.__file__)).parent / "capi" / f"libonnxruntime_providers_{stem}.so"


def _missing_in(text: str) -> str | None:
    """The library that a loader's message says is missing."""
    found = re.search(r"(\S+): cannot open shared object file", text)
    return None if found is None else f"{found[1]} is not installed"


def cupy_state() -> str:
    """CuPy in a few words: its version and whether an array on the device can be made."""
    if util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        import cupy

        cupy.arange(2).sum().get()
    except Exception as error:  # a missing driver, a wrong CUDA version: the message is what the user needs
        return f"CuPy does not work: {first_line(error)}"
    return f"CuPy {cupy.__version__} works"


def _one_node() -> bytes:
    """x + x, as a file of opset 21."""
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "probe", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@contextmanager
def captured_output() -> Iterator[list[str]]:
    """Lines that are printed meanwhile, by Python or by C, in a list that is filled at the end, not on the terminal.

    Of the whole process: not for programs whose other threads print.
    """
    lines: list[str] = []
    with tempfile.TemporaryFile() as file, io.StringIO() as text, redirect_stdout(text):
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield lines
        finally:
            for number, copy in enumerate(kept, 1):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            lines += text.getvalue().splitlines() + file.read().decode(errors="replace").splitlines()
