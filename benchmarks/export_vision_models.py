"""Networks for images, written once for ox and PyTorch: what `bench_export_nodes.py` exports from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench_resnet import resnet18


@dataclass(frozen=True)
class Model:
    """A network, its inputs by the argument names of `forward`, and names for the sizes that may all vary."""

    make: Callable[[], Any]
    inputs: dict[str, Any]
    open_sizes: dict[str, dict[int, str]]


def images(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def vision_models(lib: Any) -> dict[str, Model]:
    """The networks by name. `lib` is ox or torch."""
    nn, F = lib.nn, lib.nn.functional

    class MobileNet(nn.Module):  # type: ignore[misc]
        """Depthwise convolutions, squeeze and excitation, hard swish (Howard et al., "MobileNetV3", 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
            self.depth, self.norm2 = nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32)
            self.squeeze, self.excite = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
            self.project, self.norm3 = nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32)
            self.act, self.gate, self.head = nn.Hardswish(), nn.Hardsigmoid(), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.act(self.norm(self.stem(x)))
            y = self.act(self.norm2(self.depth(x)))
            y = y * self.gate(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
            x = x + self.norm3(self.project(y))
            return self.head(x.mean((2, 3)))

    class EfficientNet(nn.Module):  # type: ignore[misc]
        """Inverted bottlenecks with SiLU (Tan and Le, 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
            self.expand = nn.Sequential(nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.SiLU())
            self.depth = nn.Sequential(nn.Conv2d(64, 64, 5, 2, 2, groups=64, bias=False), nn.BatchNorm2d(64), nn.SiLU())
            self.squeeze, self.excite = nn.Conv2d(64, 4, 1), nn.Conv2d(4, 64, 1)
            self.project = nn.Sequential(nn.Conv2d(64, 24, 1, bias=False), nn.BatchNorm2d(24))
            self.drop, self.head = nn.Dropout(0.2), nn.Linear(24, 10)

        def forward(self, x: Any) -> Any:
            x = self.depth(self.expand(self.stem(x)))
            x = x * self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))).sigmoid()
            return self.head(self.drop(F.adaptive_avg_pool2d(self.project(x), 1).flatten(1)))

    class ConvNeXt(nn.Module):  # type: ignore[misc]
        """Layer norms with channels last (Liu et al., 2022)."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.depth = nn.Conv2d(3, 32, 4, 4), nn.Conv2d(32, 32, 7, 1, 3, groups=32)
            self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)
            self.scale, self.last, self.head = nn.Parameter(0.1 * lib.ones(32)), nn.LayerNorm(32), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            y = self.down(F.gelu(self.up(self.norm(self.depth(x).permute(0, 2, 3, 1))))) * self.scale
            return self.head(self.last((x + y.permute(0, 3, 1, 2)).mean((2, 3))))

    class DenseNet(nn.Module):  # type: ignore[misc]
        """Each layer reads all before it (Huang et al., 2017)."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(16 + 8 * i) for i in range(4)])
            self.layers = nn.ModuleList([nn.Conv2d(16 + 8 * i, 8, 3, 1, 1, bias=False) for i in range(4)])
            self.pool, self.head = nn.AvgPool2d(2), nn.Linear(48, 10)

        def forward(self, x: Any) -> Any:
            parts = [self.stem(x)]
            for norm, layer in zip(self.norms, self.layers, strict=True):
                parts.append(layer(F.relu(norm(lib.cat(parts, 1)))))
            return self.head(self.pool(lib.cat(parts, 1)).mean((2, 3)))

    class ShuffleNet(nn.Module):  # type: ignore[misc]
        """Channels are split, shuffled and joined (Ma et al., 2018)."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 3, 2, 1)
            self.a = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
            self.b = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16))
            self.head = nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for _ in range(2):
                left, right = x.chunk(2, 1)
                x = lib.cat([left, self.b(self.a(right))], 1)
                batch, channels, height, width = x.shape
                x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, -1, height, width)
            return self.head(x.mean((2, 3)))

    class ViT(nn.Module):  # type: ignore[misc]
        """A vision transformer (Dosovitskiy et al., 2021)."""

        def __init__(self) -> None:
            super().__init__()
            self.patch, self.token = nn.Conv2d(3, 64, 4, 4), nn.Parameter(lib.zeros(1, 1, 64))
            self.place = nn.Parameter(lib.randn(1, 65, 64))
            layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu", norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = lib.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
            return self.head(self.layers(x)[:, 0])

    class Swin(nn.Module):  # type: ignore[misc]
        """Attention in shifted windows with relative positions (Liu et al., 2021)."""

        def __init__(self) -> None:
            super().__init__()
            self.patch, self.norm = nn.Conv2d(3, 32, 4, 4), nn.LayerNorm(32)
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.bias = nn.Parameter(0.1 * lib.randn(1, 4, 16, 16))
            self.norm2, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).permute(0, 2, 3, 1)
            batch, height, width, channels = x.shape
            y = lib.roll(self.norm(x), (-2, -2), (1, 2))
            y = y.view(batch, height // 4, 4, width // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
            y = y.reshape(-1, 16, channels)
            qkv = self.qkv(y).reshape(-1, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            weights = (q * 8**-0.5 @ k.transpose(-2, -1) + self.bias).softmax(-1)
            y = self.out((weights @ v).transpose(1, 2).reshape(-1, 16, channels))
            y = y.view(batch, height // 4, width // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
            x = x + lib.roll(y.reshape(batch, height, width, channels), (2, 2), (1, 2))
            x = x + self.down(F.gelu(self.up(self.norm2(x))))
            return self.head(x.mean((1, 2)))

    class Mixer(nn.Module):  # type: ignore[misc]
        """Linear layers over patches and over channels (Tolstikhin et al., 2021)."""

        def __init__(self) -> None:
            super().__init__()
            self.patch, self.norm, self.norm2 = nn.Conv2d(3, 64, 4, 4), nn.LayerNorm(64), nn.LayerNorm(64)
            self.tokens = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 64))
            self.channels = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
            return self.head((x + self.channels(self.norm2(x))).mean(1))

    class Diffusion(nn.Module):  # type: ignore[misc]
        """A U-Net with group norms, a time embedding and attention (Ho et al., 2020)."""

        def __init__(self) -> None:
            super().__init__()
            self.time, self.enter = nn.Linear(32, 32), nn.Conv2d(3, 32, 3, 1, 1)
            self.norm, self.down = nn.GroupNorm(8, 32), nn.Conv2d(32, 64, 3, 2, 1)
            self.norm2, self.qkv, self.proj = nn.GroupNorm(8, 64), nn.Conv2d(64, 192, 1), nn.Conv2d(64, 64, 1)
            self.up, self.out = nn.ConvTranspose2d(64, 32, 2, 2), nn.Conv2d(64, 3, 3, 1, 1)

        def forward(self, x: Any, step: Any) -> Any:
            angle = step[:, None] * lib.exp(-lib.arange(16) * 0.5)
            at = self.time(lib.cat([angle.sin(), angle.cos()], 1))[:, :, None, None]
            first = F.silu(self.norm(self.enter(x) + at))
            y = self.down(first)
            batch, channels, height, width = y.shape
            q, k, v = self.qkv(self.norm2(y)).reshape(batch, 3, channels, height * width).unbind(1)
            weights = (q.transpose(1, 2) @ k * channels**-0.5).softmax(-1)
            y = y + self.proj((v @ weights.transpose(1, 2)).reshape(batch, channels, height, width))
            return self.out(lib.cat([self.up(F.mish(y)), first], 1))

    class Detector(nn.Module):  # type: ignore[misc]
        """A pyramid of features, and boxes of the best scores (Lin et al., 2017)."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)
            self.score, self.box = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 4, 1)

        def forward(self, x: Any) -> Any:
            a = F.leaky_relu(self.a(x), 0.1)
            y = a + F.interpolate(F.elu(self.b(a)), scale_factor=2.0, mode="nearest")
            scores, boxes = self.score(y).flatten(2).sigmoid(), self.box(y).flatten(2).exp()
            best, places = scores.amax(1).topk(5)
            return best, boxes.gather(2, places[:, None].expand(-1, 4, -1))

    class Style(nn.Module):  # type: ignore[misc]
        """Instance norms, reflected borders and upsampling (Johnson et al., 2016)."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm = nn.Conv2d(3, 16, 3, 2), nn.InstanceNorm2d(16, affine=True)
            self.b, self.norm2, self.out = nn.Conv2d(16, 16, 3), nn.InstanceNorm2d(16), nn.Conv2d(16, 3, 3)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.norm(self.a(F.pad(x, (1, 1, 1, 1), mode="reflect"))))
            x = x + self.norm2(self.b(F.pad(x, (1, 1, 1, 1), mode="reflect")))
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            return self.out(F.pad(x, (1, 1, 1, 1), mode="replicate")).tanh()

    class SuperResolution(nn.Module):  # type: ignore[misc]
        """Pixels from channels (Shi et al., 2016)."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.act, self.b = nn.Conv2d(3, 16, 3, 1, 1), nn.PReLU(16), nn.Conv2d(16, 12, 3, 1, 1)

        def forward(self, x: Any) -> Any:
            up = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            return (F.pixel_shuffle(self.b(self.act(self.a(x))), 2) + up).clamp(0, 1)

    class Critic(nn.Module):  # type: ignore[misc]
        """A discriminator with spectral norms (Miyato et al., 2018)."""

        def __init__(self) -> None:
            super().__init__()
            norm = nn.utils.parametrizations.spectral_norm
            self.a, self.b = norm(nn.Conv2d(3, 16, 4, 2, 1)), norm(nn.Conv2d(16, 32, 4, 2, 1))
            self.head = norm(nn.Linear(32, 1))

        def forward(self, x: Any) -> Any:
            x = F.leaky_relu(self.b(F.leaky_relu(self.a(x), 0.2)), 0.2)
            return self.head(x.sum((2, 3)))

    class Paste(nn.Module):  # type: ignore[misc]
        """Writes into slices of its values, as code from the time before `torch.cat` does."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 4, 3, 1, 1)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.a(x))
            y[:, 2:6] = self.b(y)
            y[:, 0] = 0.0
            y[:, :, 1:-1, 1:-1] *= 0.5
            return y

    picture, batch = {"x": images(4, 3, 32, 32)}, {"x": {0: "batch"}}
    every = {"x": {0: "batch", 2: "h", 3: "w"}}
    return {
        "ResNet-18": Model(lambda: resnet18(nn, F), {"input": images(4, 3, 16, 16)}, {"input": every["x"]}),
        "MobileNet": Model(MobileNet, picture, every),
        "EfficientNet": Model(EfficientNet, picture, every),
        "ConvNeXt": Model(ConvNeXt, picture, every),
        "DenseNet": Model(DenseNet, picture, every),
        "ShuffleNet": Model(ShuffleNet, picture, every),
        "ViT": Model(ViT, picture, batch),
        "Swin": Model(Swin, picture, batch),
        "Mixer": Model(Mixer, picture, batch),
        "Diffusion": Model(
            Diffusion, {**picture, "step": np.arange(4, dtype=np.float32)}, {**batch, "step": {0: "batch"}}
        ),
        "Detector": Model(Detector, picture, batch),
        "Style": Model(Style, picture, every),
        "SuperResolution": Model(SuperResolution, picture, every),
        "Critic": Model(Critic, picture, every),
        "Paste": Model(Paste, picture, every),
    }
