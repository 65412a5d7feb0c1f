"""Two versions of cuDNN in a process: real shared libraries, in a process of their own that loads them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ox.devices.gpu import cudnn_libraries
from ox.kernels.compiler import CompilerError, find_compiler

SOURCE = 'extern "C" unsigned long cudnnGetVersion() { return VERSION; }'
ASKS = """
import ctypes, logging, sys
for path in sys.argv[2:]:
    ctypes.CDLL(path)
from ox.devices.gpu import cudnn_libraries
from ox.serve.runtime import providers
logging.basicConfig(format="%(message)s", stream=sys.stdout)
if sys.argv[1] == "conflict":
    print(cudnn_libraries.conflict() or "none")
elif sys.argv[1] == "load":
    print(providers.not_loaded(providers.CUDA, "CUDNN failure 1002"))
else:
    providers.warn_of_two_cudnns()
"""


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str, int], Path]:
    """Makes a library of cuDNN by the path of its file and its version."""
    try:
        compiler = find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))
    source = tmp_path / "version.cpp"
    source.write_text(SOURCE)

    def make(name: str, version: int) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        soname = f"-Wl,-soname,{path.name}"
        words = [*compiler, f"-DVERSION={version}", "-shared", "-fPIC", soname, "-o", str(path), str(source)]
        subprocess.run(words, check=True)
        return path

    return make


def said(what: str, *paths: Path) -> str:
    """What ox says in a process that has loaded these."""
    words = [sys.executable, "-c", ASKS, what, *map(str, paths)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_two_wheels(library: Callable[[str, int], Path]) -> None:
    one, other = library("a wheel/libcudnn.so.9", 92801), library("system/libcudnn.so.9", 91002)
    both = f"this process has loaded cuDNN 9.28.1 ({one}) and 9.10.2 ({other})"
    assert said("conflict", one, other) == both
    error = said("load", one, other)
    assert both in error and "CUDNN failure 1002" in error and f"  try    {cudnn_libraries.HINT}" in error
    assert said("warn", one, other) == f"{both}, which do not work together: {cudnn_libraries.HINT}"
    assert said("conflict", one) == "none" and said("warn", one) == "" and "this process" not in said("load", one)


def test_a_part_of_another_version(library: Callable[[str, int], Path]) -> None:
    """As the loader finds it where a wheel lacks one: its version is in the name of the system's file."""
    main, graph = library("wheel/libcudnn.so.9", 92000), library("wheel/libcudnn_graph.so.9", 0)
    engines = library("system/libcudnn_engines_tensor_ir.so.9.23.0.12", 0)
    assert said("conflict", main, graph, engines).endswith(f"cuDNN 9.23.0 ({engines}) and 9.20.0 ({main})")
    beside = library("wheel/libcudnn_ops.so.9.10.2", 0)  # as two packages that were installed into one folder
    assert said("conflict", main, graph, beside).endswith(f"cuDNN 9.20.0 ({main}) and 9.10.2 ({beside})")
    unnamed = library("other/libcudnn_ops.so.9", 0)
    assert said("conflict", main, graph, unnamed).endswith(f"of an unknown version ({unnamed}) and 9.20.0 ({main})")


def test_two_copies_of_one_version(library: Callable[[str, int], Path]) -> None:
    one, other = library("wheel/libcudnn.so.9", 92801), library("system/libcudnn.so.9.28.1", 92801)
    engines = library("again/libcudnn_ops.so.9.28.1", 0)
    old = library("old/libcudnn.so.8", 8907)  # whose names are others
    assert said("conflict", one, other, engines, old) == "none"


def test_a_system_that_does_not_say_what_is_loaded(tmp_path: Path) -> None:
    assert cudnn_libraries.conflict(tmp_path / "maps") is None


def test_versions() -> None:
    numbers = (8907, 90100, 91002, 92801)
    assert [*map(cudnn_libraries.version_text, numbers)] == ["8.9.7", "9.1.0", "9.10.2", "9.28.1"]
