"""The folder of a run, as it is handed to Ray."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ox import temporary_files


def test_a_checkpoint_that_is_being_written_is_not_copied(tmp_path: Path) -> None:
    """Its temporary file is renamed or removed at any time, also between the list of a folder and the copy."""
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    from ox.ray.checkpoints import LEFT_OUT

    checkpoint = tmp_path / "run" / "checkpoints" / "last.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"whole")
    checkpoint.with_name("last-7.safetensors").write_bytes(b"older")
    with temporary_files.file_beside(checkpoint) as temporary:
        assert temporary.exists()
        copy = shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=LEFT_OUT)
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["last.safetensors"]


def test_a_notice_of_preemption_asks_for_one_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notice of Ray once; a later one, with another deadline, again."""
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    from types import SimpleNamespace

    from ray.train import PreemptionInfo
    from ray.train.v2._internal.execution import context
    from ray.train.v2._internal.execution.preemption import PreemptionContext

    from ox.ray.checkpoints import PreemptionNotices

    assert "preemption_context" in context.TrainContext.__dataclass_fields__
    wanted, told = PreemptionNotices(), PreemptionContext()
    assert not wanted()  # outside a worker
    monkeypatch.setattr(context, "get_train_context", lambda: SimpleNamespace(preemption_context=told))
    asked = []
    for deadline in (None, 1000, 1000, 2000, 2000):
        told.preemption_info = None if deadline is None else PreemptionInfo(deadline, {"node": [0]})
        asked.append(wanted())
    assert asked == [False, True, False, True, False]
