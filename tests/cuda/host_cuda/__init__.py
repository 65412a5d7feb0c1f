"""The real CuPy without a device: its device memory is host memory, and its kernels are compiled by g++ and run here.

Real is all that CuPy decides: names, keywords, types, casts, shapes, errors, kernels, copies, waits, captures. Not real
are speed, asynchrony, races, and the libraries of the device: cuBLAS is a loop, Thrust, cuFFT and cuSOLVER are NumPy.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from host_cuda import build, kernels, libraries

COUNTERS = ["launches", "products", "graphs", "waits", "to device", "to host", "on device", "fills"]  # of work.h
PROPERTIES = {
    "name": b"host_cuda", "major": 9, "minor": 0, "totalGlobalMem": 1 << 37, "multiProcessorCount": 132, "warpSize": 32,
    "maxThreadsPerBlock": 1024, "sharedMemPerBlock": 49152, "maxGridSize": (1 << 31, 65535, 65535),
    "maxThreadsDim": (1024, 1024, 64),
}  # fmt: skip
VERSION = 13000


@cache
def _driver() -> ctypes.CDLL:
    for name in ("libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"):
        ctypes.CDLL(str(build.built() / name), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(build.built() / "libcuda.so.1"))


def counts() -> dict[str, int]:
    """How often each thing has been done in this process."""
    numbers = (ctypes.c_long * len(COUNTERS)).in_dll(_driver(), "host_cuda_counts")
    return dict(zip(COUNTERS, numbers, strict=True))


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """What a block does, in a dictionary that is filled at its end."""
    before, made = counts(), dict[str, int]()
    yield made
    made |= {name: number - before[name] for name, number in counts().items()}


def install(sources: Path | None = None) -> Any:
    """Import CuPy so that it runs here. Returns the module.

    Args:
        sources: a folder; each kernel that is compiled leaves a file there, with its source and its options.
    """
    os.environ |= {"CUPY_ACCELERATORS": "", "CUPY_CACHE_IN_MEMORY": "1"}
    driver = _driver()
    from cupy_backends.cuda.api import runtime

    def wait(*args: Any) -> None:
        if status := driver.host_cuda_wait():
            raise runtime.CUDARuntimeError(status)

    def shared(function: str, *arguments: Any) -> None:
        if status := getattr(driver, function)(*arguments):
            raise runtime.CUDARuntimeError(status)

    def handle_of(address: int) -> bytes:
        made = ctypes.create_string_buffer(64)
        shared("host_cuda_share", ctypes.c_void_p(address), made)
        return made.raw

    def opened(handle: bytes, flags: int = 1) -> int:
        address = ctypes.c_void_p()
        shared("host_cuda_open_shared", handle, ctypes.byref(address))
        assert address.value is not None
        return address.value

    def refuse_in_capture() -> None:
        if ctypes.c_int.in_dll(driver, "host_cuda_capturing").value:
            wait()

    path = str(build.built() / "host_cuda_runtime.so")
    loader = ExtensionFileLoader("host_cuda_runtime", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("host_cuda_runtime", loader))  # type: ignore[arg-type]
    module.replace(runtime.__pyx_capi__, PROPERTIES, runtime.CUDARuntimeError, runtime.PointerAttributes)
    _replace_in_python(runtime, wait)
    runtime.ipcGetMemHandle, runtime.ipcOpenMemHandle = handle_of, opened
    runtime.ipcCloseMemHandle = lambda address: shared("host_cuda_close_shared", ctypes.c_void_p(address))

    import cupy
    from cupy.cuda import compiler

    class Program:
        """CuPy's program for NVRTC, by g++."""

        def __init__(
            self,
            src: str,
            name: str = "",
            headers: Any = (),
            include_names: Any = (),
            name_expressions: Any = None,
            method: str = "ptx",
        ) -> None:
            self.source, self.expressions = src, tuple(name_expressions or ())

        def compile(self, options: Sequence[str] = (), log_stream: Any = None) -> tuple[bytes, dict[str, str] | None]:
            if sources is not None:
                _keep(sources, self.source, options, self.expressions)
            try:
                library = kernels.compiled(self.source, options, self.expressions)
            except RuntimeError as error:
                raise compiler.CompileException(str(error), self.source, "", options) from error
            return library, {name: f"template{i}" for i, name in enumerate(self.expressions)} or None

    compiler._NVRTCProgram = Program
    compiler._get_nvrtc_version = lambda: (13, 0)
    compiler._preprocess = lambda *args: ""
    libraries.install(wait, refuse_in_capture)
    return cupy


def _replace_in_python(runtime: Any, wait: Any) -> None:
    """The functions that Python code calls by their name in the module, not in its table of C functions."""

    def nothing(*args: Any) -> None:
        pass

    runtime.deviceSynchronize = runtime.streamSynchronize = runtime.eventSynchronize = wait
    runtime.getDeviceCount = lambda: 1
    runtime.getDevice = lambda: 0
    runtime.memGetInfo = lambda: (1 << 36, 1 << 37)
    runtime.runtimeGetVersion = runtime.driverGetVersion = lambda: VERSION
    runtime.getDeviceProperties = lambda device: PROPERTIES
    runtime.deviceGetAttribute = lambda attribute, device: {75: 9, 76: 0}.get(attribute, 1)
    runtime.deviceCanAccessPeer = lambda device, peer: 0
    runtime.pointerGetAttributes = lambda pointer: runtime.PointerAttributes(0, pointer, 0, 2)
    runtime.eventQuery = runtime.streamQuery = lambda handle: 0
    for name in (
        "setDevice",
        "streamWaitEvent",
        "eventRecord",
        "eventDestroy",
        "streamDestroy",
        "profilerStart",
        "profilerStop",
    ):
        setattr(runtime, name, nothing)


def _keep(folder: Path, source: str, options: Sequence[str], expressions: Sequence[str]) -> None:
    text = json.dumps({"source": source, "options": list(options), "names": list(expressions)})
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kernels.key(text)}.json"
    if not file.exists():
        file.write_text(text)
