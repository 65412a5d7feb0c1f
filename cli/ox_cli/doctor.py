"""`ox doctor`: tests threads, ONNX Runtime, compiled kernels, GPU and MPI of this machine by using them."""

from __future__ import annotations

import os
import platform
from importlib import metadata, util

import typer

from ox.installation import install_command


def doctor() -> None:
    """Check this machine: CPU threads, ONNX Runtime, kernels, GPU and MPI. Exit code 0 if ONNX Runtime works."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    lines, works = report()
    for label, text in lines:
        console.print(Text.assemble((f"{label:<9} ", "bold") if label else "", text), soft_wrap=True)
    if not works:
        raise typer.Exit(1)


def report() -> tuple[list[tuple[str, str]], bool]:
    """The lines as (label, text), and whether ONNX Runtime works."""
    from ox.devices import machine
    from ox.devices.probe import runtime_distributions

    runtimes = runtime_distributions()
    lines = [("", _versions(runtimes)), ("threads", str(machine.limit()))]
    if len(runtimes) > 1:
        lines.append(("conflict", _conflict(runtimes)))
    cpu, works = _cpu()
    cuda = [("cuda", line) for line in _cuda(runtimes)]
    return [*lines, ("cpu", cpu), ("kernels", _kernels()), *cuda, ("mpi", _mpi())], works


def _versions(runtimes: dict[str, str]) -> str:
    from ox import __version__

    parts = [f"python {platform.python_version()}", f"ox {__version__}"]
    parts += [f"{name} {metadata.version(name)}" for name in ("numpy", "onnx")]
    kinds = {"onnxruntime": "cpu", "onnxruntime-gpu": "cuda"}
    parts += [f"onnxruntime {version} ({kinds.get(name, name)})" for name, version in runtimes.items()]
    return " · ".join(parts if runtimes else [*parts, "no onnxruntime"])


def _conflict(runtimes: dict[str, str]) -> str:
    names = list(runtimes)
    return (
        f"{' and '.join(names)} overwrite each other's files · "
        f"uninstall {' '.join(names)}, then {install_command('cpu')}, or with the extra cuda13 or cuda12"
    )


def _cpu() -> tuple[str, bool]:
    from ox.devices import machine
    from ox.devices.probe import CPU, probe
    from ox.errors import DeviceError

    instructions = machine.instruction_set() or f"{platform.machine()}, vector instructions unknown"
    try:
        result = probe(CPU)
    except DeviceError as error:
        return f"{error.what} · {error.hint} · {instructions}", False
    state = "loads" if result.loads else f"does not work: {result.reason}"
    return f"{CPU}, {state} · {instructions}", result.loads


def _kernels() -> str:
    """Where the compiled kernels come from, or what their absence costs."""
    from ox.devices import compiled
    from ox.kernels import reason

    found = compiled.library()
    if found is not None:
        return f"{found.origin} · {found.path}"
    way_out, why = f"install g++ or clang++, or {install_command('compile')}", reason() or ""
    if "OX_KERNELS" in why:
        way_out = "unset OX_KERNELS"
    elif os.environ.get("CXX", "").strip():
        way_out = "unset $CXX, or set it to a C++ compiler that works"
    return f"none: {why} · training on this CPU takes 1.2 to 3 times as long · {way_out}"


def _cuda(runtimes: dict[str, str]) -> list[str]:
    """The state of the GPU, and a line for each problem."""
    from ox.devices import cudnn, cudnn_libraries, device_list, machine
    from ox.devices.cuda_installation import contents, problems
    from ox.devices.probe import CUDA, cupy_state, probe

    driver, found = machine.nvidia_driver(), [str(problem) for problem in problems()]
    if driver is None:
        return [*found, f"for a GPU: {install_command('cuda13')} ({contents('cuda13')})"]
    major, minor = driver.cuda
    state = [", ".join(device_list.described(driver.devices)) or "no device", f"driver for CUDA {major}.{minor}"]
    if "onnxruntime-gpu" in runtimes:
        result = probe(CUDA)
        state.append(f"{CUDA}, loads" if result.loads else f"{CUDA}, does not load: {result.reason}")
    state += [cupy_state(), cudnn.state()]
    if conflict := cudnn_libraries.conflict():  # of what these have loaded
        found.append(f"{conflict} · {cudnn_libraries.HINT}")
    extra = "cuda13" if major >= 13 else "cuda12"
    brings = [f"ox-onnx[{extra}] brings {contents(extra)}"] if found else []
    return [" · ".join(state), *found, *device_list.warnings(), *brings]


def _mpi() -> str:
    """The result of starting two processes as `ox launch` does."""
    if util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed · for training on several processes: {install_command('mpi')}"
    from ox.distributed import launcher, mpi
    from ox.errors import DeviceError

    try:
        name = str(mpi.library().Get_library_version()).splitlines()[0].replace("Version:", "").split()
    except DeviceError as error:
        return f"{error.what}{f': {error.got}' if error.got else ''} · {error.hint}"
    state = launcher.check_connection()
    return f"mpi4py {metadata.version('mpi4py')} · {' '.join(name[:2])} · {state}"
