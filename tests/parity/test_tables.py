"""Embeddings, bags, one-hot codes, bilinear forms and distances as layers, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import assert_same, check_error, check_gradient, check_value, split, torch

import ox

R = np.random.default_rng(6)
ARRAYS = {
    "x": R.normal(size=(5, 3)),
    "w": R.normal(size=(4, 3, 2)),
    "y": R.normal(size=(6, 2)),
    "v": R.normal(size=(6,)),
    "i": np.array([[1, 0, 4], [4, 4, 2]]),
    "f": np.array([1, 0, 4, 4, 4, 2]),
    "o": np.array([0, 2, 2, 5]),
    "l": np.array([0, 2, 2, 6]),
    "j": np.array([1, 0], np.int32),
}

VALUES = """
F.embedding(i, x); F.embedding(f, x, padding_idx=4); F.embedding(j, x); F.embedding(i[0, 0], x)
F.embedding(i, x, max_norm=1.0); F.embedding(f, x, max_norm=0.5, norm_type=1.0); F.embedding(i[:, :0], x)
F.embedding(i, x, -1); (F.embedding(i, x, max_norm=1.0), x); F.embedding_bag(i, x); F.embedding_bag(i, x, mode="sum")
F.embedding_bag(i, x, mode="max"); F.embedding_bag(f, x, o); F.embedding_bag(f, x, o, mode="sum")
F.embedding_bag(f, x, o, mode="max"); F.embedding_bag(i, x, padding_idx=4)
F.embedding_bag(f, x, o, padding_idx=4, mode="max"); F.embedding_bag(f, x, o, padding_idx=4, mode="sum")
F.embedding_bag(f, x, l, include_last_offset=True); F.embedding_bag(f, x, o, mode="sum", per_sample_weights=v)
F.embedding_bag(i, x, mode="sum", per_sample_weights=v.reshape(2, 3)); F.embedding_bag(f, x, o[:1])
F.embedding_bag(i, x, max_norm=1.0); F.one_hot(i); F.one_hot(i, 7); F.one_hot(f[0]); F.one_hot(f[:0], 3)
F.one_hot(i, num_classes=5); F.bilinear(y[:5].repeat(1, 2)[:, :3], y[:5], w); F.bilinear(x, y[:5], w, v[:4])
F.bilinear(x[None], y[None, :5], w); F.bilinear(x[0], y[0], w); F.linear(x, w[:, :, 0])
F.linear(x[None], w[:, :, 0], v[:4])
"""

GRADIENTS = """
F.embedding(i, x) ** 2; F.embedding(f, x, padding_idx=4) ** 2; F.embedding(f, x) * v[:, None]
F.embedding_bag(i, x) ** 2; F.embedding_bag(f, x, o, mode="sum") ** 2
F.embedding_bag(f, x, o, mode="sum", per_sample_weights=v) ** 2; F.embedding_bag(f, x, o, padding_idx=4) ** 2
F.bilinear(x, y[:5], w, v[:4]) ** 2; F.embedding(f, x, scale_grad_by_freq=True) * v[:, None]
F.embedding_bag(f[:5], x, o[:3], mode="max") ** 2
"""

ERRORS = """
F.embedding(i + 1, x); F.embedding(-i, x); F.embedding(x, x); F.embedding(i, x, padding_idx=9); F.embedding(i, v)
F.embedding_bag(i, x, o); F.embedding_bag(f, x); F.embedding_bag(f, x, o + 1); F.embedding_bag(f, x, o, mode="min")
F.embedding_bag(i, x, per_sample_weights=v.reshape(2, 3)); F.embedding_bag(f + 1, x, o)
F.embedding_bag(f, x, o, mode="sum", per_sample_weights=v[:2]); F.one_hot(x); F.one_hot(-i); F.one_hot(i, 3)
F.one_hot(i, 0); F.one_hot(f[:0]); F.bilinear(x, y, w); F.bilinear(x, x, w); F.linear(x, y)
nn.Embedding(3, 2, padding_idx=5); nn.Bilinear(0, 2, 3); nn.Embedding.from_pretrained(v); nn.Embedding(3, 2, _weight=x)
"""

FIRST_ORDER = ("scale_grad", 'mode="max"', "embedding_bag")


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    """PyTorch has no second order of a bag, nor of a scaled gradient."""
    check_gradient(expression, ARRAYS, ("x", "w", "y", "v"), not any(mark in expression for mark in FIRST_ORDER))


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


LAYERS: list[tuple[str, list[str]]] = [
    ("Embedding(5, 3)", ["i"]),
    ("Embedding(5, 3, padding_idx=-1)", ["f"]),
    ("Embedding(5, 3, 0, 1.0, 1.0)", ["i"]),
    ("Embedding(5, 3, scale_grad_by_freq=True)", ["f"]),
    ("EmbeddingBag(5, 3)", ["i"]),
    ("EmbeddingBag(5, 3, mode='max')", ["f", "o"]),
    ("EmbeddingBag(5, 3, mode='sum', padding_idx=4)", ["f", "o"]),
    ("EmbeddingBag(5, 3, include_last_offset=True)", ["f", "l"]),
    ("Bilinear(3, 2, 4)", ["a", "b"]),
    ("Bilinear(3, 2, 4, bias=False)", ["a", "b"]),
    ("PairwiseDistance()", ["a", "c"]),
    ("PairwiseDistance(1, keepdim=True)", ["a", "c"]),
    ("CosineSimilarity()", ["a", "c"]),
    ("CosineSimilarity(dim=0, eps=1e-3)", ["a", "c"]),
    ("Flatten()", ["a"]),
    ("Flatten(0)", ["a"]),
    ("Unflatten(1, (3, 1))", ["a"]),
    ("Unflatten(-1, [1, -1])", ["a"]),
    ("Identity(3, key=4)", ["a"]),
]


@pytest.mark.parametrize(("made", "given"), LAYERS)
def test_layer(made: str, given: list[str]) -> None:
    arrays: dict[str, Any] = {
        "i": ARRAYS["i"],
        "f": ARRAYS["f"],
        "o": ARRAYS["o"],
        "l": ARRAYS["l"],
        "a": R.normal(size=(5, 3)).astype(np.float32),
        "b": R.normal(size=(5, 2)).astype(np.float32),
        "c": R.normal(size=(5, 3)).astype(np.float32),
    }
    ours, theirs = eval(f"nn.{made}", {"nn": ox.nn}), eval(f"nn.{made}", {"nn": torch.nn})
    state = {name: value.clone() for name, value in theirs.state_dict().items()}
    ours.load_state_dict({name: ox.tensor(value.numpy()) for name, value in state.items()})
    assert repr(ours) == repr(theirs)
    got = ours(*[ox.tensor(arrays[name]) for name in given])
    expected = theirs(*[torch.tensor(arrays[name]) for name in given])
    assert_same(got, expected, 1e-5, 1e-6)
    if not state:
        return
    (got * got).sum().backward()
    (expected * expected).sum().backward()
    for name, parameter in theirs.named_parameters():
        own = dict(ours.named_parameters())[name]
        assert_same(own.grad, parameter.grad, 1e-4, 1e-5)
        assert_same(own, parameter, 1e-5, 1e-6)


def test_pretrained_rows_are_not_trained() -> None:
    rows = ox.randn(4, 2)
    assert not ox.nn.Embedding.from_pretrained(rows).weight.requires_grad
    table = ox.nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="sum")
    assert table.weight.requires_grad
    assert table.weight.tolist() == rows.tolist()
