"""A ResNet-18 on small images: Fashion-MNIST at 32×32, the size of CIFAR's images, in some minutes on two cores.

`ox train resnet18`. The network is in `ox_models/resnet.py`; this recipe trains it. With all of its channels it needs a
GPU or a night. Here it has a quarter of them, is trained on 20,000 images for three epochs, and reaches 90 %.
"""

import ox
from ox import nn
from ox.data import Dataset, Subset, transforms
from ox_models.fashion_data import LABELS, split
from ox_models.resnet import resnet18

inputs = {"image": "32×32 grey levels from 0 (background) to 1: a 28×28 image with two rows and columns around it"}
outputs = {"logits": "one score a kind of clothing, the largest is the answer; softmax makes probabilities of them"}
labels = LABELS
shareable = True  # the images have the MIT licence, so the exported file may contain some as golden samples

# More images and epochs improve it: IMAGES = 55_000 and `--epochs 8` take seven times as long.
IMAGES = 20_000
defaults = {"epochs": 3, "batch_size": 64, "lr": 5e-3}


def data() -> tuple[Dataset, Dataset, Dataset]:
    """20,000 images for training, 5,000 for validation (they choose the best epoch), and the 10,000 test images."""
    train, validation, held_back = split(padding=2)
    return Subset(train, range(IMAGES)), validation, held_back


def model() -> nn.Module:
    """0.7 million parameters. `small` is the stem for small images, one 3×3 convolution: the stages then have 32×32,
    16×16, 8×8 and 4×4 pixels. `resnet18(10, small=True)` is the usual network for CIFAR-10."""
    return resnet18(len(LABELS), small=True, width=16, channels=1)


# Flip half of the images and shift each by up to two pixels into the padding. For CIFAR the same two are usual, with
# padding=4.
varied = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomCrop(32, padding=2)])


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    images, answers = batch
    return varied.batch(images, generator), answers


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """The learning rate rises to its maximum in the first third, then falls slowly to nearly 0."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
