"""The kernels' sources for GPUs compile with NVRTC, without a device."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from ox.kernels.compiler import SOURCE
from ox.kernels.signatures import FILES, signatures

ON_GPU = [file for file in FILES if file.endswith(".cu")]


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


def program(file: str) -> str:
    """One file behind cuda.h, with what it includes written out."""
    return written_out(f'#include "cuda.h"\n{(SOURCE / file).read_text()}')


def written_out(text: str) -> str:
    """A source with what it includes in its place."""
    while '#include "' in text:
        before, _, rest = text.partition('#include "')
        name, _, after = rest.partition('"')
        text = before + (SOURCE / name).read_text().replace("#pragma once", "") + after
    return text


def compiled(text: str, architecture: str) -> str:
    """The PTX. Raises AssertionError with the compiler's log."""
    library = nvrtc()
    if library is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    handle = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={architecture}".encode(), b"-std=c++17", b"--device-as-default-execution-space"]
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


@pytest.mark.parametrize("architecture", ["compute_80", "compute_90", "compute_100"])
@pytest.mark.parametrize("file", ON_GPU)
def test_a_source_compiles(file: str, architecture: str) -> None:
    code = compiled(program(file), architecture)
    names = [name for name in signatures() if f"{name}," in (SOURCE / file).read_text()]
    assert names and all(f".entry {name}(" in code for name in names)


def test_a_wrong_source_does_not() -> None:
    with pytest.raises(AssertionError, match="undefined"):
        compiled(program("softmax.cu") + "EACH(wrong, i, n, float* x) { x[i] = nothing; } END", "compute_90")
