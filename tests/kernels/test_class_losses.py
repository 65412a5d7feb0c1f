"""cross_entropy of float32 rows is one call of a kernel forward and one backward, and gives what the operators give."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox import devices
from ox.autograd import grad
from ox.core.operator import OPS
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.kernels import Library
from ox.nn import functional as F
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare

R = np.random.default_rng(0)
ROWS, CLASSES = 40, 37
SCORES = (4 * R.standard_normal((ROWS, CLASSES))).astype(np.float32)
TARGET = R.integers(0, CLASSES, ROWS)
TARGET[::7] = -100
SHARES = R.dirichlet(np.ones(CLASSES), ROWS).astype(np.float32)
WEIGHT = R.uniform(0.1, 2, CLASSES).astype(np.float32)

pytestmark = pytest.mark.usefixtures("library")


def results(scores: Any, target: Any, weight: Any, order: int = 1, **options: Any) -> list[Any]:
    """The loss, the gradient of the scores, and that of the gradient's squares."""
    x, t = make_tensor(scores).requires_grad_(), make_tensor(target)
    loss = F.cross_entropy(x, t, None if weight is None else make_tensor(weight), **options)
    (first,) = grad(loss.sum(), [x], create_graph=order > 1)
    return [loss.array, first.array, *([grad((first * first).sum(), [x])[0].array] if order > 1 else [])]


