"""Files as `torch.save` writes them, made without it: pickles put together instruction by instruction."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Parts = bytes


def text(value: str) -> Parts:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> Parts:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def name(full: str) -> Parts:
    module, _, last = full.rpartition(".")
    return b"c" + f"{module}\n{last}\n".encode()


def group(*items: Parts) -> Parts:
    return b"(" + b"".join(items) + b"t"


def call(full: str, *items: Parts) -> Parts:
    return name(full) + group(*items) + b"R"


def mapping(items: dict[str, Parts]) -> Parts:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key: str, count: int, kind: str = "torch.FloatStorage", place: str = "cpu", *more: Parts) -> Parts:
    return group(text("storage"), name(kind), text(key), text(place), number(count), *more) + b"Q"


def tensor(
    key: str, shape: tuple[int, ...], held: int | None = None, offset: int = 0,
    stride: tuple[int, ...] | None = None, kind: str = "torch.FloatStorage", place: str = "cpu",
) -> Parts:  # fmt: skip
    count = int(np.prod(shape, dtype=object)) if held is None else held
    steps = [int(np.prod(shape[i + 1 :], dtype=object)) for i in range(len(shape))] if stride is None else stride
    return call(
        "torch._utils._rebuild_tensor_v2",
        storage(key, count, kind, place),
        number(offset),
        group(*map(number, shape)),
        group(*map(number, steps)),
        b"\x89",
        call("collections.OrderedDict"),
    )


def whole(value: Parts) -> Parts:
    return b"\x80\x02" + value + b"."


def write(
    path: Path, value: Parts, storages: dict[str, Any] | None = None, order: str | None = "little", **more: Any
) -> Path:
    """An archive of one pickled value and its storages, as bytes or arrays."""
    with zipfile.ZipFile(path, "w", **more) as archive:
        archive.writestr("weights/data.pkl", whole(value))
        if order:
            archive.writestr("weights/byteorder", order)
        for key, content in (storages or {}).items():
            archive.writestr(f"weights/data/{key}", content if isinstance(content, bytes) else content.tobytes())
        archive.writestr("weights/version", "3\n")
    return path


def write_legacy(path: Path, value: Parts, storages: dict[str, Any], little: bool = True) -> Path:
    sign = "<q" if little else ">q"
    parts = [
        b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b".",
        whole(b"M\xe9\x03"),
        whole(mapping({"protocol_version": b"M\xe9\x03", "little_endian": b"\x88" if little else b"\x89"})),
        whole(value),
        whole(b"](" + b"".join(map(text, storages)) + b"e"),
        *(struct.pack(sign, a.size) + a.tobytes() for a in storages.values()),
    ]
    path.write_bytes(b"".join(parts))
    return path
