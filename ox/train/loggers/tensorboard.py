"""A logger for TensorBoard."""

from __future__ import annotations

import os
import socket
import struct
import time
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ox.protobuf import field, varint
from ox.train.loggers.logger import Logger

CLOCK = ("lr", "seconds")  # values of an epoch without a curve
EVERY = 10.0  # seconds between two flushes
# Fields of event.proto and summary.proto, and a value of SessionLog.SessionStatus
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7
TAG, SIMPLE_VALUE = 1, 2
START = 1
FIXED64, FIXED32 = 1, 5  # how protobuf writes double and float


class TensorBoard(Logger):
    """Writes scalars: ``train/loss`` and the like a step, ``epoch/validation_loss`` and the like an epoch.

    Its events and records are those of TensorFlow's ``event.proto`` and ``TFRecord``. It does not use tensorboardX: its
    thread dies when the disk is full, and every later event then blocks forever; and where PyTorch is installed, its
    import imports PyTorch.

    Args:
        folder: the folder of the event file.
        step: the current step of the run; TensorBoard ignores earlier events of later steps.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"
        self._file = open(Path(folder) / name, "wb")  # noqa: SIM115 (closed by close)
        self._flushed = time.monotonic()
        self._write(field(FILE_VERSION, "brain.Event:2"))
        if step:
            self._write(field(STEP, step + 1) + field(SESSION_LOG, field(1, START)))
        self.flush()  # so that TensorBoard finds the run immediately

    def step(self, values: dict[str, Any]) -> None:
        self._scalars("train", values, ("step", "epoch"))

    def epoch(self, values: dict[str, Any]) -> None:
        self._scalars("epoch", values, ("step", "epoch", *CLOCK))

    def _scalars(self, group: str, values: dict[str, Any], without: tuple[str, ...]) -> None:
        scalars = [
            field(1, field(TAG, f"{group}/{name}") + as_float(value))
            for name, value in values.items()
            if isinstance(value, Real) and name not in without
        ]
        self._write(field(STEP, int(values["step"])) + field(SUMMARY, b"".join(scalars)))

    def _write(self, event: bytes) -> None:
        """One record: length, its checksum, event, its checksum."""
        data = varint(WALL_TIME << 3 | FIXED64) + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_checksum(part)) for part in (length, data)]
        self._file.write(length + sums[0] + data + sums[1])
        if time.monotonic() - self._flushed > EVERY:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


def as_float(value: Real) -> bytes:
    """The value of a scalar as float32; what is too large for it is infinite."""
    with np.errstate(over="ignore"):
        return varint(SIMPLE_VALUE << 3 | FIXED32) + struct.pack("<f", np.float32(float(value)))


@cache
def crc32c_table() -> list[int]:
    """What each byte does to a CRC-32C (RFC 3720)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def masked_checksum(data: bytes) -> int:
    """CRC-32C as TFRecord stores it."""
    table, value = crc32c_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return (value >> 15 | value << 17) + 0xA282EAD8 & 0xFFFFFFFF
