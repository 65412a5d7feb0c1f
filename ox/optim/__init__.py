"""Optimizers and learning-rate schedulers, under the names of `torch.optim`."""

from ox.optim import lr_scheduler
from ox.optim.adam import Adam, AdamW
from ox.optim.optimizer import Optimizer
from ox.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
