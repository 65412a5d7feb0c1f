"""A small U-Net: skip connections, interpolation, group norm, a dice loss, cyclic learning rates, gradient penalty."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(i, o, 3, padding="same"), nn.GroupNorm(2, o), nn.SiLU()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mid, self.up = Block(2, 4), Block(4, 8), Block(12, 4)
        self.pool = nn.AvgPool2d(2)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = F.interpolate(self.mid(self.pool(a)), scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.up(torch.cat([a, b], dim=1)))


def dice(logits, target):
    p = torch.sigmoid(logits).flatten(1)
    t = target.flatten(1)
    return 1 - ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


def main(fill, numbers):
    model = fill(UNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    trace = []
    for _ in range(5):
        images = torch.from_numpy(numbers(3, 2, 8, 8)).requires_grad_()
        masks = (images.detach().sum(1, keepdim=True) > 0).float()
        logits = model(images)
        loss = dice(logits, masks) + F.binary_cross_entropy_with_logits(logits, masks)
        (slope,) = torch.autograd.grad(loss, images, create_graph=True)
        total = loss + slope.square().sum().sqrt()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        scheduler.step()
        trace += [loss.item(), total.item(), scheduler.get_last_lr()[0]]
    return trace
