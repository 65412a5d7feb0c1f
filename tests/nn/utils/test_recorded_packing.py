"""Packed sequences whose lengths a recording takes, in a file, with lengths that no recording has seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import nn
from ox.nn.utils.rnn import invert_permutation, pack_padded_sequence, pad_packed_sequence


class Reader(nn.Module):
    def __init__(self, layer: nn.Module, total: bool, sorted_lengths: bool) -> None:
        super().__init__()
        self.layer, self.total, self.sorted_lengths = layer, total, sorted_lengths

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, self.layer.batch_first, self.sorted_lengths)
        y, last = self.layer(packed)
        steps = x.shape[1 if self.layer.batch_first else 0]
        padded, own = pad_packed_sequence(y, self.layer.batch_first, -2.0, steps if self.total else None)
        return padded, own, last[0] if isinstance(last, tuple) else last, y.data.sum()


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    "GRU": lambda: nn.GRU(3, 4, batch_first=True),
    "RNN": lambda: nn.RNN(3, 4, bidirectional=True),
    "projections": lambda: nn.LSTM(3, 4, proj_size=2, batch_first=True),
}


@rows(("total", "in_order"), [(True, False), (False, True)])
@rows("name", LAYERS)
def test_lengths_of_the_input(tmp_path: Path, name: str, total: bool, in_order: bool) -> None:
    ox.manual_seed(0)
    model = Reader(LAYERS[name](), total, in_order).eval()
    first = model.layer.batch_first
    dims = {"x": ["n", "t", 3] if first else ["t", "n", 3], "lengths": ["n"]}
    lengths = np.array([5, 5, 5, 5]) if in_order else np.array([2, 5, 4, 4])
    example = np.random.default_rng(0).normal(size=(4, 5, 3) if first else (5, 4, 3)).astype(np.float32)
    ox.export.save(model, tmp_path / "m.onnx", (example, lengths), dims=dims)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    for steps, others in ((7, [7, 3, 1]), (4, [3])):
        others = others if in_order else others[::-1]
        shape = (len(others), steps, 3) if first else (steps, len(others), 3)
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        got = session.run(None, {"x": x, "lengths": np.array(others)})
        expected = model(ox.from_numpy(x), ox.tensor(others))
        for a, b in zip(got, expected, strict=True):
            assert a.shape == tuple(b.shape)
            np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-5)
        assert got[1].tolist() == others


def test_an_order_and_its_inverse(tmp_path: Path) -> None:
    def model(x: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        assert packed.sorted_indices is not None
        return packed.sorted_indices, packed.unsorted_indices, invert_permutation(packed.unsorted_indices)

    x, lengths = np.zeros((4, 6, 2), np.float32), np.array([3, 6, 1, 3])
    ox.export.save(model, tmp_path / "m.onnx", (x, lengths), dims={"x": ["n", "t", 2], "lengths": ["n"]})
    got = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x[:3], "lengths": np.array([1, 5, 2])})
    assert [a.tolist() for a in got] == [[1, 2, 0], [2, 0, 1], [1, 2, 0]]


def test_lengths_are_still_looked_at() -> None:
    def model(x: Any, lengths: Any) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True).data

    with pytest.raises(ox.errors.OxError, match="descending order"):
        ox.export.save(model, "never.onnx", (ox.randn(3, 5, 2), ox.tensor([2, 5, 4])))
