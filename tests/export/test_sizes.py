"""Arithmetic on sizes: what is exact goes into the file at any size, what is lost is named with the way out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import einops
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ExportError

F = nn.functional
ROWS = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32)
BATCH: dict[str, list[int | str]] = {"x": ["batch", 6, 4]}
LENGTH: dict[str, list[int | str]] = {"x": ["batch", "length", 4]}


def answers(function: Callable[..., Any], path: Path, dims: Any, sizes: list[tuple[int, int]]) -> None:
    """The file gives what the function gives, at sizes that no recording and no proof has seen."""
    ox.export.save(function, path / "m.onnx", ROWS, dims=dims, input_names=["x"])
    session = ort.InferenceSession(path / "m.onnx")
    for batch, length in sizes:
        x = np.random.default_rng(1).normal(size=(batch, length, 4)).astype(np.float32)
        (got,) = session.run(None, {"x": x})
        expected = function(ox.from_numpy(x)).numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


OPEN: dict[str, Callable[[Any], Any]] = {
    "//": lambda x: x[:, : x.shape[1] // 2],
    "// of a negative size": lambda x: x[:, -x.shape[1] // 2 :],
    "// by a size": lambda x: x * (100 // x.shape[1]),
    "%": lambda x: x * (x.shape[1] % 4),
    "% of a number": lambda x: x * (100 % x.shape[1]),
    "% of a negative size": lambda x: x * ((-x.shape[1]) % 8),
    "divmod": lambda x: x[:, : divmod(x.shape[1], 2)[0]] * divmod(x.shape[1], 2)[1],
    "**": lambda x: x * x.shape[1] ** 2,
    "abs": lambda x: x * abs(x.shape[1] - 10),
    "/": lambda x: x * (x.shape[1] / 2),
    "1 / size": lambda x: x * (1 / x.shape[1]),
    "/ and *": lambda x: x * (x.shape[1] / 3 * 2 / x.shape[0]),
    "math.ceil": lambda x: x[:, : math.ceil(x.shape[1] / 2)],
    "math.floor": lambda x: x[:, : math.floor(x.shape[1] / 2.0)],
    "math.trunc": lambda x: x * math.trunc((x.shape[1] - 20) / 3),
    "math.prod": lambda x: x.reshape(math.prod(x.shape[:2]), 4),
    "padding to a multiple": lambda x: F.pad(x, (0, 0, 0, (8 - x.shape[1] % 8) % 8)),
    "padding by math.ceil": lambda x: F.pad(x, (0, 0, 0, math.ceil(x.shape[1] / 8) * 8 - x.shape[1])),
    "a root": lambda x: x * x.shape[1] ** -0.5,
    "a root, scaled": lambda x: x / (2 * x.shape[1] ** 0.5) + (x.shape[0] ** 0.5) * x / 3,
    "tril": lambda x: (x @ x.mT).tril(diagonal=x.shape[1] // 2) + (x @ x.mT).triu(1 - x.shape[1] // 3),
    "a causal mask": lambda x: x @ x.mT + nn.Transformer.generate_square_subsequent_mask(x.shape[1]).exp(),
    "eye": lambda x: x @ x.mT + ox.eye(x.shape[1]),
    "linspace": lambda x: x * ox.linspace(-1, x.shape[1], x.shape[1])[:, None],
    "chunk": lambda x: ox.cat(x.chunk(2, 1)[::-1], 1),
    "a split of what is fixed": lambda x: ox.cat((x + 1).split(3, -1)[::-1], -1),
    "einops": lambda x: einops.repeat(
        einops.reduce(einops.rearrange(x, "b n (h d) -> b h n d", h=2), "b h n d -> b n h", "max"),
        "b n h -> (b n) h k",
        k=3,
    ),
    "numel": lambda x: x.reshape(x.numel() // 4, 4) / x.numel(),
    "torch.Size": lambda x: x.reshape((*x.shape[:1], x.shape[1] * 4)),
    "len": lambda x: ox.zeros(len(x), 1, 4) + x * len(x[0]) / len(x),
    "comparison": lambda x: x * 2 if x.shape[1] == (x + 1).shape[1] else x,
    "tensor": lambda x: x * ox.tensor(x.shape[1]) + ox.tensor([x.shape[0], 1, 1, 1]),
    "text": lambda x: x * len(f"{x.shape[0]:>9} of {x.shape[1]:>9}"),
}


@pytest.mark.filterwarnings("ignore")
@rows("name", OPEN)
def test_arithmetic_keeps_a_size(tmp_path: Path, name: str) -> None:
    answers(OPEN[name], tmp_path, LENGTH, [(1, 6), (4, 9), (5, 13), (2, 16)])


RESHAPED: dict[str, Callable[[Any], Any]] = {
    "int(a / b)": lambda x: x.reshape(-1, 4).reshape(int(x.numel() / 24), 6, 2, 2),
    "int(a / b) and -1": lambda x: x.reshape(-1, 4).reshape(int(x.reshape(-1, 4).shape[0] / (12 / 2)), -1, 2, 2),
    "int": lambda x: x.reshape(int(x.shape[0]), -1),
    "len": lambda x: x.reshape(len(x), -1),
    "NumPy": lambda x: x.reshape(int(np.prod(x.shape[:2])), 4),
    "windows": lambda x: x.reshape(int(x.shape[0]), x.shape[1] // 2, 2, -1).permute(0, 2, 1, 3),
    "not the first": lambda x: x.permute(1, 0, 2).reshape(2, 3, int(x.shape[0]), 4),
}


@rows("name", RESHAPED)
def test_a_reshape_with_one_number_that_varies(tmp_path: Path, name: str) -> None:
    answers(RESHAPED[name], tmp_path, BATCH, [(1, 6), (5, 6), (11, 6)])


LOST: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int(a / b)": (lambda x: x[:, : int(x.shape[1] / 2)], "a // b"),
    "int": (lambda x: ox.zeros(int(x.shape[0]), 1, 4) + x, "without int()"),
    "sqrt": (lambda x: x / math.sqrt(x.shape[1]), "ox.zeros(()) + x.shape[1]"),
    "round": (lambda x: x[:, : round(x.shape[1] / 2)], "math.floor"),
    "-1 beside padding": (
        lambda x: F.pad(x, (0, 0, 0, (8 - x.shape[1] % 8) % 8)).reshape(int(x.shape[0]), -1),
        "without int()",  # [2, 32] and [3, 32], but 64 from length 9 on
    ),
    "two numbers": (lambda x: x.reshape(int(x.shape[0]), int(x.shape[1]), 2, 2), "without int()"),
    "range": (lambda x: sum(x[:, i] for i in range(x.shape[1])), "no `if` or loop over a size"),
}


@rows("name", LOST)
def test_what_is_lost_is_named(tmp_path: Path, name: str) -> None:
    function, way_out = LOST[name]
    with pytest.raises(ExportError, match=r"baked into the model|another path") as caught:
        ox.export.save(function, tmp_path / "m.onnx", ROWS, dims=LENGTH, input_names=["x"])
    assert "test_sizes.py" in str(caught.value.where) and way_out in str(caught.value.hint)
    assert not (tmp_path / "m.onnx").exists()
    answers(function, tmp_path, {"x": [8, 6, 4]}, [(8, 6)])  # as fixed sizes they cost nothing


def test_the_way_out_of_a_root(tmp_path: Path) -> None:
    answers(lambda x: x / (ox.zeros(()) + x.shape[1]).sqrt(), tmp_path, LENGTH, [(1, 6), (4, 9)])


def windows_of(x: Any, w: int) -> Any:
    b, h, wide, c = x.shape
    return x.view(b, h // w, w, wide // w, w, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, w, w, c)


def joined(windows: Any, w: int, h: int, wide: int) -> Any:
    b = int(windows.shape[0] / (h * wide / w / w))
    x = windows.view(b, h // w, wide // w, w, w, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, wide, -1)


class Block(nn.Module):
    """Attention within shifted windows."""

    def __init__(self, channels: int, w: int, shift: int) -> None:
        super().__init__()
        self.w, self.shift = w, shift
        self.norm, self.attend = nn.LayerNorm(channels), nn.MultiheadAttention(channels, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        _, h, wide, c = x.shape
        y = ox.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = windows_of(y, self.w).view(-1, self.w * self.w, c)
        y = self.attend(y, y, y, need_weights=False)[0]
        y = joined(y.view(-1, self.w, self.w, c), self.w, h, wide)
        return x + ox.roll(y, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, 2)
        self.blocks = nn.Sequential(Block(8, 4, 0), Block(8, 4, 2))
        self.head = nn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        return self.head(self.blocks(self.patches(image).permute(0, 2, 3, 1)).mean((1, 2)))


def test_swin_at_other_batch_sizes(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = Swin().eval()
    images = np.random.default_rng(0).normal(size=(13, 3, 16, 16)).astype(np.float32)
    ox.export.save(model, tmp_path / "swin.onnx", images)
    session = ort.InferenceSession(tmp_path / "swin.onnx")
    for batch in (1, 5, 13):
        (got,) = session.run(None, {"image": images[:batch]})
        expected = model(ox.from_numpy(images[:batch])).detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_reshape_with_one_number_beside_sizes_that_vary(tmp_path: Path) -> None:
    """Swin's ``windows.view(int(windows.shape[0] / ...), H // w, W // w, w, w, -1)`` at any size of the image."""
    answers(RESHAPED["windows"], tmp_path, {"x": ["batch", ox.Dim("n", multiple_of=2), 4]}, [(1, 2), (5, 6), (3, 40)])


