"""`ox.hub`: files that are there are read; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

import ox
from ox import hub
from ox.errors import LoadError
from ox.utils import model_zoo

URL = "https://example.org/models/net-1a2b.pth?raw=1"


def test_a_file_that_is_there_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_folder", [])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    ox.save({"w": ox.ones(2)}, folder / "net-1a2b.pth")
    assert hub.load_state_dict_from_url(URL)["w"].tolist() == [1, 1]
    hub.set_dir(tmp_path)
    with pytest.raises(LoadError, match=r"curl -L -o .*checkpoints/net-1a2b\.pth https"):
        model_zoo.load_url(URL)
    assert model_zoo.load_url(URL, model_dir=folder)["w"].tolist() == [1, 1]
    assert hub.load_state_dict_from_url("http://x/y", folder, file_name="net-1a2b.pth")["w"].tolist() == [1, 1]


def test_nothing_is_downloaded() -> None:
    with pytest.raises(LoadError, match=r"ox downloads nothing[\s\S]*curl -L -o x\.pt https"):
        hub.download_url_to_file(URL, "x.pt")
    for ask in (lambda: hub.load("pytorch/vision", "resnet18", pretrained=True), lambda: hub.list("pytorch/vision")):
        with pytest.raises(LoadError, match=r"pytorch/vision is code for PyTorch[\s\S]*ox port"):
            ask()
