"""Metrics: counted batch by batch, as torchmetrics' are, without the data being kept.

    accuracy = Accuracy()
    for images, labels in loader:
        accuracy.update(model(images), labels)
    print(accuracy.compute())
    accuracy.reset()

Each takes tensors or arrays, holds plain sums, and merges with the state of another process: `merge(state_dict())`.
"""

from ox.train.metrics.accuracy import Accuracy, TopK
from ox.train.metrics.auroc import AUROC
from ox.train.metrics.confusion import ConfusionMatrix
from ox.train.metrics.f1 import F1
from ox.train.metrics.metric import Metric
from ox.train.metrics.named import NAMES, metric_of
from ox.train.metrics.perplexity import Perplexity
from ox.train.metrics.regression import R2, RMSE, MeanAbsoluteError

__all__ = [
    "AUROC",
    "F1",
    "NAMES",
    "R2",
    "RMSE",
    "Accuracy",
    "ConfusionMatrix",
    "MeanAbsoluteError",
    "Metric",
    "Perplexity",
    "TopK",
    "metric_of",
]
