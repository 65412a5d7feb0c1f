"""What is wrong with an installation of CUDA: one line each, by stand-ins for the driver, packages and libraries."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from rows import rows

from ox.devices import cuda_installation, machine, probe
from ox.devices.cuda_installation import BOTH, CUPY, RUNTIME, contents, first_problem, problems, problems_of
from ox.devices.machine import Driver
from ox.installation import install_command as install

NEW, OLD = Driver((13, 0), ("A card",)), Driver((12, 8), ("A card",))
CUDA_13 = {
    "onnxruntime-gpu": "1.31.1", "cupy-cuda13x": "14.2.0", "nvidia-cudnn-cu13": "9.1", "nvidia-nccl-cu13": "2.28",
}  # fmt: skip
CUDA_12 = {
    "onnxruntime-gpu": "1.26.0", "cupy-cuda12x": "14.2.0", "nvidia-cudnn-cu12": "9.1", "nvidia-nccl-cu12": "2.28",
}  # fmt: skip


def without(*names: str) -> dict[str, str]:
    return {name: version for name, version in CUDA_13.items() if name not in names}


def found(driver: Driver | None, packages: dict[str, str], libraries: tuple[str, ...] = ()) -> list[Any]:
    return problems_of(driver, packages, lambda library: library in libraries)


@pytest.mark.parametrize(("driver", "packages"), [(NEW, CUDA_13), (OLD, CUDA_12)])
def test_nothing_is_wrong(driver: Driver, packages: dict[str, str]) -> None:
    assert found(driver, packages) == []


@rows(
    ("driver", "packages", "what", "hint", "stops"),
    [
        (Driver((13, 0), ()), CUDA_13, "the NVIDIA driver has no device", "CUDA_VISIBLE_DEVICES", BOTH),
        (Driver((11, 4), ("A card",)), CUDA_13, "too old: it is for CUDA 11.4, and ox needs one for 12", "525", BOTH),
        (OLD, {**CUDA_12, "cupy-cuda13x": "14.2.0"}, "cupy-cuda12x and cupy-cuda13x overwrite", "uninstall", {CUPY}),
        (NEW, {"onnxruntime": "1.31.1", **CUDA_13}, "onnxruntime and onnxruntime-gpu overwrite each other's files",
         "uninstall onnxruntime onnxruntime-gpu", {RUNTIME}),
        (NEW, {**CUDA_13, "nvidia-cudnn-cu12": "9.1"}, "nvidia-cudnn-cu13 and nvidia-cudnn-cu12 overwrite each other's",
         "uninstall nvidia-cudnn-cu13 nvidia-cudnn-cu12", {RUNTIME}),
        (OLD, {**CUDA_12, "onnxruntime-gpu": "1.31.1"},
         "onnxruntime-gpu 1.31.1 is for CUDA 13, and the driver for CUDA 12.8", install("cuda12"), {RUNTIME}),
        (NEW, {**CUDA_13, "onnxruntime-gpu": "1.26.0"},
         "onnxruntime-gpu 1.26.0 is for CUDA 12, and the driver for CUDA 13.0: it works", install("cuda13"), set()),
        (NEW, {**CUDA_13, "onnxruntime-gpu": "1.26.0"}, "load two sets of CUDA's", install("cuda13"), set()),
        (NEW, without("nvidia-cudnn-cu13"), "libcudnn.so.9 (cuDNN) is not installed", install("cuda13"), {RUNTIME}),
        (NEW, without("nvidia-nccl-cu13"), "libnccl.so.2 (NCCL) is not installed", install("cuda13", "nccl13"), set()),
        (NEW, without("onnxruntime-gpu"), "onnxruntime-gpu is not installed", install("cuda13"), {RUNTIME}),
        (NEW, without("cupy-cuda13x"), "CuPy is not installed", install("cuda13"), {CUPY}),
    ],
)  # fmt: skip
def test_one_line_each(driver: Driver, packages: dict[str, str], what: str, hint: str, stops: set[str]) -> None:
    (problem,) = [each for each in found(driver, packages) if what in each.what]
    assert hint in problem.hint and problem.stops == stops
    assert str(problem) == f"{problem.what} · {problem.hint}" and "\n" not in str(problem)


def test_wheels_for_a_newer_cuda_than_the_drivers_come_first() -> None:
    problems = found(OLD, CUDA_13)
    assert [problem.stops for problem in problems] == [{CUPY}, {RUNTIME}]
    assert all("is for CUDA 13, and the driver for CUDA 12.8" in problem.what for problem in problems)


def test_libraries_of_the_system_count() -> None:
    packages = without("nvidia-cudnn-cu13", "nvidia-nccl-cu13")
    assert len(found(NEW, packages)) == 2
    assert found(NEW, packages, ("libcudnn.so.9", "libnccl.so.2")) == []


@pytest.mark.parametrize(
    ("code", "why"),
    [(100, "its cuInit gives error 100: no device"), (803, "of different versions"), (999, "gives error 999"),
     (None, "libcuda.so.1 is not installed")],
)  # fmt: skip
def test_a_driver_that_does_not_work(code: int | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def cuInit(self, flags: int) -> int:
            assert code is not None
            return code

    def load(name: str) -> Library:
        assert name == "libcuda.so.1"
        if code is None:
            raise OSError(name)
        return Library()

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert machine.nvidia_driver() is None
    (problem,) = problems()
    assert problem == first_problem(RUNTIME) == first_problem(CUPY)
    assert why in problem.what and "--gpus all" in problem.hint


def test_the_installed_packages_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name not in CUDA_12:
            raise cuda_installation.metadata.PackageNotFoundError(name)
        return CUDA_12[name]

    monkeypatch.setattr(cuda_installation.metadata, "version", version)
    monkeypatch.setattr(machine, "nvidia_driver", lambda: NEW)
    assert probe.runtime_distributions() == {"onnxruntime-gpu": "1.26.0"}
    assert [each.what.split()[0] for each in problems()] == ["cupy-cuda12x", "onnxruntime-gpu"]
    assert first_problem(RUNTIME) is None


def test_what_an_extra_brings() -> None:
    assert "cupy-cuda13x" in contents("cuda13") and contents("cuda13").endswith("about 2.1 GB")
    assert "cupy-cuda12x" in contents("cuda12") and "GB" not in contents("cuda12")
