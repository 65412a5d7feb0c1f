"""Losses without PyTorch: hand-computed values, other formulations, finite differences, recordings."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from elsewhere import holds_elsewhere
from rows import rows

import ox
from ox import nn, ops
from ox.autograd import gradcheck
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F
from ox.tolerance import compare

R = np.random.default_rng(4)


def value(x: Any) -> float:
    return float(x.item())


def t(*values: Any) -> Any:
    return ox.tensor(np.array(values, np.float64))


def test_by_hand() -> None:
    x, y = t(1.0, 2.0, -3.0), t(1.5, 0.0, -3.0)
    assert value(F.mse_loss(x, y)) == pytest.approx((0.25 + 4) / 3)
    assert value(F.l1_loss(x, y, reduction="sum")) == 2.5
    assert value(F.smooth_l1_loss(x, y)) == pytest.approx((0.125 + 1.5) / 3)
    assert value(F.huber_loss(x, y, delta=0.5)) == pytest.approx((0.125 + 0.5 * 1.75) / 3)
    p, b = t(0.25, 0.5), t(1.0, 0.0)
    assert value(F.binary_cross_entropy(p, b)) == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert value(F.binary_cross_entropy(t(0.0, 1.0), t(1.0, 0.0))) == 100
    assert value(F.kl_div(ox.log(p), b, reduction="sum")) == pytest.approx(math.log(4))
    assert value(F.poisson_nll_loss(t(0.0), t(3.0))) == 1
    assert value(F.gaussian_nll_loss(t(1.0), t(3.0), 4.0)) == pytest.approx(0.5 * (math.log(4) + 1))
    assert value(F.soft_margin_loss(t(0.0), t(1.0))) == pytest.approx(math.log(2))
    assert value(F.hinge_embedding_loss(t(0.3, 0.3), t(1.0, -1.0), reduction="sum")) == 1
    assert value(F.cosine_embedding_loss(t(1.0, 0.0), t(0.0, 2.0), ox.tensor(1))) == pytest.approx(1)
    assert value(F.margin_ranking_loss(t(1.0), t(2.0), t(1.0), margin=0.5)) == 1.5
    assert value(F.triplet_margin_loss(t(0.0), t(3.0), t(1.0), eps=0.0)) == 3
    assert value(F.multi_margin_loss(t(0.1, 0.2, 0.4), ox.tensor(2))) == pytest.approx((0.7 + 0.8) / 3)
    labels = ox.tensor(np.array([2, 0, -1]))
    assert value(F.multilabel_margin_loss(t(0.1, 0.2, 0.4), labels)) == pytest.approx((0.8 + 1.1) / 3)
    assert value(F.multilabel_soft_margin_loss(t(0.0, 0.0), b)) == pytest.approx(math.log(2))


def test_the_operators_agree() -> None:
    """cross_entropy and nll_loss are ONNX's operators, written in lighter ones."""
    x = ox.tensor(R.normal(size=(5, 4, 3)))
    target, w = ox.tensor(R.integers(0, 4, (5, 3))), ox.tensor(R.uniform(0.5, 2, 4))
    for reduction in ("mean", "sum", "none"):
        mine = F.cross_entropy(x, target, w, ignore_index=2, reduction=reduction)
        onnx = ops.SoftmaxCrossEntropyLoss(x, target, w, ignore_index=2, reduction=reduction)
        assert compare(mine.array, onnx.array).ok
        mine = F.nll_loss(x, target, w, ignore_index=1, reduction=reduction)
        assert compare(
            mine.array, ops.NegativeLogLikelihoodLoss(x, target, w, ignore_index=1, reduction=reduction).array
        ).ok


@pytest.mark.parametrize("options", [{}, {"weight": ox.tensor([0.5, 0.0, 2.0])}, {"label_smoothing": 0.1}])
def test_a_batch_of_ignored_targets_moves_no_weights(options: dict[str, Any]) -> None:
    """As in PyTorch: the mean of nothing is NaN, and its gradient is 0. A batch may be all padding."""
    x = ox.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    loss = F.cross_entropy(x, ox.tensor([-100, -100]), **options)
    loss.backward()
    assert math.isnan(value(loss)) and not x.grad.array.any()


