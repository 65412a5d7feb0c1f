"""What ONNX Runtime's CUDA provider lacks, read by the loader from a shared library of the same form; output that is
kept from the terminal."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ox.devices.machine import Driver
from ox.devices.onnxruntime import probe
from ox.devices.onnxruntime.probe import CPU, CUDA, captured_output, missing_library
from ox.errors import DeviceError
from ox.kernels.compiler import CompilerError, find_compiler
from ox.serve.runtime import providers

# As in onnxruntime-gpu's wheel: a symbol that only ONNX Runtime has, in no library that is listed as needed
PROVIDER = 'extern "C" void *Provider_GetHost(); int needed(); void *host = Provider_GetHost(); int n = needed();'


Runtime = Callable[..., Any]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Makes a module with a CUDA provider that needs another library, which stands beside it or not."""
    try:
        compiler = find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))

    def build(path: Path, text: str, *more: str) -> None:
        source = path.with_suffix(".cpp")
        source.write_text(text)
        subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(path), str(source), *more], check=True)

    def make(needed: str, complete: bool = True) -> SimpleNamespace:
        capi = tmp_path / needed / "capi"
        capi.mkdir(parents=True)
        build(capi / needed, "int needed() { return 9; }", f"-Wl,-soname,{needed}")
        build(capi / "libonnxruntime_providers_cuda.so", PROVIDER, str(capi / needed), "-Wl,-rpath,$ORIGIN")
        if not complete:
            (capi / needed).unlink()
        return SimpleNamespace(
            __file__=str(capi.parent / "__init__.py"),
            __version__="1.31.1",
            get_available_providers=lambda: [CUDA, CPU],
        )

    return make


def test_a_provider_lacks_nothing_but_its_host(runtime: Runtime) -> None:
    assert missing_library(runtime("libcomplete.so.9"), CUDA) is None


def test_a_library_that_the_provider_needs(runtime: Runtime) -> None:
    assert missing_library(runtime("libneeded.so.9", complete=False), CUDA) == "libneeded.so.9 is not installed"


def test_a_provider_that_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").write_bytes(b"\x7fELF")
    damaged: Any = SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    assert "libonnxruntime_providers_cuda.so" in str(missing_library(damaged, CUDA))


def test_sessions_are_made_with_a_provider_that_is_complete(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(providers, "nvidia_driver", lambda: Driver((13, 0), ("H200",)))
    complete = runtime("libhere.so.9")
    for device in ("cuda", "auto", "cuda:0"):
        assert providers.choose(complete, device) == [CUDA, CPU]
    assert providers.choose(complete, "cpu") == [CPU] and not caplog.records
    incomplete = runtime("libabsent.so.9", complete=False)
    with pytest.raises(DeviceError, match="did not load") as caught:
        providers.choose(incomplete, "cuda")
    assert "libabsent.so.9 is not installed" in str(caught.value.got)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        assert providers.choose(incomplete, "auto") == [CPU]
    assert "although this machine has a GPU" in caplog.text and "libabsent.so.9" in caplog.text


@pytest.mark.gpu
def test_the_provider_of_this_machine() -> None:
    from ox.devices.machine import nvidia_driver
    from ox.devices.onnxruntime.runtime import onnxruntime

    runtime, driver = onnxruntime(), nvidia_driver()
    if CUDA not in runtime.get_available_providers() or driver is None or not driver.devices:
        pytest.skip("no ONNX Runtime with the CUDA provider beside an NVIDIA device")
    probe.preload(runtime)
    assert missing_library(runtime, CUDA) is None and probe.probe(CUDA).loads


def test_both_streams_and_both_languages(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_output() as lines:
        print("python")
        os.write(1, b"one\n")
        os.write(2, b"two\n")
        assert lines == []
    assert sorted(lines) == ["one", "python", "two"]
    assert capfd.readouterr() == ("", "")
    os.write(1, b"out\n")
    os.write(2, b"err\n")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), captured_output() as lines:
        os.write(2, b"before\n")
        raise ZeroDivisionError
    assert lines == ["before"]
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_what_python_had_not_written_yet(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with open(1, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "__stdout__", stdout)
        stdout.write("before")
        with captured_output() as lines:
            stdout.flush()
            os.write(1, b"inside")
    assert lines == ["inside"] and capfd.readouterr().out == "before"
