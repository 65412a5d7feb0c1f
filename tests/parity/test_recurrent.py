"""Recurrent layers, cells and packed sequences in ox and in PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sides import assert_same, torch

import ox

T, N, SIZE, H = 5, 3, 4, 6
LENGTHS = [4, 5, 2]
LAYERS: list[tuple[str, dict[str, Any]]] = [
    *product(
        ("RNN", "LSTM", "GRU"),
        [
            {},
            {"num_layers": 2},
            {"bidirectional": True},
            {"num_layers": 2, "bidirectional": True, "batch_first": True},
            {"bias": False, "batch_first": True},
        ],
    ),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
    ("LSTM", {"proj_size": 2}),
    ("LSTM", {"proj_size": 3, "num_layers": 2, "bidirectional": True, "bias": False}),
]


def array(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def pair(kind: str, *args: Any, dtype: Any = np.float64, **options: Any) -> tuple[Any, Any]:
    """The layer of both sides with one set of weights."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(*args, **options)
    ours = getattr(ox.nn, kind)(*args, **options)
    if dtype == np.float64:
        theirs, ours = theirs.double(), ours.double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy().copy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def states(kind: str, options: dict[str, Any], batch: tuple[int, ...] = (N,), dtype: Any = np.float64) -> Any:
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    first = array(count, *batch, options.get("proj_size") or H, seed=3, dtype=dtype)
    return (first, array(count, *batch, H, seed=4, dtype=dtype)) if kind == "LSTM" else first


def made(T_: Any, value: Any, follow: bool = True) -> Any:
    if isinstance(value, tuple):
        return tuple(made(T_, v, follow) for v in value)
    return T_.tensor(value, requires_grad=follow)


def flat(value: Any) -> list[Any]:
    return [y for v in value for y in flat(v)] if isinstance(value, tuple) else [value]


