"""Tables of rows: embeddings, bags and one-hot codes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ox.nn import functional as F

W = np.arange(10.0, dtype=np.float32).reshape(5, 2)
I = np.array([0, 3, 3, 1])  # noqa: E741


def table() -> ox.Tensor:
    return ox.tensor(W, requires_grad=True)


def test_rows_and_their_gradient() -> None:
    w = table()
    rows = F.embedding(ox.tensor(I), w, padding_idx=1)
    assert rows.tolist() == W[I].tolist()
    rows.sum().backward()
    assert w.grad.tolist() == [[1, 1], [0, 0], [0, 0], [2, 2], [0, 0]]


@pytest.mark.parametrize("rows", [4, 300])
def test_a_single_index_gives_a_row(rows: int) -> None:
    """Of a small table and of one that a compiled kernel reads."""
    layer = nn.Embedding(rows, 65)
    y = layer(ox.tensor(3))
    y.sum().backward()
    assert y.shape == (65,) and layer.weight.grad is not None
    np.testing.assert_array_equal(y.detach().numpy(), layer.weight.detach().numpy()[3])
    expected = np.zeros((rows, 65), np.float32)
    expected[3] = 1
    np.testing.assert_array_equal(layer.weight.grad.numpy(), expected)


def test_a_gradient_by_frequency() -> None:
    w = table()
    F.embedding(ox.tensor(I), w, scale_grad_by_freq=True).sum().backward()
    assert w.grad.tolist() == [[1, 1], [1, 1], [0, 0], [1, 1], [0, 0]]


def test_long_rows_are_scaled_down_where_they_are_read() -> None:
    layer = nn.Embedding(5, 2, max_norm=2.0)
    layer.load_state_dict({"weight": ox.tensor(W)})
    layer(ox.tensor(I))
    lengths = np.linalg.norm(layer.weight.detach().numpy(), axis=1)
    assert lengths[[0, 1, 3]] == pytest.approx([1, 2, 2], rel=1e-4)
    assert lengths[[2, 4]] == pytest.approx(np.linalg.norm(W[[2, 4]], axis=1))


@pytest.mark.parametrize(("mode", "expected"), [("sum", [W[0] + W[3], W[3] + W[1]]), ("max", [W[3], W[3]])])
def test_bags_of_one_size_and_with_offsets_are_the_same(mode: str, expected: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    bags = nn.EmbeddingBag.from_pretrained(ox.tensor(W), mode=mode)
    assert bags(ox.tensor(I.reshape(2, 2))).tolist() == np.stack(expected).tolist()
    assert bags(ox.tensor(I), ox.tensor([0, 2])).tolist() == np.stack(expected).tolist()


def test_an_empty_bag_is_zero_and_padding_does_not_count() -> None:
    made = F.embedding_bag(ox.tensor(I), ox.tensor(W), ox.tensor([0, 3, 3]), padding_idx=3)
    assert made.tolist() == [W[0].tolist(), [0, 0], W[1].tolist()]


def test_one_hot() -> None:
    assert F.one_hot(ox.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert F.one_hot(ox.tensor(1), 2).tolist() == [0, 1]


def test_bilinear() -> None:
    layer = nn.Bilinear(2, 3, 4)
    a, b = ox.randn(5, 2), ox.randn(5, 3)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = np.einsum("ni,oij,nj->no", a.numpy(), weight, b.numpy()) + bias
    np.testing.assert_allclose(layer(a, b).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(weight).max() <= 2**-0.5


def test_refused() -> None:
    w = ox.tensor(W)
    with pytest.raises(BoundsError, match="out of range"):
        F.embedding(ox.tensor([5]), w)
    with pytest.raises(DTypeError, match="int64 or int32"):
        F.embedding(w, w)
    with pytest.raises(ShapeError, match="or a vector and offsets"):
        F.embedding_bag(ox.tensor(I), w)
    with pytest.raises(ArgumentError, match="mode 'min'"):
        F.embedding_bag(ox.tensor(I), w, ox.tensor([0]), mode="min")
    with pytest.raises(BoundsError, match="not among the classes"):
        F.one_hot(ox.tensor([3]), 3)
    with pytest.raises(ArgumentError, match="padding_idx"):
        nn.Embedding(3, 2, padding_idx=3)
    with pytest.raises(ShapeError, match="bilinear"):
        nn.Bilinear(2, 3, 4)(ox.ones(5, 2), ox.ones(4, 3))
