"""SummaryWriter: what its event files hold when tensors are given to it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.graph_pb2 import GraphDef

import ox
from ox import nn
from ox.errors import ArgumentError
from ox.utils.tensorboard import SummaryWriter


def events(folder: Path) -> list[Any]:
    result = []
    for path in sorted(folder.rglob("events*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            result.append(Event.FromString(data[at + 12 : at + 12 + length]))
            at += length + 16
    return result


def written(folder: Path, write: Callable[[Any], None]) -> dict[str, Any]:
    """The values that a writer leaves, by tag."""
    with SummaryWriter(str(folder)) as writer:
        write(writer)
    return {value.tag: value for event in events(folder) for value in event.summary.value}


def parameter() -> Any:
    return nn.Parameter(ox.full((), 1.5))


NUMBERS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: ox.tensor(1.5),
    "one element": lambda: ox.tensor([1.5]),
    "float16": lambda: ox.tensor(1.5).half(),
    "bfloat16": lambda: ox.tensor(1.5).bfloat16(),
    "float64": lambda: ox.tensor(1.5).double(),
    "leaf": parameter,
    "result": lambda: parameter() * 1,
    "number": lambda: 1.5,
}


@rows("kind", NUMBERS)
def test_a_scalar(tmp_path: Path, kind: str) -> None:
    values = written(tmp_path, lambda w: w.add_scalar("loss", NUMBERS[kind](), ox.tensor(3), new_style=True))
    assert values["loss"].simple_value == 1.5
    assert [event.step for event in events(tmp_path) if event.summary.value] == [3]


def test_several_scalars_and_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalars("both", {"a": ox.tensor(1.0), "b": parameter()}, 0)
        writer.add_hparams({"lr": ox.tensor(0.25), "name": "x", "on": True}, {"acc": ox.tensor(0.5)}, run_name="run")
    values = [value for event in events(tmp_path) for value in event.summary.value]
    assert {v.simple_value for v in values if v.WhichOneof("value") == "simple_value"} == {1.0, 1.5, 0.5}
    (start,) = [v.metadata.plugin_data.content for v in values if "session_start" in v.tag]
    assert struct.pack("<d", 0.25) in start


@pytest.mark.parametrize("dtype", [ox.float32, ox.float16, ox.bfloat16, ox.int64], ids=str)
def test_a_histogram(tmp_path: Path, dtype: Any) -> None:
    weights = ox.arange(6).to(dtype)
    if dtype != ox.int64:
        weights.requires_grad_()
    histo = written(tmp_path, lambda w: w.add_histogram("w", weights, 0))["w"].histo
    assert (histo.min, histo.max, histo.num, histo.sum) == (0, 5, 6, 15)


def test_images_curves_and_meshes_are_those_of_arrays(tmp_path: Path) -> None:
    image, batch = ox.rand(3, 8, 8), ox.rand(2, 3, 8, 8, requires_grad=True)
    labels, scores = ox.tensor([0, 1, 1]), ox.tensor([0.1, 0.8, 0.4]).half()
    points, colors = ox.rand(1, 4, 3), ox.full((1, 4, 3), 7, dtype=ox.uint8)

    def write(w: Any, f: Callable[[Any], Any]) -> None:
        w.add_image("image", f(image), 0)
        w.add_image("rows", f(image.permute(1, 2, 0)), 0, dataformats="HWC")
        w.add_images("images", f(batch), 0)
        w.add_image_with_boxes("boxes", f(image), f(ox.tensor([[1.0, 1, 5, 5]])), 0)
        w.add_pr_curve("curve", f(labels), f(scores), 0)
        w.add_mesh("mesh", f(points), colors=f(colors), faces=f(ox.zeros(1, 2, 3, dtype=ox.int64)))
        w.add_histogram_raw("raw", 0.0, 1.0, 3, 2.0, 2.0, f(ox.tensor([1.0, 2.0])), f(ox.tensor([1.0, 2.0])), 0)
        w.add_video("video", f(ox.rand(1, 2, 3, 8, 8)))

    def array(tensor: ox.Tensor) -> Any:
        return np.asarray(tensor.detach().float() if tensor.dtype == ox.float16 else tensor.detach())

    ours = written(tmp_path / "a", lambda w: write(w, lambda tensor: tensor))
    theirs = written(tmp_path / "b", lambda w: write(w, array))
    assert ours.keys() == theirs.keys() and len(ours) >= 9
    for tag, value in ours.items():
        assert tag == "video" or value.SerializeToString() == theirs[tag].SerializeToString(), tag


def test_text_layouts_and_embeddings(tmp_path: Path) -> None:
    def write(w: Any) -> None:
        w.add_text("note", "words", 1)
        w.add_custom_scalars({"losses": {"both": ["Multiline", ["train", "validation"]]}})
        w.add_embedding(ox.rand(4, 3).bfloat16(), metadata=list("abcd"), label_img=ox.rand(4, 3, 4, 4))

    assert any("note" in tag for tag in written(tmp_path, write))
    (table,) = tmp_path.rglob("tensors.tsv")
    assert len(table.read_text().splitlines()) == 4


def test_a_figure(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib draws the figure").Figure()
    assert "plot" in written(tmp_path, lambda w: w.add_figure("plot", figure, 0))


def test_the_graph_of_a_model_is_that_of_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Sum(nn.Module):
        def forward(self, a: ox.Tensor, b: ox.Tensor) -> ox.Tensor:
            return (a + b).relu()

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(Sum(), (ox.rand(3, 4), ox.rand(3, 4)))
        with pytest.raises(ArgumentError, match="inputs"):
            writer.add_graph(Sum())
    (graph,) = [GraphDef.FromString(event.graph_def) for event in events(tmp_path) if event.graph_def]
    assert {"Add", "Relu"} <= {node.op for node in graph.node} and not capsys.readouterr().out


@rows("dtype", ["float32", "float64", "int64", "int32", "int8", "uint8", "bool", "float16", "bfloat16"])
def test_tensors(tmp_path: Path, dtype: str) -> None:
    x = ox.tensor([[0, 1, 1], [1, 0, 3]]).to(getattr(ox, dtype))
    value = written(tmp_path, lambda w: w.add_tensor("x", x, ox.tensor(3)))["x"]
    assert value.metadata.plugin_data.plugin_name == "tensor"
    assert [d.size for d in value.tensor.tensor_shape.dim] == [2, 3]
    stored = np.frombuffer(value.tensor.tensor_content, "float32" if "16" in dtype else dtype)
    assert stored.tolist() == x.flatten().tolist()
    assert [event.step for event in events(tmp_path) if event.summary.value] == [3]


def test_the_folder(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        assert writer.log_dir == writer.get_logdir() == str(tmp_path)
