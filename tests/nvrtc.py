"""Compiles sources with NVRTC, without a device."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from pathlib import Path

import pytest

ARCHITECTURES = ["compute_80", "compute_90", "compute_100"]


@cache
def nvrtc() -> ctypes.CDLL | None:
    """The library of the wheel nvidia-cuda-nvrtc, if it is installed."""
    folders = Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib")
    for folder in folders:
        for builtins in folder.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        for library in folder.glob("libnvrtc.so*"):
            return ctypes.CDLL(str(library))
    return None


def headers() -> list[Path]:
    """The folders of CUDA's headers, if a wheel with them is installed."""
    return [file.parent for file in Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/cuda_fp16.h")]


def compiled(text: str, architecture: str) -> str:
    """The PTX. Raises AssertionError with the compiler's log."""
    library = nvrtc()
    if library is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    if "#include <cuda" in text and not headers():
        pytest.skip("the wheel nvidia-cuda-runtime, with CUDA's headers, is not installed")
    handle = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={architecture}".encode(), b"-std=c++17", b"--device-as-default-execution-space"]
    options += [f"-I{folder}".encode() for folder in headers()]
    status = library.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(handle, log)
    assert status == 0, log.value.decode()
    library.nvrtcGetPTXSize(handle, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(handle, code)
    library.nvrtcDestroyProgram(ctypes.byref(handle))
    return code.value.decode()
