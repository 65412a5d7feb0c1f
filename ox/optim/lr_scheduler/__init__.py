"""Learning-rate schedules, under the names of `torch.optim.lr_scheduler`."""

from ox.optim.lr_scheduler.base import LRScheduler
from ox.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from ox.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from ox.optim.lr_scheduler.cyclic import CyclicLR
from ox.optim.lr_scheduler.factor import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from ox.optim.lr_scheduler.one_cycle import OneCycleLR
from ox.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # PyTorch's older name

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
