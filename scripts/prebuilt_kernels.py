"""Compiles the kernels for all processors of a kind of machine, as they lie in a wheel.

    python scripts/prebuilt_kernels.py FOLDER            # for this machine
    python scripts/prebuilt_kernels.py FOLDER aarch64    # with the package ziglang

The compiler is $CXX, else the package ziglang if this Python has it, else g++ or clang++. zig compiles for a glibc of
2014 and for other machines; what the others make needs the glibc of this machine. Prints the platform tag of a wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import elf

ROOT = Path(__file__).resolve().parents[1]


def _compiler() -> Any:
    """ox/kernels/compiler.py by its file: where a wheel is built, nothing that ox imports is installed."""
    spec = spec_from_file_location("ox_kernels_compiler", ROOT / "ox" / "kernels" / "compiler.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = _compiler()

OLDEST = (2, 17)  # glibc: the oldest that Python's own wheels ask for
# of glibc; a wheel may need no other libraries (PEP 600)
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
INDEX = "index.json"


@dataclass(frozen=True)
class Level:
    """A set of vector instructions: its names for g++ and clang and for zig, and its flags in /proc/cpuinfo."""

    name: str
    zig: str
    needs: tuple[str, ...]
    options: tuple[str, ...] = ()


_V2 = ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# By machine, the fastest first: the levels of the psABI for x86-64. clang would halve the vectors of the highest.
LEVELS = {
    "x86_64": (
        Level("x86-64-v4", "x86_64_v4", _V4, ("-mprefer-vector-width=512",)),
        Level("x86-64-v3", "x86_64_v3", _V3),
        Level("x86-64-v2", "x86_64_v2", _V2),
    ),
    "aarch64": (Level("armv8-a", "generic", ("asimd",)),),
}


@dataclass(frozen=True)
class Toolchain:
    """The command of a compiler, and what it calls itself. `zig` has glibc and the C++ library for each machine."""

    command: tuple[str, ...]
    zig: bool = False
    name: str = ""


def find_toolchain(machine: str) -> Toolchain:
    """A compiler for this kind of machine.

    Raises:
        CompilerError: there is none.
    """
    if machine not in LEVELS:
        raise compiler.CompilerError(f"there are kernels for {' and '.join(LEVELS)}, not for {machine}")
    zig = (sys.executable, "-m", "ziglang")
    if find_spec("ziglang") is not None and not os.environ.get("CXX", "").strip():
        return Toolchain((*zig, "c++"), True, f"zig {_first_line(*zig, 'version')}")
    if machine != platform.machine():
        raise compiler.CompilerError(f"only the package ziglang compiles for {machine} on {platform.machine()}")
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        raise compiler.CompilerError("wheels contain compiled kernels for Linux with glibc only")
    found = Toolchain(tuple(compiler.find_compiler()))
    return replace(found, name=_first_line(*found.command, "--version"))


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=compiler.SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return command[0]
    return next(iter(done.stdout.splitlines()), command[0]).strip()


def build(folder: Path, machine: str) -> str:
    """Write the libraries of all levels and their index into `folder`; returns the platform tag that they allow.

    Raises:
        CompilerError: there is no compiler for this machine, it fails, or a library needs more than glibc.
    """
    toolchain = find_toolchain(machine)
    levels = LEVELS[machine]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ox-kernels-") as work, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda level: _compile(toolchain, level, machine, Path(work)), levels))
        for level, compiled in zip(levels, objects, strict=True):
            # one after the other: the first has zig make its C++ library, the others find it
            _link(toolchain, machine, compiled, folder / f"{level.name}.so", Path(work))
    libraries = [folder / f"{level.name}.so" for level in levels]
    index = {
        "machine": machine,
        "sources": compiler.sources_digest(),
        "compiler": toolchain.name,
        "libraries": [
            {"level": level.name, "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
             "needs": level.needs}
            for level, path in zip(levels, libraries, strict=True)
        ],
    }  # fmt: skip
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return platform_tag(libraries, machine)


def _compile(toolchain: Toolchain, level: Level, machine: str, work: Path) -> Path:
    made = work / f"{level.name}.o"
    target = (*_zig_target(machine), f"-mcpu={level.zig}") if toolchain.zig else (f"-march={level.name}",)
    source = str(compiler.SOURCE / "kernels.cpp")
    command = [*toolchain.command, *target, *compiler.COMMON_FLAGS, *level.options, "-w", "-c", "-o", str(made), source]
    compiler.run(command, str(work))
    return made


def _link(toolchain: Toolchain, machine: str, compiled: Path, made: Path, work: Path) -> None:
    """The C++ library inside, and nothing of it visible: a process may have another one."""
    exports = work / "exports.map"
    exports.write_text("{ global: ox_*; local: *; };\n")
    runtime = _zig_target(machine) if toolchain.zig else ("-static-libstdc++", "-static-libgcc")
    linker = ("-s", "-Wl,--gc-sections", "-Wl,-z,defs", f"-Wl,--version-script={exports}")
    options = ("-O3", "-shared", "-pthread", *linker, "-o", str(made))
    compiler.run([*toolchain.command, *runtime, *options, str(compiled)], str(work))


def _zig_target(machine: str) -> tuple[str, ...]:
    return ("-target", f"{machine}-linux-gnu.{OLDEST[0]}.{OLDEST[1]}")


def platform_tag(libraries: list[Path], machine: str) -> str:
    """manylinux_X_Y_MACHINE: the oldest glibc that has the symbols of all libraries.

    Raises:
        CompilerError: a library is for another machine, needs one that not every Linux has, or shows more than kernels.
    """
    found = [elf.read(path) for path in libraries]
    for path, library in zip(libraries, found, strict=True):
        more = sorted({*library.libraries} - ALLOWED)
        more += [version for version in library.versions if not version.startswith("GLIBC_2.")]
        if more or library.machine != machine:
            raise compiler.CompilerError(f"{path.name} needs {', '.join([library.machine, *more])}")
        shown = sorted(name for name in library.exports if not name.startswith("ox_"))
        if shown:
            raise compiler.CompilerError(f"{path.name} shows its own {shown[0]} to other libraries")
    major, minor = max(OLDEST, *(library.glibc for library in found))
    return f"manylinux_{major}_{minor}_{machine}"


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        print(build(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else platform.machine()))
    except compiler.CompilerError as error:
        sys.exit(f"no kernels: {error}")
