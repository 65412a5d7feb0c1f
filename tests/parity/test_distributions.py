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


@pytest.mark.parametrize("expression", split(SMOOTH))
def test_like_pytorch(expression: str) -> None:
    check_value(expression, ARRAYS)
    followed = [n for n in ("x", "y", "s", "p", "v", "L") if re.search(rf"\b{n}\b", expression)]
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
    T.distributions.Categorical(p).rsample(); T.distributions.Categorical(logits=x * float("nan"))
    T.distributions.kl_divergence(T.distributions.Normal(x, s), T.distributions.Bernoulli(p))
    """),
)
def test_refused_like_pytorch(expression: str) -> None:
    check_error(expression, ARRAYS)
