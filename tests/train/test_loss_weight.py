"""A mean over labels that count: gradients and losses of several batches, and of several ranks, are those of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import needs_mpi, run
from rows import rows

import ox
from ox import nn
from ox.errors import RecipeError, TrainError
from ox.nn import functional as F
from ox.train import Result, Trainer

CLASS_WEIGHT = ox.tensor([0.2, 1.0, 3.0])


def sequences(count: int, ignored: int = -100) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 5 steps with other numbers of labels each; of the first 8 none counts."""
    random = np.random.default_rng(count)
    x, y = random.standard_normal((count, 5, 4)).astype(np.float32), random.integers(0, 3, (count, 5))
    for i in range(count):
        y[i, 0 if i < 8 else random.integers(1, 6) :] = ignored
    return x, y


class Net(nn.Module):
    def __init__(self, log: bool = False) -> None:
        super().__init__()
        ox.manual_seed(0)
        self.linear, self.log = nn.Linear(4, 3), log

    def forward(self, x: Any) -> Any:
        scores = self.linear(x).transpose(1, 2)
        return F.log_softmax(scores, 1) if self.log else scores


def counted(outputs: Any, target: Any) -> Any:
    return F.cross_entropy(outputs, target, ignore_index=0)


counted.batch_weight = lambda target: (target != 0).sum()  # type: ignore[attr-defined]

LOSSES: dict[str, tuple[Any, bool]] = {
    "ignored": (nn.CrossEntropyLoss(), False),
    "class weights": (nn.CrossEntropyLoss(CLASS_WEIGHT), False),
    "smoothed": (nn.CrossEntropyLoss(CLASS_WEIGHT, label_smoothing=0.2), False),
    "nll": (nn.NLLLoss(CLASS_WEIGHT), True),
    "function": (F.cross_entropy, False),
    "partial": (partial(F.nll_loss, weight=CLASS_WEIGHT), True),
    "a function of one's own": (counted, False),
}


@rows("name", LOSSES)
def test_several_batches_are_as_one(name: str) -> None:
    loss, log = LOSSES[name]
    data, validation = sequences(24, 0 if loss is counted else -100), sequences(40, 0 if loss is counted else -100)

    def trained(size: int, accumulate: int) -> tuple[np.ndarray, dict[str, Any]]:
        model = Net(log)
        optimizer = ox.optim.SGD(model.parameters(), lr=0.5)
        options = {"epochs": 1, "batch_size": size, "accumulate": accumulate, "seed": 0}
        order = list(range(24))
        trainer = Trainer(model, loss, optimizer, data, validation, sampler=order, **options)  # type: ignore[arg-type]
        trainer.fit()
        return model.linear.weight.detach().numpy(), trainer.progress.history[0]

    (whole, one), (several, other) = trained(24, 1), trained(2, 12)
    np.testing.assert_allclose(several, whole, atol=1e-6)
    for key in ("loss", "validation_loss"):
        assert math.isclose(one[key], other[key], rel_tol=1e-5), key
    x, y = map(ox.from_numpy, data)
    assert math.isclose(other["loss"], float(loss(Net(log)(x), y)), rel_tol=1e-5)


def test_the_weight_of_a_batch() -> None:
    y = ox.tensor([[0, 1, -100], [2, -100, -100]])
    assert nn.CrossEntropyLoss().batch_weight(y) == 3 == nn.NLLLoss().batch_weight(y)
    assert nn.CrossEntropyLoss(CLASS_WEIGHT).batch_weight(y) == pytest.approx(4.2)
    assert nn.CrossEntropyLoss(ignore_index=1).batch_weight(y.clip(0)) == 5
    assert nn.CrossEntropyLoss(reduction="sum").batch_weight(y) is None
    assert nn.CrossEntropyLoss().batch_weight(ox.ones(4, 3, 5)) == 20 and nn.NLLLoss().batch_weight(ox.tensor(2)) == 1
    linear = nn.LinearCrossEntropyLoss(4, 3, ignore_index=2)
    assert linear.batch_weight(ox.tensor([1, 2, 0])) == 2


def test_the_sums_of_a_result() -> None:
    result, batch = Result(), (ox.zeros(4, 2), ox.zeros(4, dtype=ox.int64))
    result.add(2.0, None, batch)
    result.add(5.0, None, batch, 2)
    result.add(math.nan, None, batch, 0)
    assert (result.loss, result.count, result.weight) == (3.0, 12, 6)
    older = Result(count=4, loss_sum=8.0)  # of a checkpoint without the weight
    older.join(result)
    assert (older.loss, older.weight) == (2.6, 10) and math.isnan(Result().loss)


