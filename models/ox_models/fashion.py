"""Clothes, by the network that everybody builds first: 784 numbers in, ten sigmoids, ten scores out. 74 %, in seconds.

This page is a recipe, `ox train fashion`, and is here to compare: nothing in it is random but the first weights and the
order of the images, so from the same weights and batches any library must draw the same loss curve. PyTorch does: no
loss of the 9,380 steps differs by 0.0001. What one would use is the next page, `ox train fashion_cnn`.
"""

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.fashion_data import LABELS, split

# What goes in and what comes out. These names stand in the exported file, and the server's clients use them.
inputs = {"image": "28×28 grey levels from 0 (background) to 1, rows from the top"}
outputs = {"log_probabilities": "one a kind of clothing, the largest is the answer; exp makes probabilities of them"}
labels = LABELS

# The images' licence (MIT) lets a few of them travel inside the exported file as golden samples.
shareable = True

defaults = {"epochs": 10, "batch_size": 64, "lr": 0.01}


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images to learn from and 5,000 to choose the best epoch by. The 10,000 test images are held back: the
    network is asked about them once, at the end."""
    return split()


def model() -> nn.Module:
    """7,960 parameters. Each of ten sigmoids asks one yes-or-no question about all pixels at once; the ten scores are
    weighted votes of the ten answers. So little room makes each answer blunt, and nothing is looked for in more than
    one place: a boot that is shifted by three pixels is a new boot."""
    return nn.Sequential(
        nn.Flatten(),  # [batch, 1, 28, 28] becomes [batch, 784]
        nn.Linear(784, 10),
        nn.Sigmoid(),
        nn.Linear(10, 10),
        nn.LogSoftmax(dim=1),  # scores become log-probabilities: of ten numbers that add up to one
    )


# The negative log-likelihood: how surprised the network is by the right answer. 2.30 is log(10), which is guessing.
loss = nn.NLLLoss()


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    """Plain gradient descent. A hundredth of the gradient is a small step for sigmoids, whose slope is a quarter at
    best, and so the curve still goes down after ten epochs. `--lr 0.5` ends at 83 %."""
    return ox.optim.SGD(model.parameters(), lr=lr)
