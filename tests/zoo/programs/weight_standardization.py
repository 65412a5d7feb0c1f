"""A pre-activation ResNet with weight-standardised convolutions and group norms, warm-up and step decay."""

from collections import OrderedDict
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        v, m = torch.var_mean(w, dim=[1, 2, 3], keepdim=True, unbiased=False)
        w = (w - m) / torch.sqrt(v + 1e-10)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ScaledStdConv2d(nn.Conv2d):
    """The same through batch norm, with a learnt gain, by the hook that Conv2d leaves to its subclasses."""

    def __init__(self, *args, eps=1e-6, **kwargs):
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.full((self.out_channels, 1, 1, 1), 1.0))
        self.scale = self.weight[0].numel() ** -0.5
        self.eps = eps

    def _conv_forward(self, input, weight, bias):
        weight = F.batch_norm(
            weight.reshape(1, self.out_channels, -1),
            None,
            None,
            weight=(self.gain * self.scale).view(-1),
            training=True,
            momentum=0.0,
            eps=self.eps,
        ).reshape_as(weight)
        return super()._conv_forward(input, weight, bias)


def conv3x3(cin, cout, stride=1, groups=1, bias=False, layer=StdConv2d):
    return layer(cin, cout, kernel_size=3, stride=stride, padding=1, bias=bias, groups=groups)


class PreActBottleneck(nn.Module):
    def __init__(self, cin, cout=None, cmid=None, stride=1, layer=StdConv2d):
        super().__init__()
        cout = cout or cin
        cmid = cmid or cout // 4
        self.gn1, self.conv1 = nn.GroupNorm(4, cin), layer(cin, cmid, 1, bias=False)
        self.gn2, self.conv2 = nn.GroupNorm(2, cmid), conv3x3(cmid, cmid, stride, layer=layer)
        self.gn3, self.conv3 = nn.GroupNorm(2, cmid), layer(cmid, cout, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        if stride != 1 or cin != cout:
            self.downsample = layer(cin, cout, 1, stride=stride, bias=False)

    def forward(self, x):
        out = self.relu(self.gn1(x))
        residual = self.downsample(out) if hasattr(self, "downsample") else x
        out = self.conv1(out)
        out = self.conv2(self.relu(self.gn2(out)))
        out = self.conv3(self.relu(self.gn3(out)))
        return out + residual


def build(layer):
    return nn.Sequential(
        OrderedDict(
            [
                (
                    "root",
                    nn.Sequential(
                        OrderedDict(
                            [
                                ("conv", layer(3, 16, kernel_size=5, stride=2, padding=2, bias=False)),
                                ("pad", nn.ConstantPad2d(1, 0)),
                                ("pool", nn.MaxPool2d(kernel_size=3, stride=2, padding=0)),
                            ]
                        )
                    ),
                ),
                (
                    "body",
                    nn.Sequential(
                        OrderedDict(
                            [
                                (
                                    f"unit{i + 1:02d}",
                                    PreActBottleneck(16 if i == 0 else 32, 32, stride=2 if i == 0 else 1, layer=layer),
                                )
                                for i in range(2)
                            ]
                        )
                    ),
                ),
                (
                    "head",
                    nn.Sequential(
                        OrderedDict(
                            [
                                ("gn", nn.GroupNorm(8, 32)),
                                ("relu", nn.ReLU(inplace=True)),
                                ("avg", nn.AdaptiveAvgPool2d(output_size=1)),
                                ("conv", nn.Conv2d(32, 4, kernel_size=1, bias=True)),
                                ("flat", nn.Flatten()),
                            ]
                        )
                    ),
                ),
            ]
        )
    )


def train(layer):
    torch.manual_seed(0)
    model = build(layer)
    nn.init.zeros_(model.head.conv.bias)
    x, y = torch.randn(16, 3, 24, 24), torch.randint(4, (16,))
    optim = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optim, lambda step: min(1.0, (step + 1) / 3) * 0.1 ** (step // 6))
    for step in range(8):
        for parameter in model.parameters():
            parameter.grad = None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.step()
        print(f"[{layer.__name__}] step {step} lr {scheduler.get_last_lr()[0]:.5f} loss {loss.item():.5f}")
        scheduler.step()
    return model, x[:4]


for layer in (partial(StdConv2d).func, ScaledStdConv2d):
    model, example = train(layer)
