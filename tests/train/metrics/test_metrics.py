"""Each metric against scikit-learn or a plain definition: random cases with ties, missing classes, ignored targets,
in batches of any size, merged in any order."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, BoundsError, DTypeError, OxError, ShapeError
from ox.serialization.files import load, save
from ox.train import metrics
from ox.train.metrics import AUROC, F1, R2, RMSE, Accuracy, ConfusionMatrix, MeanAbsoluteError, Perplexity, TopK

SEEDS = range(8)


@pytest.fixture(scope="module")
def reference() -> Any:
    """scikit-learn's metrics, which take seconds to import."""
    from sklearn import metrics

    return metrics


def case(seed: int, classes: int, ties: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets in which some class never occurs; few different scores, so that many are equal."""
    random = np.random.default_rng(seed)
    count = int(random.integers(30, 90))
    scores = random.normal(size=(count, classes))
    if ties:
        scores = np.round(scores)
    present = random.permutation(classes)[: max(2, classes - seed % 3)]
    return scores.astype(np.float32), random.choice(present, count)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def streamed(metric: metrics.Metric, outputs: np.ndarray, targets: np.ndarray, seed: int = 0) -> float:
    """Of one after another, in random batches, as tensors; half of it by way of another metric's state."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(targets), 4))
    parts = list(zip(np.split(outputs, cuts), np.split(targets, cuts), strict=True))
    for x, y in parts[:2]:
        metric.update(ox.tensor(x), ox.tensor(y))
    here = metric.state_dict()
    metric.reset()
    for x, y in parts[2:]:
        metric.update(x, y)
    metric.merge(here)
    return metric.compute()


@rows("seed", SEEDS)
@rows("classes", [2, 3, 7])
def test_accuracy_and_confusion(reference: Any, seed: int, classes: int) -> None:
    scores, targets = case(seed, classes)
    answers = scores.argmax(1)
    assert streamed(Accuracy(), scores, targets) == pytest.approx(reference.accuracy_score(targets, answers))
    expected = reference.confusion_matrix(targets, answers, labels=range(classes))
    assert np.array_equal(streamed(ConfusionMatrix(), scores, targets), expected)
    assert np.array_equal(streamed(ConfusionMatrix(classes), answers, targets), expected)
    assert streamed(Accuracy(), answers, targets) == pytest.approx((answers == targets).mean())


@rows("seed", SEEDS)
@rows("k", [1, 2, 5])
def test_top_k(reference: Any, seed: int, k: int) -> None:
    scores, targets = case(seed, 7, ties=False)
    expected = reference.top_k_accuracy_score(targets, scores, k=k, labels=range(7))
    assert streamed(TopK(k), scores, targets) == pytest.approx(expected)


def test_top_k_of_equal_scores_takes_the_first() -> None:
    scores = np.zeros((4, 4), np.float32)
    assert TopK(2)(scores, np.arange(4)) == 0.5
    assert TopK(1)(scores, np.arange(4)) == Accuracy()(scores, np.arange(4)) == 0.25
    assert TopK(9)(scores, np.arange(4)) == 1.0


@rows("seed", SEEDS)
@rows("average", ["macro", "micro", "weighted"])
def test_f1(reference: Any, seed: int, average: str) -> None:
    scores, targets = case(seed, 6)
    expected = reference.f1_score(targets, scores.argmax(1), average=average, zero_division=0)
    assert streamed(F1(average), scores, targets) == pytest.approx(expected)


@rows("seed", SEEDS)
def test_two_classes(reference: Any, seed: int) -> None:
    scores, targets = case(seed, 2)
    logits = scores[:, 1] - scores[:, 0]
    answers = (logits > 0).astype(int)
    f1 = reference.f1_score(targets, answers, zero_division=0)
    assert streamed(F1("binary"), logits, targets) == pytest.approx(f1)
    assert streamed(F1("binary"), logits[:, None], targets.astype(np.float32)) == pytest.approx(f1)
    probabilities = 1 / (1 + np.exp(-logits))
    assert streamed(F1("binary", threshold=0.5), probabilities, targets) == pytest.approx(f1)
    area = reference.roc_auc_score(targets, logits)
    for outputs in (logits, logits[:, None], scores, probabilities):
        assert streamed(AUROC(), outputs, targets) == pytest.approx(area, abs=1e-7)


@rows("seed", SEEDS)
def test_auroc_of_several_classes(reference: Any, seed: int) -> None:
    scores, _ = case(seed, 4, ties=False)
    targets = np.random.default_rng(seed).permutation(np.arange(len(scores)) % 4)
    given = softmax(scores)
    expected = reference.roc_auc_score(targets, given, multi_class="ovr", labels=range(4))
    assert streamed(AUROC(), scores, targets) == pytest.approx(expected)
    assert streamed(AUROC(from_logits=False), np.round(given, 1), targets) == pytest.approx(
        np.mean([reference.roc_auc_score(targets == c, np.round(given, 1)[:, c]) for c in range(4)])
    )


def test_auroc_leaves_out_classes_that_do_not_occur(reference: Any) -> None:
    given = softmax(np.random.default_rng(0).normal(size=(40, 3)))
    targets = np.arange(40) % 2
    each = [reference.roc_auc_score(targets == c, given[:, c]) for c in (0, 1)]
    assert AUROC(from_logits=False)(given, targets) == pytest.approx(np.mean(each))
    assert np.isnan(AUROC()(given, np.zeros(40, int)))


@rows("seed", SEEDS)
def test_ignored_targets_do_not_count(seed: int) -> None:
    scores, targets = case(seed, 5)
    poor = np.random.default_rng(seed).random(len(targets)) < 0.3
    ignored = np.where(poor, -100, targets)
    other = np.where(poor, 77, targets)
    for make in (Accuracy, F1, AUROC, Perplexity, ConfusionMatrix, TopK):
        expected = make()(scores[~poor], targets[~poor])
        assert np.allclose(streamed(make(), scores, ignored), expected, equal_nan=True)
        assert np.allclose(streamed(make(ignore_index=77), scores, other), expected, equal_nan=True)


@rows("seed", SEEDS)
def test_perplexity_weighs_every_token_the_same(reference: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits, targets = random.normal(size=(6, 9, 5)) * 3, random.integers(0, 5, (6, 9))
    targets[random.random((6, 9)) < 0.4] = -100  # batches with few tokens
    keep = targets != -100
    expected = np.exp(reference.log_loss(targets[keep], softmax(logits[keep]), labels=range(5)))
    assert streamed(Perplexity(), logits, targets) == pytest.approx(expected)
    assert streamed(Perplexity(), np.moveaxis(logits, -1, 1), targets) == pytest.approx(expected)
    loss = ox.nn.CrossEntropyLoss()(ox.tensor(np.moveaxis(logits, -1, 1)), ox.tensor(targets)).item()
    assert np.exp(loss) == pytest.approx(expected)


def test_axes_that_fit_twice_must_be_named() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    targets = np.arange(8).reshape(2, 4) % 4
    with pytest.raises(ShapeError, match="axis 1 and on the last"):
        Perplexity().update(logits, targets)
    last, first = Perplexity(axis=-1), Perplexity(axis=1)
    assert last(logits, targets) == pytest.approx(first(np.moveaxis(logits, -1, 1), targets))
    assert last(logits, targets) != pytest.approx(first(logits, targets))


@rows("seed", SEEDS)
@rows("columns", [None, 3])
def test_regression(reference: Any, seed: int, columns: int | None) -> None:
    random = np.random.default_rng(seed)
    shape = (50,) if columns is None else (50, columns)
    targets = random.normal(size=shape) + 1e6  # a large mean costs a naive variance its digits
    outputs = targets + random.normal(size=shape) * 0.3
    assert streamed(R2(), outputs, targets) == pytest.approx(reference.r2_score(targets, outputs), rel=1e-9)
    assert streamed(MeanAbsoluteError(), outputs, targets) == pytest.approx(
        reference.mean_absolute_error(targets, outputs)
    )
    flat = reference.root_mean_squared_error(targets.ravel(), outputs.ravel())
    assert streamed(RMSE(), outputs, targets) == pytest.approx(flat)


def test_a_column_and_a_row_are_one_thing() -> None:
    targets = np.arange(4.0)
    assert MeanAbsoluteError()(targets[:, None] + 1, targets) == 1.0
    with pytest.raises(ShapeError):
        MeanAbsoluteError().update(np.zeros((4, 2)), targets)
    assert np.isnan(R2()(np.zeros(1), np.zeros(1)))
    assert R2()(np.full(3, 2.0), np.full(3, 2.0)) == 1.0  # as scikit-learn has it


@rows("name", [*metrics.NAMES, "top3"])
def test_states(name: str, tmp_path) -> None:
    """Through a file and merged, a state gives what one metric would; forward gives the batch's own."""
    random = np.random.default_rng(0)
    if name in ("mae", "rmse", "r2"):
        outputs, targets = random.normal(size=20), random.normal(size=20)
    else:
        outputs, targets = random.normal(size=(20, 2)), random.integers(0, 2, 20)
    whole, one, two = (metrics.metric_of(name) for _ in range(3))
    assert whole.name == name
    with pytest.raises(ArgumentError, match="counted nothing"):
        whole.compute()
    whole.update(outputs, targets)
    first = one(outputs[:7], targets[:7])
    assert np.array_equal(first, one.compute(), equal_nan=True)
    second = two(outputs[7:], targets[7:])
    assert np.array_equal(two(outputs[7:], targets[7:]), second)
    two.reset()
    two.merge({})  # of a process that had no batch
    two.update(outputs[7:], targets[7:])
    save(one.state_dict(), tmp_path / "state")
    two.merge(load(tmp_path / "state"))
    assert np.allclose(two.compute(), whole.compute())
    one.load_state_dict(two.state_dict())
    assert np.allclose(one.compute(), whole.compute())
    json.dumps(np.asarray(one.compute()).tolist())


def test_what_does_not_fit() -> None:
    scores, targets = case(0, 3)
    wrong: list[tuple[metrics.Metric, object, object, type[OxError]]] = [
        (Accuracy(), scores, targets + 1, BoundsError),
        (Accuracy(), scores, targets[:-1], ShapeError),
        (Accuracy(), scores, targets.astype(np.float32), DTypeError),
        (F1("binary"), scores, targets, ArgumentError),
        (F1(), scores.argmax(1), targets, ArgumentError),
        (ConfusionMatrix(2), scores.argmax(1), targets, BoundsError),
        (AUROC(), scores[:, 0], targets, BoundsError),
        (AUROC(), scores[:, 0], targets / 2, ArgumentError),
        (Perplexity(), scores[:, 0], targets, ShapeError),
    ]
    for metric, outputs, labels, kind in wrong:
        with pytest.raises(kind):
            metric.update(outputs, labels)
        assert not metric.state_dict(), metric
    with pytest.raises(ArgumentError, match="another number of classes"):
        metric = ConfusionMatrix()
        metric.update(scores, targets)
        metric.update(scores[:, :2], targets % 2)
    for make in (lambda: F1("mean"), lambda: TopK(0), lambda: metrics.metric_of("acuracy")):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(ArgumentError) as caught:
        metrics.metric_of("acuracy")
    assert caught.value.hint == "'accuracy'"


@rows("metric", [Accuracy(), TopK(2), F1(), ConfusionMatrix(), AUROC(), Perplexity()], ids=lambda metric: metric.name)
def test_nan_is_no_answer(metric: metrics.Metric) -> None:
    """Not class 0, which the largest of nothing but NaN would be; where the target is ignored it does not matter."""
    scores, targets = case(1, 3)
    scores[4] = np.nan
    with pytest.raises(ArgumentError, match="outputs hold NaN") as caught:
        metric.update(scores, targets)
    assert caught.value.got == f"NaN for 1 of {len(targets)} targets"
    targets[4] = -100
    metric.update(scores, targets)
    assert np.isfinite(metric.compute()).all()


@pytest.mark.parametrize("metric", [Accuracy(), F1(), AUROC()], ids=lambda metric: metric.name)
def test_nan_for_one_score_a_target(metric: metrics.Metric) -> None:
    with pytest.raises(ArgumentError, match="outputs hold NaN"):
        metric.update(np.array([0.5, np.nan, -1]), np.array([1, 0, 0]))
