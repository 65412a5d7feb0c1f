"""A ResNet-18 at 224×224, from the first weights on: which of eight surfaces is this a piece of?

`ox train resnet18_photos`; it needs `pip install scikit-image`. Networks for photographs want a million of them. Eight
are what comes without a download and looks alike in all of its parts, so this page asks what eight can answer: the left
half of each is there to learn from, and the network is asked about pieces of the right half, which it has never seen.
Is this gravel? (Half a photograph of a cat says nothing about the other half: of things this network learns nothing.)

What is shown is that the network for 224×224 trains, exports and serves, and how to feed it. For more, put folders of
photographs in place of `data()`.
"""

import ox
from ox import nn
from ox.data import Dataset, transforms
from ox_models.photos_data import SURFACES, LeftHalves, as_images, crops, photographs
from ox_models.resnet import resnet18

inputs = {"image": "224×224 red, green and blue levels from 0 to 1, rows from the top; here all three are the grey"}
outputs = {"logits": "one score a surface, the largest is the answer; softmax makes probabilities of them"}
labels = list(SURFACES)
shareable = True  # the photographs belong to nobody, so a few pieces may travel inside the exported file

defaults = {"epochs": 12, "batch_size": 32, "lr": 4e-3}


def data() -> tuple[Dataset, Dataset, Dataset]:
    """480 pieces an epoch of the left halves. 72 of the upper right quarters choose the best epoch, 72 of the lower
    right ones are held back."""
    whole = photographs()
    return LeftHalves(whole), crops(whole, top=0), crops(whole, top=256)


def model() -> nn.Module:
    """ResNet-18 with a quarter of its channels: 0.7 million parameters instead of 11.2. `resnet18(8)` is the full one;
    who has torchvision's weights as safetensors loads them here and trains only `fc` anew."""
    return resnet18(len(SURFACES), width=16)


# A tenth to a half of what is there, enlarged or reduced to 224×224, mirrored or not, lighter or darker: the network
# must know the surface at any distance and in any light. ImageNet's recipes do the same.
varied = transforms.Compose(
    [
        transforms.RandomResizedCrop(224, scale=(0.1, 0.5)),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(brightness=0.3),
    ]
)


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """Whole halves come in, bytes; what goes on is what the network takes."""
    halves, answers = batch
    return as_images(varied.batch(halves, generator)), answers


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Up to the full learning rate in the first third, then slowly down to nearly nothing."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