def both(ours: Any, theirs: Any, *inputs: Any, run: Any = None, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    """Outputs, the gradients of inputs and parameters, and those of a function of the gradients."""
    found = []
    for side, model in ((ox, ours), (torch, theirs)):
        given = [made(side, x) for x in inputs]
        result = flat(run(side, model, *given) if run else model(*given))
        leaves = [*(y for x in given for y in flat(x)), *model.parameters()]
        loss = sum((y * y * (i + 1)).sum() for i, y in enumerate(result))
        first = side.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        second = side.autograd.grad(sum((g * g).sum() for g in first if g is not None), leaves, allow_unused=True)
        found.append((tuple(result), tuple(first), tuple(second)))
    (y, first, second), (y_, first_, second_) = found
    assert_same(y, y_, rtol, atol)
    assert_same(first, first_, rtol * 10, atol * 10)
    assert_same(second, second_, rtol * 100, atol * 100)


@pytest.mark.parametrize(("kind", "options"), LAYERS)
@pytest.mark.parametrize("given", [False, True])
def test_layers(kind: str, options: dict[str, Any], given: bool) -> None:
    ours, theirs = pair(kind, SIZE, H, **options)
    x = array(N, T, SIZE) if options.get("batch_first") else array(T, N, SIZE)
    both(ours, theirs, x, *([states(kind, options)] if given else []))


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_without_a_batch(kind: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(kind, SIZE, H, **options)
    both(ours, theirs, array(T, SIZE))
    both(ours, theirs, array(T, SIZE), states(kind, options, batch=()))


@pytest.mark.parametrize(("kind", "options"), LAYERS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_float32(kind: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(kind, SIZE, H, dtype=np.float32, **options)
    x = array(N, T, SIZE, dtype=np.float32) if options.get("batch_first") else array(T, N, SIZE, dtype=np.float32)
    first = states(kind, options, dtype=np.float32)
    for side_first in (None, first):
        mine = ours(ox.tensor(x), None if side_first is None else made(ox, side_first, False))
        yours = theirs(torch.tensor(x), None if side_first is None else made(torch, side_first, False))
        assert_same(flat(mine), flat(yours), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
def test_float32_gradients(kind: str, packed: bool) -> None:
    """More units and samples than a block of the compiled kernels has."""
    ours, theirs = pair(kind, 20, 45, num_layers=2, bidirectional=True, dtype=np.float32)
    x = array(9, 11, 20, dtype=np.float32)

    def run(side: Any, model: Any, x: Any) -> Any:
        if not packed:
            return model(x)
        rnn = side.nn.utils.rnn
        out, last = model(rnn.pack_padded_sequence(x, [9, 2, 5, 7, 7, 1, 9, 3, 8, 6, 4], enforce_sorted=False))
        return (rnn.pad_packed_sequence(out)[0], last)

    both(ours, theirs, x, run=run, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("kind", "options"), LAYERS)
@pytest.mark.parametrize("given", [False, True])
def test_packed(kind: str, options: dict[str, Any], given: bool) -> None:
    ours, theirs = pair(kind, SIZE, H, **options)
    first = options.get("batch_first", False)
    x = array(N, T, SIZE) if first else array(T, N, SIZE)

    def run(side: Any, model: Any, x: Any, *states: Any) -> Any:
        rnn = side.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, LENGTHS, batch_first=first, enforce_sorted=False)
        out, last = model(packed, *states)
        padded, lengths = rnn.pad_packed_sequence(out, batch_first=first)
        assert lengths.tolist() == LENGTHS
        return (padded, last, out.data)

    both(ours, theirs, x, *([states(kind, options)] if given else []), run=run)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *product(("RNNCell", "LSTMCell", "GRUCell"), ({}, {"bias": False})),
        ("RNNCell", {"nonlinearity": "relu"}),
    ],
)
def test_cells(kind: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(kind, SIZE, H, **options)
    for batch in ((N,), ()):
        both(ours, theirs, array(*batch, SIZE))
        first = array(*batch, H, seed=1)
        both(ours, theirs, array(*batch, SIZE), (first, array(*batch, H, seed=2)) if kind == "LSTMCell" else first)


def test_representations() -> None:
    for kind, options in LAYERS:
        options = {**options, "dropout": 0.2} if options.get("num_layers") else options
        ours, theirs = pair(kind, SIZE, H, **options)
        assert repr(ours) == repr(theirs)
        assert [len(w) for w in ours.all_weights] == [len(w) for w in theirs.all_weights]
        assert ours._all_weights == theirs._all_weights
    for kind, options in (("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {"bias": False}), ("GRUCell", {})):
        assert repr(getattr(ox.nn, kind)(2, 3, **options)) == repr(getattr(torch.nn, kind)(2, 3, **options))


def sequences(side: Any) -> list[Any]:
    return [side.tensor(array(n, 2, seed=n)) for n in (2, 4, 3)]


# of s, sequences of lengths 2, 4, 3, and x [5, 3, 4], padded
EXPRESSIONS = [
    "rnn.pad_sequence(s)",
    "rnn.pad_sequence(s, batch_first=True)",
    "rnn.pad_sequence(s, True, -1.5)",
    "rnn.pad_sequence(s, padding_side='left')",
    "rnn.pack_sequence(s, enforce_sorted=False)",
    "rnn.pack_sequence([s[1], s[2], s[0]])",
    "rnn.pack_padded_sequence(x, [5, 3, 1])",
    "rnn.pack_padded_sequence(x, T.tensor([3, 5, 3]), enforce_sorted=False)",
    "rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [4, 3, 1]))",
    "rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False), True, 7.0, 6)",
    "tuple(rnn.unpad_sequence(x, T.tensor([5, 3, 1])))",
    "tuple(rnn.unpad_sequence(x, T.tensor([5, 3, 4, ]), batch_first=False))",
    "tuple(rnn.unpack_sequence(rnn.pack_sequence(s, enforce_sorted=False)))",
    "rnn.invert_permutation(T.tensor([2, 0, 1]))",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_sequences(expression: str) -> None:
    got, expected = (
        eval(
            expression, {"T": side, "rnn": side.nn.utils.rnn, "s": sequences(side), "x": side.tensor(array(T, N, SIZE))}
        )
        for side in (ox, torch)
    )
    assert_same(*(tuple(v) if isinstance(v, tuple) else v for v in (got, expected)))


REFUSED = [
    "nn.LSTM(4, 6)(x, x)",
    "nn.LSTM(4, 6)(x, (h, h[:, :2]))",
    "nn.GRU(4, 6)(x, h[0])",
    "nn.GRU(4, 6)(x[..., :3])",
    "nn.RNN(4, 6)(x[0, 0])",
    "nn.RNN(4, 6)(x[None])",
    "nn.RNN(4, 6)(x[:0])",
    "nn.RNN(4, 6, nonlinearity='sine')",
    "nn.LSTM(4, 6, proj_size=6)",
    "nn.GRU(4, 6, proj_size=2)",
    "nn.LSTM(4, 0)",
    "nn.LSTM(4, 6, num_layers=0)",
    "nn.LSTM(4, 6, dropout=2.0)",
    "nn.GRUCell(4, 6)(x)",
    "nn.GRUCell(4, 6)(x[0], h[0, :2])",
    "nn.LSTMCell(4, 6)(x[0, :, :2])",
    "rnn.pack_padded_sequence(x, [1, 2, 3])",
    "rnn.pack_padded_sequence(x, [3, 2, 0])",
    "rnn.pack_padded_sequence(x, [3, 2])",
    "rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 2, 1]), total_length=2)",
]


@pytest.mark.parametrize("expression", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refusals(expression: str) -> None:
    for side in (ox, torch):
        x, h = side.tensor(array(T, N, SIZE, dtype=np.float32)), side.tensor(array(1, N, H, dtype=np.float32))
        with pytest.raises((ValueError, TypeError, RuntimeError, IndexError)):
            eval(expression, {"nn": side.nn, "rnn": side.nn.utils.rnn, "x": x, "h": h})
