"""Clothes, by a first small network: 784 numbers in, ten sigmoids, ten scores out. 74 % accuracy in seconds.

This file is the recipe of `ox train fashion`. It compares libraries: only the initial weights and the order of the
images are random, so with the same weights and batches every library must give the same losses. PyTorch does: no loss
of the 9,380 steps differs by 0.0001. A better network for these images is `ox train fashion_cnn`.
"""

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.fashion_data import LABELS, split

# Names and meanings of the inputs and outputs. The exported file contains them, and clients of the server use them.
inputs = {"image": "28×28 grey levels from 0 (background) to 1, rows from the top"}
outputs = {"log_probabilities": "one a kind of clothing, the largest is the answer; exp makes probabilities of them"}
labels = LABELS

# The images have the MIT licence, so the exported file may contain some of them as golden samples.
shareable = True

defaults = {"epochs": 10, "batch_size": 64, "lr": 0.01}


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images for training, 5,000 for validation (they choose the best epoch), and the 10,000 test images, which
    are used once, at the end."""
    return split()


def model() -> nn.Module:
    """7,960 parameters. Each of the ten sigmoids is a yes-or-no decision on all pixels at once; the ten scores are
    weighted sums of these decisions. Ten decisions are few, and the network does not know that a pattern may be at
    another position: a boot that is shifted by three pixels is a new object for it."""
    return nn.Sequential(
        nn.Flatten(),  # [batch, 1, 28, 28] becomes [batch, 784]
        nn.Linear(784, 10),
        nn.Sigmoid(),
        nn.Linear(10, 10),
        nn.LogSoftmax(dim=1),  # converts scores to log-probabilities
    )


# The negative log-likelihood of the correct class. Guessing gives log(10) = 2.30.
loss = nn.NLLLoss()


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    """Plain gradient descent. A learning rate of 0.01 is small for sigmoids, whose slope is at most a quarter, so the
    loss still falls after ten epochs. `--lr 0.5` reaches 83 %."""
    return ox.optim.SGD(model.parameters(), lr=lr)