@pytest.mark.parametrize("operator", [ops.SoftmaxCrossEntropyLoss, ops.NegativeLogLikelihoodLoss])
def test_the_operators_ignore_alike(operator: Any) -> None:
    x = ox.tensor(np.array([[-np.inf, 0.0], [0.0, 0.0]], np.float32), requires_grad=True)
    loss = operator(x, ox.tensor([-1, -1]), ignore_index=-1)
    loss.backward()
    assert math.isnan(value(loss)) and not x.grad.array[1].any()
    one = operator(x, ox.tensor([-1, 1]), ignore_index=-1)
    assert value(one) == pytest.approx(math.log(2) if operator is ops.SoftmaxCrossEntropyLoss else 0)


def test_linear_cross_entropy_is_both() -> None:
    x, w, b = (ox.tensor(R.normal(size=s)) for s in ((6, 3), (4, 3), (4,)))
    target = ox.tensor(R.integers(0, 4, 6))
    joint = F.linear_cross_entropy(x, w, target, linear_bias=b, label_smoothing=0.1)
    apart = F.cross_entropy(F.linear(x, w, b), target, label_smoothing=0.1)
    assert value(joint) == pytest.approx(value(apart))


def test_binary_cross_entropy_where_a_sigmoid_saturates() -> None:
    """The gradient through the sigmoid stays a number at probabilities of 0 and 1."""
    x = ox.tensor(np.array([-200.0, 200.0, -200.0], np.float32), requires_grad=True)
    F.binary_cross_entropy(ox.sigmoid(x), ox.tensor(np.array([1.0, 0.0, 0.0], np.float32))).backward()
    assert np.isfinite(x.grad.array).all()


def spelled(path: tuple[int, ...], blank: int) -> list[int]:
    return [k for k, _ in itertools.groupby(path) if k != blank]


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_is_the_sum_over_all_alignments(blank: int) -> None:
    steps, count = 5, 3
    logp = ox.log_softmax(ox.tensor(R.normal(size=(steps, 3, count))), 2)
    a, b = (c for c in range(count) if c != blank)
    targets = [[a, a], [b, a], [b]]
    padded = ox.tensor(np.array([[a, a], [b, a], [b, a]]))
    lengths = [5, 4, 2]
    found = F.ctc_loss(logp, padded, lengths, [2, 2, 1], blank, "none")
    for i, (target, length) in enumerate(zip(targets, lengths, strict=True)):
        total = sum(
            math.exp(sum(logp.array[step, i, c] for step, c in enumerate(path)))
            for path in itertools.product(range(count), repeat=length)
            if spelled(path, blank) == target
        )
        assert found.array[i] == pytest.approx(-math.log(total))


def test_ctc_forms_and_gradients() -> None:
    logits = ox.tensor(R.normal(size=(6, 2, 4)), requires_grad=True)
    padded, flat = ox.tensor(np.array([[1, 1, 3], [2, 0, 0]])), ox.tensor(np.array([1, 1, 3, 2]))

    def loss(x: Any, targets: Any = padded) -> Any:
        return F.ctc_loss(ox.log_softmax(x, 2), targets, [6, 4], [3, 1], reduction="none")

    assert compare(loss(logits).array, loss(logits, flat).array).ok
    gradcheck(loss, [logits], order=2, elements=12)
    impossible = F.ctc_loss(ox.log_softmax(logits, 2), padded, [2, 4], [3, 1], reduction="none")
    assert np.isinf(impossible.array[0])
    kept = F.ctc_loss(ox.log_softmax(logits, 2), padded, [2, 4], [3, 1], reduction="none", zero_infinity=True)
    assert kept.array[0] == 0
    kept.sum().backward()
    assert not logits.grad.array[:, 0].any()
    assert np.isfinite(logits.grad.array).all()


