"""Loggers: what a run measured, as it measures it. A run of `ox train` writes JSONL and TensorBoard; each can be used
alone in a loop of one's own:

    with JSONL("metrics.jsonl") as log:
        log.step({"step": 1, "loss": 0.7})
"""

from ox.train.loggers.csv import CSV
from ox.train.loggers.jsonl import JSONL, read, trim
from ox.train.loggers.logger import Logger, Loggers
from ox.train.loggers.tensorboard import TensorBoard

__all__ = ["CSV", "JSONL", "Logger", "Loggers", "TensorBoard", "read", "trim"]
