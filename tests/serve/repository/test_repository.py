"""Finding models by name, version, label and alias; what the index says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository


def missing(repository: Repository, name: str, version: str = "") -> ServeError:
    with pytest.raises(ServeError) as caught:
        repository.find(name, version)
    return caught.value


def test_plain_models(mlp: Path, mixed: Path) -> None:
    models = [Model(path, ModelConfig("cpu", instances=1), RequestLimits()) for path in (mlp, mixed)]
    repository = Repository(models)
    assert repository.models() == models and repository.find("mixed") is repository.find("mixed", "1") is models[1]
    error = missing(repository, "mpl")
    assert error.status == 404 and error.expected == "'mlp', 'mixed'"
    assert missing(repository, "mlp", "2").status == missing(repository, "mlp", "01").status == 404
    assert missing(Repository(), "x").expected == "no model is served"
    assert [row["state"] for row in repository.index()] == ["READY", "READY"]
    assert repository.index()[0] == {"name": "mlp", "version": "1", "state": "READY", "reason": ""}


def replaced(path: Path, text: str) -> None:
    """At no moment half a file: the server looks at any."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


def test_labels_and_aliases(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make(tmp_path / "m" / str(number) / "model.onnx", number)
    make(tmp_path / "n.onnx", 7)
    settings = tmp_path / "ox.toml"
    settings.write_text(
        '[models.m]\naliases = ["other", "n"]\nlabels = {prod = 1, next = 9}\n[models.n]\naliases = ["other"]'
    )
    with serve(tmp_path) as server:
        client = caller(server)
        assert client.infer("m") == client.infer("other") == (200, (3, 3.0))
        assert client.infer("m/versions/prod") == client.infer("other/versions/prod") == (200, (1, 1.0))
        assert client.infer("other/versions/1") == (200, (1, 1.0))
        assert client.infer("n") == (200, (1, 7.0))  # its own name goes before others' aliases
        assert client.infer("n/versions/prod")[0] == 404
        status, error = client.infer("m/versions/next")
        assert status == 404 and "a label for version 9" in error
        assert client.infer("m/versions/2")[0] == 404
        assert client.ask("/v2/models/other")[1]["versions"] == ["3", "1"]
        replaced(settings, "[models.m]\nlabels = {prod = 2}")
        eventually(lambda: client.infer("m/versions/prod") == (200, (2, 2.0)))
        assert client.infer("other")[0] == 404 and client.infer("m/versions/1")[0] == 400
        replaced(settings, "[models.m]\nlabels = 3")
        eventually(lambda: "labels" in client.index("m")["3"][1])
        assert client.infer("m/versions/prod") == (200, (2, 2.0))


def test_what_is_not_ready(make: Any, serve: Any, caller: Any, tmp_path: Path) -> None:
    make(tmp_path / "m" / "1" / "model.onnx", 1)
    make(tmp_path / "m" / "2" / "model.onnx", 2, operator="Frobnicate")
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all {} }")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "model.onnx").write_bytes(b"")
    with serve(tmp_path, watch=False) as server:
        client = caller(server)
        assert client.infer("m") == (200, (1, 1.0))
        for target, words in (("m/versions/2", "Frobnicate"), ("bad", "not an ONNX file"), ("empty", "no version")):
            status, error = client.infer(target)
            assert status == 400 and "not ready" in error and words in error
            assert client.ask(f"/v2/models/{target}/ready")[0] == 400
        assert client.infer("bad/versions/2")[0] == client.infer("empty/versions/1")[0] == 404
        states = {(row["name"], row["version"]): row["state"] for row in server.service.index()}
        assert states == {
            ("m", "1"): "READY", ("m", "2"): "UNAVAILABLE", ("bad", "1"): "UNAVAILABLE", ("empty", ""): "UNAVAILABLE",
        }  # fmt: skip
        assert all(row["reason"] for row in server.service.index() if row["state"] != "READY")
        assert server.service.index(ready=True) == [{"name": "m", "version": "1", "state": "READY", "reason": ""}]


def test_states_on_the_way(
    make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOADING while a model is loaded, UNLOADING while it drains; others answer meanwhile."""
    make(tmp_path / "n.onnx", 7)
    with serve(tmp_path) as server:
        client = caller(server)
        go = threading.Event()
        real = Model.__init__

        def slow(*arguments: Any, **named: Any) -> None:
            go.wait(120)
            real(*arguments, **named)

        monkeypatch.setattr(Model, "__init__", slow)
        path = make(tmp_path / "m.onnx", 1)
        eventually(lambda: client.index("m") == {"1": ("LOADING", "")})
        assert client.infer("m")[0] == 400 and client.infer("n")[0] == 200
        go.set()
        eventually(lambda: client.infer("m") == (200, (1, 1.0)))
        batcher = server.models[-1].batcher
        stay = threading.Event()
        monkeypatch.setattr(batcher, "join", lambda: stay.wait(120))
        path.unlink()
        eventually(lambda: client.index("m") == {"1": ("UNLOADING", "its files were deleted")})
        assert client.infer("m")[0] == 400 and client.infer("n")[0] == 200
        stay.set()
        eventually(lambda: client.index("m") == {})


def test_configuration(mixed: Path, mlp: Path, caller: Any, serve: Any) -> None:
    """What is said can be read as a ModelConfig, and is what runs."""
    from google.protobuf import json_format

    from ox.serve.protocol.grpc.proto import message

    options = ModelConfig("cpu", max_rows=4, instances=2, threads=1, deadline_ms=500, max_queue=7)
    with serve(mlp, mixed, options=options) as server:
        for name in ("mlp", "mixed"):
            config = json_format.ParseDict(server.service.model_config(name), message("inference.ModelConfig")())
            assert config.name == name and config.platform == "onnxruntime_onnx" and config.backend == "onnxruntime"
            assert config.instance_group[0].count == 2 and config.instance_group[0].kind == 2
            assert config.parameters["intra_op_thread_count"].string_value == "1"
        told = server.service.model_config("mlp")
        assert told["max_batch_size"] == 4 and told["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [64]}]
        queue = told["dynamic_batching"]["default_queue_policy"]
        assert queue["default_timeout_microseconds"] == 500_000 and queue["max_queue_size"] == 7
        assert told["dynamic_batching"]["preferred_batch_size"] == [1, 2, 4]
        with pytest.raises(ServeError):
            server.service.model_config("nobody")
    with serve(mixed, options=ModelConfig("cpu", max_rows=1)) as server:
        told = server.service.model_config("mixed")
        assert told["max_batch_size"] == 0 and "dynamic_batching" not in told
        assert told["input"][0]["dims"] == [-1, 1, 2, 2] and told["input"][1]["data_type"] == "TYPE_STRING"