def on_operators(*args: Any, **options: Any) -> list[Any]:
    with devices.forced("numpy"):
        return results(*args, **options)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose kernel of cross-entropies ran."""
    names: list[str] = []

    def watched(name: str, run: Any) -> Any:
        def call(*given: Any) -> Any:
            result = run(*given)
            names.append(name if result is not None else f"not {name}")
            return result

        return call

    kernels = {
        name: (size, watched(name, run) if "CrossEntropy" in name else run)
        for name, (size, run) in compiled.KERNELS.items()
    }
    monkeypatch.setattr(compiled, "KERNELS", kernels)
    for name in kernels:
        monkeypatch.setattr(OPS[name], "_plans", {})
    return names


@pytest.mark.parametrize(
    ("soft", "weighted", "smoothing", "reduction"),
    [*product((False, True), (False, True), (0.0, 0.2, 1.0), ("mean", "sum", "none"))],
)
def test_a_kernel_gives_what_the_operators_give(
    soft: bool, weighted: bool, smoothing: float, reduction: str, ran: list[str]
) -> None:
    target, weight = SHARES if soft else TARGET, WEIGHT if weighted else None
    options: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
    once = results(SCORES, target, weight, **options)
    if soft:
        names = ["ox.SoftCrossEntropy", "ox.SoftCrossEntropyGradient"]
    elif weighted or (smoothing and reduction != "mean"):
        names = ["ox.WeightedCrossEntropy", "ox.WeightedCrossEntropyGradient"]
    elif smoothing:
        names = ["ox.MeanSmoothedCrossEntropy", "ox.SmoothedCrossEntropyGradient"]
    else:
        names = ["ox.MeanCrossEntropy" if reduction == "mean" else "ox.CrossEntropy", "ox.CrossEntropyGradient"]
    assert ran == names
    twice = results(SCORES, target, weight, order=2, **options)  # the first gradient is followed: of operators
    ran.clear()
    expected = on_operators(SCORES, target, weight, order=2, **options)
    assert not ran
    for a, b in zip([*once, *twice], [*expected[:2], *expected], strict=True):
        assert a.shape == b.shape and compare(a, b).ok, compare(a, b)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weights_that_are_followed_take_the_operators(smoothing: float, ran: list[str]) -> None:
    w = make_tensor(WEIGHT).requires_grad_()
    loss = F.cross_entropy(make_tensor(SCORES), make_tensor(TARGET), w, label_smoothing=smoothing)
    (to_w,) = grad(loss, [w])
    assert np.abs(to_w.array).max() > 0 and not ran


@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_have_a_gradient(weighted: bool) -> None:
    found = []
    for executor in (None, "numpy"):
        with devices.forced(executor):  # type: ignore[arg-type]
            x, p = make_tensor(SCORES).requires_grad_(), make_tensor(SHARES).requires_grad_()
            w = make_tensor(WEIGHT) if weighted else None
            loss = F.cross_entropy(x, p, w, label_smoothing=0.1)
            found.append([g.array for g in grad(loss, [x, p])])
    for a, b in zip(*found, strict=True):
        assert compare(a, b).ok


@rows("value", [np.nan, -np.inf, np.inf])
@rows("soft", [False, True])
def test_what_is_not_finite_stays_in_its_row(value: float, soft: bool) -> None:
    scores = SCORES.copy()
    scores[5, 11] = value
    for weight, smoothing in ((None, 0.2), (WEIGHT, 0.0)):
        with np.errstate(all="ignore"):
            loss, slope = results(
                scores, SHARES if soft else TARGET, weight, reduction="none", label_smoothing=smoothing
            )
        clean, clean_slope = results(
            SCORES, SHARES if soft else TARGET, weight, reduction="none", label_smoothing=smoothing
        )
        others = np.arange(ROWS) != 5
        np.testing.assert_array_equal(loss[others], clean[others])
        np.testing.assert_array_equal(slope[others], clean_slope[others])
        if np.isnan(value):
            assert np.isnan(loss[5]) and np.isnan(slope[5]).all()
        elif value == -np.inf:  # a class that cannot be: it costs only where something of the target falls on it
            assert loss[5] == np.inf if soft or smoothing or TARGET[5] == 11 else np.isfinite(loss[5])


def test_a_total_weight_of_0_is_nan_and_ignored_rows_have_no_gradient() -> None:
    weight = WEIGHT.copy()
    weight[3] = 0
    for target, options in (
        (np.full(ROWS, 3), {"weight": weight}),
        (np.full(ROWS, -100), {"weight": WEIGHT}),
        (np.full(ROWS, -100), {"weight": None}),
    ):
        for smoothing in (0.0, 0.2):
            loss, slope = results(SCORES, target, options["weight"], label_smoothing=smoothing)
            assert np.isnan(loss)
            if target[0] == -100:
                assert not slope.any()


def test_a_recording_holds_the_plain_operators() -> None:
    def step(x: Any, t: Any, w: Any, p: Any) -> list[Any]:
        return [F.cross_entropy(x, t, w, label_smoothing=0.1), F.cross_entropy(x, p, w)]

    given = {"x": SCORES, "t": TARGET, "w": WEIGHT, "p": SHARES}
    model = to_model(record(step, {name: make_tensor(a) for name, a in given.items()}))
    kinds = {node.op_type for node in model.graph.node}
    assert "LogSoftmax" in kinds and not model.functions and not any("CrossEntropy" in kind for kind in kinds)


def test_the_bits_do_not_depend_on_the_threads(library: Library) -> None:
    found = []
    for threads in (1, 2, 3):
        library.set_threads(threads)
        found.append([results(SCORES, t, WEIGHT, label_smoothing=0.1) for t in (TARGET, SHARES)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            for one, two in zip(a, b, strict=True):
                np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e6])
@pytest.mark.parametrize("kind", ["classes", "weights", "smoothing", "shares"])
def test_scores_far_from_zero_lose_no_digits(offset: float, kind: str, ran: list[str]) -> None:
    """The maximum and the logarithm of the sum are never added before a score is subtracted."""
    scores = (SCORES + np.float32(offset)).astype(np.float32)
    target: Any = SHARES if kind == "shares" else np.abs(TARGET) % CLASSES
    options = {"label_smoothing": 0.1} if kind == "smoothing" else {}
    weight = WEIGHT if kind == "weights" else None
    loss, slope = results(scores, target, weight, **options)
    wide = None if weight is None else weight.astype(np.float64)
    shares = target.astype(np.float64) if kind == "shares" else target
    exact_loss, exact_slope = on_operators(scores.astype(np.float64), shares, wide, **options)
    assert ran
    np.testing.assert_allclose(loss, exact_loss, rtol=2e-6)
    np.testing.assert_allclose(slope, exact_slope, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("value", [1e10, -3e38])
def test_equal_huge_scores_share(value: float) -> None:
    x = make_tensor(np.full((3, 300), value, np.float32)).requires_grad_()
    y = F.log_softmax(x, 1)
    np.testing.assert_allclose(y.array, -np.log(300), rtol=1e-6)
    (slope,) = grad(y[:, 0].sum(), [x])
    np.testing.assert_allclose(slope.array[:, 0], 1 - 1 / 300, rtol=1e-5)


def test_an_infinite_score_gives_nan() -> None:
    scores = np.zeros((2, 300), np.float32)
    scores[0, 5] = np.inf
    loss, slope = results(scores, np.array([0, 1]), None, reduction="none")
    assert np.isnan(loss[0]) and np.isfinite(loss[1])
    assert np.isnan(slope[0]).all() and np.isfinite(slope[1]).all()
