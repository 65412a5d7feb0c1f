"""What a shared library needs from others and what it gives them, from its ELF file (64 bits, little endian)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

# types of sections: SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_verneed
DYNAMIC, SYMBOLS, VERSIONS_NEEDED = 6, 11, 0x6FFFFFFE
NEEDED = 1  # a tag of the dynamic section, DT_NEEDED
MACHINES = {62: "x86_64", 183: "aarch64"}  # EM_X86_64, EM_AARCH64


@dataclass(frozen=True)
class SharedLibrary:
    """Its machine, the libraries that it needs by name, the versions of their symbols (such as GLIBC_2.17), and the
    symbols that others may take from it."""

    machine: str
    libraries: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    exports: frozenset[str] = frozenset()

    @property
    def glibc(self) -> tuple[int, int]:
        """The oldest glibc that has all symbols; (2, 0) if it says nothing."""
        found = (re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version) for version in self.versions)
        return max(((int(one[1]), int(one[2])) for one in found if one), default=(2, 0))


def read(path: Path) -> SharedLibrary:
    """Read from the section headers.

    Raises:
        ValueError: not such a file.
    """
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no ELF file of 64 bits, little endian")
    (machine,) = struct.unpack_from("<H", data, 18)
    (first,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQII", data, first + at * size) for at in range(count)]
    libraries: list[str] = []
    versions: set[str] = set()
    exports: set[str] = set()
    for _, kind, _, _, offset, length, link, info in sections:
        if kind not in (DYNAMIC, SYMBOLS, VERSIONS_NEEDED):
            continue
        text = sections[link][4]
        if kind == DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", data[offset : offset + length]):
                if tag == NEEDED:
                    libraries.append(_string(data, text + value))
        elif kind == SYMBOLS:
            for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + length]):
                if section:  # 0: it is another library's
                    exports.add(_string(data, text + name))
        else:
            versions |= _versions(data, offset, info, text)
    name = MACHINES.get(machine, str(machine))
    return SharedLibrary(name, tuple(libraries), tuple(sorted(versions)), frozenset(exports))


def _versions(data: bytes, offset: int, files: int, text: int) -> set[str]:
    """Of `files` records of type Verneed, each with a list of records of type Vernaux."""
    found = set()
    for _ in range(files):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, offset)
        at = offset + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, at)
            found.add(_string(data, text + name))
            at += step
        offset += following
    return found


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
