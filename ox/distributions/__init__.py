"""Probability distributions, under the names of `torch.distributions`."""

from typing import TYPE_CHECKING

from ox.core.lazy import lazy_modules, public_names
from ox.distributions import constraints as constraints
from ox.distributions import divergence_pairs as divergence_pairs
from ox.distributions import transforms as transforms
from ox.distributions.bernoulli import *
from ox.distributions.categorical import *
from ox.distributions.continuous import *
from ox.distributions.counts import *
from ox.distributions.distribution import *
from ox.distributions.divergence import *
from ox.distributions.extremes import *
from ox.distributions.gamma import *
from ox.distributions.heavy_tails import *
from ox.distributions.independent import *
from ox.distributions.low_rank import *
from ox.distributions.mixture import *
from ox.distributions.multivariate import *
from ox.distributions.normal import *
from ox.distributions.one_hot import *
from ox.distributions.transformed import *
from ox.distributions.transforms import *

if not TYPE_CHECKING:  # type checkers follow the imports
    __all__ = sorted(public_names(globals()) | {"constraints", "transforms"})

__getattr__, __dir__ = lazy_modules(__name__)
