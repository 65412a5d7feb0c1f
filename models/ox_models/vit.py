"""A vision transformer, small enough for a laptop: an image is split into patches, the tokens of a transformer.

A convolution combines neighbouring pixels; attention combines all patches. In the vision transformer (Dosovitskiy et
al., https://arxiv.org/abs/2010.11929) each patch of an image is a token, like a word of a sentence. A convolution
uses by construction that neighbouring pixels belong together; this network must learn it from the images. With few
images (here: 88 %) it is worse than a small convolutional network, `ox train fashion_cnn`, with millions it is better.

The parameters have torchvision's names, so that the weights of its vit_b_16 can be loaded into `vit_b_16()`, below.
"""

import math
from collections import OrderedDict

import ox
from ox import nn
from ox.data import TensorDataset, transforms
from ox_models.fashion_data import LABELS, split

inputs = {"image": "28×28 grey levels from 0 (background) to 1, rows from the top"}
outputs = {"logits": "one score a kind of clothing, the largest is the answer"}
labels = LABELS
shareable = True  # the images have the MIT licence, so the exported file may contain some
defaults = {"epochs": 5, "batch_size": 128, "lr": 2e-3}


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """55,000 images for training, 5,000 for validation (they choose the best epoch), and the 10,000 test images."""
    return split()


class EncoderBlock(nn.Module):
    """Attention combines the patches, then an MLP processes each patch alone. Both are residual, like the blocks of
    `ox_models.resnet`, and both have normalized inputs."""

    def __init__(self, width: int, heads: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, mlp), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp, width), nn.Dropout(dropout)
        )

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        seen = self.ln_1(x)
        told, _ = self.self_attention(seen, seen, seen, need_weights=False)
        x = x + self.dropout(told)
        result: ox.Tensor = x + self.mlp(self.ln_2(x))
        return result


class Encoder(nn.Module):
    """The position embeddings, which tell the order of the patches, and the blocks."""

    def __init__(self, length: int, layers: int, heads: int, width: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(0.02 * ox.randn(1, length, width))
        self.dropout = nn.Dropout(dropout)
        blocks = [(f"encoder_layer_{i}", EncoderBlock(width, heads, mlp, dropout)) for i in range(layers)]
        self.layers = nn.Sequential(OrderedDict(blocks))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        result: ox.Tensor = self.ln(self.layers(self.dropout(x + self.pos_embedding)))
        return result


class VisionTransformer(nn.Module):
    """`torchvision.models.VisionTransformer`; the default size trains on Fashion-MNIST in minutes."""

    def __init__(
        self,
        image_size: int = 28,
        patch_size: int = 7,
        channels: int = 1,
        layers: int = 6,
        heads: int = 4,
        width: int = 64,
        mlp: int = 128,
        num_classes: int = 10,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        # A convolution whose stride is its kernel size: each patch becomes one vector of `width` numbers.
        self.conv_proj = nn.Conv2d(channels, width, patch_size, stride=patch_size)
        nn.init.trunc_normal_(self.conv_proj.weight, std=1 / math.sqrt(channels * patch_size**2))
        # The class token: an additional token; the classifier uses its final vector.
        self.class_token = nn.Parameter(ox.zeros(1, 1, width))
        self.encoder = Encoder((image_size // patch_size) ** 2 + 1, layers, heads, width, mlp, dropout)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, num_classes)))

    def forward(self, image: ox.Tensor) -> ox.Tensor:
        patches = self.conv_proj(image).flatten(2).transpose(1, 2)  # [batch, 16, 64]
        listener = self.class_token.expand(image.shape[0], -1, -1)
        logits: ox.Tensor = self.heads(self.encoder(ox.cat([listener, patches], dim=1))[:, 0])
        return logits


def vit_b_16(num_classes: int = 1000) -> VisionTransformer:
    """The paper's base size, for 224×224: 86.6 million parameters. `torchvision.models.vit_b_16`."""
    return VisionTransformer(224, 16, 3, layers=12, heads=12, width=768, mlp=3072, num_classes=num_classes)


def model() -> nn.Module:
    return VisionTransformer()


mirrored = transforms.RandomHorizontalFlip()  # flip half of them: a mirrored coat is a coat


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    images, answers = batch
    return mirrored.batch(images, generator), answers


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Warm-up, then decay. Transformers need the warm-up: large steps at the start do lasting harm."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