def test_ctc_of_any_number_of_steps() -> None:
    """In a recording of open sizes: the loss and its gradient, elsewhere, too."""

    def loss(x: ox.Tensor) -> ox.Tensor:
        logp = x.log_softmax(-1)
        targets = x[: x.shape[0] // 2].argsort(-1)[..., 0].transpose(0, 1).clamp(min=1)
        lengths = ox.full((x.shape[1],), x.shape[0], dtype=ox.int64) - ox.arange(x.shape[1]) % 2
        return F.ctc_loss(logp, targets, lengths, (targets > 0).sum(1), reduction="none")

    assert holds_elsewhere(loss, (8, 2, 5), (13, 3, 5))
    assert holds_elsewhere(loss, (8, 2, 5), (2, 1, 5))


def test_ctc_of_empty_targets() -> None:
    """Nothing to spell: all blanks."""
    logp = ox.log_softmax(ox.tensor(R.normal(size=(3, 1, 4))), 2)
    found = F.ctc_loss(logp, ox.tensor(np.zeros((1, 0), np.int64)), [3], [0])
    assert value(found) == pytest.approx(-float(logp.array[:, 0, 0].sum()))


def spell(logp: Any, targets: Any) -> Any:
    ones = ox.ones_like(targets[:, 0])
    return F.ctc_loss(logp, targets, ones * 3, ones)


RECORDED = {
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y),
    "huber_loss": lambda x, y: F.huber_loss(x, y, "sum"),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(ox.sigmoid(x), ox.sigmoid(y)),
    "kl_div": lambda x, y: F.kl_div(ox.log_softmax(x, 1), ox.softmax(y, 1), reduction="batchmean"),
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, ox.exp(y), full=True),
    "poisson_nll_loss": lambda x, y: F.poisson_nll_loss(x, ox.exp(y), full=True),
    "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, ox.sign(x[:, 0])),
    "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, x * y, swap=True),
    "multi_margin_loss": lambda x, y: F.multi_margin_loss(x, y.argmax(1)),
    "multilabel_margin_loss": lambda x, y: F.multilabel_margin_loss(x, ox.sort(y, 1)[1] - 1),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y.argmax(1), label_smoothing=0.1),
    "adaptive": lambda x, y: ADAPTIVE(x, y.argmax(1)).loss,
    "ctc_loss": lambda x, y: spell(ox.log_softmax(ox.stack([x, y, x * y]), 2), y[:, :2].argsort(1) + 1),
}
ADAPTIVE = nn.AdaptiveLogSoftmaxWithLoss(4, 4, [2, 3], div_value=2.0)


@rows("name", RECORDED)
def test_recorded_with_the_batch_open(name: str) -> None:
    """Recorded at three rows, a file computes five as eager does."""
    function = RECORDED[name]

    def inputs(rows: int) -> dict[str, Any]:
        random = np.random.default_rng(rows)
        return {n: ox.tensor(random.normal(size=(rows, 4)).astype(np.float32)) for n in "xy"}

    graph = record(function, inputs(3), dims={n: ["rows", 4] for n in "xy"})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    five = inputs(5)
    (found,) = session.run(None, {n: x.array for n, x in five.items()})
    assert compare(found, function(**five).array).ok


def test_legacy_arguments_warn_and_are_honoured() -> None:
    x, y = t(1.0, 2.0), t(0.0, 0.0)
    with pytest.warns(FutureWarning, match="reduction='sum'"):
        assert value(F.mse_loss(x, y, False)) == 5
    with pytest.warns(FutureWarning, match="reduction='none'"):
        assert nn.L1Loss(reduce=False)(x, y).shape == (2,)


def test_refusals() -> None:
    x, target = ox.tensor(R.normal(size=(3, 4))), ox.tensor(np.array([0, 1, 4]))
    with pytest.raises(ShapeError, match="class out of range"):
        F.cross_entropy(x, target)
    with pytest.raises(ShapeError, match="one weight a class"):
        F.nll_loss(x, target - 1, ox.tensor(np.ones(3)))
    with pytest.raises(DTypeError, match="int64 classes"):
        F.multi_margin_loss(x, x[:, 0])
    with pytest.raises(ArgumentError, match="with_logits"):
        F.binary_cross_entropy(x, x)
    with pytest.raises(ArgumentError, match="reduction"):
        nn.MSELoss(reduction="average")
    with pytest.raises(ShapeError, match="input_lengths"):
        F.ctc_loss(ox.tensor(R.normal(size=(3, 2, 4))), ox.tensor(np.array([[1], [2]])), [4, 3], [1, 1])
    with pytest.raises(ArgumentError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 4, [3, 2])


def test_adaptive_softmax_sums_to_one() -> None:
    x = ox.tensor(R.normal(size=(5, 4)).astype(np.float32))
    assert np.allclose(np.exp(ADAPTIVE.log_prob(x).array).sum(1), 1, atol=1e-5)
    target = ox.tensor(np.array([0, 1, 2, 3, 3]))
    picked = ADAPTIVE.log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1)
    assert compare(ADAPTIVE(x, target).output.array, picked.array).ok


def test_classes_as_floats_are_told_to_be_integers() -> None:
    with pytest.raises(ShapeError, match="classes as integers") as caught:
        F.cross_entropy(ox.randn(4, 3), ox.zeros(4))
    assert "target.long()" in str(caught.value.hint)
    assert "[4, 3]" in str(caught.value.hint)