def test_groups_of_a_convolution(tmp_path: Path) -> None:
    wide = {"x": ["batch", ox.Dim("length", min=6), 4]}

    def function(x: Any) -> Any:
        batch = x.shape[0]
        own = x[:, :3].reshape(batch * 2, 2, 3)
        y = x.reshape(1, batch * 4, -1)
        first = F.conv1d(y, own, own[:, 0, 0], 2, 1, 2, groups=batch * 2)
        images = x[:, :6].reshape(1, batch * 2, 3, 4)
        second = F.conv2d(images, own.reshape(batch * 2, 1, 2, 3), padding="same", groups=batch * 2)
        return first.reshape(batch, 2, -1).square().sum(-1) + second.reshape(batch, 2, -1).sum(-1)

    answers(function, tmp_path, wide, [(1, 6), (4, 9), (5, 13)])
    model = onnx.load(tmp_path / "m.onnx")
    assert not any(node.op_type == "Conv" for node in model.graph.node)  # whose groups are a number


def test_an_input_that_is_one_whole_number(tmp_path: Path) -> None:
    """A sampling rate beside the sound: it stays an array, which ONNX Runtime wants, at every size of the proof."""
    rows, rate = ROWS, np.array(16000)
    dims = {"x": ["batch", "length", 4], "rate": []}
    ox.export.save(
        lambda x, rate: x.mean(1) * (rate / 8000),
        tmp_path / "m.onnx",
        (rows, rate),
        dims=dims,
        input_names=["x", "rate"],
    )
    (got,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": rows, "rate": np.array(8000)})
    np.testing.assert_allclose(got, rows.mean(1), rtol=1e-5, atol=1e-6)


def test_a_spectrum_of_a_known_length(tmp_path: Path) -> None:
    """onnx 1.23 infers twice the bins where a file does not say that half of them are kept."""
    weight = ox.randn(33, 2)

    def function(x: Any) -> Any:
        y = ox.stft(x, 64, 16, window=ox.hann_window(64), return_complex=False).square().sum(-1)
        return y.transpose(1, 2) @ weight

    x = np.random.default_rng(0).normal(size=(12, 256)).astype(np.float32)
    report = ox.export.save(function, tmp_path / "m.onnx", x, input_names=["x"])
    assert report.dims == "x [batch, 256] → output [batch, 17, 2]"


def test_a_size_that_onnx_infers_wrongly(tmp_path: Path) -> None:
    """onnx 1.23 gives STFT 64 bins where 33 are kept."""
    window = ox.hann_window(64)

    def spectrum(x: Any) -> Any:
        y = ox.stft(x, 64, 16, window=window, return_complex=False)
        return y.reshape(x.shape[0], y.shape[1] * 2, -1) * y.shape[1], y

    x = np.random.default_rng(0).normal(size=(12, 256)).astype(np.float32)
    report = ox.export.save(spectrum, tmp_path / "spectrum.onnx", x, input_names=["x"])
    assert "64" not in report.dims
    flat, bins = ort.InferenceSession(tmp_path / "spectrum.onnx").run(None, {"x": x})
    assert flat.shape == (12, 66, 17) and bins.shape == (12, 33, 17, 2)


@pytest.mark.parametrize("name", ["unique", "places", "mask"])
def test_sizes_that_depend_on_values_are_open(tmp_path: Path, name: str) -> None:
    """Also where all examples happen to give one number of values."""
    functions: dict[str, Callable[[Any], Any]] = {
        "unique": lambda x: ox.unique(x) * 2,
        "places": lambda x: (x[:, 0] > 1).nonzero(),
        "mask": lambda x: x[:1][x[:1] == 2],
    }
    example = np.tile(np.array([[0, 1, 2]]), (8, 1))
    report = ox.export.save(functions[name], tmp_path / "m.onnx", example, input_names=["x"], golden=None)
    (output,) = report.contract.outputs
    assert output.dims[0] == "output_0"


@rows(
    "dims",
    [
        {"x": ["n"], "order": ["n"]},
        {"x": ["n"], "order": ["m"]},
        {"x": ["n"], "order": [8]},
        {"x": ["n", 2], "order": ["n"]},
        {"x": ["batch", "n"], "order": ["n"]},
    ],
)
def test_indices_into_the_size_that_they_have(dims: dict[str, list[int | str]], tmp_path: Path) -> None:
    """`x[order]`: with fewer rows, and in golden samples of one, the indices are smaller too."""
    random = np.random.default_rng(0)
    x = random.standard_normal((8,) if len(dims["x"]) == 1 else (8, 2) if dims["x"][0] == "n" else (3, 8))
    axis = len(dims["x"]) - 1 if dims["x"][0] == "batch" else 0
    report = ox.export.save(
        lambda x, order: ox.index_select(x, axis, order), tmp_path / "m.onnx", (x, np.arange(8)[::-1].copy()),
        dims=dims, input_names=["x", "order"],
    )  # fmt: skip
    assert report.contract.inputs[1].dims == tuple(dims["order"])
    for sample in report.contract.samples:
        assert sample.inputs["order"].max() < sample.inputs["x"].shape[axis]


def test_a_batch_that_may_be_empty(tmp_path: Path) -> None:
    """The proof runs there, too, and what cannot is refused."""
    x, dims = np.ones((4, 3), np.float32), {"input": [ox.Dim("batch", min=0), 3]}
    report = ox.export.save(nn.Linear(3, 2), tmp_path / "m.onnx", x, dims=dims)
    assert 0 in [row.batch for row in report.rows]
    assert ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"input": x[:0]})[0].shape == (0, 2)
    assert ox.export.load(tmp_path / "m.onnx")(ox.from_numpy(x[:0])).shape == (0, 2)
    with pytest.raises(ExportError, match="does not run at the smallest batch that was declared"):
        ox.export.save(lambda input: input - input.max(0).values, tmp_path / "n.onnx", x, dims=dims)
    assert not (tmp_path / "n.onnx").exists()


