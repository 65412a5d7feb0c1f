"""Objects of ox and NumPy that are no modules: transforms, distributions, scalers. Their attributes are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
import ox.data.transforms as T
from ox import distributions as D
from ox import nn

X = ox.rand(2, 1, 3, 3)
Changed = tuple[Callable[[Any], Any], list[Callable[[], Any]]]


def normalize() -> Changed:
    t = T.Normalize((0.5,), (0.5,))
    return t, [lambda: setattr(t, "mean", (0.1,)), lambda: setattr(t, "std", (0.2,))]


def in_code_of_ones_own() -> Changed:
    t = T.Normalize((0.5,), (0.5,))
    return lambda x: x * t.mean[0], [lambda: setattr(t, "mean", (0.1,))]


def compose() -> Changed:
    t = T.Compose([T.Normalize((0.5,), (0.5,))])
    return t, [lambda: t.transforms.append(T.CenterCrop(2)), lambda: t.transforms.clear()]


def crop() -> Changed:
    t = T.CenterCrop(2)
    return t, [lambda: setattr(t, "size", (1, 1))]


def affine() -> Changed:
    t = D.AffineTransform(1.0, 2.0)
    return t, [lambda: setattr(t, "loc", 9.0)]


def binomial() -> Changed:
    d = D.Binomial(5, ox.ones(3) * 0.5)
    return lambda x: x * d.total_count, [lambda: setattr(d, "total_count", ox.tensor(9.0))]


def normal() -> Changed:
    d = D.Normal(ox.zeros(3), ox.ones(3))
    return d.log_prob, [lambda: setattr(d, "loc", ox.ones(3) * 2), lambda: setattr(d, "scale", ox.ones(3) * 5)]


def normal_of_a_module() -> Changed:
    class Prior(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prior: Any = D.Normal(ox.zeros(3), ox.ones(3))

        def forward(self, x: Any) -> Any:
            return self.prior.log_prob(x)

    m = Prior()
    return m, [lambda: setattr(m.prior, "loc", ox.ones(3)), lambda: setattr(m.prior, "scale", ox.ones(3) * 5)]


def transformed() -> Changed:
    d = D.TransformedDistribution(D.Normal(ox.zeros(3), ox.ones(3)), [D.AffineTransform(1.0, 2.0)])
    return d.log_prob, [lambda: d.transforms.append(D.ExpTransform()), lambda: setattr(d.base_dist, "loc", ox.ones(3))]


def scaler() -> Changed:
    s = ox.GradScaler("cpu")
    return lambda x: x * s.get_growth_interval(), [lambda: s.set_growth_interval(7)]


def loader() -> Changed:
    d = ox.data.DataLoader(ox.data.TensorDataset(ox.rand(4, 3)), batch_size=2)
    return lambda x: x + d.timeout, [lambda: setattr(d, "timeout", 7)]


def average() -> Changed:
    average, layer = ox.optim.swa_utils.AveragedModel(nn.Linear(3, 3), avg_fn=lambda p, q, k: p), nn.Linear(3, 3)

    def run(x: Any) -> Any:
        average.update_parameters(layer)
        return x * sum(p.sum() for p in average.parameters())

    return run, [lambda: setattr(average, "avg_fn", lambda p, q, k: q * 10.0)]


def polynomial() -> Changed:
    p = np.poly1d([1.0, 2.0])
    return lambda x: x * float(p(2.0)), [lambda: p.coeffs.__setitem__(0, 5.0)]


def vectorized() -> Changed:
    f: Any = np.vectorize(lambda v: v * 2)
    return lambda x: x * float(f(2.0)), [lambda: setattr(f, "pyfunc", lambda v: v * 9)]


@pytest.mark.parametrize("make", [
    normalize, in_code_of_ones_own, compose, crop, affine, binomial, normal, normal_of_a_module, transformed, scaler,
    loader, average, polynomial, vectorized,
])  # fmt: skip
def test_attributes_that_change(make: Callable[[], Changed]) -> None:
    function, changes = make()
    compiled = ox.compile(function)
    with ox.no_grad():
        for _ in range(3):
            compiled(X)
        known = len(recordings(compiled))
        assert known, reasons(compiled)
        for number, change in enumerate(changes, 1):
            change()
            assert np.allclose(compiled(X).numpy(), function(X).numpy(), atol=1e-5)
            assert len(recordings(compiled)) == known + number


def test_an_object_among_the_arguments() -> None:
    t = T.Normalize((0.5,), (0.5,))
    compiled = ox.compile(lambda x, t: t(x))
    for mean in (0.5, 0.5, 0.1):
        t.mean = (mean,)
        assert np.allclose(compiled(X, t).numpy(), t(X).numpy())


def test_what_counts_by_itself_is_recorded_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    adam, scaler = ox.optim.Adam(model.parameters()), ox.GradScaler("cpu", init_scale=4.0)
    schedule, average = ox.optim.lr_scheduler.StepLR(adam, 2), ox.optim.swa_utils.AveragedModel(model)
    data = ox.data.DataLoader(ox.data.TensorDataset(ox.rand(8, 3)), batch_size=2, shuffle=True)
    prior, cast = D.Normal(ox.zeros(3), ox.ones(3)), ox.autocast("cpu")

    @ox.compile
    def step(x: Any) -> Any:
        adam.zero_grad()
        with cast:
            loss = (model(x) + prior.rsample()).square().mean() / len(data)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        schedule.step()
        average.update_parameters(model)
        return loss.detach()

    for _ in range(3):
        for (x,) in data:
            step(x)
    assert len(recordings(step)) == 1, step.explain()


def test_a_metric_counts_every_call() -> None:
    kind: Any = ox.train.metrics.Accuracy
    compiled_metric, eager_metric = kind(), kind()

    def update(metric: Any) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            metric.update(x, ox.tensor([0, 1]))
            return x * 2

        return run

    compiled, eager = ox.compile(update(compiled_metric)), update(eager_metric)
    for x in (ox.eye(2), ox.eye(2), -ox.eye(2), ox.eye(2)):
        compiled(x)
        eager(x)
    assert compiled_metric.compute() == eager_metric.compute()
