"""What keeps CUDA from working here: the driver, wheels for another CUDA, missing libraries. Each with the way out.

Versions: NVIDIA, "CUDA Toolkit Release Notes" (drivers); ONNX Runtime, "CUDA Execution Provider", Requirements.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from ox.devices import machine, probe
from ox.installation import install_command

RUNTIME, CUPY = "onnxruntime", "cupy"  # what a problem stops: serving, arrays
BOTH = frozenset((RUNTIME, CUPY))
OLDEST = (12, 0)  # the CUDA of the oldest wheels that ox takes
DRIVERS = "525 or newer for CUDA 12, 580 or newer for CUDA 13"
CUPY_WHEELS = {"cupy-cuda12x": 12, "cupy-cuda13x": 13}
LIBRARIES = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
LAST_OF_CUDA_12, FIRST_OF_CUDA_13 = (1, 26), (1, 28)  # versions of onnxruntime-gpu


@dataclass(frozen=True)
class Problem:
    """What is wrong, the way out, and what does not work because of it: `RUNTIME`, `CUPY`, both or none."""

    what: str
    hint: str
    stops: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.what} · {self.hint}"


def contents(extra: str) -> str:
    """What an extra installs, and how much that is where it has been measured: cuda13 on x86-64."""
    version, size = extra.removeprefix("cuda"), ": about 2.1 GB" if extra == "cuda13" else ""
    return f"onnxruntime-gpu, cupy-cuda{version}x, and NVIDIA's libraries of CUDA {version} and cuDNN 9{size}"


def problems() -> list[Problem]:
    """The problems of this machine and its installed packages, the gravest first."""
    packages = probe.runtime_distributions()
    for name in (*CUPY_WHEELS, *LIBRARIES):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return problems_of(machine.nvidia_driver(), packages, _loads)


def first_problem(stops: str) -> Problem | None:
    """The gravest problem that stops ONNX Runtime's CUDA provider (`RUNTIME`) or arrays on GPUs (`CUPY`)."""
    return next((each for each in problems() if stops in each.stops), None)


def problems_of(
    driver: machine.Driver | None, packages: Mapping[str, str], loads: Callable[[str], bool]
) -> list[Problem]:
    """The problems of a driver and of packages by name and version; `loads` says whether a library is there."""
    problem = driver_problem(driver)
    if driver is None or problem is not None:
        return [] if problem is None else [problem]
    shown = f"{driver.cuda[0]}.{driver.cuda[1]}"
    extra = f"cuda{min(driver.cuda[0], 13)}"
    found = [*_overwritten(packages, extra), *_missing(packages, extra, loads)]
    wheels = _wheels(packages)
    for name, (cuda, stopped) in wheels.items():
        what = f"{name} {packages[name]} is for CUDA {cuda}, and the driver for CUDA {shown}"
        swap = f"uninstall {name}, then {install_command(extra)}"
        if cuda > driver.cuda[0]:
            hint = f"{swap}; or a driver of version {DRIVERS}"
            found.append(Problem(what, hint, frozenset((stopped,))))
        elif cuda < driver.cuda[0]:
            found.append(
                Problem(f"{what}: it works, with libraries of CUDA {cuda}", f"for those of the driver: {swap}")
            )
    if len({cuda for cuda, _ in wheels.values()}) > 1:
        names = " and ".join(f"{name} (CUDA {cuda})" for name, (cuda, _) in wheels.items())
        found.append(Problem(f"{names} load two sets of CUDA's libraries", install_command(extra)))
    return sorted(found, key=lambda each: -len(each.stops))


def driver_problem(driver: machine.Driver | None) -> Problem | None:
    """Why nothing can run with this driver, which `ox.devices.machine` has found; None if something can."""
    if driver is None:
        return _no_driver()
    if not driver.devices:
        return Problem("the NVIDIA driver has no device", "nvidia-smi; CUDA_VISIBLE_DEVICES", BOTH)
    if driver.cuda < OLDEST:
        shown = f"{driver.cuda[0]}.{driver.cuda[1]}"
        what = f"the NVIDIA driver is too old: it is for CUDA {shown}, and ox needs one for {OLDEST[0]} or newer"
        return Problem(what, f"a driver of version {DRIVERS}", BOTH)
    return None


def _no_driver() -> Problem:
    why = machine.nvidia_driver_error() or "it gives no version"
    hint = f"a driver of version {DRIVERS}; in a container, one that was started with --gpus all"
    return Problem(f"no NVIDIA driver works here: {why}", hint, BOTH)


def _overwritten(packages: Mapping[str, str], extra: str) -> list[Problem]:
    """Distributions that bring the same module."""
    found = []
    for prefix, stops in (RUNTIME, {RUNTIME}), (CUPY, {CUPY}), ("nvidia-cudnn-", {RUNTIME}):
        names = [name for name in packages if name.startswith(prefix)]
        if len(names) > 1:
            hint = f"uninstall {' '.join(names)}, then {install_command(extra)}"
            found.append(Problem(f"{' and '.join(names)} overwrite each other's files", hint, frozenset(stops)))
    return found


def _missing(packages: Mapping[str, str], extra: str, loads: Callable[[str], bool]) -> list[Problem]:
    """Packages and libraries that are not there."""
    install, found = install_command(extra), []
    if "onnxruntime-gpu" not in packages:
        swap = "uninstall onnxruntime, then " if "onnxruntime" in packages else ""
        found.append(Problem("onnxruntime-gpu is not installed", f"{swap}{install}", frozenset((RUNTIME,))))
    elif not any(name.startswith("nvidia-cudnn") for name in packages) and not loads("libcudnn.so.9"):
        found.append(Problem("libcudnn.so.9 (cuDNN) is not installed", install, frozenset((RUNTIME,))))
    if not any(name in packages for name in CUPY_WHEELS):
        found.append(Problem("CuPy is not installed", install, frozenset((CUPY,))))
    elif not any(name.startswith("nvidia-nccl") for name in packages) and not loads("libnccl.so.2"):
        hint = f"for training on several GPUs: {install_command(extra, f'nccl{extra[-2:]}')}"
        found.append(Problem("libnccl.so.2 (NCCL) is not installed", hint))
    return found


def _wheels(packages: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """The CUDA that installed wheels are made for, and what they are."""
    found = {name: (cuda, CUPY) for name, cuda in CUPY_WHEELS.items() if name in packages}
    version = tuple(int(part) for part in packages.get("onnxruntime-gpu", "").split(".")[:2] if part.isdigit())
    if version and (version <= LAST_OF_CUDA_12 or version >= FIRST_OF_CUDA_13):
        found["onnxruntime-gpu"] = (12 if version <= LAST_OF_CUDA_12 else 13, RUNTIME)
    return found


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
