"""Clothes, by a small convolutional network: 92 % of Fashion-MNIST's 10,000 test images, in minutes on two cores.

`ox train fashion_cnn`. The data are those of `ox train fashion`, which gets 74 %; the difference is that this network
looks for the same small things everywhere, and builds larger ones of them.
"""

import ox
from ox import nn
from ox.data import TensorDataset, transforms
from ox_models.fashion_data import LABELS, split

inputs = {"image": "28×28 grey levels from 0 (background) to 1, rows from the top"}
outputs = {"logits": "one score a kind of clothing, the largest is the answer; softmax makes probabilities of them"}
labels = LABELS
shareable = True  # the images' licence (MIT) lets a few travel inside the exported file as golden samples

defaults = {"epochs": 10, "batch_size": 128, "lr": 0.01}
metrics = ["confusion"]  # which kind is taken for which: most of what is wrong is shirts


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images to learn from, 5,000 to choose the best epoch by, and the 10,000 test images, held back."""
    return split()


def block(inside: int, outside: int) -> nn.Sequential:
    """Look for `outside` patterns of 3×3 everywhere, keep the numbers in range, then the best match of each 2×2.

    The convolution has no bias, for the normalization would subtract it again."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)
    )


def model() -> nn.Module:
    """98,554 parameters, three quarters of them in the first dense layer, but nearly all of the time goes into the
    three convolutions, which look at 784, 196 and 49 places of each image."""
    return nn.Sequential(
        block(1, 16),  # edges: [batch, 16, 14, 14]
        block(16, 32),  # seams and straps: [batch, 32, 7, 7]
        block(32, 64),  # collars, heels, sleeves: [batch, 64, 3, 3]
        nn.Flatten(),
        nn.Dropout(0.25),  # a quarter of what was found is hidden at each step, so that no answer hangs on one pattern
        nn.Linear(576, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


mirrored = transforms.RandomHorizontalFlip()  # half of them: a shoe that points to the left is a shoe


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """Batches pass through here on their way into training, those of validation do not. All randomness comes from
    `generator`, so that a run that was killed goes on as if it had not been."""
    images, answers = batch
    return mirrored.batch(images, generator), answers


# Shirts, coats and pullovers look alike at 28×28: asking for 91 % certainty instead of 100 % keeps the network from
# learning by heart what cannot be told apart.
loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Up to the full learning rate in the first third, then slowly down to nearly nothing: most of the last percent is
    won while the steps become small."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
