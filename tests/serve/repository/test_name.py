"""`ox serve --name`: the name of the only model, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError, LoadError
from ox.serve import Server, ServerConfig
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.repository.layout import Layout
from ox.serve.workers.worker_config import WorkerConfig

Make = Callable[..., Path]
FOLDERS = {
    "a file in it": (["model.onnx"], ["1"]),
    "a file of another name": (["resnet.onnx"], ["1"]),
    "versions of one model": (["1/model.onnx", "3/model.onnx"], ["3"]),
    "one model of a repository": (["resnet/2/model.onnx"], ["2"]),
    "a model whose name is a number": (["7/1/model.onnx"], ["1"]),
}


@pytest.mark.parametrize(("files", "versions"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_of_one_model(
    files: list[str], versions: list[str], tmp_path: Path, make: Make, serve: Any, caller: Any
) -> None:
    for file in files:
        make(tmp_path / file, 1.0)
    with serve(tmp_path, name="digits") as server:
        calls = caller(server)
        assert calls.ask("/v2/models/digits")[1]["versions"] == versions
        assert calls.infer("digits") == (200, (int(versions[0]), 1.0))
        assert {row["name"] for row in server.service.index()} == {"digits"}


def test_a_file(tmp_path: Path, make: Make, serve: Any, caller: Any, eventually: Any) -> None:
    path = make(tmp_path / "model.onnx", 1.0)
    with serve(path, name="digits") as server:
        assert caller(server).infer("digits") == (200, (1, 1.0))
        assert caller(server).ask("/v2/models/model")[0] == 404
        make(path, 2.0)
        eventually(lambda: caller(server).infer("digits") == (200, (1, 2.0)))


def test_settings_go_by_the_name(tmp_path: Path, make: Make, serve: Any, caller: Any) -> None:
    make(tmp_path / "1" / "model.onnx", 1.0)
    (tmp_path / "config.pbtxt").write_text('name: "resnet"\nmax_batch_size: 6\n')
    (tmp_path / "ox.toml").write_text('[models.digits]\naliases = ["numbers"]\n')
    with serve(tmp_path, name="digits") as server:
        assert caller(server).ask("/v2/models/digits/config")[1]["max_batch_size"] == 6
        assert caller(server).infer("numbers")[0] == 200


def test_several_models_keep_their_names(tmp_path: Path, make: Make, serve: Any, caller: Any) -> None:
    make(tmp_path / "a.onnx", 1.0)
    make(tmp_path / "b" / "1" / "model.onnx", 2.0)
    with serve(tmp_path, name="digits") as server:
        assert {row["name"] for row in server.service.index()} == {"a", "b"}


def test_a_second_model_does_not_take_the_name_away(
    tmp_path: Path, make: Make, serve: Any, caller: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "a.onnx", 1.0)
    with serve(tmp_path, name="digits") as server:
        make(tmp_path / "b.onnx", 2.0)
        eventually(lambda: "digits is the name of one model" in caplog.text)
        assert caller(server).infer("digits") == (200, (1, 1.0))


def test_a_folder_that_fills_later(tmp_path: Path, make: Make, serve: Any, caller: Any, eventually: Any) -> None:
    with serve(tmp_path, name="digits") as server:
        make(tmp_path / "a.onnx", 1.0)
        eventually(lambda: caller(server).infer("digits") == (200, (1, 1.0)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        Server([tmp_path / "model.onnx"], name="digits")


@rows("name", ["", "a/b", "..", " a", "a" * 201, "a\n"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be the name of a model"):
        ServerConfig(name=name)


def test_one_name_for_two_files(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="one name for several models"):
        Layout([tmp_path / "a.onnx", tmp_path / "b.onnx"], "digits")


def test_workers_are_told() -> None:
    sent = WorkerConfig(["a.onnx"], ModelConfig(), RequestLimits(), ServerConfig(name="digits")).to_json()
    assert WorkerConfig.from_json(sent).settings.name == "digits"
