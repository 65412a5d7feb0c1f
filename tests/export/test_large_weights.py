"""Weights that are large: no copies of them, the same file, the same proof."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from rows import rows

import ox
from ox import nn
from ox.core import copy_on_write
from ox.errors import ExportError, LoadError
from ox.export import files, large_weights
from ox.graph.contract import DATA
from ox.graph.ir import Graph, Value
from ox.graph.reader.model_file import metadata_of
from ox.graph.reader.source import read_model
from ox.graph.writer.weights import pointing, write_beside, write_inside
from ox.serve.runtime import source

X = np.random.default_rng(0).random((8, 6), dtype=np.float32)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight that is not inside the model counts as a large one."""
    monkeypatch.setattr(copy_on_write, "SMALLEST", 1)
    monkeypatch.setattr(large_weights, "LARGE", 1)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 80))


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("above", [1 << 30, 0], ids=["inside", "beside"])
def test_a_large_file_is_what_a_small_one_is(tmp_path: Path, above: int) -> None:
    model = net()
    ox.export.save(model, tmp_path / "m.onnx", X, external_above=above)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", *(["m.onnx.data"] if above == 0 else [])]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    with ox.no_grad():
        expected = model(ox.tensor(X)).numpy()
    assert np.allclose(session.run(None, {"input": X})[0], expected, atol=1e-5)
    model[0].weight.data.add_(1)  # it is writeable again, and the loaded file has memory of its own
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert np.allclose(loaded(ox.tensor(X)).detach().numpy(), expected, atol=1e-5)


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("above", [1 << 30, 0], ids=["inside", "beside"])
def test_other_bytes_in_the_file_are_found(tmp_path: Path, above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: Any) -> Any:
        file = arguments[-1]
        written: Any = (write_inside if above else write_beside)(*arguments)
        places = written if above else written[0]
        file.seek(places["2.weight"][0] + 1000)
        file.write(b"\x01")
        return written

    monkeypatch.setattr(files, "write_inside", damaged)
    monkeypatch.setattr(files, "write_beside", damaged)
    with pytest.raises(ExportError, match=r"does not hold the values of '2\.weight'"):
        ox.export.save(net(), tmp_path / "m.onnx", X, external_above=above)
    assert not list(tmp_path.iterdir())


def test_the_weights_of_another_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that is stopped when the new weights are there, and the new model is not."""
    path = tmp_path / "m.onnx"
    ox.export.save(net(), path, X, external_above=0)
    ox.export.load(path)
    rename, renamed = os.replace, []

    def killed(source: Any, target: Any) -> None:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        ox.export.save(net(), path, X, external_above=0)
    assert [Path(target).name for target in renamed] == ["m.onnx.data"]
    for read in (ox.export.load, read_model, source.read):
        with pytest.raises(LoadError, match="holds the weights of another file"):
            read(path)
    ox.export.save(net(), path, X, external_above=0)
    ox.export.load(path)
    source.read(path)


def test_data_of_other_programs_are_not_judged(tmp_path: Path) -> None:
    """They keep the metadata of a model, and write its weights anew; so does a copy with the weights inside."""
    path = tmp_path / "m.onnx"
    ox.export.save(net(), path, X, external_above=0)
    assert DATA in metadata_of(onnx.load(path, load_external_data=False))
    path.with_name("m.onnx.data").rename(tmp_path / "was.data")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "was.data" if entry.key == "location" else entry.value
    onnx.load_external_data_for_model(model, str(tmp_path))
    onnx.save(model, path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    loaded = ox.export.load(path)
    ox.export.save(loaded, tmp_path / "inside.onnx", X)
    assert DATA not in metadata_of(onnx.load(tmp_path / "inside.onnx"))


@pytest.mark.usefixtures("all_large")
def test_wrong_weights_of_a_session_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session computes with the arrays that it is given, and the comparison sees what they are."""
    real = large_weights._compare

    def wrong(written: Any, arrays: dict[str, Any]) -> None:
        real(written, arrays)
        arrays["2.weight"] = arrays["2.weight"] + np.float32(0.1)

    monkeypatch.setattr(large_weights, "_compare", wrong)
    model = net()
    with pytest.raises(ExportError, match="gives another 'output' than the model"):
        ox.export.save(model, tmp_path / "m.onnx", X)
    assert all(p.array.flags.writeable for p in model.parameters())


