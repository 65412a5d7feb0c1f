"""The real CuPy without a device: its device memory is host memory, and its kernels are compiled by g++ and run here.

Real is all that CuPy decides: names, keywords, types, casts, shapes, errors, kernels, copies, waits, captures. Not real
are speed, asynchrony, races, and the libraries of the device: cuBLAS is a loop, Thrust, cuFFT and cuSOLVER are NumPy.

Variables of the environment: HOST_CUDA_MEMORY, the bytes of the device; HOST_CUDA_CAPABILITY, such as 7.5;
HOST_CUDA_STATUS, an error of the runtime (cudaError_t) that looking for devices gives, such as 35 (a driver too old);
HOST_CUDA_DRIVER, the driver's version, such as 12040, or 0 for none; HOST_CUDA_DEVICES, how many there are, if not 1;
OX_KERNEL_SOURCES, a folder in which each kernel that is compiled leaves a file with its source and its options.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from host_cuda import build, kernels, libraries

COUNTERS = [  # of work.h
    "launches", "products", "graphs", "waits", "to device", "to host", "on device", "fills", "bytes to device",
    "bytes to host",
]  # fmt: skip
PROPERTIES = {
    "name": b"host_cuda", "major": 9, "minor": 0, "totalGlobalMem": 1 << 37, "multiProcessorCount": 132, "warpSize": 32,
    "maxThreadsPerBlock": 1024, "sharedMemPerBlock": 49152, "maxGridSize": (1 << 31, 65535, 65535),
    "maxThreadsDim": (1024, 1024, 64),
}  # fmt: skip
VERSION = 13000
MEMORY, CAPABILITY = "HOST_CUDA_MEMORY", "HOST_CUDA_CAPABILITY"
STATUS, DRIVER, DEVICES = "HOST_CUDA_STATUS", "HOST_CUDA_DRIVER", "HOST_CUDA_DEVICES"
SOURCES = "OX_KERNEL_SOURCES"


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


def is_capturing() -> bool:
    """Whether a stream is being captured."""
    return bool(ctypes.c_int.in_dll(_driver(), "host_cuda_capturing").value)


def wait() -> None:
    """Wait for the device, which counts, and ends a capture. Raises CUDARuntimeError."""
    from cupy_backends.cuda.api import runtime

    if status := _driver().host_cuda_wait():
        raise runtime.CUDARuntimeError(status)


def refuse_in_capture() -> None:
    """End a capture that is under way, with an error: for what a device cannot do then."""
    if is_capturing():
        wait()


def device_of(address: int) -> int:
    """The device that memory belongs to."""
    return int(_driver().host_cuda_device_of(ctypes.c_void_p(address)))


@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_long))
def _run_captured(number: Any) -> None:
    _captured[number[0]]()


_captured: list[Callable[[], None]] = []  # work of Python in graphs, which have the numbers


def submit(work: Callable[[], None]) -> None:
    """Do work of a library of the device that is written in Python, as a launch; or let the graph that is being
    captured do it whenever it is launched."""
    driver = _driver()
    if is_capturing():
        _captured.append(work)
        number = ctypes.c_long(len(_captured) - 1)
        size = ctypes.c_size_t(ctypes.sizeof(number))
        driver.host_cuda_submit(_run_captured, ctypes.byref(number), size, COUNTERS.index("launches"))
        return
    (ctypes.c_long * len(COUNTERS)).in_dll(driver, "host_cuda_counts")[COUNTERS.index("launches")] += 1
    if not ctypes.c_int.in_dll(driver, "host_cuda_idle").value:
        work()


@contextmanager
def busy() -> Iterator[None]:
    """A block in which events and streams say that their work has not ended. What waits for it waits for ever."""
    with _switched_on("host_cuda_busy"):
        yield


@contextmanager
def idle() -> Iterator[None]:
    """A block in which kernels and products are counted and not run: what is left of a call is the host's time."""
    with _switched_on("host_cuda_idle"):
        yield


@contextmanager
def lost(status: int) -> Iterator[None]:
    """A block in which the device has failed with an error (cudaError_t): what waits for it, or asks for its memory,
    gets that error."""
    with _switched_on("host_cuda_lost", status):
        yield


@contextmanager
def _switched_on(name: str, value: int = 1) -> Iterator[None]:
    switch = ctypes.c_int.in_dll(_driver(), name)
    switch.value = value
    try:
        yield
    finally:
        switch.value = 0


def install() -> Any:
    """Import CuPy so that it runs here. Returns the module."""
    os.environ |= {"CUPY_ACCELERATORS": "", "CUPY_CACHE_IN_MEMORY": "1"}
    driver = _driver()
    from cupy_backends.cuda.api import runtime

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

    path = str(build.built() / "host_cuda_runtime.so")
    loader = ExtensionFileLoader("host_cuda_runtime", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("host_cuda_runtime", loader))  # type: ignore[arg-type]
    major, minor = map(int, os.environ.get(CAPABILITY, "9.0").split("."))
    memory = int(os.environ.get(MEMORY, PROPERTIES["totalGlobalMem"]))
    properties = PROPERTIES | {"major": major, "minor": minor, "totalGlobalMem": memory}
    classes = (runtime.CUDARuntimeError, runtime.PointerAttributes)
    devices = int(os.environ.get(DEVICES, 1))
    module.replace(runtime.__pyx_capi__, properties, *classes, 10 * major + minor, memory, devices)
    _replace_in_python(runtime, module, properties)
    runtime.ipcGetMemHandle, runtime.ipcOpenMemHandle = handle_of, opened
    runtime.ipcCloseMemHandle = lambda address: shared("host_cuda_close_shared", ctypes.c_void_p(address))

    import cupy
    from cupy.cuda import compiler, nvrtc

    nvrtc.getVersion = lambda: (13, 0)  # there is no library: g++ compiles

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
            if SOURCES in os.environ:
                _keep(Path(os.environ[SOURCES]), self.source, options, self.expressions)
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


def _replace_in_python(runtime: Any, module: Any, properties: dict[str, Any]) -> None:
    """The functions that Python code calls by their name in the module, not in its table of C functions."""

    def nothing(*args: Any) -> None:
        pass

    status, devices = int(os.environ.get(STATUS, 0)), int(os.environ.get(DEVICES, 1))
    driver = int(os.environ.get(DRIVER, VERSION))

    def count() -> int:
        if status:
            raise runtime.CUDARuntimeError(status)
        return devices

    runtime.deviceSynchronize = runtime.streamSynchronize = runtime.eventSynchronize = lambda *args: wait()
    runtime.getDeviceCount = count
    runtime.getDevice, runtime.setDevice = module.getDevice, module.setDevice
    runtime.memGetInfo = module.memGetInfo
    runtime.runtimeGetVersion = lambda: VERSION
    runtime.driverGetVersion = lambda: driver
    runtime.getDeviceProperties = lambda device: properties
    attributes = {75: properties["major"], 76: properties["minor"]}
    runtime.deviceGetAttribute = lambda attribute, device: attributes.get(attribute, 1)
    runtime.deviceCanAccessPeer = lambda device, peer: 0
    runtime.pointerGetAttributes = module.pointerGetAttributes
    runtime.eventQuery = runtime.streamQuery = module.query
    for name in (
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