@rows("kind", [nn.LSTM, nn.GRU])
@rows("rows_first", [True, False])
def test_a_recurrent_layer_without_rows_is_refused(tmp_path: Path, kind: Any, rows_first: bool) -> None:
    """ONNX Runtime's kernels would end the process."""
    layer, x = kind(3, 4, batch_first=rows_first), np.ones((4, 4, 3), np.float32)
    n = ox.Dim("n", min=0)
    rows = [n, "t", 3] if rows_first else ["t", n, 3]
    with pytest.raises(ExportError, match=r"would end the process: .* without rows"):
        ox.export.save(lambda x: layer(x)[0], tmp_path / "m.onnx", x, dims={"x": rows}, input_names=["x"])
    assert not (tmp_path / "m.onnx").exists()
    with pytest.raises(ExportError, match="would end the process"):  # inside a subgraph
        ox.export.save(
            lambda x: ox.cond(x.sum() > -1, lambda: layer(x)[0], lambda: x.sum(2, keepdim=True).expand(-1, -1, 4) * 1),
            tmp_path / "m.onnx", x, dims={"x": rows}, input_names=["x"],
        )  # fmt: skip
    ox.export.save(lambda x: layer(x)[0], tmp_path / "m.onnx", x, dims={"x": ["a", "b", 3]}, input_names=["x"])
    with pytest.raises(ox.errors.ArgumentError, match="cannot run with these inputs"):
        ox.export.prove(tmp_path / "m.onnx", tmp_path / "m.onnx", inputs=x[:0] if rows_first else x[:, :0])
