"""A logger for TensorBoard."""

from __future__ import annotations

import os
import socket
import struct
import time
from numbers import Real
from pathlib import Path
from typing import Any

from ox.train.loggers.logger import Logger

CLOCK = ("lr", "seconds")  # values of an epoch without a curve
EVERY = 10.0  # seconds between two flushes


class TensorBoard(Logger):
    """Writes scalars: ``train/loss`` and the like a step, ``epoch/validation_loss`` and the like an epoch.

    It uses tensorboardX's event format but not its writer, which writes in a thread: that thread dies when the disk is
    full, and every later event then blocks forever.

    Args:
        folder: the folder of the event file.
        step: the current step of the run; TensorBoard ignores earlier events of later steps.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"
        self._file = open(Path(folder) / name, "wb")  # noqa: SIM115 (closed by close)
        self._flushed = time.monotonic()
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if step:
            start = SessionLog(status=SessionLog.SessionStatus.START)
            self._write(Event(wall_time=time.time(), step=step + 1, session_log=start))
        self.flush()  # so that TensorBoard finds the run immediately

    def step(self, values: dict[str, Any]) -> None:
        self._scalars("train", values, ("step", "epoch"))

    def epoch(self, values: dict[str, Any]) -> None:
        self._scalars("epoch", values, ("step", "epoch", *CLOCK))

    def _scalars(self, group: str, values: dict[str, Any], without: tuple[str, ...]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [
            Summary.Value(tag=f"{group}/{name}", simple_value=value)
            for name, value in values.items()
            if isinstance(value, Real) and name not in without
        ]
        self._write(Event(wall_time=time.time(), step=values["step"], summary=Summary(value=scalars)))

    def _write(self, event: Any) -> None:
        """One record: length, its checksum, event, its checksum."""
        from tensorboardX.record_writer import masked_crc32c

        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        self._file.write(length + sums[0] + data + sums[1])
        if time.monotonic() - self._flushed > EVERY:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()
