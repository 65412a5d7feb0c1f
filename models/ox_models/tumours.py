"""Is a tumour malignant? A table of 30 measurements, two answers: the network that fits on a page of paper.

Of each of 569 tumours somebody outlined the nuclei of the cells on a picture and measured them: how large, how uneven,
how deeply dented. Always saying "benign" is right for 63 of 100. A straight line through the 30 numbers (logistic
regression) is right for 97 or 98, and so is this network: on a table of this size there is not more to find, and a page
that claimed it would have looked at the held-back rows.

Data: Wolberg et al., Breast Cancer Wisconsin (Diagnostic), CC BY 4.0. A lesson in tables and not in medicine.
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
# Accuracy asks who is right at the line between the answers. AUROC asks whether malignant tumours stand above benign
# ones wherever the line is drawn, and that is what a doctor who must miss none needs to know.
metrics = ["f1", "auroc", "confusion"]
best = "auroc"


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """341 tumours to learn from, 114 to choose the best epoch by, 114 held back."""
    measured = np.stack(list(columns.values()), axis=1).astype(np.float32)
    return split(measured, np.array([labels.index(answer) for answer in diagnosis]))


class Standardize(nn.Module):
    """Areas are near 1,000 and dents near 0.05; a network wants all about 0 and 1. Mean and spread of the training rows
    are part of the model and not of the data: whoever sends measurements to a server sends them as they were taken."""

    def __init__(self, x: ox.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        standard: ox.Tensor = (x - self.mean) / self.std
        return standard


def model() -> nn.Module:
    """Half of the hidden numbers are dropped at random while training: each must be of use without the others."""
    measured = data()[0].tensors[0]
    return nn.Sequential(Standardize(measured), nn.Linear(30, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 2))


loss = nn.CrossEntropyLoss()


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
