"""Files that are no files, that are too much, or that may not be read: said clearly, and nobody else notices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


@pytest.fixture
def running(make: Any, serve: Any, caller: Any, tmp_path: Path) -> Any:
    """A server with a good model, and its folder."""
    make(tmp_path / "models" / "good" / "1" / "model.onnx", 1)
    with serve(tmp_path / "models") as server:
        yield caller(server), tmp_path / "models"


def put(folder: Path, name: str) -> Path:
    """Where a file of a version is to come: the folder appears with the file in it."""
    (folder / name / "1").mkdir(parents=True)
    return folder / name / "1" / "model.onnx"


def refused(running: Any, eventually: Any, name: str) -> str:
    client, _ = running
    rows = eventually(lambda: [row for row in client.index(name).values() if row[0] == "UNAVAILABLE" and row[1]])
    assert client.infer("good") == (200, (1, 1.0)) and client.infer(name)[0] == 400
    return str(rows[0][1])


def test_a_pipe(running: Any, eventually: Any) -> None:
    os.mkfifo(put(running[1], "pipe"))
    said = refused(running, eventually, "pipe")
    assert "cannot be read; expected a regular file; got a pipe or a device" in said and "no path" not in said


def test_a_device_and_a_socket(running: Any, eventually: Any) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        there = os.getcwd()
        path = put(running[1], "socket")
        os.chdir(path.parent)  # the names of sockets are short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(there)
        assert "cannot be read" in refused(running, eventually, "socket")
    put(running[1], "zero").symlink_to("/dev/zero")
    assert "leads out of the repository" in refused(running, eventually, "zero")


def test_a_huge_file(running: Any, eventually: Any) -> None:
    """Three terabytes of nothing, which a sparse file costs nothing."""
    path = put(running[1], "huge")
    with open(path, "wb") as file:
        file.truncate(3 << 40)
    said = refused(running, eventually, "huge")
    assert "too large" in said and "no path" not in said and "as external data" in said


def test_a_folder(running: Any, eventually: Any) -> None:
    put(running[1], "folder").mkdir()
    (running[1] / "folder" / "1" / "model.onnx" / "x").write_bytes(b"")
    assert "cannot be read" in refused(running, eventually, "folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read(running: Any, eventually: Any) -> None:
    path = put(running[1], "closed")
    path.write_bytes(b"x")
    path.chmod(0)
    assert "Permission denied" in refused(running, eventually, "closed")


@pytest.mark.parametrize("location", ["../../good/1/model.onnx", "/etc/hostname", "out", "pipe"])
def test_external_data(running: Any, eventually: Any, location: str, tmp_path: Path) -> None:
    """It lies in the version's own folder, as a regular file; not even other models are looked at."""
    path = put(running[1], "outside")
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", infos[:1], infos[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "secret").write_bytes(np.zeros(4, np.float32).tobytes())
    if location == "out":
        (path.parent / "out").symlink_to(tmp_path / "secret")
    elif location == "pipe":
        os.mkfifo(path.parent / "pipe")
    onnx.save(model, path)
    reason = refused(running, eventually, "outside")
    expected = {"out": "leads out of the repository", "pipe": "lacks its external data"}
    assert expected.get(location, "outside its folder") in reason


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's data")
@pytest.mark.slow
def test_a_model_that_grows_past_its_limit(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    """While it is loaded, the model that ran before goes on."""
    path = make(tmp_path / "m" / "1" / "model.onnx", 1)
    (tmp_path / "ox.toml").write_text("[models.m]\nmemory_mib = 100")
    with serve(tmp_path) as server:
        client = caller(server)
        shapes = {"w": (4, 4_000_000), "v": (4_000_000, 4)}
        weights = [onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
        graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, tmp_path / "half")
        os.replace(tmp_path / "half", path)
        assert "exceeds its memory limit" in eventually(lambda: client.index("m")["1"][1])
        assert client.infer("m") == (200, (1, 1.0))
