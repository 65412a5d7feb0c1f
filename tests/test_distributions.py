"""Densities integrate to one, samples have the moments, divergences are what they mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ox
from ox import distributions as D

CONTINUOUS = {
    "normal": D.Normal(0.3, 0.7), "lognormal": D.LogNormal(0.1, 0.4), "uniform": D.Uniform(-1.0, 2.0),
    "exponential": D.Exponential(1.5), "laplace": D.Laplace(-0.2, 0.6),
}  # fmt: skip
EVERY = {
    **CONTINUOUS,
    "bernoulli": D.Bernoulli(0.3),
    "vector": D.MultivariateNormal(ox.tensor([0.5, -1.0]), ox.tensor([[1.0, 0.3], [0.3, 0.5]])),
    "independent": D.Independent(D.Normal(ox.tensor([0.5, -1.0]), 0.4), 1),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_density_integrates_to_one_and_gives_the_entropy(name: str) -> None:
    d = CONTINUOUS[name]
    start = {"exponential": 1e-6, "lognormal": 1e-6}.get(name, -12.0)
    x = ox.linspace(start, 14.0, 200_001, dtype=ox.float64)
    log = d.log_prob(x).array
    density, step = np.exp(log), float(x[1] - x[0])
    assert density.sum() * step == pytest.approx(1, abs=1e-3)
    there = density > 0
    assert -(density[there] * log[there]).sum() * step == pytest.approx(d.entropy().item(), abs=1e-2)
    assert (density * x.array).sum() * step == pytest.approx(d.mean.item(), abs=1e-3)


@pytest.mark.parametrize("name", EVERY)
def test_samples_have_the_moments(name: str) -> None:
    ox.manual_seed(4)
    d = EVERY[name]
    drawn = d.sample((40_000,))
    assert drawn.shape == (40_000, *d.batch_shape, *d.event_shape) and not drawn.requires_grad
    np.testing.assert_allclose(drawn.mean(0).array, d.mean.array, atol=0.03)
    np.testing.assert_allclose(drawn.var(0).array, d.variance.array, atol=0.05)


def test_classes_come_as_often_as_they_should() -> None:
    ox.manual_seed(4)
    probs = ox.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    drawn = D.Categorical(probs * 3).sample((20_000,))
    assert drawn.shape == (20_000, 2) and drawn.dtype == ox.int64
    often = np.stack([(drawn.array == k).mean(0) for k in range(3)], axis=1)
    np.testing.assert_allclose(often, probs.array, atol=0.02)
    d = D.Categorical(logits=probs.log())
    np.testing.assert_allclose(d.log_prob(ox.tensor([2, 0])).array, np.log([0.7, 0.5]), rtol=1e-5)
    np.testing.assert_allclose(d.entropy().array[1], math.log(2), rtol=1e-6)
    assert d.mode.tolist()[0] == 2


@pytest.mark.parametrize(
    "p, q",
    [
        (D.Normal(0.3, 0.7), D.Normal(-0.2, 1.1)), (D.Bernoulli(0.3), D.Bernoulli(0.6)),
        (EVERY["vector"], D.MultivariateNormal(ox.zeros(2), scale_tril=ox.tensor([[1.0, 0.0], [0.2, 0.9]]))),
        (D.Categorical(ox.tensor([0.2, 0.8])), D.Categorical(ox.tensor([0.6, 0.4]))),
    ],
)  # fmt: skip
def test_a_divergence_is_a_mean_of_differences(p: Any, q: Any) -> None:
    ox.manual_seed(0)
    x = p.sample((40_000,))
    expected = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert D.kl_divergence(p, q).item() == pytest.approx(expected, abs=0.02)
    assert D.kl_divergence(p, p).item() == pytest.approx(0, abs=1e-6)


def test_gradients_reach_the_parameters_through_samples() -> None:
    loc, scale = ox.zeros(3, requires_grad=True), ox.ones(3, requires_grad=True)
    d = D.Normal(loc, scale)
    drawn = d.rsample((5,))
    drawn.sum().backward()
    assert loc.grad.tolist() == [5, 5, 5]
    np.testing.assert_allclose(scale.grad.array, drawn.detach().sum(0).array, rtol=1e-5)


def test_a_formula_of_ones_own() -> None:
    class Shifted(D.Normal):
        pass

    @D.register_kl(Shifted, Shifted)
    def _(p: Shifted, q: Shifted) -> Any:
        return p.loc - q.loc

    assert D.kl_divergence(Shifted(2.0, 1.0), Shifted(0.5, 1.0)).item() == 1.5
    with pytest.raises(ox.errors.ArgumentError, match="register_kl"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Uniform(0.0, 1.0))
    with pytest.raises(ox.errors.ArgumentError, match="positive"):
        D.Normal(0.0, ox.tensor([1.0, -1.0]))
    with pytest.raises(ImportError, match="Distribution makes another"):
        from ox.distributions import Beta  # noqa: F401


def test_what_a_distribution_does_not_know_of_itself_is_one_clear_error() -> None:
    class Mine(D.Distribution):
        pass

    for what in ("log_prob", "entropy", "mean", "variance"):
        with pytest.raises(ox.errors.ArgumentError, match=f"Mine does not know its {what}") as caught:
            found = getattr(Mine(), what)
            found(ox.ones(1)) if what == "log_prob" else found()
        assert isinstance(caught.value, NotImplementedError)
        assert "test_distributions.py" in str(caught.value)


def test_a_distribution_of_ones_own() -> None:
    class Sign(D.Distribution):
        has_rsample = True

        def __init__(self, p: Any) -> None:
            self.p = p
            super().__init__(p.shape, validate_args=True)

        def rsample(self, sample_shape: Any = ()) -> Any:
            return (ox.rand(self._extended_shape(sample_shape)) < self.p).float() * 2 - 1

        def log_prob(self, value: Any) -> Any:
            if self._validate_args:
                self._validate_sample(value)
            return ox.where(value > 0, self.p.log(), (1 - self.p).log())

    sign = Sign(ox.tensor([0.2, 0.9, 0.5]))
    assert sign.sample((4, 2)).shape == (4, 2, 3) and sign._extended_shape().numel() == 3
    assert sign.batch_shape == sign._batch_shape == (3,) and sign._event_shape == ()
    assert sign.log_prob(ox.ones(4, 3)).shape == (4, 3)
    with pytest.raises(ox.errors.ShapeError, match="these samples"):
        sign.log_prob(ox.ones(4))
    with pytest.raises(ox.errors.DTypeError, match="a sample is a tensor"):
        sign.log_prob(1.0)


def test_a_normal_distribution_that_is_cut() -> None:
    class Cut(D.Normal):
        def rsample(self, sample_shape: Any = ()) -> Any:
            return super().rsample(sample_shape).clamp(-0.1, 0.1)

    cut = Cut(0.0, 10.0)
    assert cut.rsample((99,)).abs().max() <= 0.11
    assert cut.sample((99,)).abs().max() > 0.11  # PyTorch's draws its own
