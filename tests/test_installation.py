"""The command in the hint where an optional package is missing."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ox import installation
from ox.installation import install_command

EDITABLE = {"url": "file:///home/me/my%20ox", "dir_info": {"editable": True}}
FOLDER = {"url": "file:///home/me/ox", "dir_info": {}}
GIT = {"url": "https://example.com/ox.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}}
CASES = [
    ("pip", None, None, 'pip install "ox-onnx[cuda13,nccl13]"'),
    ("conda", None, None, 'pip install "ox-onnx[cuda13,nccl13]"'),
    ("uv\n", None, None, 'uv pip install "ox-onnx[cuda13,nccl13]"'),
    ("pip", None, "pipx_metadata.json", 'pipx install --force "ox-onnx[cuda13,nccl13]"'),
    ("uv", None, "uv-receipt.toml", 'uv tool install "ox-onnx[cuda13,nccl13]"'),
    ("pip", EDITABLE, None, 'pip install -e "/home/me/my ox[cuda13,nccl13]"'),
    ("uv", EDITABLE, None, 'uv pip install -e "/home/me/my ox[cuda13,nccl13]"'),
    ("pip", FOLDER, None, 'pip install "ox-onnx[cuda13,nccl13] @ file:///home/me/ox"'),
    ("pip", GIT, None, 'pip install "ox-onnx[cuda13,nccl13] @ git+https://example.com/ox.git"'),
]


def test_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (tool, origin, file, command) in enumerate(CASES):
        with subtests.test(command, tool=tool), monkeypatch.context() as patch:
            place = tmp_path / str(number)
            info = place / "ox_onnx-0.1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ox-onnx\nVersion: 0.1.0\n")
            (info / "INSTALLER").write_text(tool)
            if origin is not None:
                (info / "direct_url.json").write_text(json.dumps(origin))
            if file is not None:
                (place / file).touch()
            patch.setattr(metadata, "distribution", lambda name, at=info: metadata.PathDistribution(at))
            patch.setattr(sys, "prefix", str(place))
            installation._installation.cache_clear()
            assert install_command("cuda13", "nccl13") == command
    installation._installation.cache_clear()


def test_sources_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    installation._installation.cache_clear()
    assert install_command("text") == 'pip install "ox-onnx[text]"'
    installation._installation.cache_clear()
