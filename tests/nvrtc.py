"""Compiles sources with NVRTC, without a device, in a process of its own: what the library does there harms no test."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest

OLDEST = "compute_80"  # it has the fewest instructions; no source of ox asks which one it is for
ARCHITECTURES = [OLDEST, *(pytest.param(name, marks=pytest.mark.slow) for name in ("compute_90", "compute_100"))]


REAL = ("sm_80", "sm_90", "sm_100")
OPTIONS = ("-std=c++17", "--device-as-default-execution-space")
# For programs of a real architecture (sm_90), which NVRTC's own ptxas translates
VERBOSE = "--ptxas-options=-v"
PTXAS = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)

# where the wheel may be: this environment, or the folder of `make hostcuda`
FOLDERS = [*sys.path, f"{sys.prefix}/cuda-packages"]


def library_file() -> Path | None:
    """The library of the wheel nvidia-cuda-nvrtc, if it is installed."""
    folders = (lib for path in FOLDERS for lib in Path(path).glob("nvidia/*/lib"))
    return next((file for folder in folders for file in folder.glob("libnvrtc.so*")), None)


@cache
def _library() -> ctypes.CDLL:
    file = library_file()
    assert file is not None
    for builtins in file.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(file))


def headers() -> list[Path]:
    """The folders of CUDA's headers, if a wheel with them is installed."""
    return [file.parent for path in FOLDERS for file in Path(path).glob("nvidia/*/include/cuda_fp16.h")]


def compiled(text: str, architecture: str) -> str:
    """The PTX. Raises AssertionError with the compiler's log."""
    if "#include <cuda" in text and not headers():
        pytest.skip("the wheel nvidia-cuda-runtime, with CUDA's headers, is not installed")
    options = [f"--gpu-architecture={architecture}", *OPTIONS]
    return compile_source(text, [*options, *(f"-I{folder}" for folder in headers())])


@cache
def process() -> ProcessPoolExecutor:
    """The one that compiles."""
    return ProcessPoolExecutor(1, get_context("spawn"))


class Resources(NamedTuple):
    """What a thread of a kernel takes, by ptxas."""

    registers: int
    stack: int  # bytes of local memory
    spills: int  # bytes of registers that are stored there and loaded again


def resources(text: str, architecture: str) -> dict[str, Resources]:
    """Those of each kernel of a source, by name, for an architecture such as sm_90."""
    options = [f"--gpu-architecture={architecture}", *OPTIONS, VERBOSE, *(f"-I{folder}" for folder in headers())]
    return _resources(_submit(text, options, ())[1])


def _resources(log: str) -> dict[str, Resources]:
    found = PTXAS.findall(log)
    return {
        name: Resources(int(used), int(stack), int(stored) + int(loaded)) for name, stack, stored, loaded, used in found
    }


def compile_source(text: str, options: Sequence[str], templates: Sequence[str] = ()) -> str:
    """The PTX of a source, and of instances of its templates. Raises AssertionError with the compiler's log."""
    return _submit(text, options, templates)[0]


def _submit(text: str, options: Sequence[str], templates: Sequence[str]) -> tuple[str, str]:
    if library_file() is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    return process().submit(_compile, text, options, templates).result()


def _compile(text: str, options: Sequence[str], templates: Sequence[str]) -> tuple[str, str]:
    """The PTX and the log."""
    library = _library()
    handle = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"kernels.cu", 0, None, None) == 0
    try:
        for expression in templates:
            assert library.nvrtcAddNameExpression(handle, expression.encode()) == 0
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = library.nvrtcCompileProgram(handle, len(options), given)
        log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, handle)
        assert status == 0, log
        return _text(library.nvrtcGetPTXSize, library.nvrtcGetPTX, handle), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(handle))


def _text(get_size: Callable[..., int], get: Callable[..., int], handle: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    get_size(handle, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    get(handle, text)
    return text.value.decode()


def problem_of(architecture: str, folder: Path, file: Path) -> str | None:
    """What NVRTC says against a source that tests/cuda/host_cuda left in a file. `folder` takes compiled headers."""
    kernel = json.loads(file.read_text())
    headers = folder / str(os.getpid())
    headers.mkdir(exist_ok=True)
    options = [option for option in kernel["options"] if not option.startswith("-arch")]
    options += [f"--gpu-architecture={architecture}", "--pch", f"--pch-dir={headers}"]
    try:
        _compile(kernel["source"], options, kernel["names"])
    except AssertionError as error:
        return f"{error}\n{kernel['source']}"
    return None


def report(folder: Path) -> str:
    """A table of what each of ox's kernels takes for each architecture, the most of its types, from the sources that
    tests/cuda/host_cuda left in a folder."""
    sources = {json.loads(file.read_text())["source"] for file in folder.iterdir()}
    most: dict[str, dict[str, Resources]] = {}
    for source in sorted(text for text in sources if "#define RESTRICT " in text):  # of ox, not of CuPy
        for architecture in REAL:
            for name, found in resources(source, architecture).items():
                row = most.setdefault(name, dict.fromkeys(REAL, Resources(0, 0, 0)))
                row[architecture] = Resources(*map(max, row[architecture], found))
    cells = [[f"`{name}`", *("{} / {} / {}".format(*row[each]) for each in REAL)] for name, row in sorted(most.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in [["kernel", *REAL], ["---"] * 4, *cells])


if __name__ == "__main__":
    print("registers / bytes of local memory / bytes spilled, of a thread\n", report(Path(sys.argv[1])), sep="\n")
