"""For which GPUs a shared library has code: of libraries that are made here, and of CuPy's own."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import rows

from ox.devices.machine import Driver
from ox.devices.onnxruntime.device_code import BINARY, CONTAINER, PTX, Code, code_of
from ox.devices.onnxruntime.probe import CPU, CUDA, missing_code
from ox.errors import DeviceError
from ox.kernels.compiler import CompilerError, find_compiler
from ox.serve.runtime import providers

Make = Callable[..., Path]


def container(codes: Sequence[Code]) -> bytes:
    """As nvcc writes the code of one source file."""
    entries = b""
    for kind, number in codes:
        code = bytes(8 * number)  # any
        entries += struct.pack("<HHIQ12xI32x", kind, 0x101, 64, len(code), number) + code
    return CONTAINER + struct.pack("<HHQ", 1, 16, len(entries)) + entries


@pytest.fixture
def library(tmp_path: Path) -> Make:
    """Makes the CUDA provider of an ONNX Runtime with the code of these files, and returns its path."""
    try:
        compiler = find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))

    def make(*files: Sequence[Code]) -> Path:
        data = bytes(24).join(map(container, files))  # between them may be padding
        values = ", ".join(map(str, data))
        source = f'__attribute__((section(".nv_fatbin"))) extern const unsigned char code[] = {{{values}}};'
        (tmp_path / "capi").mkdir(exist_ok=True)
        path = tmp_path / "capi" / "libonnxruntime_providers_cuda.so"
        (tmp_path / "code.cpp").write_text(source if files else "int nothing = 0;")
        subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(path), str(tmp_path / "code.cpp")], check=True)
        code_of.cache_clear()
        return path

    return make


@rows(
    ("codes", "capability", "runs"),
    [
        ([(BINARY, 80), (BINARY, 90)], (9, 0), True),
        ([(BINARY, 80), (BINARY, 90)], (8, 6), True),
        ([(BINARY, 86)], (8, 0), False),
        ([(BINARY, 80), (BINARY, 90)], (10, 0), False),
        ([(BINARY, 100)], (10, 3), True),
        ([(BINARY, 90), (PTX, 90)], (10, 0), True),
        ([(BINARY, 90), (PTX, 120)], (10, 0), False),
    ],
)
def test_which_code_runs(codes: list[Code], capability: tuple[int, int], runs: bool, library: Make) -> None:
    code = code_of(library(codes, codes))
    assert len(code.files) == 2 and code.runs_on(capability) is runs


def test_a_library_without_such_code(library: Make, tmp_path: Path) -> None:
    assert code_of(library()).files == () and code_of(library()).runs_on((10, 0))
    for content in (b"", b"text", b"\x7fELF\x02\x01" + bytes(20)):
        (tmp_path / "broken").write_bytes(content)
        code_of.cache_clear()
        assert code_of(tmp_path / "broken").files == ()


def elf(device_code: bytes, length: int | None = None) -> bytes:
    """A library of three sections, the last of which has device code, and says that it is so long."""
    names, headers, body = b"\0.names\0.nv_fatbin\0", b"", b""
    for name, content in [(0, b""), (1, names), (8, device_code)]:
        size = len(content) if length is None or name < 8 else length
        headers += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, 64 + len(body), size, 0, 0, 1, 0)
        body += content
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, 3, 1) + body + headers


ENTRY = struct.pack("<HHIQ12xI32x", BINARY, 0x101, 64, 8, 90) + bytes(8)


@rows(
    ("device_code", "length", "files"),
    [
        (CONTAINER + struct.pack("<HHQ", 1, 16, 72) + ENTRY, None, 1),
        (CONTAINER + struct.pack("<HHQ", 1, 16, 1 << 60) + ENTRY, None, 1),  # no further than the section
        (CONTAINER + struct.pack("<HHQ", 1, 0, 0), None, 0),
        (CONTAINER + struct.pack("<HHQ", 1, 16, 64) + bytes(64), None, 0),
        (CONTAINER + struct.pack("<HHQ", 1, 16, 72) + ENTRY, 1 << 63, 0),
    ],
)
def test_a_damaged_library(device_code: bytes, length: int | None, files: int, tmp_path: Path) -> None:
    (tmp_path / "library").write_bytes(elf(device_code, length))
    code_of.cache_clear()
    assert len(code_of(tmp_path / "library").files) == files


def test_names_of_sections_that_are_not_there(tmp_path: Path) -> None:
    data = elf(b"")
    (tmp_path / "library").write_bytes(data[:62] + b"\x09" + data[63:])
    code_of.cache_clear()
    assert code_of(tmp_path / "library").files == ()


def test_files_for_one_kind_of_gpu_alone(library: Make) -> None:
    usual = [(BINARY, 80), (BINARY, 90)]
    path = library(usual, usual, [(BINARY, 100)])
    assert code_of(path).runs_on((8, 0)) and not code_of(path).runs_on((10, 0))
    assert code_of(path).architectures == ["sm_80", "sm_90", "sm_100"]


def test_a_gpu_that_the_provider_is_not_compiled_for(library: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library([(BINARY, 80), (BINARY, 90)])
    runtime: Any = SimpleNamespace(
        __file__=str(path.parents[1] / "__init__.py"), __version__="1.32.0", get_available_providers=lambda: [CUDA, CPU]
    )
    driver = Driver((13, 0), ("NVIDIA H200", "NVIDIA B200"), ((9, 0), (10, 0)))
    assert missing_code(runtime, driver, 0) is None
    monkeypatch.setattr(providers, "nvidia_driver", lambda: driver)
    monkeypatch.setattr(providers, "preload", lambda _: None)
    monkeypatch.setattr(providers, "missing_library", lambda *_: None)
    assert providers.choose(runtime, "cuda") == [CUDA, CPU]
    with pytest.raises(DeviceError, match="did not load") as caught:
        providers.choose(runtime, "cuda:0,cuda:1")
    assert "has no code for cuda:1 (NVIDIA B200, sm_100), but for sm_80, sm_90" in str(caught.value.got)
    assert providers.choose(runtime, "auto:1") == [CPU]


@pytest.mark.gpu
def test_a_library_of_nvcc() -> None:
    """CuPy's wheel has code of its own for many GPUs, in a library that nvcc made."""
    spec = find_spec("cupy.cuda.cub")
    if spec is None or spec.origin is None:
        pytest.skip("this CuPy has no such library")
    code = code_of(Path(spec.origin))
    assert code.runs_on((8, 0)) and code.runs_on((9, 0)) and "sm_90" in code.architectures
    assert not code.runs_on((3, 0))
