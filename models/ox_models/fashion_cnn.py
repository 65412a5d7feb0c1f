"""Clothes, by a small convolutional network: 92 % accuracy on Fashion-MNIST's test images, in minutes on two cores.

`ox train fashion_cnn`. The data are those of `ox train fashion`, which reaches 74 %. This network detects the same
small patterns at all positions and combines them to larger ones.
"""

import ox
from ox import nn
from ox.data import TensorDataset, transforms
from ox_models.fashion_data import LABELS, split

inputs = {"image": "28×28 grey levels from 0 (background) to 1, rows from the top"}
outputs = {"logits": "one score a kind of clothing, the largest is the answer; softmax makes probabilities of them"}
labels = LABELS
shareable = True  # the images have the MIT licence, so the exported file may contain some as golden samples

defaults = {"epochs": 10, "batch_size": 128, "lr": 0.01}
metrics = ["confusion"]  # the confusion matrix: most errors are shirts


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images for training, 5,000 for validation (they choose the best epoch), and the 10,000 test images."""
    return split()


def block(inside: int, outside: int) -> nn.Sequential:
    """`outside` filters of 3×3, batch normalization, and the maximum of each 2×2 square.

    The convolution has no bias, because the normalization would subtract it again."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)
    )


def model() -> nn.Module:
    """98,554 parameters. Three quarters of them are in the first dense layer, but the three convolutions take nearly
    all of the time, because they run at 784, 196 and 49 positions of each image."""
    return nn.Sequential(
        block(1, 16),  # edges: [batch, 16, 14, 14]
        block(16, 32),  # seams and straps: [batch, 32, 7, 7]
        block(32, 64),  # collars, heels, sleeves: [batch, 64, 3, 3]
        nn.Flatten(),
        nn.Dropout(0.25),  # drops a quarter of the features, so that no decision depends on one pattern
        nn.Linear(576, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


mirrored = transforms.RandomHorizontalFlip()  # flip half of them: a shoe may point to the left or to the right


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """Applied to training batches, not to validation batches. All random numbers come from `generator`, so that a
    resumed run gives the same result as an uninterrupted one."""
    images, answers = batch
    return mirrored.batch(images, generator), answers


# Shirts, coats and pullovers look alike at 28×28. With label smoothing the target probability is 91 %, so the network
# does not memorise images that cannot be distinguished.
loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """The learning rate rises to its maximum in the first third, then falls slowly to nearly 0. Most of the last
    percent of accuracy is gained while the steps become small."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
