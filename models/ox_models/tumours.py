"""Is a tumour malignant? A small network for a table of 30 measurements and two classes.

For each of 569 tumours the nuclei of the cells were outlined on an image and measured: size, texture, concavity and
others. Always answering "benign" is correct for 63 %. Logistic regression is correct for 97 or 98 %, and so is this
network. A table of this size does not allow more; a better result would mean that the test set was used to choose the
model.

Data: Wolberg et al., Breast Cancer Wisconsin (Diagnostic), CC BY 4.0. An example for tables, not medical advice.
"""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.tables_data import split, table

columns = table("breast_cancer")
diagnosis = columns.pop("diagnosis")

inputs = {"measurements": "30 numbers as they were measured, in this order: " + ", ".join(columns)}
outputs = {"logits": "one score for each answer; softmax makes probabilities of them"}
labels = ["benign", "malignant"]
shareable = True

defaults = {"epochs": 40, "batch_size": 32, "lr": 0.01, "ema": 0.95}
# Accuracy measures the decisions at one threshold. AUROC measures whether malignant tumours get higher scores than
# benign ones for all thresholds, which matters if no malignant tumour may be missed.
metrics = ["f1", "auroc", "confusion"]
best = "auroc"


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """341 tumours for training, 114 for validation (they choose the best epoch), 114 for testing."""
    measured = np.stack(list(columns.values()), axis=1).astype(np.float32)
    return split(measured, np.array([labels.index(answer) for answer in diagnosis]))


class Standardize(nn.Module):
    """Scales each column to mean 0 and deviation 1: areas are near 1,000, concavities near 0.05. The mean and deviation
    of the training rows are part of the model, so clients of a server send unscaled measurements."""

    def __init__(self, x: ox.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        standard: ox.Tensor = (x - self.mean) / self.std
        return standard


def model() -> nn.Module:
    """Dropout of one half in the hidden layer, against overfitting."""
    measured = data()[0].tensors[0]
    return nn.Sequential(Standardize(measured), nn.Linear(30, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 2))


loss = nn.CrossEntropyLoss()


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
