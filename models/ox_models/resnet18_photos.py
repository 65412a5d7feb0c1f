"""A ResNet-18 at 224×224, trained from scratch: which of eight surfaces does this crop show?

`ox train resnet18_photos`; it needs `pip install scikit-image`. Networks for photographs need about a million of them.
Eight photographs of surfaces are available without a download, and each looks alike everywhere. Therefore the task is:
train on crops of the left half of each photograph, and classify crops of the right half. (This works for surfaces such
as gravel, not for objects: half a photograph of a cat says nothing about the other half.)

The recipe shows how to train, export and serve a network for 224×224 images, and how to feed it. For a real task,
replace `data()` with folders of photographs.
"""

import ox
from ox import nn
from ox.data import Dataset, transforms
from ox_models.photos_data import SURFACES, LeftHalves, as_images, crops, photographs
from ox_models.resnet import resnet18

inputs = {"image": "224×224 red, green and blue levels from 0 to 1, rows from the top; here all three are the grey"}
outputs = {"logits": "one score a surface, the largest is the answer; softmax makes probabilities of them"}
labels = list(SURFACES)
shareable = True  # the photographs are in the public domain, so the exported file may contain some crops

defaults = {"epochs": 12, "batch_size": 32, "lr": 4e-3}


def data() -> tuple[Dataset, Dataset, Dataset]:
    """480 crops per epoch of the left halves for training, 72 of the upper right quarters for validation (they choose
    the best epoch), 72 of the lower right quarters for testing."""
    whole = photographs()
    return LeftHalves(whole), crops(whole, top=0), crops(whole, top=256)


def model() -> nn.Module:
    """ResNet-18 with a quarter of its channels: 0.7 million parameters instead of 11.2. `resnet18(8)` is the full one;
    with torchvision's weights as safetensors, load them here and train only `fc`."""
    return resnet18(len(SURFACES), width=16)


# Random crops of a tenth to a half of the area, resized to 224×224, flips, and changes of brightness: the network must
# know the surface at any distance and in any light. Recipes for ImageNet do the same.
varied = transforms.Compose(
    [
        transforms.RandomResizedCrop(224, scale=(0.1, 0.5)),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(brightness=0.3),
    ]
)


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """Converts left halves, uint8, to random crops in the format of the network's input."""
    halves, answers = batch
    return as_images(varied.batch(halves, generator)), answers


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """The learning rate rises to its maximum in the first third, then falls slowly to nearly 0."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
