"""Handwritten digits: a small convolutional network classifies 8×8 images. About 99 % accuracy after ten seconds.

This file is the recipe of `ox train digits`. It defines, from top to bottom: the data, the network, the augmentation,
the loss and the optimizer. To adapt it, copy the file and train the copy: `ox train my_recipe.py`.
"""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.digits_data import split

# Names and meanings of the inputs and outputs. The exported file contains them, and clients of the server use them.
inputs = {"image": "grey levels from 0 (paper) to 1 (ink), rows from the top"}
outputs = {"logits": "one score a digit, the largest is the answer; softmax makes probabilities of them"}
labels = list("0123456789")

# The digits are public (CC BY 4.0), so the exported file may contain some of them as golden samples.
shareable = True

# Enough for 99 %; more epochs change little. For a quick test: `ox train digits --epochs 5`.
defaults = {"epochs": 20, "batch_size": 64, "lr": 0.01}


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """1,149 images for training, 288 for validation (they choose the best epoch) and 360 for testing. No decision
    depends on the test set. It is used once, at the end, so its accuracy is an estimate for new digits."""
    train, validation, held_back = split()
    return TensorDataset(*train), TensorDataset(*validation), TensorDataset(*held_back)


class LeNet(nn.Module):
    """Like LeNet: two convolutions, each followed by pooling, then two dense layers. Batch normalization is added; it
    keeps the values between the layers in range, so that training can use a large learning rate."""

    def __init__(self) -> None:
        super().__init__()
        # 32 filters of 3×3 pixels detect strokes at each position; pooling keeps the maximum of each 2×2 square.
        # [batch, 1, 8, 8] becomes [batch, 32, 4, 4].
        self.strokes = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        # 64 filters detect combinations of strokes: corners, loops, crossings. Now [batch, 64, 2, 2].
        self.shapes = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        # Combinations of these and their positions determine the digit.
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, image: ox.Tensor) -> ox.Tensor:
        logits: ox.Tensor = self.head(self.shapes(self.strokes(image)))
        return logits


def model() -> nn.Module:
    return LeNet()


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """A digit that moves by a pixel is the same digit. The network learns this because each image is shifted by -1, 0
    or 1 pixel vertically and horizontally, at random in each epoch.

    All random numbers come from `generator`, so that a resumed run gives the same result as an uninterrupted one.
    """
    images, answers = batch
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(2, 3))  # [n, 1, 3, 3, 8, 8]
    down, across = ox.randint(0, 3, (2, len(images)), generator=generator).numpy()
    return ox.from_numpy(windows[np.arange(len(images)), :, down, across]), answers


# Label smoothing: the target probability is 91 %, not 100 %. This reduces overconfidence and errors on new digits.
loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """The learning rate rises to its maximum in the first third, then falls slowly to nearly 0."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
