"""Optimizers and learning-rate schedulers, under the names of `torch.optim`."""

from ox.optim import lr_scheduler, swa_utils
from ox.optim.adadelta import Adadelta
from ox.optim.adafactor import Adafactor
from ox.optim.adagrad import Adagrad
from ox.optim.adam import Adam, AdamW
from ox.optim.adamax import Adamax
from ox.optim.asgd import ASGD
from ox.optim.lbfgs import LBFGS
from ox.optim.lion import Lion
from ox.optim.muon import Muon
from ox.optim.nadam import NAdam
from ox.optim.optimizer import Optimizer
from ox.optim.radam import RAdam
from ox.optim.rmsprop import RMSprop
from ox.optim.rprop import Rprop
from ox.optim.sgd import SGD
from ox.optim.sparse_adam import SparseAdam
from ox.optim.zero import ZeroRedundancyOptimizer

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "ZeroRedundancyOptimizer",
    "lr_scheduler",
    "swa_utils",
]
