"""Densities integrate to one, samples have the moments, divergences are what they mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rows import rows

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
    "gamma": D.Gamma(ox.tensor([0.7, 3.0]), 2.0),
    "beta": D.Beta(ox.tensor([0.7, 3.0]), 2.0),
    "chi2": D.Chi2(1.5),
    "dirichlet": D.Dirichlet(ox.tensor([0.7, 2.0, 1.0])),
    "student": D.StudentT(12.0, 0.3, 0.5),
    "inverse": D.InverseGamma(8.0, 2.0),
    "fisher": D.FisherSnedecor(8.0, 30.0),
    "halfnormal": D.HalfNormal(0.8),
    "pareto": D.Pareto(0.3, 6.0),
    "gumbel": D.Gumbel(0.3, 0.5),
    "weibull": D.Weibull(0.7, 1.5),
    "kumaraswamy": D.Kumaraswamy(1.5, 0.8),
    "poisson": D.Poisson(1.3),
    "geometric": D.Geometric(0.6),
    "binomial": D.Binomial(4, ox.tensor([0.3, 0.8])),
    "negative": D.NegativeBinomial(3.0, 0.25),
    "multinomial": D.Multinomial(3, ox.tensor([0.2, 0.3, 0.5])),
    "onehot": D.OneHotCategorical(ox.tensor([0.2, 0.8])),
    "mixture": D.MixtureSameFamily(D.Categorical(ox.tensor([0.3, 0.7])), D.Normal(ox.tensor([-1.0, 1.0]), 0.3)),
    "lowrank": D.LowRankMultivariateNormal(ox.zeros(2), ox.tensor([[0.5], [0.3]]), ox.tensor([0.3, 0.4])),
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


@rows("name", EVERY)
def test_samples_have_the_moments(name: str) -> None:
    ox.manual_seed(4)
    d = EVERY[name]
    drawn = d.sample((40_000,))
    assert drawn.shape == (40_000, *d.batch_shape, *d.event_shape) and not drawn.requires_grad
    np.testing.assert_allclose(drawn.mean(0).array, d.mean.array, atol=0.03)
    np.testing.assert_allclose(drawn.var(0).array, d.variance.array, atol=0.05)


@rows("name", [name for name, d in EVERY.items() if type(d).entropy is not D.Distribution.entropy])
def test_the_entropy_is_the_mean_of_what_samples_say(name: str) -> None:
    ox.manual_seed(4)
    d = EVERY[name]
    said = -d.log_prob(d.sample((40_000,)))
    np.testing.assert_allclose(said.mean(0).array, d.entropy().array, atol=0.03)


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


@rows("concentration", [0.05, 0.4, 1.0, 3.0, 60.0, 500.0])
def test_a_gamma_sample_moves_as_its_quantile_does(concentration: float) -> None:
    """The mean of the slope is 1, for the mean of the samples is the concentration."""
    ox.manual_seed(2)
    a = ox.full((20_000,), concentration, dtype=ox.float64, requires_grad=True)
    drawn = D.Gamma(a, 1.0).rsample()
    drawn.sum().backward()
    assert a.grad.mean().item() == pytest.approx(1, abs=4 * float(a.grad.std()) / math.sqrt(20_000) + 1e-4)


def test_gradients_reach_the_parameters_of_every_family() -> None:
    ox.manual_seed(2)
    one = ox.tensor(1.5, requires_grad=True)
    half = ox.tensor(0.5, requires_grad=True)
    for d in (
        D.Beta(one, half), D.StudentT(one, half, one), D.Gumbel(half, one), D.Weibull(one, half), D.Cauchy(half, one),
        D.RelaxedBernoulli(one, half), D.InverseGamma(one, half), D.HalfNormal(half), D.Kumaraswamy(one, half),
        D.TransformedDistribution(D.Normal(half, one), [D.TanhTransform(), D.AffineTransform(half, one)]),
    ):  # fmt: skip
        assert d.has_rsample
        drawn = d.rsample((3,))
        (slope,) = ox.autograd.grad(drawn.sum(), [half])
        assert math.isfinite(slope.item()) and slope.item() != 0, d
    straight = D.OneHotCategoricalStraightThrough(logits=ox.zeros(3, requires_grad=True)).rsample()
    assert straight.requires_grad and straight.sum().item() == pytest.approx(1)


def test_a_normal_moved_and_scaled_is_a_normal() -> None:
    x, loc, scale = ox.randn(2, 3), ox.tensor([1.0, 2.0, 3.0]), ox.tensor([0.5, -1.0, 2.0])
    moved = D.TransformedDistribution(D.Normal(ox.zeros(3), ox.ones(3)), [D.AffineTransform(loc, scale)])
    ox.testing.assert_close(moved.log_prob(x), D.Normal(loc, scale.abs()).log_prob(x))


def test_a_transform_with_a_cache_gives_back_the_very_number() -> None:
    tanh = D.TanhTransform(cache_size=1)
    x = ox.tensor([30.0])
    assert tanh.inv(tanh(x)) is x and D.TanhTransform().inv(tanh(x)).item() != 30
    both = D.ComposeTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)])
    np.testing.assert_allclose(both.inv(both(ox.tensor([0.3]))).array, [0.3], rtol=1e-6)
    assert both.sign == 1 and both.inv.inv is both


def test_parameters_are_not_looked_at_where_that_is_the_default() -> None:
    D.Distribution.set_default_validate_args(False)
    try:
        D.Gamma(-1.0, 1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ox.errors.ArgumentError, match="concentration"):
        D.Gamma(-1.0, 1.0)


def test_what_is_missing_says_what_to_use() -> None:
    with pytest.raises(ImportError, match="Distribution"):
        from ox.distributions import VonMises  # noqa: F401
