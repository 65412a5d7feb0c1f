"""A dozen small architectures, each exported in about a second: what models of the wild are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ox
from ox import nn

F = nn.functional


def images(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.a, self.b = nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.relu(x + self.b(F.relu(self.a(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class MobileNet(nn.Module):
    """Depthwise convolutions, squeeze and excitation, hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depth = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.act, self.gate = nn.Hardswish(), nn.Hardsigmoid()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.act(self.depth(self.act(self.stem(x))))
        x = x * self.gate(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.head(x.mean((2, 3)))


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depth = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = nn.Parameter(0.1 * ox.ones(8))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        y = self.down(F.gelu(self.up(self.norm(self.depth(x).permute(0, 2, 3, 1))))) * self.scale
        return (x + y.permute(0, 3, 1, 2)).mean((2, 3))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(ox.zeros(1, 1, 8))
        self.place = nn.Parameter(ox.randn(1, 17, 8))
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True), 2
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = ox.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.layers(x)[:, 0])


class Llama(nn.Module):
    """RMS norm, rotary embedding, SwiGLU, a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(50, 16), nn.RMSNorm(16), nn.RMSNorm(16)
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((16, 32), (16, 32), (32, 16)))

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        angle = ox.arange(tokens.shape[1])[:, None] * 10.0 ** -ox.arange(4)
        turn = ox.cat([angle, angle], -1)

        def rotated(y: Any) -> Any:
            half = ox.cat([-y[..., 4:], y[..., :4]], -1)
            return y * turn.cos() + half * turn.sin()

        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return self.last(x + self.down(F.silu(self.gate(x)) * self.up(x))) @ self.table.weight.T


class BERT(nn.Module):
    """Attention with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.attend, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 3)

    def forward(self, tokens: Any, mask: Any) -> Any:
        x = self.table(tokens)
        x = self.norm(x + self.attend(x, x, x, key_padding_mask=mask == 0, need_weights=False)[0])
        return F.log_softmax(self.head(x[:, 0]).tanh(), -1)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8)
        self.forth, self.back, self.head = (
            nn.LSTM(8, 8, batch_first=True, bidirectional=True),
            nn.GRU(16, 8),
            nn.Linear(8, 5),
        )

    def forward(self, tokens: Any) -> Any:
        x = self.forth(self.table(tokens))[0]
        return self.head(self.back(x.transpose(0, 1))[0]).transpose(0, 1)


class Diffusion(nn.Module):
    """A U-Net with group norms and a time embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.enter = nn.Linear(8, 8), nn.Conv2d(3, 8, 3, 1, 1)
        self.norm, self.down = nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 3, 3, 1, 1)

    def forward(self, x: Any, step: Any) -> Any:
        angle = step[:, None] * ox.exp(-ox.arange(4) * 1.5)
        at = self.time(ox.cat([angle.sin(), angle.cos()], 1))[:, :, None, None]
        first = F.silu(self.norm(self.enter(x) + at))
        return self.out(ox.cat([self.up(F.mish(self.down(first))), first], 1))


class Detector(nn.Module):
    """A pyramid of features, and boxes of the best scores."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.score, self.box = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        a = F.leaky_relu(self.a(x), 0.1)
        y = a + F.interpolate(F.elu(self.b(a)), scale_factor=2, mode="nearest")
        scores, boxes = self.score(y).flatten(2).sigmoid(), self.box(y).flatten(2).exp()
        best, places = scores.amax(1).topk(5)
        return best, boxes.gather(2, places[:, None].expand(-1, 4, -1))


class GNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.other, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Any, edges: Any) -> Any:
        y = self.own(x)
        return self.head(F.relu(y + ox.zeros_like(y).index_add(0, edges[1], self.other(x)[edges[0]])))


class WaveNet(nn.Module):
    """Dilated causal convolutions of one dimension, gated."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, 8, 1)
        self.layers = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(3)])
        self.out = nn.Conv1d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        for i, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2**i, 0))).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return self.out(F.softplus(x)).var(-1, unbiased=False) + x.norm(dim=(1, 2))[:, None]


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x: Any) -> Any:
        mean, spread = self.encode(F.layer_norm(x, (16,))).split(4, -1)
        z = mean + spread.clamp(-5, 5).exp() * 0.1
        return self.decode(F.normalize(z, dim=-1)).sigmoid(), ox.logsumexp(z, -1), z.cumsum(-1)


TOKENS = np.random.default_rng(0).integers(0, 30, (8, 9))
GRAPH = (images(6, 4), np.array([[0, 1, 2, 5, 4, 3, 2], [1, 2, 3, 4, 5, 0, 5]]))

# name -> class, example, dims with all sizes open that can be
ZOO: dict[str, tuple[Callable[[], Any], Any, dict[str, list[Any]]]] = {
    "ResNet": (ResNet, images(8, 3, 16, 16), {"x": ["batch", 3, "h", "w"]}),
    "MobileNet": (MobileNet, images(8, 3, 16, 16), {"x": ["batch", 3, "h", "w"]}),
    "ConvNeXt": (ConvNeXt, images(8, 3, 16, 16), {"x": ["batch", 3, "h", "w"]}),
    "ViT": (ViT, images(8, 3, 16, 16), {"x": ["batch", 3, 16, 16]}),
    "Llama": (Llama, TOKENS, {"tokens": ["batch", "length"]}),
    "BERT": (BERT, (TOKENS, (TOKENS > 3).astype(np.int64)), {n: ["batch", "length"] for n in ("tokens", "mask")}),
    "Tagger": (Tagger, TOKENS, {"tokens": ["batch", "length"]}),
    "Diffusion": (
        Diffusion,
        (images(8, 3, 16, 16), np.arange(8, dtype=np.float32)),
        {"x": ["batch", 3, ox.Dim("h", multiple_of=2), ox.Dim("w", multiple_of=2)], "step": ["batch"]},
    ),
    "Detector": (
        Detector,
        images(8, 3, 16, 16),
        {"x": ["batch", 3, ox.Dim("h", multiple_of=4, min=8), ox.Dim("w", multiple_of=4, min=8)]},
    ),
    "GNN": (GNN, GRAPH, {"x": ["nodes", 4], "edges": [2, "edges"]}),
    "WaveNet": (WaveNet, images(8, 1, 30), {"x": ["batch", 1, "time"]}),
    "VAE": (VAE, images(8, 16), {"x": ["batch", 16]}),
}
