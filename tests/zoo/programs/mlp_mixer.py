"""A mixer of tokens and channels, made of functools.partial and einops layers, trained with CutMix."""

from functools import partial

import numpy as np
import torch
from einops.layers.torch import Rearrange, Reduce
from torch import nn

pair = lambda x: x if isinstance(x, tuple) else (x, x)


class PreNormResidual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.fn(self.norm(x)) + x


def FeedForward(dim, expansion_factor=4, dropout=0.0, dense=nn.Linear):
    inner_dim = int(dim * expansion_factor)
    return nn.Sequential(
        dense(dim, inner_dim), nn.GELU(), nn.Dropout(dropout), dense(inner_dim, dim), nn.Dropout(dropout)
    )


def MLPMixer(
    *, image_size, channels, patch_size, dim, depth, num_classes, expansion_factor=2, expansion_factor_token=0.5
):
    image_h, image_w = pair(image_size)
    assert (image_h % patch_size) == 0 and (image_w % patch_size) == 0, "image must be divisible by patch size"
    num_patches = (image_h // patch_size) * (image_w // patch_size)
    chan_first, chan_last = partial(nn.Conv1d, kernel_size=1), nn.Linear
    return nn.Sequential(
        Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch_size, p2=patch_size),
        nn.Linear((patch_size**2) * channels, dim),
        *[
            nn.Sequential(
                PreNormResidual(dim, FeedForward(num_patches, expansion_factor, 0.1, chan_first)),
                PreNormResidual(dim, FeedForward(dim, expansion_factor_token, 0.1, chan_last)),
            )
            for _ in range(depth)
        ],
        nn.LayerNorm(dim),
        Reduce("b n c -> b c", "mean"),
        nn.Linear(dim, num_classes),
    )


def rand_bbox(size, lam):
    W, H = size[2], size[3]
    cut_rat = np.sqrt(1.0 - lam)
    cut_w, cut_h = int(W * cut_rat), int(H * cut_rat)
    cx, cy = np.random.randint(W), np.random.randint(H)
    return (
        np.clip(cx - cut_w // 2, 0, W),
        np.clip(cy - cut_h // 2, 0, H),
        np.clip(cx + cut_w // 2, 0, W),
        np.clip(cy + cut_h // 2, 0, H),
    )


torch.manual_seed(2)
np.random.seed(2)
model = MLPMixer(image_size=(16, 24), channels=3, patch_size=8, dim=12, depth=2, num_classes=5)
print(model[2][0].fn[0].weight.shape, sum(p.numel() for p in model.parameters() if p.requires_grad))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
images, labels = torch.randn(20, 3, 16, 24), torch.from_numpy(np.random.randint(0, 5, 20))
for epoch in range(3):
    model.train()
    for i, idx in enumerate(torch.arange(20).split(10)):
        input, target = images[idx].clone(), labels[idx]
        lam = np.random.beta(1.0, 1.0)
        rand_index = torch.randperm(input.size()[0])
        target_a, target_b = target, target[rand_index]
        bbx1, bby1, bbx2, bby2 = rand_bbox(input.size(), lam)
        input[:, :, bbx1:bbx2, bby1:bby2] = input[rand_index, :, bbx1:bbx2, bby1:bby2]
        lam = 1 - ((bbx2 - bbx1) * (bby2 - bby1) / (input.size()[-1] * input.size()[-2]))
        output = model(input)
        loss = criterion(output, target_a) * lam + criterion(output, target_b) * (1.0 - lam)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(epoch + i / 2)
        print(f"{epoch}.{i} loss {loss.item():.5f} lam {lam:.3f} lr {scheduler.get_last_lr()[0]:.6f}")
model.eval()
with torch.no_grad():
    _, predicted = torch.max(model(images).data, 1)
    print(predicted.tolist(), f"{100.0 * (predicted == labels).sum().item() / labels.size(0):.1f}%")
example = images[:3]
