"""Loggers of metrics. A run of `ox train` writes JSONL and TensorBoard; each can also be used in your own loop:

with JSONL("metrics.jsonl") as log:
    log.step({"step": 1, "loss": 0.7})
"""

from ox.train.loggers.csv import CSV
from ox.train.loggers.jsonl import JSONL, read, trim
from ox.train.loggers.logger import Logger, Loggers
from ox.train.loggers.tensorboard import TensorBoard

__all__ = ["CSV", "JSONL", "Logger", "Loggers", "TensorBoard", "read", "trim"]
