"""What a file says of its sizes holds wherever it goes: saved anew under other names, inside another module, fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError, ShapeError

ROWS = np.random.default_rng(0).normal(size=(8, 20, 4)).astype(np.float32)


class Branching(nn.Module):
    """Two branches on sizes, with another path on each side."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        if x.shape[1] > 16:
            x = x[:, ::2]
        if x.shape[0] * x.shape[1] > 500:
            x = x * 2
        return self.head(x.mean(1))


@pytest.fixture
def net() -> Branching:
    ox.manual_seed(0)
    return Branching().eval()


@pytest.fixture
def path(tmp_path: Path, net: Branching) -> Path:
    report = ox.export.save(net, tmp_path / "m.onnx", ROWS, dims={"x": ["batch", "seq", 4]})
    assert str(report.contract.rules) == "seq in 17.., batch * ((seq + 1) // 2) <= 500"
    return report.path


def right_at(path: Path, model: Any, *sizes: tuple[int, ...]) -> list[bool]:
    """Whether the loaded file takes inputs of these sizes; what it takes, ONNX Runtime computes as the model."""
    loaded, session, taken = ox.export.load(path), ort.InferenceSession(path), []
    for size in sizes:
        x = np.resize(ROWS, (*size, 4))
        try:
            loaded(x)
        except ShapeError:
            taken.append(False)
            continue
        expected = model(ox.from_numpy(x)).detach().numpy()
        got = session.run(None, {session.get_inputs()[0].name: x})[0]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        taken.append(True)
    return taken


SIZES = ((2, 10), (2, 20), (60, 20), (3, 17), (2, 16))
TAKEN = [False, True, False, True, False]


def test_saved_anew_under_other_names(path: Path, net: Branching) -> None:
    report = ox.export.save(ox.export.load(path), path.with_name("a.onnx"), ROWS, dims={"x": ["b", "time", 4]})
    assert str(report.contract.rules) == "time in 17.., b * ((time + 1) // 2) <= 500"
    assert right_at(report.path, net, *SIZES) == TAKEN


def test_saved_anew_with_names_exchanged(tmp_path: Path) -> None:
    """A rule belongs to a dimension, and not to what it is called."""
    ox.export.save(
        lambda x: x * 2 if x.shape[2] > 16 else x, tmp_path / "m.onnx", ROWS.transpose(0, 2, 1), input_names=["x"],
        dims={"x": ["batch", "a", "b"]},
    )  # fmt: skip
    loaded = ox.export.load(tmp_path / "m.onnx")
    report = ox.export.save(loaded, tmp_path / "a.onnx", ROWS.transpose(0, 2, 1), dims={"x": ["batch", "b", "a"]})
    assert str(report.contract.rules) == "a in 17.."
    report = ox.export.save(loaded, tmp_path / "a.onnx", ROWS.transpose(0, 2, 1), dims={"x": ["batch", 4, "x"]})
    assert str(report.contract.rules) == "x in 17.."


def test_saved_anew_with_a_size_open_that_the_file_fixes(path: Path) -> None:
    report = ox.export.save(ox.export.load(path), path.with_name("a.onnx"), ROWS, dims={"x": ["batch", "seq", "c"]})
    assert "c in 4" in str(report.contract.rules)


class Wrapped(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x + 0).softmax(-1)


def test_inside_another_module(path: Path, net: Branching) -> None:
    """Also where the size is that of a value inside."""
    wrapped = Wrapped(ox.export.load(path))
    report = ox.export.save(wrapped, path.with_name("a.onnx"), ROWS, dims={"x": ["batch", "n", 4]})
    assert str(report.contract.rules) == "n in 17.., batch * ((n + 1) // 2) <= 500" and not report.unstated
    assert right_at(report.path, Wrapped(net), *SIZES) == TAKEN


def test_with_one_size_fixed(path: Path, net: Branching) -> None:
    report, _ = ox.export.convert(path, path.with_name("a.onnx"), fix={"seq": 20})
    assert str(report.contract.rules) == "batch in 1..50"
    assert right_at(report.path, net, (50, 20), (51, 20)) == [True, False]
    for wrong in ("a", 0, 2.5, True):
        with pytest.raises(ArgumentError, match="a whole number, 1 at least"):
            ox.export.convert(path, path.with_name("b.onnx"), fix={"seq": wrong})  # type: ignore[dict-item]


