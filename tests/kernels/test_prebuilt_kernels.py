"""Compiling for a wheel: every level, nothing needed but the glibc of the tag."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import elf
import prebuilt_kernels
import pytest
from rows import rows

from ox.kernels import Library, prebuilt_library
from ox.kernels.signatures import signatures

ROOT = Path(__file__).resolve().parents[2]
CompilerError = prebuilt_kernels.compiler.CompilerError
needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="the package ziglang is not installed")


def test_what_a_library_needs(library: Library) -> None:
    """Of the one that this machine compiled and loads."""
    found = elf.read(Path(library.path))
    name, version = platform.libc_ver()
    if name != "glibc":
        pytest.skip("no glibc here")
    assert found.machine == platform.machine() and "libc.so.6" in found.libraries
    assert set(signatures()) <= found.exports and "malloc" not in found.exports
    assert (2, 0) < found.glibc <= tuple(int(part) for part in version.split("."))


def test_the_newest_symbol_counts() -> None:
    versions = ("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.9", "GLIBCXX_3.4.30")
    assert elf.SharedLibrary("x86_64", (), versions).glibc == (2, 17)
    assert elf.SharedLibrary("x86_64", (), ()).glibc == (2, 0)


def test_what_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("#!/bin/sh\n")
    with pytest.raises(ValueError, match="no ELF file"):
        elf.read(tmp_path / "text.so")


@rows(
    ("machine", "libraries", "versions", "result"),
    [
        ("x86_64", ("libc.so.6",), ("GLIBC_2.16",), "manylinux_2_17_x86_64"),
        ("x86_64", ("libc.so.6", "libpthread.so.0"), ("GLIBC_2.2.5", "GLIBC_2.35"), "manylinux_2_35_x86_64"),
        ("x86_64", ("libc.so.6", "libstdc++.so.6"), ("GLIBC_2.16",), "level.so needs x86_64, libstdc++.so.6"),
        ("x86_64", ("libc.so.6",), ("GLIBC_2.16", "GLIBCXX_3.4.30"), "level.so needs x86_64, GLIBCXX_3.4.30"),
        ("x86_64", ("libc.so.6",), ("GLIBC_PRIVATE",), "level.so needs x86_64, GLIBC_PRIVATE"),
        ("aarch64", ("libc.so.6",), ("GLIBC_2.17",), "level.so needs aarch64"),
    ],
)
def test_the_tag_of_a_wheel(
    monkeypatch: pytest.MonkeyPatch, machine: str, libraries: tuple[str, ...], versions: tuple[str, ...], result: str
) -> None:
    monkeypatch.setattr(elf, "read", lambda path: elf.SharedLibrary(machine, libraries, versions, frozenset({"ox_a"})))
    if result.startswith("manylinux"):
        assert prebuilt_kernels.platform_tag([Path("level.so")], "x86_64") == result
    else:
        with pytest.raises(CompilerError, match=re.escape(result)):
            prebuilt_kernels.platform_tag([Path("level.so")], "x86_64")


def test_a_library_that_shows_its_insides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have another C++ library, whose exceptions would meet these functions."""
    shown = elf.SharedLibrary("x86_64", ("libc.so.6",), (), frozenset({"ox_a", "__cxa_throw"}))
    monkeypatch.setattr(elf, "read", lambda path: shown)
    with pytest.raises(CompilerError, match=r"level\.so shows its own __cxa_throw"):
        prebuilt_kernels.platform_tag([Path("level.so")], "x86_64")


def test_a_machine_that_nothing_here_compiles_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match="for x86_64 and aarch64, not for riscv64"):
        prebuilt_kernels.build(tmp_path, "riscv64")
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    monkeypatch.setattr(prebuilt_kernels, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match="only the package ziglang compiles for"):
        prebuilt_kernels.build(tmp_path, other)


def test_the_compiler_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    if platform.machine() not in prebuilt_kernels.LEVELS or platform.libc_ver()[0] != "glibc":
        pytest.skip("no kernels for this machine")
    monkeypatch.setenv("CXX", "echo hello")
    found = prebuilt_kernels.find_toolchain(platform.machine())
    assert (found.command, found.zig, found.name) == (("echo", "hello"), False, "hello --version")


def test_the_error_of_a_compiler_is_one_line(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "scripts" / "prebuilt_kernels.py"), str(tmp_path / "out")]
    done = subprocess.run(program, env={"CXX": "/bin/false", "PATH": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "no kernels: /bin/false failed: exit code 1\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["g++", "clang++"])
def test_by_the_compiler_of_this_machine(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which(command) is None or platform.machine() not in prebuilt_kernels.LEVELS:
        pytest.skip(f"no {command}, or no kernels for this machine")
    monkeypatch.setenv("CXX", command)
    check(tmp_path / "prebuilt", platform.machine())
    for level in prebuilt_kernels.LEVELS[platform.machine()]:
        if set(level.needs) <= prebuilt_library.processor_flags():
            compute(tmp_path / "prebuilt", level, tmp_path / "cpuinfo")


def compute(folder: Path, level: prebuilt_kernels.Level, cpuinfo: Path) -> None:
    """All kernels beside NumPy, on a processor that has nothing more than this level."""
    cpuinfo.write_text(f"flags : {' '.join(level.needs)}\n")
    tests = str(Path(__file__).parent / "test_kernels.py")
    code = f"""
import pytest, sys
from pathlib import Path
from ox.kernels import kernels, prebuilt_library
prebuilt_library.FOLDER, prebuilt_library.CPUINFO = Path({str(folder)!r}), Path({str(cpuinfo)!r})
assert kernels().key.startswith({level.name + "-"!r})
sys.exit(pytest.main(["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-k", "not without", {tests!r}]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OX_KERNELS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_zig
@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_by_zig_for_an_old_glibc(machine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert check(tmp_path, machine) == f"manylinux_2_17_{machine}"


def check(folder: Path, machine: str) -> str:
    """Build: each library needs what the tag says and shows its kernels only; it loads where the processor fits."""
    tag = prebuilt_kernels.build(folder, machine)
    version = tuple(int(part) for part in tag.split("_")[1:3])
    index = json.loads((folder / "index.json").read_text())
    assert [each["level"] for each in index["libraries"]] == [level.name for level in prebuilt_kernels.LEVELS[machine]]
    assert {path.name for path in folder.iterdir()} == {"index.json", *(each["file"] for each in index["libraries"])}
    for each in index["libraries"]:
        path = folder / each["file"]
        found = elf.read(path)
        assert found.machine == machine and (2, 0) < found.glibc <= version
        assert set(found.libraries) <= prebuilt_kernels.ALLOWED
        assert found.exports == {
            *signatures(), "ox_set_threads", "ox_threads", "ox_keep_memory", "ox_multiplies_bfloat16", "ox_parallel",
        }  # fmt: skip
        assert path.stat().st_size < 2 << 20
        if machine == platform.machine() and set(each["needs"]) <= prebuilt_library.processor_flags():
            Library(path).set_threads(2)
    return tag
