"""Handwritten digits: a small convolutional network learns to read 8×8 images. About 99 % right after ten seconds.

This page is a recipe, `ox train digits`, and it reads from top to bottom: the data, the network, how the data is
varied, what is minimised, and how. Copy it, change it, and train the copy: `ox train my_page.py`.
"""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.digits_data import split

# What goes in and what comes out. These names stand in the exported file, and the server's clients use them.
inputs = {"image": "grey levels from 0 (paper) to 1 (ink), rows from the top"}
outputs = {"logits": "one score a digit, the largest is the answer; softmax makes probabilities of them"}
labels = list("0123456789")

# The digits are public (CC BY 4.0), so a few real ones may travel inside the exported file as golden samples.
shareable = True

# Enough for 99 %; more epochs change little. `ox train digits --epochs 5` is a quick look.
defaults = {"epochs": 20, "batch_size": 64, "lr": 0.01}


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """1,149 images to learn from and 288 to choose the best epoch by. 360 are held back: no choice ever depends on
    them, so what the network scores there, once, at the end, is what it will score on the digits of a stranger."""
    train, validation, held_back = split()
    return TensorDataset(*train), TensorDataset(*validation), TensorDataset(*held_back)


class LeNet(nn.Module):
    """LeNet's plan: convolve and halve, twice, then two dense layers. What is newer is batch normalization, which keeps
    the numbers between the layers in range, so that training can take large steps."""

    def __init__(self) -> None:
        super().__init__()
        # 32 strokes of 3×3 pixels are looked for everywhere; pooling keeps the best match of each 2×2 square.
        # [batch, 1, 8, 8] becomes [batch, 32, 4, 4].
        self.strokes = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        # 64 arrangements of strokes: corners, loops, crossings. Now [batch, 64, 2, 2].
        self.shapes = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        # Which of them, where, make which digit.
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, image: ox.Tensor) -> ox.Tensor:
        logits: ox.Tensor = self.head(self.shapes(self.strokes(image)))
        return logits


def model() -> nn.Module:
    return LeNet()


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """A digit that moves by a pixel is the same digit. Nobody has to tell the network: it is shown each image shifted
    by -1, 0 or 1 pixel down and across, drawn anew each time, and so never sees quite the same image twice.

    All randomness comes from `generator`, so that a run that was killed goes on as if it had not been.
    """
    images, answers = batch
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(2, 3))  # [n, 1, 3, 3, 8, 8]
    down, across = ox.randint(0, 3, (2, len(images)), generator=generator).numpy()
    return ox.from_numpy(windows[np.arange(len(images)), :, down, across]), answers


# Label smoothing asks for 91 % certainty instead of 100 %: the network stops exaggerating, and errs less on new digits.
loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Up to the full learning rate in the first third, then slowly down to nearly nothing: find the valley, settle."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