def test_what_follows_from_a_size_that_is_fixed(tmp_path: Path) -> None:
    m = ox.Dim("m")
    ox.export.save(
        lambda x, y: x.sum(1) + y.sum(1), tmp_path / "m.onnx", (ROWS[:, :6], ROWS[:, :7]), input_names=["x", "y"],
        dims={"x": ["batch", m, 4], "y": ["batch", m + 1, 4]},
    )  # fmt: skip
    for fix in ({"m": 5}, {"m + 1": 6}):
        report, _ = ox.export.convert(tmp_path / "m.onnx", tmp_path / "a.onnx", fix=fix)
        assert [info.dims for info in report.contract.inputs] == [("batch", 5, 4), ("batch", 6, 4)]


def test_a_size_that_only_another_tells(tmp_path: Path) -> None:
    k = ox.Dim("k", min=3)

    def double(x: Any) -> Any:
        return x * 2 if x.shape[1] % 2 == 0 else x

    ox.export.save(double, tmp_path / "m.onnx", ROWS, input_names=["x"], dims={"x": ["batch", 2 * k, 4]})
    loaded = ox.export.load(tmp_path / "m.onnx")
    again = ox.export.save(loaded, tmp_path / "a.onnx", ROWS)
    assert again.contract.rules == loaded.contract.rules and again.dims.startswith("x [batch, 2 * k, 4]")
    assert {"k": 3} in [row.sizes for row in again.rows]  # the proof still runs at its limit
    renamed = ox.export.save(loaded, tmp_path / "b.onnx", ROWS, dims={"x": ["batch", "n", 4]})
    wrapped = ox.export.save(Wrapped(loaded), tmp_path / "c.onnx", ROWS, dims={"x": ["batch", "n", 4]})
    assert str(renamed.contract.rules) == str(wrapped.contract.rules) == "n in 6.. in steps of 2"
    for path in (again.path, renamed.path):
        assert right_at(path, double, (1, 7), (1, 6), (2, 4), (2, 8)) == [False, True, False, True]


@pytest.mark.parametrize("open_dims", [1, 2])
def test_inputs_that_nobody_gave_have_sizes_that_follow(tmp_path: Path, open_dims: int) -> None:
    """A file without golden samples is converted and proven at sizes that it is for."""
    m = ox.Dim("m", min=2, max=8, multiple_of=2)
    rows = (ROWS[:, :4], ROWS[:, :9])[-open_dims:]
    names = ["x", "y"][-open_dims:]
    ox.export.save(
        lambda *inputs: sum(x.sum(1) for x in inputs), tmp_path / "m.onnx", rows, input_names=names,
        dims=dict(zip(reversed(names), (["batch", 2 * m + 1, 4], ["batch", m, 4]), strict=False)),
    )  # fmt: skip
    report, proof = ox.export.convert(tmp_path / "m.onnx", tmp_path / "a.onnx", strip=True)
    assert str(report.contract.rules) == "m in 2..8 in steps of 2" and len(proof.rows) == 3
    report, _ = ox.export.convert(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert report.contract.inputs[-1].dims == ("batch", "2 * m + 1", 4)


@pytest.mark.parametrize("dims", [("batch", "n", 4), ("batch", "n", "n")])
def test_equal_names_are_equal_sizes(tmp_path: Path, dims: tuple[Any, ...]) -> None:
    rows = ROWS[:, :4]
    ox.export.save(
        lambda x, y: (x * 2, y * 2), tmp_path / "m.onnx", (rows, rows), input_names=["x", "y"],
        dims={"x": list(dims), "y": list(dims)},
    )  # fmt: skip
    loaded = ox.export.load(tmp_path / "m.onnx")
    loaded(rows[:2], rows[:2])
    for x, y in ((rows[:2], rows[:3]), (ROWS[:2, :4], ROWS[:2, :5])):
        with pytest.raises(ShapeError, match=r"is \d in input '[xy]' and \d in input 'y'"):
            loaded(x, y)


def test_equal_names_under_other_names(tmp_path: Path) -> None:
    """What opens both separately says that they are equal, or is refused."""
    ox.export.save(
        lambda x, y: x.sum(1) * y.sum(1), tmp_path / "m.onnx", (ROWS, ROWS), input_names=["x", "y"],
        dims={"x": ["batch", "n", 4], "y": ["batch", "n", 4]},
    )  # fmt: skip
    loaded, dims = ox.export.load(tmp_path / "m.onnx"), {"x": ["batch", "p", 4], "y": ["batch", "q", 4]}
    report = ox.export.save(loaded, tmp_path / "a.onnx", (ROWS, ROWS), dims=dims)
    assert set(str(report.contract.rules).split(" == ")) == {"p", "q"}
    with pytest.raises(ExportError) as caught:
        ox.export.save(lambda x, y: loaded(x, y) + 1, tmp_path / "b.onnx", (ROWS, ROWS), dims=dims)
    assert "'n' is 19 in input 'x' and 18 in input 'y'" in str(caught.value)
