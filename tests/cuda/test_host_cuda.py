"""The tests marked `gpu` pass with the real CuPy, whose kernels run on this CPU. It says nothing about a device."""

from __future__ import annotations

import ast
import faulthandler
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from child_pytest import CUDA_PACKAGES, HERE, Results, environment_with, gpu_files, run
from nvrtc import library_file, problem_of

pytestmark = pytest.mark.slow

ARCHITECTURES = os.environ.get("OX_ARCHITECTURES", "").split()  # `make hostcuda` names them, and has every source
OF_CUPY = re.compile(r"__global__[^;{]*?\bcupy_(\w+?)(?:__\w+)?\(")  # the types follow the name
ON_DEVICES = ["one GPU", "CUDA provider", "mpiexec", "management library"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the kernels' sources."""
    return tmp_path_factory.mktemp("sources")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Results:
    """The results of all tests marked `gpu`."""
    code = "from host_cuda import build; print(build.missing() or '')"
    environment = environment_with(HERE, CUDA_PACKAGES)
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    faulthandler.cancel_dump_traceback_later()  # its own limit is longer than pytest's for one test
    arguments = ["-m", "gpu", "-n", "auto", "--maxprocesses", "4", *gpu_files()]
    folder = tmp_path_factory.mktemp("report")
    return run("on_host_cuda", arguments, folder, timeout=1800, OX_KERNEL_SOURCES=str(sources))


def test_its_plugin_alone_imports_it() -> None:
    """Tests ask `sys.modules` whether they run on it, so an import for other reasons would mislead them."""

    def imported(file: Path) -> set[str]:
        nodes = ast.parse(file.read_text()).body
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

    assert not [file for file in HERE.parent.rglob("test_*.py") if "host_cuda" in imported(file)]


def test_the_tests_marked_gpu(results: Results) -> None:
    assert not results.failed, results.output
    assert len(results.passed) > 600
    others = [reason for reason in results.skipped.values() if not any(part in reason for part in ON_DEVICES)]
    assert not others


def without_types(file: Path) -> str:
    """What the sources of one kernel for several types share: the name of CuPy's, the text of ox's."""
    source = json.loads(file.read_text())["source"]
    found = OF_CUPY.search(source)
    return found[1] if found else re.sub(r"^ *#define.*", "", source, flags=re.MULTILINE)


@pytest.mark.parametrize("architecture", ARCHITECTURES or ["sm_90"])
@pytest.mark.usefixtures("results")
def test_nvrtc_compiles_their_kernels(architecture: str, sources: Path, tmp_path: Path) -> None:
    if library_file() is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    files = sorted(sources.iterdir())
    assert len(files) > 1000
    if not ARCHITECTURES:
        files = [*{without_types(file): file for file in files}.values()]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        problems = pool.map(partial(problem_of, architecture, tmp_path), files, chunksize=20)
        bad = [found for found in problems if found]
    assert not bad, f"{len(bad)} of {len(files)}: {bad[0]}"
