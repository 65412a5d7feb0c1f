"""Distributions that policies and variational models are written with, under the names of `torch.distributions`."""

from ox.distributions.bernoulli import Bernoulli
from ox.distributions.categorical import Categorical
from ox.distributions.continuous import Exponential, Laplace, Uniform
from ox.distributions.distribution import Distribution
from ox.distributions.divergence import kl_divergence, register_kl
from ox.distributions.independent import Independent
from ox.distributions.multivariate import MultivariateNormal
from ox.distributions.normal import LogNormal, Normal
from ox.doors import doors

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Exponential",
    "Independent",
    "Laplace",
    "LogNormal",
    "MultivariateNormal",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]

__getattr__, __dir__ = doors(__name__)
