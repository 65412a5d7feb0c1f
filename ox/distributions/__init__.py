"""Distributions that policies and variational models are written with, under the names of `torch.distributions`."""

from ox.distributions import constraints, transforms
from ox.distributions import divergence_pairs as divergence_pairs
from ox.distributions.bernoulli import Bernoulli
from ox.distributions.categorical import Categorical
from ox.distributions.continuous import Exponential, Laplace, Uniform
from ox.distributions.counts import Binomial, Geometric, Multinomial, NegativeBinomial, Poisson
from ox.distributions.distribution import Distribution
from ox.distributions.divergence import kl_divergence, register_kl
from ox.distributions.extremes import Gumbel, Kumaraswamy, Weibull
from ox.distributions.gamma import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, InverseGamma, StudentT
from ox.distributions.heavy_tails import Cauchy, HalfCauchy, HalfNormal, Pareto
from ox.distributions.independent import Independent
from ox.distributions.low_rank import LowRankMultivariateNormal
from ox.distributions.mixture import MixtureSameFamily
from ox.distributions.multivariate import MultivariateNormal
from ox.distributions.normal import LogNormal, Normal
from ox.distributions.one_hot import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from ox.distributions.transformed import TransformedDistribution
from ox.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from ox.doors import doors

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "Laplace",
    "LogNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transforms",
]

__getattr__, __dir__ = doors(__name__)
