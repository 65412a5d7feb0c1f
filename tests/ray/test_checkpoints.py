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
