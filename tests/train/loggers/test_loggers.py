"""Loggers alone, and what they take back of later steps when a run goes on."""

from __future__ import annotations

import csv
import json
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ox.errors import TrainError
from ox.train.loggers import CSV, JSONL, Logger, Loggers, TensorBoard, tensorboard


def tell(logger: Logger, first: int, last: int) -> None:
    for step in range(first, last + 1):
        logger.step({"step": step, "epoch": 1, "loss": np.float32(1 / step), "lr": 0.1})
    logger.epoch({"epoch": 1, "step": last, "loss": 0.5, "validation_loss": None, "validation_confusion": [[1, 2]]})


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def events(folder: Path) -> list[object]:
    """TensorBoard's records of all files in the order of their names, their checksums compared."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
            assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc32c(data[12 : 12 + length])
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.jsonl"
    with JSONL(path) as log:
        tell(log, 1, 4)
    with open(path, "a") as file:
        file.write('{"step": 5, "lo')  # torn by a kill
    with JSONL(path, 2) as log:
        tell(log, 3, 3)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 3]
    assert lines[-1]["validation_confusion"] == [[1, 2]]


@pytest.mark.parametrize("torn", ["5,1,0.", "5,1,0.2,0.", "5"])
def test_csv(tmp_path: Path, torn: str) -> None:
    tmp_path = tmp_path / "new"
    with CSV(tmp_path) as log:
        tell(log, 1, 4)
    with open(tmp_path / "steps.csv", "a") as file:
        file.write(torn)
    with CSV(tmp_path, 4) as log:
        pass
    assert [row["step"] for row in rows(tmp_path / "steps.csv")] == ["1", "2", "3", "4"]
    with CSV(tmp_path, 2) as log:
        tell(log, 3, 3)
    steps, epochs = rows(tmp_path / "steps.csv"), rows(tmp_path / "epochs.csv")
    assert [row["step"] for row in steps] == ["1", "2", "3"]
    assert float(steps[1]["loss"]) == 0.5
    assert epochs == [{"epoch": "1", "step": "3", "loss": "0.5", "validation_loss": ""}]


def test_tensorboard(tmp_path: Path) -> None:
    tmp_path = tmp_path / "new"
    with TensorBoard(tmp_path) as log:
        tell(log, 1, 2)
    with TensorBoard(tmp_path, 1) as log:
        tell(log, 2, 2)
    found = events(tmp_path)
    assert [event.file_version for event in found if event.file_version] == ["brain.Event:2"] * 2
    scalars = [(event.step, value.tag) for event in found for value in event.summary.value]
    assert scalars[:4] == [(1, "train/loss"), (1, "train/lr"), (2, "train/loss"), (2, "train/lr")]
    assert scalars[4] == (2, "epoch/loss")
    (restart,) = [event for event in found if event.session_log.status]
    assert (restart.step, restart.session_log.status) == (2, 1)  # START: what is at or after this step is dropped


def test_tensorboard_needs_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tensorboardX imports PyTorch where it is installed. A value that float32 has not is infinite."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorboardX", None)
        with TensorBoard(tmp_path) as log:
            log.step({"step": 1 << 40, "epoch": 1, "loss": 1e300, "größe": True, "text": "no number"})
    scalars = [
        (event.step, value.tag, value.simple_value) for event in events(tmp_path) for value in event.summary.value
    ]
    assert scalars == [(1 << 40, "train/loss", np.inf), (1 << 40, "train/größe", 1)]


def test_a_disk_that_refuses_is_one_error(tmp_path: Path) -> None:
    class Full(Logger):
        def step(self, values: dict) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(TrainError, match="could not be written") as caught, Loggers([Full()]) as log:
        log.step({"step": 1})
    assert "No space left" in str(caught.value)
    other = JSONL(tmp_path / "m.jsonl")
    with pytest.raises(TrainError):
        Loggers([Full(), other]).step({"step": 1})
    with pytest.raises(TrainError):
        Loggers([Full(), other]).close()
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n'  # the others are told, and closed


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    with JSONL(tmp_path / "m.jsonl") as log, pytest.raises(TypeError, match="not set"):
        log.step({"step": 1, "loss": {1}})


def test_a_run_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what follows soon, however long the machine has been up."""
    clock = SimpleNamespace(now=0.0, time=time.time, monotonic=lambda: clock.now)
    monkeypatch.setattr(tensorboard, "time", clock)
    with TensorBoard(tmp_path) as log:
        assert len(events(tmp_path)) == 1
        log.step({"step": 1, "epoch": 1, "loss": 1.0})
        assert len(events(tmp_path)) == 1
        clock.now += tensorboard.EVERY + 1
        log.step({"step": 2, "epoch": 1, "loss": 1.0})
        assert len(events(tmp_path)) == 3
