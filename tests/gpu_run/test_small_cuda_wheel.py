"""A wheel that keeps the device code of one architecture."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from pathlib import Path

import pytest
import small_cuda_wheel
from gpu_run import environment
from gpu_wheel import wheel

CODE = {75: b"\x75" * 40, 90: b"\x90" * 64, 120: b"\x12" * 16}


def container(architectures: list[int]) -> bytes:
    """Device code, as nvcc puts it into a library."""
    entries = b""
    for architecture in architectures:
        head = struct.pack("<HHIQ12xI", 2, 1, 64, len(CODE[architecture]), architecture)
        entries += head.ljust(64, b"\xee") + CODE[architecture]
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def library(device_code: bytes) -> bytes:
    """An ELF file of three sections."""
    names = b"\0.names\0.nv_fatbin\0"
    before = b"code of the host"
    contents = [(0, b""), (1, names), (8, device_code)]
    body, headers = before, b""
    for name, content in contents:
        headers += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(contents), 1) + body + headers


def test_one_architecture_stays(tmp_path: Path) -> None:
    old = wheel(tmp_path / "old", "ox_test_library")
    whole = library(container([75, 90]) + bytes(8) + container([120, 90]))
    with zipfile.ZipFile(old, "a") as archive:
        archive.writestr("ox_test_library.so", whole)
    (tmp_path / "new").mkdir()
    new = tmp_path / "new" / old.name
    small_cuda_wheel.shrink(old, 90, new)
    assert environment.install(new.parent, tmp_path) == ["ox_test_library"]
    found = (tmp_path / environment.PACKAGES / "ox_test_library.so").read_bytes()
    zeros = {CODE[75]: bytes(40), CODE[120]: bytes(16)}
    expected = whole
    for code, nothing in zeros.items():
        expected = expected.replace(code, nothing)
    assert found == expected != whole and found.count(CODE[90]) == 2
    with zipfile.ZipFile(new) as archive:
        record = archive.read("ox_test_library-1.0.dist-info/RECORD").decode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(found).digest()).rstrip(b"=").decode()
    assert f"ox_test_library.so,sha256={digest},{len(found)}\n" in record


def test_a_wheel_without_the_architecture(tmp_path: Path) -> None:
    old = wheel(tmp_path / "old", "ox_test_library")
    with pytest.raises(ValueError, match="has no device code of architecture 90"):
        small_cuda_wheel.shrink(old, 90, tmp_path / "new.whl")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


def test_the_folder_of_the_wheel_itself(tmp_path: Path) -> None:
    old = wheel(tmp_path / "old", "ox_test_library")
    before = old.read_bytes()
    with pytest.raises(ValueError, match="is the wheel itself"):
        small_cuda_wheel.shrink(old, 90, old)
    assert old.read_bytes() == before


def test_an_archive_that_is_no_wheel(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "old.whl", "w") as archive:
        archive.writestr("ox_test_library.so", library(container([90])))
    with pytest.raises(ValueError, match=r"old\.whl is no wheel: it has no \.dist-info/RECORD"):
        small_cuda_wheel.shrink(tmp_path / "old.whl", 90, tmp_path / "new.whl")
    assert {path.name for path in tmp_path.iterdir()} == {"old.whl"}


@pytest.mark.parametrize(
    "device_code",
    [
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + bytes(64),
        container([75])[:-1],
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + struct.pack("<HHIQ12xI32x", 2, 1, 64, 1 << 60, 75),
    ],
)
def test_damaged_device_code(device_code: bytes) -> None:
    with pytest.raises(ValueError, match="damaged device code at byte"):
        small_cuda_wheel.stripped(library(device_code), 90)


def test_what_is_no_library_stays_as_it_is() -> None:
    assert small_cuda_wheel.stripped(b"NAME = 1\n", 90) == (b"NAME = 1\n", 0)
