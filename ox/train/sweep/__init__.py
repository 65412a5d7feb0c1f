"""Hyperparameter search: search spaces, studies of Optuna, and their results as a table.

Imported by ox.ray and ox_cli only.
"""

from ox.train.sweep.space import Space, read_space
from ox.train.sweep.sweep import TRIALS, Sweep, Trial

__all__ = ["TRIALS", "Space", "Sweep", "Trial", "read_space"]