def test_a_step_may_state_its_weight_and_without_labels_the_loss_is_an_error() -> None:
    data = sequences(16)

    def step(model: Any, batch: Any) -> tuple[Any, Any]:
        outputs = model(batch[0])
        return F.cross_entropy(outputs, batch[1]), outputs

    def trained(size: int, weight: Callable[[Any], Any]) -> np.ndarray:
        step.batch_weight = weight  # type: ignore[attr-defined]
        model = Net()
        optimizer = ox.optim.SGD(model.parameters(), lr=0.5)
        options = {"epochs": 1, "batch_size": size, "accumulate": 16 // size, "seed": 0, "sampler": list(range(16))}
        Trainer(model, None, optimizer, data, None, step=step, **options).fit()  # type: ignore[arg-type]
        return model.linear.weight.detach().numpy()

    count = lambda batch: (batch[1] != -100).sum()  # noqa: E731
    np.testing.assert_allclose(trained(4, count), trained(16, count), atol=1e-6)
    with pytest.raises(RecipeError, match="not the weight of a mean"):
        trained(4, lambda batch: -1)
    x, y = sequences(8)
    with pytest.raises(TrainError, match="loss is nan"):
        Trainer(Net(), nn.CrossEntropyLoss(), None, (x, y), None, epochs=1).fit()
    with pytest.raises(TrainError, match="nan"):
        Trainer(Net(), nn.CrossEntropyLoss(), None, data, (x, y), epochs=1).fit()


WRONG: dict[str, tuple[Any, str]] = {
    "text": (lambda target: "a", "not the weight of a mean[^~]*'a'"),
    "a vector": (lambda target: (target != 0).sum(1), r"not the weight of a mean[^~]*Tensor of shape \[4\]"),
    "a list": (lambda target: [1], r"not the weight of a mean[^~]*\[1\]"),
    "infinite": (lambda target: math.inf, "not the weight of a mean[^~]*inf"),
    "a number": (7, "no function of a target[^~]*7"),
    "of nothing": (lambda: 1, "no function of a target"),
    "of two": (lambda output, target: 1, "no function of a target[^~]*missing a required"),
}


@rows("name", WRONG)
def test_what_is_no_weight_is_named(name: str) -> None:
    def loss(outputs: Any, target: Any) -> Any:
        return F.cross_entropy(outputs, target)

    loss.batch_weight, said = WRONG[name]  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=said):
        Trainer(Net(), loss, None, sequences(12), None, epochs=1, batch_size=4).fit()


def test_a_loss_of_batches_that_count_nothing_is_told() -> None:
    def loss(outputs: Any, target: Any) -> Any:
        return (outputs * outputs).mean()

    loss.batch_weight = lambda target: 0  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="batch_weight is 0 for all batches of a step, but their loss is"):
        Trainer(Net(), loss, None, sequences(12), None, epochs=1, batch_size=4).fit()


@needs_mpi
def test_ranks_with_other_numbers_of_labels_are_as_one(tmp_path: Path) -> None:
    """And of samples: the mean over all ranks' samples, not the mean of the ranks' means."""
    run(
        """
        from ox.train import Trainer

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                ox.manual_seed(0)
                self.linear = nn.Linear(4, 3)
            def forward(self, x):
                return self.linear(x).transpose(1, 2)

        random = np.random.default_rng(0)
        x, y = random.standard_normal((20, 5, 4)).astype(np.float32), random.integers(0, 3, (20, 5))
        for i in range(20):
            y[i, 0 if i < 3 else random.integers(1, 6):] = -100
        own = [[(0, 3), (3, 5)], [(5, 8), (8, 17)], [(17, 20), (0, 3)]][rank]  # the last batch of rank 2 has no label
        every = [*range(20), 0, 1, 2]
        for loss in (nn.CrossEntropyLoss(), nn.MSELoss()):
            target = y if isinstance(loss, nn.CrossEntropyLoss) else random.standard_normal((20, 3, 5)).astype("f")
            part = lambda a, b: (ox.tensor(x[a:b]), ox.tensor(target[a:b]))
            for kind in ("SGD", "LBFGS"):
                models = Net(), Net()
                sgd = [getattr(ox.optim, kind)(m.parameters(), lr=0.1) for m in models]
                trainer = Trainer(models[0], loss, sgd[0], (x, target), (x, target), batch_size=1, seed=0)
                trainer.step(*[part(*batch) for batch in own])
                def closure():
                    sgd[1].zero_grad()
                    value = loss(models[1](ox.tensor(x[every])), ox.tensor(target[every]))
                    value.backward()
                    return value
                sgd[1].step(closure)
                for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
                    assert ox.allclose(p, q, atol=1e-5), (loss, kind, p, q)
            expected = loss(trainer.model(ox.tensor(x)), ox.tensor(target)).item()
            found = trainer.evaluate(trainer.data.validation)
            assert abs(found.loss - expected) < 1e-5 and found.count == 20, (found, expected)
        """,
        3,
        tmp_path,
    )
