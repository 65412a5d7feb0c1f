"""Makes a wheel of CUDA libraries small: of their device code that of one architecture stays, and it is packed by LZMA.

    python scripts/small_cuda_wheel.py onnxruntime_gpu-1.31.1-....whl 90 small

writes a wheel of the same name into the folder `small`, for devices of compute capability 9.0 alone. pip installs it.

A library has its device code in the section .nv_fatbin, in containers with an entry for each architecture. The bytes of
the others become zeros, so that no address changes. Whether a driver takes such a library has not been seen yet.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import sys
import zipfile
from pathlib import Path

CONTAINER = struct.Struct("<IHHQ")  # a magic number, version, bytes of this header, bytes of the entries
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, bytes of the header, bytes of the code, then the architecture
MAGIC = 0xBA55ED50.to_bytes(4, "little")


def section(data: bytes, name: str) -> tuple[int, int]:
    """Where a section of an ELF file of 64 bits begins and ends; (0, 0) without it."""
    if data[:6] != b"\x7fELF\x02\x01":
        return 0, 0
    (first,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, first + i * size) for i in range(count)]
    texts = headers[names][4]
    for at, _, _, _, offset, length in headers:
        if data[texts + at : data.index(b"\0", texts + at)].decode() == name:
            return offset, offset + length
    return 0, 0


def inside(at: int, head: struct.Struct, data: bytes, end: int) -> tuple[int, int]:
    """Where what follows a header begins and ends.

    Raises:
        ValueError: the header is no whole one, or what follows is not within `end`.
    """
    if at + head.size <= len(data):
        header, length = head.unpack_from(data, at)[2:4]
        if header >= head.size and at + header + length <= min(end, len(data)):
            return at + header, at + header + length
    raise ValueError(f"damaged device code at byte {at}")


def stripped(data: bytes, architecture: int) -> tuple[bytes, int]:
    """The library, and the bytes of device code that have stayed.

    Raises:
        ValueError: its device code is damaged.
    """
    begin, end = section(data, ".nv_fatbin")
    made, kept, at = bytearray(data), 0, data.find(MAGIC, begin, end)
    while at >= 0:
        entry, at = inside(at, CONTAINER, data, end)
        while entry < at:
            code, after = inside(entry, ENTRY, data, at)
            if ENTRY.unpack_from(data, entry)[-1] == architecture:
                kept += after - code
            else:
                made[code:after] = bytes(after - code)
            entry = after
        at = data.find(MAGIC, at, end)
    return bytes(made), kept


def shrink(wheel: Path, architecture: int, target: Path) -> None:
    """Write the wheel anew; nothing is left where that fails.

    Raises:
        ValueError: the target is the wheel itself, which has no RECORD, or no library with code of this architecture,
            or a damaged one.
    """
    if target.exists() and target.samefile(wheel):
        raise ValueError(f"{target} is the wheel itself: expected another folder")
    part = target.with_name(f"{target.name}.part")
    try:
        total = write(wheel, architecture, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, with {total / 1e6:.1f} MB of device code")


def write(wheel: Path, architecture: int, target: Path) -> int:
    """Write the wheel anew, and return the bytes of device code in it."""
    lines, total = [], 0
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as new:
        record = next((entry for entry in old.infolist() if entry.filename.endswith(".dist-info/RECORD")), None)
        if record is None:
            raise ValueError(f"{wheel.name} is no wheel: it has no .dist-info/RECORD")
        for entry in old.infolist():
            if entry is record:
                continue
            data, kept = stripped(old.read(entry), architecture)
            total += kept
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{entry.filename},sha256={digest},{len(data)}\n" if not entry.is_dir() else "")
            new.writestr(entry, data, zipfile.ZIP_LZMA)
        new.writestr(record, "".join([*lines, f"{record.filename},,\n"]), zipfile.ZIP_LZMA)
    if not total:
        raise ValueError(f"{wheel.name} has no device code of architecture {architecture}")
    return total


if __name__ == "__main__":
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[3])
    folder.mkdir(exist_ok=True)
    try:
        shrink(wheel, int(sys.argv[2]), folder / wheel.name)
    except ValueError as error:
        sys.exit(f"small_cuda_wheel: {error}")
