"""Builds this folder's libraries and its header with g++, once for each version of the sources and of CuPy."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cuda_headers import cuda_headers

HERE = Path(__file__).resolve().parent
LIBRARIES = {
    "libcuda.so.1": ["driver", "fibers", "allocations"],
    "libcublas.so.13": ["blas"],
    "libcublasLt.so.13": [],  # which CuPy loads, and does not call
    "libnccl.so.2": ["nccl"],
    "host_cuda_runtime.so": ["runtime"],
}
FLAGS = ["-std=c++17", "-O1", "-w", "-fPIC", "-ffp-contract=off", "-fpermissive", "-fwhole-program"]


def missing() -> str | None:
    """Why nothing can run here; None where it can."""
    if find_spec("cupy") is None:
        return "CuPy is not installed (make hostcuda)"
    if shutil.which("g++") is None:
        return "g++ is not installed"
    if cuda_headers() is None:
        return "CUDA's headers are not installed (make hostcuda)"
    return None


def site_packages() -> Path:
    """The folder that CuPy is in. It is not imported."""
    found = find_spec("cupy")
    assert found is not None and found.origin is not None
    return Path(found.origin).parents[1]


def include_options() -> list[str]:
    """`-I` for CuPy's headers and CUDA's."""
    cupy = site_packages() / "cupy/_core/include"
    folders = [HERE, cupy, *(cupy / "cupy/_cccl" / part for part in ("libcudacxx", "thrust", "cub")), cuda_headers()]
    return [f"-I{folder}" for folder in folders]


def cache_folder() -> Path:
    """Where built files are kept between runs: OX_HOST_CUDA_CACHE, or a folder of the user."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ox-host-cuda"
    return Path(os.environ.get("OX_HOST_CUDA_CACHE", default))


def gxx(arguments: Sequence[str | Path]) -> None:
    """Run the compiler. Raises RuntimeError with its first errors."""
    done = subprocess.run(["g++", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line and "ld returned" not in line]
        raise RuntimeError("g++: " + "\n".join(errors[:5] or [done.stderr[-1000:]]))


@cache
def built() -> Path:
    """The folder of the libraries and of the compiled header."""
    sources = sorted(HERE.glob("*.[ch]*"))
    text = "".join(file.read_text() for file in sources) + str(FLAGS) + version_of_cupy() + sys.version
    folder = cache_folder() / hashlib.sha1(text.encode()).hexdigest()[:12]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            build(made)
            made.rename(folder)
        except OSError:  # another process was faster
            assert folder.exists()
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


@cache
def kernel_folder() -> Path:
    """The folder of compiled kernels: one for each version of what they include."""
    text = "".join((HERE / name).read_text() for name in ("device.h", "work.h")) + str(FLAGS) + version_of_cupy()
    return cache_folder() / f"kernels-{hashlib.sha1(text.encode()).hexdigest()[:12]}"


def build(folder: Path) -> None:
    shared = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{HERE}"]
    (folder / "refused.cpp").write_text(refused_products())
    (folder / "empty.cpp").touch()
    more: dict[str, list[str | Path]] = {
        "libcublas.so.13": [folder / "refused.cpp"],
        "libcublasLt.so.13": [folder / "empty.cpp"],
        "host_cuda_runtime.so": [f"-I{sysconfig.get_path('include')}"],
    }
    for library, sources in LIBRARIES.items():
        files = [HERE / f"{source}.cpp" for source in sources]
        on_driver = [] if library == "libcuda.so.1" else [f"-L{folder}", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"]
        gxx([*shared, *files, *more.get(library, []), "-o", folder / library, f"-Wl,-soname,{library}", *on_driver])
    (folder / "device.h").write_text('#include "' + str(HERE / "device.h") + '"\n')
    gxx([*FLAGS, *include_options(), "-x", "c++-header", folder / "device.h", "-o", folder / "device.h.gch"])


def refused_products() -> str:
    """Functions for the names of cuBLAS that CuPy needs to load and blas.cpp does not have."""
    (module,) = (site_packages() / "cupy_backends/cuda/libs").glob("cublas.*.so")
    listed = subprocess.run(["nm", "-D", "--undefined-only", module], capture_output=True, text=True, check=True).stdout
    names = {word.partition("@")[0] for word in listed.split() if word.startswith("cublas")}
    weak = 'extern "C" __attribute__((weak)) int'
    return "".join(f"{weak} {name}() {{ return 15; }}\n" for name in sorted(names))  # CUBLAS_STATUS_NOT_SUPPORTED


def version_of_cupy() -> str:
    return next(version(name) for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if _installed(name))


def _installed(name: str) -> bool:
    try:
        version(name)
    except Exception:
        return False
    return True
