"""Distributions beside PyTorch's: log-probabilities, entropies, moments, divergences, and their gradients."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

random = np.random.default_rng(5)
ARRAYS = {
    "x": random.standard_normal((3, 4)), "y": random.standard_normal((3, 4)), "s": random.uniform(0.3, 2, (3, 4)),
    "p": random.uniform(0.1, 0.9, (3, 4)), "v": random.standard_normal(4), "k": np.array([0, 3, 1]),
    "bits": np.array([0.0, 1.0, 1.0, 0.0]), "L": np.tril(random.uniform(0.5, 1.5, (4, 4))),
    "count": np.array([0.0, 1.0, 3.0, 1.0]), "hot": np.eye(4)[[2, 0, 1]], "temperature": np.array(0.7),
    "share": random.dirichlet(np.ones(4), 3), "share5": random.dirichlet(np.ones(5), 3),
}  # fmt: skip
SMOOTH = """
T.distributions.Normal(x, s).log_prob(y); T.distributions.Normal(x, s).entropy(); T.distributions.Normal(v, 0.5).cdf(y)
T.distributions.Normal(v, 0.5).icdf(p); T.distributions.LogNormal(x, s).log_prob(p)
T.distributions.LogNormal(x, s).mean
T.distributions.LogNormal(x, s).variance; T.distributions.LogNormal(x, s).entropy()
T.distributions.Categorical(logits=x).log_prob(k); T.distributions.Categorical(p).log_prob(k)
T.distributions.Categorical(p).log_prob(k[:, None]); T.distributions.Categorical(logits=x).entropy()
T.distributions.Categorical(probs=p).entropy(); T.distributions.Categorical(probs=p).perplexity()
T.distributions.Bernoulli(p).log_prob(bits); T.distributions.Bernoulli(logits=x).log_prob(bits)
T.distributions.Bernoulli(p).entropy(); T.distributions.Bernoulli(logits=x).variance
T.distributions.Uniform(x, x + s).log_prob(x + p * s); T.distributions.Uniform(x, x + s).entropy()
T.distributions.Uniform(x, x + s).variance; T.distributions.Exponential(s).log_prob(p)
T.distributions.Exponential(s).entropy(); T.distributions.Laplace(x, s).log_prob(y)
T.distributions.Laplace(x, s).entropy(); T.distributions.Laplace(x, s).stddev
T.distributions.Independent(T.distributions.Normal(x, s), 1).log_prob(y)
T.distributions.Independent(T.distributions.Normal(x, s), 2).entropy()
T.distributions.MultivariateNormal(v, scale_tril=L).log_prob(y)
T.distributions.MultivariateNormal(x, L @ L.T).log_prob(y)
T.distributions.MultivariateNormal(v, precision_matrix=L @ L.T + T.eye(4)).entropy()
T.distributions.MultivariateNormal(v, L @ L.T).variance
T.distributions.kl_divergence(T.distributions.Normal(x, s), T.distributions.Normal(v, 2.0))
T.distributions.kl_divergence(T.distributions.Categorical(p), T.distributions.Categorical(logits=x))
T.distributions.kl_divergence(T.distributions.Bernoulli(p), T.distributions.Bernoulli(logits=x))
T.distributions.kl_divergence(*[T.distributions.MultivariateNormal(m, c @ c.T) for m, c in ((x, L), (v, L.T))])
"""

D = """
D.Gamma(s, p).log_prob(p); D.Gamma(s, p).entropy(); D.Gamma(s, 2.0).variance
D.Gamma(s + 1, p).mode; D.Beta(s, p).log_prob(p); D.Beta(s, p).entropy()
D.Beta(s, p).mean; D.Beta(s, p).variance; D.Beta(s + 1, p + 1).mode
D.Chi2(s).log_prob(p); D.Chi2(s).entropy(); D.Chi2(s).mean
D.InverseGamma(s + 2, p).log_prob(s); D.InverseGamma(s + 2, p).entropy()
D.InverseGamma(s + 2, p).mean; D.InverseGamma(s + 2, p).variance
D.Dirichlet(s).log_prob(share); D.Dirichlet(s).entropy(); D.Dirichlet(s).mean
D.Dirichlet(s).variance; D.Dirichlet(s + 1).mode
D.StudentT(s + 2, x, s).log_prob(y); D.StudentT(s + 2, x, s).entropy()
D.StudentT(s + 2, x, s).mean; D.StudentT(s + 2, x, s).variance
D.StudentT(s).variance; D.FisherSnedecor(s + 4, s + 5).log_prob(p)
D.FisherSnedecor(s + 4, s + 5).mean; D.FisherSnedecor(s + 4, s + 5).variance
D.FisherSnedecor(s + 4, s + 5).mode
D.Cauchy(x, s).log_prob(y); D.Cauchy(x, s).cdf(y); D.Cauchy(x, s).icdf(p)
D.Cauchy(x, s).entropy(); D.HalfCauchy(s).log_prob(p); D.HalfCauchy(s).cdf(p)
D.HalfCauchy(s).icdf(p); D.HalfCauchy(s).entropy(); D.HalfNormal(s).log_prob(p)
D.HalfNormal(s).cdf(p); D.HalfNormal(s).icdf(p); D.HalfNormal(s).entropy()
D.HalfNormal(s).mean; D.HalfNormal(s).variance; D.Pareto(s, p + 2).log_prob(s + p)
D.Pareto(s, p + 2).mean; D.Pareto(s, p + 2).variance; D.Pareto(s, p).entropy()
D.Pareto(s, p + 2).cdf(s + p); D.Pareto(s, p + 2).icdf(p)
D.Gumbel(x, s).log_prob(y); D.Gumbel(x, s).mean; D.Gumbel(x, s).variance
D.Gumbel(x, s).entropy(); D.Gumbel(x, s).cdf(y); D.Gumbel(x, s).icdf(p)
D.Weibull(s, p + 1).log_prob(p); D.Weibull(s, p + 1).mean
D.Weibull(s, p + 1).variance; D.Weibull(s, p + 1).entropy()
D.Weibull(s, p + 1).mode; D.Weibull(s, p + 1).cdf(p)
D.Kumaraswamy(s, p + 1).log_prob(p); D.Kumaraswamy(s, p + 1).mean
D.Kumaraswamy(s, p + 1).variance; D.Kumaraswamy(s, p + 1).entropy()
D.Poisson(s).log_prob(count); D.Poisson(s).mode; D.Geometric(p).log_prob(count)
D.Geometric(p).mean; D.Geometric(p).variance; D.Geometric(p).entropy()
D.Geometric(logits=x).log_prob(count); D.Binomial(4, p).log_prob(count)
D.Binomial(4, logits=x).log_prob(count); D.Binomial(4, p).mean
D.Binomial(4, p).variance; D.Binomial(4, p).mode; D.Binomial(4, p).entropy()
D.NegativeBinomial(s, p).log_prob(count)
D.NegativeBinomial(s, logits=x).log_prob(count); D.NegativeBinomial(s, p).mean
D.NegativeBinomial(s, p).variance; D.NegativeBinomial(s + 1, p).mode
D.Multinomial(5, p).log_prob(count); D.Multinomial(5, logits=x).log_prob(count)
D.Multinomial(5, p).mean; D.Multinomial(5, p).variance
D.OneHotCategorical(p).log_prob(hot); D.OneHotCategorical(logits=x).entropy()
D.OneHotCategorical(p).variance
D.RelaxedBernoulli(temperature, p).log_prob(p)
D.RelaxedBernoulli(temperature, logits=x).log_prob(p)
D.RelaxedOneHotCategorical(temperature, p).log_prob(share)
D.RelaxedOneHotCategorical(temperature, logits=x).log_prob(share)
D.MixtureSameFamily(D.Categorical(p), D.Normal(x, s)).log_prob(v[:3])
D.MixtureSameFamily(D.Categorical(p), D.Normal(x, s)).mean
D.MixtureSameFamily(D.Categorical(p), D.Normal(x, s)).variance
D.MixtureSameFamily(D.Categorical(p), D.Normal(x, s)).cdf(v[:3])
D.MixtureSameFamily(D.Categorical(p[0, :3]), D.Independent(D.Normal(x, s), 1)).log_prob(v)
D.MixtureSameFamily(D.Categorical(p[0, :3]), D.Independent(D.Normal(x, s), 1)).variance
D.LowRankMultivariateNormal(v, L[:, :2], s[0]).log_prob(y)
D.LowRankMultivariateNormal(x, L[:, :2], s[0]).entropy()
D.LowRankMultivariateNormal(v, L[:, :2], s[0]).variance
D.LowRankMultivariateNormal(v, L[:, :2], s[0]).covariance_matrix
D.LowRankMultivariateNormal(v, L[:, :2], s[0]).precision_matrix
D.TransformedDistribution(D.Normal(x, s), D.TanhTransform()).log_prob(p)
D.TransformedDistribution(D.Normal(x, s), [D.TanhTransform(cache_size=1), D.AffineTransform(v, s)]).log_prob(v + s * p)
D.TransformedDistribution(D.Normal(x, s), [D.SigmoidTransform()]).cdf(p)
D.TransformedDistribution(D.Normal(x, s), [D.AffineTransform(1.0, -2.0)]).icdf(p)
D.TransformedDistribution(D.Normal(x, s), D.StickBreakingTransform()).log_prob(share5)
D.TransformedDistribution(D.Uniform(T.zeros(3, 4), 1.0), D.SigmoidTransform().inv).log_prob(y)
D.TransformedDistribution(D.Independent(D.Normal(x, s), 1), D.ExpTransform()).log_prob(p)
D.TransformedDistribution(D.Normal(x, s), D.ReshapeTransform((4,), (2, 2))).log_prob(y.reshape(3, 2, 2))
D.kl_divergence(D.Gamma(s, p), D.Gamma(p, s))
D.kl_divergence(D.Beta(s, p), D.Beta(p, s))
D.kl_divergence(D.Dirichlet(s), D.Dirichlet(p))
D.kl_divergence(D.Exponential(s), D.Exponential(p))
D.kl_divergence(D.Laplace(x, s), D.Laplace(y, p))
D.kl_divergence(D.Poisson(s), D.Poisson(p))
D.kl_divergence(D.Geometric(p), D.Geometric(logits=x))
D.kl_divergence(D.Gumbel(x, s), D.Gumbel(y, p + 1))
D.kl_divergence(D.HalfNormal(s), D.HalfNormal(p))
D.kl_divergence(D.Pareto(s + 1, p), D.Pareto(s, p + 1))
D.kl_divergence(D.Cauchy(x, s), D.Cauchy(y, p))
D.kl_divergence(D.OneHotCategorical(p), D.OneHotCategorical(logits=x))
D.kl_divergence(D.Uniform(x, x + p), D.Uniform(x - 1, x + 2))
D.kl_divergence(D.Uniform(x, x + p), D.Normal(y, s))
D.kl_divergence(D.Normal(x, s), D.Laplace(y, p))
D.kl_divergence(D.Normal(x, s), D.Gumbel(y, p + 1))
D.kl_divergence(D.Exponential(s), D.Gamma(p, s))
D.kl_divergence(D.Gamma(s, p), D.Exponential(p))
D.kl_divergence(D.Binomial(4, p), D.Binomial(4, logits=x))
D.kl_divergence(D.LowRankMultivariateNormal(v, L[:, :2], s[0]), D.LowRankMultivariateNormal(x[0], L[:, 1:3] + 1, p[0]))
D.kl_divergence(*[D.TransformedDistribution(D.Normal(m, d), D.ExpTransform()) for m, d in ((x, s), (y, p))])
"""


@pytest.mark.parametrize("expression", [*split(SMOOTH), *split(D.replace("D.", "T.distributions."))])
def test_like_pytorch(expression: str) -> None:
    check_value(expression, ARRAYS)
    followed = [n for n in ("x", "y", "s", "p", "v", "L", "share", "share5") if re.search(rf"\b{n}\b", expression)]
    check_gradient(expression, ARRAYS, followed)


@pytest.mark.parametrize(
    "expression",
    split("""
    T.distributions.Categorical(p).batch_shape; T.distributions.Categorical(p).sample((5, 2)).shape
    T.distributions.Categorical(p[0]).sample().shape; T.distributions.Categorical(p).mode
    T.distributions.Categorical(p).enumerate_support(); T.distributions.Categorical(p[0]).enumerate_support(False)
    T.distributions.Normal(0.0, 1.0).sample((3,)).shape; T.distributions.Normal(v, s).rsample().shape
    T.distributions.Bernoulli(p).sample((2,)).shape; T.distributions.Bernoulli(0.5).sample().shape
    T.distributions.MultivariateNormal(x, L @ L.T).sample((2,)).shape
    T.distributions.Independent(T.distributions.Normal(x, s), 1).batch_shape
    T.distributions.Independent(T.distributions.Normal(x, s), 1).event_shape
    T.distributions.Binomial(2, p).enumerate_support(); T.distributions.OneHotCategorical(p).mode
    T.distributions.OneHotCategorical(p).enumerate_support(); T.distributions.Bernoulli(p).enumerate_support()
    T.distributions.Gamma(s, p).expand((2, 3, 4)).batch_shape; T.distributions.Gumbel(x, s).expand((2, 3, 4)).mean
    T.distributions.Beta(s, p).rsample((2,)).shape; T.distributions.Dirichlet(s).sample((2,)).shape
    T.distributions.MixtureSameFamily(T.distributions.Categorical(p), T.distributions.Normal(x, s)).sample((5,)).shape
    T.distributions.Multinomial(5, p).sample((2,)).sum(-1); T.distributions.OneHotCategorical(p).sample((2,)).sum(-1)
    T.distributions.TransformedDistribution(T.distributions.Normal(x, s), T.distributions.TanhTransform()).batch_shape
    T.distributions.Normal(x, s).support.check(y); T.distributions.Gamma(s, p).support.check(y)
    T.distributions.Beta(s, p).support.check(y); T.distributions.Dirichlet(p).support.check(share)
    T.distributions.constraints.simplex.check(share); T.distributions.constraints.lower_cholesky.check(L)
    T.distributions.constraints.positive_definite.check(L @ L.T); T.distributions.constraints.one_hot.check(hot)
    T.distributions.constraints.interval(-1.0, 1.0).check(y)
    T.distributions.constraints.nonnegative_integer.check(count)
    T.distributions.constraints.independent(T.distributions.constraints.positive, 1).check(y)
    T.distributions.Uniform(T.zeros(2), 1.0).sample((2,)).shape; T.distributions.Laplace(0.0, 1.0).rsample((2, 1)).shape
    """),
)
def test_shapes_like_pytorch(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize(
    "expression",
    split("""
    T.distributions.Normal(x, -s); T.distributions.Normal(x * float("nan"), s); T.distributions.Categorical()
    T.distributions.Categorical(p, logits=x); T.distributions.Categorical(p - 0.5); T.distributions.Categorical(p[0, 0])
    T.distributions.Bernoulli(p + 1); T.distributions.Bernoulli(); T.distributions.Uniform(s, -s)
    T.distributions.Exponential(-s); T.distributions.Laplace(x, -s); T.distributions.MultivariateNormal(v)
    T.distributions.MultivariateNormal(v, -L @ L.T); T.distributions.Independent(T.distributions.Normal(x, s), 3)
    T.distributions.Gamma(-s, p); T.distributions.Beta(s, -p); T.distributions.Dirichlet(p - 1)
    T.distributions.Poisson(-s)
    T.distributions.Gumbel(x, -s); T.distributions.StudentT(-s); T.distributions.Cauchy(x, -s)
    T.distributions.Geometric(p + 1)
    T.distributions.Binomial(4, p + 1); T.distributions.NegativeBinomial(s, p + 1); T.distributions.Weibull(s, -p)
    T.distributions.TransformedDistribution(T.distributions.Normal(x, s), 3); T.distributions.Poisson(s).rsample()
    T.distributions.TransformedDistribution(T.distributions.Normal(0.0, 1.0), T.distributions.StickBreakingTransform())
    T.distributions.MixtureSameFamily(T.distributions.Normal(x, s), T.distributions.Normal(x, s))
    T.distributions.MixtureSameFamily(T.distributions.Categorical(p[0, :3]), T.distributions.Normal(x, s))
    T.distributions.LowRankMultivariateNormal(v, L[:3], s[0]); T.distributions.ReshapeTransform((4,), (3,))
    T.distributions.TanhTransform(cache_size=2); T.distributions.AbsTransform().sign; T.distributions.Poisson(s).cdf(p)
    T.distributions.Categorical(p).rsample(); T.distributions.Categorical(logits=x * float("nan"))
    T.distributions.kl_divergence(T.distributions.Normal(x, s), T.distributions.Bernoulli(p))
    """),
)
def test_refused_like_pytorch(expression: str) -> None:
    check_error(expression, ARRAYS)
