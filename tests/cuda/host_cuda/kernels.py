"""Kernels in CUDA C++, compiled by g++ for this machine. The compiled ones are kept between runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence

from host_cuda.build import FLAGS, built, gxx, include_options, kernel_folder

COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')
MEETINGS = ("__sync", "__shfl", "__ballot")
OF_A_THREAD = ("__shared__", "threadIdx", "blockIdx", "return", "no_thread_divergence")
DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
DEFINITIONS = re.compile(r"^\s*#(?:[^\n\\]|\\\n|\\.)*$", re.MULTILINE)
# Some sources name their target by this macro of NVRTC, and some define numbers that g++'s headers define, too.
AS_NVRTC = "#define __CUDACC_RTC__\n#undef INFINITY\n#undef NAN\n"


def compiled(source: str, options: Sequence[str], templates: Sequence[str]) -> bytes:
    """The path of a library with the kernels of a source, and with the named instances of its templates.

    Raises:
        RuntimeError: g++ does not compile it.
    """
    folder = kernel_folder()
    defines = [option for option in options if option.startswith("-D")]
    text = host_source(source, templates)
    library = folder / f"{key(text + str(defines))}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        own = library.with_suffix(f".{os.getpid()}")
        file = own.with_suffix(f"{own.suffix}.cpp")
        file.write_text(text)
        gxx([*FLAGS, *defines, f"-I{built()}", *include_options(), "-shared", "-nostdlib", file, "-lgcc", "-o", own])
        file.unlink()
        own.replace(library)
    return os.fsencode(library) + b"\0"


def key(text: str) -> str:
    """A name for a text."""
    return hashlib.sha1(text.encode()).hexdigest()[:20]


def host_source(source: str, templates: Sequence[str]) -> str:
    """The source for g++, with a function for each kernel that driver.cpp calls."""
    own = AS_NVRTC if "__CUDACC_RTC__" in source or "#define INFINITY" in source else ""
    plain = without_macros(COMMENTS.sub("", source))
    calls = [(name, f"::{name}") for name in KERNEL.findall(plain)]
    calls += [(f"template{i}", f"&{expression}") for i, expression in enumerate(templates)]
    launches = [
        f"HOST_CUDA_EXPORT void host_cuda_launch_{name}(const unsigned* size, void** arguments) "
        f"{{ host_cuda::launch<host_cuda::{way(plain)}>({kernel}, size, arguments); }}"
        for name, kernel in calls
    ]
    text = DYNAMIC.sub(r"\1* \2 = (\1*)host_cuda_dynamic_memory;", source)
    return "\n".join(['#include "device.h"', own + text, *launches, ""])


def without_macros(plain: str) -> str:
    """The text with its own macros expanded, where these write kernels."""
    definitions = [d for d in DEFINITIONS.findall(plain) if "#define" in d]
    if not any("__global__" in d for d in definitions):
        return plain
    text = re.sub(r"#include[^\n]*", "", plain)
    command = ["g++", "-E", "-P", "-x", "c++", "-D__CUDACC_RTC__", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def way(plain: str) -> str:
    """How the threads may run (device.h): a `return` ends one thread, but all elements of a loop over them."""
    if any(word in plain for word in MEETINGS):
        return "FIBERS"
    kernels = plain[plain.find("__global__") :]
    strides = "CUPY_FOR" in kernels and not any(word in kernels for word in OF_A_THREAD)
    return "ONE_THREAD" if strides else "EACH_THREAD"
