"""A ResNet-18 on small images: Fashion-MNIST at 32×32, as CIFAR's are, in some minutes on two cores.

`ox train resnet18`. The network is read in `ox_models/resnet.py`; this page trains it. With all of its channels it is a
network for a GPU, or for a night; here it has a quarter of them, sees 20,000 images three times, and gets 90 %.
"""

import ox
from ox import nn
from ox.data import Dataset, Subset, transforms
from ox_models.fashion_data import LABELS, split
from ox_models.resnet import resnet18

inputs = {"image": "32×32 grey levels from 0 (background) to 1: a 28×28 image with two rows and columns around it"}
outputs = {"logits": "one score a kind of clothing, the largest is the answer; softmax makes probabilities of them"}
labels = LABELS
shareable = True  # the images' licence (MIT) lets a few travel inside the exported file as golden samples

# IMAGES = 55_000 and `--epochs 8` take seven times as long: more images and more epochs are what it lacks.
IMAGES = 20_000
defaults = {"epochs": 3, "batch_size": 64, "lr": 5e-3}


def data() -> tuple[Dataset, Dataset, Dataset]:
    """20,000 images to learn from, 5,000 to choose the best epoch by, and the 10,000 test images, held back."""
    train, validation, held_back = split(padding=2)
    return Subset(train, range(IMAGES)), validation, held_back


def model() -> nn.Module:
    """0.7 million parameters. `small` is the stem for small images, one 3×3 convolution: the stages then work at 32×32,
    16×16, 8×8 and 4×4. `resnet18(10, small=True)` is the network that everybody trains on CIFAR-10."""
    return resnet18(len(LABELS), small=True, width=16, channels=1)


# Half of the images mirrored, and each moved by up to two pixels, which is the background that was put around it. For
# CIFAR everybody takes the same two, with padding=4.
varied = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomCrop(32, padding=2)])


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    images, answers = batch
    return varied.batch(images, generator), answers


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Up to the full learning rate in the first third, then slowly down to nearly nothing."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