class Counting(nn.Module):
    """Writes what it owns when it is called, and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", ox.zeros(6))
        self.register_buffer("table", ox.ones(2, 6))
        self.linear = nn.Linear(6, 64)

    def forward(self, x: Any) -> Any:
        self.sum.add_(x.mean(0))
        row = self.table[0]
        row.mul_(2)
        self.linear.bias[3] = 1.0
        return self.linear(x)


@pytest.mark.parametrize("lent", [False, True])
def test_what_a_model_writes_is_put_back(tmp_path: Path, lent: bool, request: pytest.FixtureRequest) -> None:
    if lent:
        request.getfixturevalue("all_large")
    model = Counting().eval()
    before = {name: t.tolist() for name, t in model.state_dict().items()}
    ox.export.save(model, tmp_path / "m.onnx", X)
    assert {name: t.tolist() for name, t in model.state_dict().items()} == before
    loaded = ox.export.load(tmp_path / "m.onnx")
    with ox.no_grad():
        assert np.allclose(loaded(ox.tensor(X)).numpy(), model(ox.tensor(X)).numpy(), atol=1e-6)
    assert model.sum.tolist() != before["sum"]


def owned(arrays: dict[str, Any]) -> Graph:
    graph = Graph()
    for name, array in arrays.items():
        value = Value(name, array.dtype, array.shape, array.shape)
        graph.constants[value] = array
        graph.owned.add(value)
    return graph


@rows("kind", ["float32", "float64", "int64", "bool", "bfloat16", "float8_e4m3fn", "int4"])
def test_both_ways_of_writing_are_what_onnx_reads(tmp_path: Path, kind: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    large = (np.arange(3001) % 7).reshape(1, 3001).astype(dtype)
    graph = owned({"large": large, "turned": large.reshape(3001, 1).T, "small": large[:, :5].copy()})
    bare = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    with open(tmp_path / "inside.onnx", "wb") as file:
        write_inside(bare, graph, file)
    with open(tmp_path / "data", "wb") as file:
        places, _ = write_beside(graph, file)
    assert list(places) == ["large", "turned"] and all(start % 4096 == 0 for start, _ in places.values())
    onnx.save(pointing(bare, graph, places, "data"), tmp_path / "beside.onnx")
    for name in ("inside", "beside"):
        model = onnx.load(tmp_path / f"{name}.onnx")
        assert model.graph.name == "g" and model.ir_version == bare.ir_version
        read = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        assert list(read) == ["large", "turned", "small"]
        for each, array in read.items():
            assert array.dtype == dtype and array.shape == (1, 5 if each == "small" else 3001)
            assert np.array_equal(array.astype(np.float64), large[:, : array.shape[1]].astype(np.float64))


EXPORT = """
import sys, ox
from ox import nn
model = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(2500, 2500), nn.ReLU())))
x = ox.randn(8, 2500)
warm = ox.export.save(nn.Linear(3, 3), sys.argv[1] + ".warm", ox.randn(8, 3))
def of(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is what is in memory now
before, weights = of("VmRSS"), sum(p.numel() * 4 for p in model.parameters())
ox.export.save(model, sys.argv[1], x, external_above=int(sys.argv[2]))
print((of("VmHWM") - before) / weights)
net = ox.export.load(sys.argv[1])
print((of("VmHWM") - before) / weights)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("above", [1 << 30, 0], ids=["inside", "beside"])
def test_the_peak_of_an_export(tmp_path: Path, above: int) -> None:
    """What 286 MiB of weights add, at most: a copy of them would be 1.0, and ONNX Runtime's own order another 1.0."""
    command = [sys.executable, "-c", EXPORT, str(tmp_path / "m.onnx"), str(above)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    saved, loaded = map(float, done.stdout.split())
    assert saved < 0.5
    assert loaded < (3.2 if above else 1.5)
