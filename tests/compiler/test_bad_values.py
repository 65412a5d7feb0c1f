"""Errors for the numbers in tensors: in a call that is recorded, and in later ones, which an engine runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import ArgumentError, BoundsError, GradientError, OxError, ShapeError

GOOD = [0, 1, 2, 0, 1, 2, 0, 1]
BACKENDS = ["native", "eager", "onnxruntime"]


def step_of(model: nn.Module) -> Callable[..., Any]:
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

    def step(x: ox.Tensor, target: ox.Tensor) -> ox.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


@rows("calls", [0, 1, 2, 5], items=4)
@rows("wrong", [3, -5, 10**9])
@rows("backend", BACKENDS)
def test_a_class_out_of_range_harms_nothing(backend: str, wrong: int, calls: int) -> None:
    model = nn.Linear(4, 3)
    compiled = ox.compile(step_of(model), backend=backend)
    x, good, bad = ox.randn(8, 4), ox.tensor(GOOD), ox.tensor([*GOOD[:-1], wrong])
    for _ in range(calls):
        compiled(x, good)
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    with pytest.raises(OxError, match=str(wrong)):
        compiled(x, bad)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert np.isfinite(float(compiled(x, good)))


@pytest.mark.parametrize(
    ("call", "bad", "error"),
    [
        (lambda x: F.embedding(x.long(), ox.ones(3, 2)).sum(), 5.0, BoundsError),
        (lambda x: F.binary_cross_entropy(x, ox.ones(4)), 1.5, ArgumentError),
        (lambda x: F.gaussian_nll_loss(ox.ones(4), ox.zeros(4), x), -1.0, ArgumentError),
        (lambda x: F.multi_margin_loss(ox.ones(4, 3), x.long()), 5.0, ShapeError),
    ],
    ids=["embedding", "binary_cross_entropy", "gaussian_nll_loss", "multi_margin_loss"],
)
def test_what_is_recorded_is_checked(call: Callable[..., Any], bad: float, error: type[OxError]) -> None:
    compiled = ox.compile(call)
    with pytest.raises(error):
        compiled(ox.full((4,), bad))
    assert np.isfinite(float(compiled(ox.ones(4))))


TABLE, SCORES = ox.ones(5, 3), ox.ones(4, 5)
OUTSIDE: dict[str, tuple[Callable[[Any], Any], list[int], list[int]]] = {
    "embedding": (lambda i: F.embedding(i, TABLE), [0, 1, 2], [0, -1, 2]),
    "embedding_bag": (lambda i: F.embedding_bag(i, TABLE, ox.tensor([0, 1])), [0, 1, 2], [0, -1, 2]),
    "gather": (lambda i: SCORES.gather(1, i.reshape(4, 1)), [0, 1, 2, 3], [0, 1, 2, -1]),
    "index_select": (lambda i: TABLE.index_select(0, i), [0, 1, 2], [0, -1, 2]),
    "take": (lambda i: TABLE.take(i), [0, 1, -2], [0, -16, 2]),
    "indices of several dimensions": (lambda i: TABLE[i, i], [0, 1, -2], [0, 1, -4]),
    "scatter": (lambda i: SCORES.scatter(1, i.reshape(4, 1), 1.0), [0, 1, 2, 3], [0, 1, 2, -1]),
    "index_add": (lambda i: TABLE.index_add(0, i, ox.ones(2, 3)), [0, 1], [0, -4]),
    "nll_loss": (lambda i: F.nll_loss(SCORES, i), [0, 1, 2, -100], [0, 1, 2, -1]),
    "cross_entropy of places": (
        lambda i: F.cross_entropy(SCORES.reshape(2, 1, 5, 2).transpose(1, 2), i.reshape(2, 1, 2)),
        [0, 1, 2, -100],
        [0, 1, 2, -1],
    ),
    "multi_margin_loss": (lambda i: F.multi_margin_loss(SCORES, i), [0, 1, 2, 3], [0, 1, 2, -1]),
    "multilabel_margin_loss": (lambda i: F.multilabel_margin_loss(SCORES[0], i), [0, 1, 2, -1, 0], [0, -2, 2, -1, 0]),
    "one_hot": (lambda i: F.one_hot(i, 3), [0, 1, 2], [0, 3, 2]),
    "cross_entropy": (lambda i: F.cross_entropy(SCORES, i), [0, 1, 2, -100], [0, 1, 2, -1]),
}


@rows("backend", BACKENDS, items=4)
@rows("name", OUTSIDE)
def test_an_index_out_of_range_is_an_error_in_later_calls(name: str, backend: str) -> None:
    """As the eager call raises it: -1 is not the last place here."""
    function, good, bad = OUTSIDE[name]
    compiled = ox.compile(function, backend=backend, fullgraph=True)
    for _ in range(3):
        np.testing.assert_allclose(compiled(ox.tensor(good)).numpy(), function(ox.tensor(good)).numpy(), rtol=1e-6)
    with pytest.raises(OxError) as eager:
        function(ox.tensor(bad))
    with pytest.raises(type(eager.value), match=eager.value.what):
        compiled(ox.tensor(bad))


@rows("backend", [*BACKENDS, "openvino"], items=6)
@rows("name", OUTSIDE)
def test_an_index_that_the_graph_computes_is_checked(name: str, backend: str) -> None:
    """With the error of eager code: a runtime takes -1 for the last place, and knows no class label."""
    if backend == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    function, good, bad = OUTSIDE[name]
    compiled = ox.compile(lambda i: function(i + 0 * i.sum()), backend=backend)
    for _ in range(2):
        compiled(ox.tensor(good))
    for wrong in (bad, [*bad[:-1], 77]):
        with pytest.raises(OxError) as eager:
            function(ox.tensor(wrong))
        with pytest.raises(type(eager.value), match=eager.value.what):
            compiled(ox.tensor(wrong))
    np.testing.assert_allclose(compiled(ox.tensor(good)).numpy(), function(ox.tensor(good)).numpy(), rtol=1e-6)


@pytest.mark.parametrize("backend", ["native", "onnxruntime"])
def test_a_computed_class_out_of_range_writes_nothing(backend: str) -> None:
    model = nn.Linear(4, 3)
    step = step_of(model)
    compiled = ox.compile(lambda x, target: step(x, target - 1), backend=backend, fullgraph=True)
    x, good = ox.randn(8, 4), ox.tensor(GOOD) + 1
    for _ in range(2):
        compiled(x, good)
    before = model.weight.detach().numpy().copy()
    with pytest.raises(ShapeError, match="cross_entropy met a class out of range"):
        compiled(x, good - 1)
    np.testing.assert_array_equal(model.weight.detach().numpy(), before)


def test_known_indices_are_not_checked_again() -> None:
    compiled = ox.compile(lambda x: x.index_select(0, ox.arange(2)), fullgraph=True)
    compiled(ox.ones(3, 2))
    assert "InRange" not in str(compiled.explain())
    assert compiled(ox.ones(3, 2)).shape == (2, 2)


def test_a_norm_that_is_not_finite_is_an_error() -> None:
    """Which takes a number out of a tensor, so that the call stays eager."""
    model = nn.Linear(4, 3)

    def step(scale: ox.Tensor) -> None:
        model.zero_grad()
        (model(ox.ones(2, 4)).sum() * scale).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

    compiled = ox.compile(step)
    for value in (1.0, 2.0, 3.0):
        compiled(ox.tensor(value))
    with pytest.raises(GradientError, match="not finite"):
        compiled(ox.tensor(np.inf))
    assert "item()" in str(compiled.explain())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", [True, False])
def test_a_step_that_fails_leaves_the_gradients_of_eager_code(backend: str, first: bool) -> None:
    """They are gone where the step begins with zero_grad, and those of the step before where it is called later."""
    model = nn.Linear(4, 3)
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

    def step(x: ox.Tensor, target: ox.Tensor) -> None:
        if first:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    compiled = ox.compile(step, backend=backend)
    x, good, bad = ox.randn(8, 4), ox.tensor(GOOD), ox.tensor([*GOOD[:-1], 3])
    for _ in range(3):
        compiled(x, good)
    with pytest.raises(OxError, match="3"):
        compiled(x, bad)
    assert all((p.grad is None) is first for p in model.parameters())
    compiled(x, good)
    assert all(p.grad is not None for p in model.parameters()) and not compiled.eager
