"""For which GPUs a shared library has compiled code, from its ELF file (64 bits, little endian)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SECTION = b".nv_fatbin"
CONTAINER = struct.pack("<I", 0xBA55ED50)  # begins the code of one source file, for several GPUs
PTX, BINARY = 1, 2  # kinds of code
Code = tuple[int, int]  # its kind, and ten times the compute capability that it is for


@dataclass(frozen=True)
class DeviceCode:
    """What each source file of a library was compiled for."""

    files: tuple[frozenset[Code], ...]

    @property
    def architectures(self) -> list[str]:
        """All of them, by NVIDIA's names: sm_90 for a GPU, compute_90 for PTX, which is compiled by the driver."""
        found = sorted({(kind == PTX, number) for file in self.files for kind, number in file})
        return [f"{'compute' if is_ptx else 'sm'}_{number}" for is_ptx, number in found]

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether most of it runs on a GPU: some files are for one kind of GPU alone, beside others."""
        number = 10 * capability[0] + capability[1]
        fitting = sum(any(_fits(code, number) for code in file) for file in self.files)
        return 2 * fitting >= len(self.files)


def _fits(code: Code, number: int) -> bool:
    """A binary runs on GPUs of its major version that are not older, PTX on all that are not older."""
    kind, own = code
    return own <= number and (kind == PTX or own // 10 == number // 10)


@cache
def code_of(path: Path) -> DeviceCode:
    """The code in a library; without files if it has none, or is no such library."""
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # it is empty
            return DeviceCode(())
        with data:
            try:
                return DeviceCode(tuple(_files(data)))
            except (struct.error, ValueError, IndexError, OverflowError):  # it is damaged
                return DeviceCode(())


def _files(data: mmap.mmap) -> Iterator[frozenset[Code]]:
    for start, end in _sections(data):
        at = data.find(CONTAINER, start, end)
        while at >= 0:
            _, header, size = struct.unpack_from("<HHQ", data, at + 4)
            entry, at = at + header, min(_after(at, header + size), end)
            found = set[Code]()
            while entry < at:
                kind, _, own_header, own_size = struct.unpack_from("<HHIQ", data, entry)
                found.add((kind, struct.unpack_from("<I", data, entry + 28)[0]))
                entry = _after(entry, own_header + own_size)
            yield frozenset(found)
            at = data.find(CONTAINER, at, end)


def _after(at: int, size: int) -> int:
    if not size:
        raise ValueError("device code without bytes, which has no end")
    return at + size


def _sections(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Begin and end of the sections with code of GPUs."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (first,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQII", data, first + at * size) for at in range(count)]
    for name, _, _, _, offset, length, _, _ in headers:
        begin = headers[names][4] + name
        if data[begin : data.find(b"\0", begin)] == SECTION:
            yield offset, offset + length
