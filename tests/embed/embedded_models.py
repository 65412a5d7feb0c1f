"""Fifteen small models, as different as those that people put into other programs: what `make embed` exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ox
from ox import nn

F = nn.functional
Tensor = ox.Tensor


class CNN(nn.Module):
    """A residual block, batch norms and pooling; the last norm stands behind a ReLU, where nothing can take it up."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.a, self.a_norm = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.b, self.last = nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = self.last(F.relu(x + self.b(F.relu(self.a_norm(self.a(x))))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Ronneberger et al., 2015, with one level: a skip around a pooling and a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm, self.low = nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.norm(self.down(x)))
        low = F.relu(self.low(F.max_pool2d(first, 2)))
        return self.out(ox.cat([self.up(low), first], 1)).sigmoid()


class Detector(nn.Module):
    """A pyramid of features, and the boxes of the five best scores."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.score, self.box = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = F.leaky_relu(self.a(x), 0.1)
        y = a + F.interpolate(F.elu(self.b(a)), scale_factor=2, mode="bilinear")
        scores, boxes = self.score(y).flatten(2).sigmoid(), self.box(y).flatten(2).exp()
        best, places = scores.amax(1).topk(5)
        return best, boxes.gather(2, places[:, None].expand(-1, 4, -1))


class Recurrent(nn.Module):
    """Tokens through an LSTM in both directions, or through a GRU."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8)
        self.layer: Any
        if kind == "LSTM":
            self.layer = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        else:
            self.layer = nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.table(tokens))[0])


class Encoder(nn.Module):
    """A transformer encoder with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(50, 16), nn.Parameter(ox.randn(1, 12, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.layers(self.table(tokens) + self.place, src_key_padding_mask=mask == 0)
        return F.log_softmax(self.head(x[:, 0]), -1)


class CachedDecoder(nn.Module):
    """One new token attends to itself and to what is in the cache, and gives the longer cache back."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 50)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.table(token)
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        keys, values = ox.cat([keys, k], 2), ox.cat([values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.head(x + self.out(y.transpose(1, 2).flatten(2))), keys, values


class GNN(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        y = self.own(x)
        return self.head(F.relu(y + ox.zeros_like(y).index_add(0, edges[1], self.other(x)[edges[0]])))


class DiffusionUNet(nn.Module):
    """A U-Net with group norms and an embedding of the time."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.enter = nn.Linear(8, 8), nn.Conv2d(3, 8, 3, 1, 1)
        self.norm, self.down = nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 3, 3, 1, 1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angle = step[:, None] * ox.exp(-ox.arange(4) * 1.5)
        at = self.time(ox.cat([angle.sin(), angle.cos()], 1))[:, :, None, None]
        first = F.silu(self.norm(self.enter(x) + at))
        return self.out(ox.cat([self.up(F.mish(self.down(first))), first], 1))


class GroupedDecoder(nn.Module):
    """RMS norm, rotary embedding, grouped-query attention with a causal mask, SwiGLU: a layer of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = nn.Embedding(50, 32), nn.RMSNorm(32), nn.RMSNorm(32)
        self.q, self.kv, self.out = (nn.Linear(*s, bias=False) for s in ((32, 32), (32, 32), (32, 32)))
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((32, 48), (32, 48), (48, 32)))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.norm(x)
        q = self.q(y).unflatten(-1, (4, 8)).transpose(1, 2)
        k, v = (z.unflatten(-1, (2, 8)).transpose(1, 2) for z in self.kv(y).chunk(2, -1))
        angle = ox.arange(tokens.shape[1])[:, None] * 10.0 ** -ox.arange(4)
        turn = ox.cat([angle, angle], -1)

        def rotated(z: Tensor) -> Tensor:
            return z * turn.cos() + ox.cat([-z[..., 4:], z[..., :4]], -1) * turn.sin()

        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.last(x)
        return (x + self.down(F.silu(self.gate(y)) * self.up(y))) @ self.table.weight.T


class GroupNormNet(nn.Module):
    """A convolutional net with group norms, hard swish and squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(4, 8)
        self.depth, self.second = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.GroupNorm(2, 8)
        self.squeeze, self.excite, self.head = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.second(self.depth(F.relu(self.norm(self.stem(x))))))
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.head(x.mean((2, 3)))


class ConvNeXt(nn.Module):
    """Liu et al., 2022: a depthwise convolution, and the rest on the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depth = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 7, 1, 3, groups=8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)
        self.scale, self.head = nn.Parameter(0.1 * ox.ones(8)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.down(F.gelu(self.up(self.norm(self.depth(x).permute(0, 2, 3, 1))))) * self.scale
        return self.head((x + y.permute(0, 3, 1, 2)).mean((2, 3)))


class VAEDecoder(nn.Module):
    """From a latent vector to an image, by transposed convolutions and a resize."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Linear(4, 8 * 4 * 4), nn.BatchNorm2d(8)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.Conv2d(8, 1, 3, 1, 1)

    def forward(self, z: Tensor) -> Tensor:
        x = F.relu(self.norm(self.up(self.enter(z).unflatten(-1, (8, 4, 4)))))
        return self.out(F.interpolate(x, scale_factor=2, mode="nearest")).sigmoid()


class AudioFrontEnd(nn.Module):
    """The logarithm of a mel-like spectrogram, and a convolution over time."""

    def __init__(self) -> None:
        super().__init__()
        self.bank, self.layer, self.head = nn.Linear(33, 16, bias=False), nn.Conv1d(16, 8, 3, 1, 1), nn.Linear(8, 4)
        self.register_buffer("window", ox.hann_window(64))
        with ox.no_grad():
            self.bank.weight.abs_()

    def forward(self, sound: Tensor) -> Tensor:
        bins = ox.stft(sound, 64, 32, window=self.window, center=False, return_complex=False)
        energy = bins.square().sum(-1).transpose(1, 2)
        features = (self.bank(energy) + 1e-3).log().transpose(1, 2)
        return self.head(F.relu(self.layer(features)).mean(-1))


class Tabular(nn.Module):
    """Numbers and categories of a table: embeddings, a batch norm of the numbers, a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, 3) for n in (5, 7)])
        self.norm = nn.BatchNorm1d(6)
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.layers(ox.cat([self.norm(numbers), *parts], 1)).softmax(-1)


@dataclass(frozen=True)
class Model:
    """A model, its example, and which sizes vary where that is not the first of each input alone."""

    make: Callable[[], nn.Module]
    example: tuple[np.ndarray, ...]
    dims: dict[str, list[Any]] | None = None
    outputs: tuple[str, ...] = field(default=("output",))


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def tokens(highest: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, highest, shape)


PAST = ["batch", 2, "past", 8]
CATEGORIES = np.stack([tokens(5, 4), tokens(7, 4)], 1)
MASK = np.where(np.arange(12) < np.array([[12], [7], [9], [12]]), 1, 0)
GRAPH = (drawn(6, 4), np.array([[0, 1, 2, 5, 4, 3, 2], [1, 2, 3, 4, 5, 0, 5]]))

MODELS = {
    "CNN": Model(CNN, (drawn(4, 3, 32, 32),)),
    "U-Net": Model(UNet, (drawn(4, 1, 16, 16),)),
    "detector": Model(Detector, (drawn(4, 3, 32, 32),), outputs=("scores", "boxes")),
    "LSTM": Model(lambda: Recurrent("LSTM"), (tokens(30, 4, 9),)),
    "transformer encoder": Model(Encoder, (tokens(50, 4, 12), MASK)),
    "KV-cache decoder": Model(
        CachedDecoder,
        (tokens(50, 4, 1), drawn(4, 2, 5, 8), drawn(4, 2, 5, 8)),
        {"token": ["batch", 1], "keys": PAST, "values": PAST},
        ("logits", "new_keys", "new_values"),
    ),
    "GNN": Model(GNN, GRAPH, {"x": ["nodes", 4], "edges": [2, "edges"]}),
    "diffusion U-Net": Model(DiffusionUNet, (drawn(4, 3, 16, 16), np.arange(4, dtype=np.float32))),
    "RMSNorm/GQA decoder": Model(GroupedDecoder, (tokens(50, 4, 9),), {"tokens": ["batch", "length"]}),
    "GroupNorm net": Model(GroupNormNet, (drawn(4, 3, 32, 32),)),
    "GRU": Model(lambda: Recurrent("GRU"), (tokens(30, 4, 9),)),
    "ConvNeXt": Model(ConvNeXt, (drawn(4, 3, 32, 32),)),
    "VAE decoder": Model(VAEDecoder, (drawn(4, 4),)),
    "audio front end": Model(AudioFrontEnd, (drawn(4, 512),)),
    "tabular net": Model(Tabular, (drawn(4, 6), CATEGORIES)),
}


def trained(name: str) -> nn.Module:
    """The model in eval mode, with running statistics and scales that are not those of a new one."""
    ox.manual_seed(0)
    model = MODELS[name].make()
    with ox.no_grad():
        for module in model.modules():
            for tensor in (getattr(module, "running_mean", None), getattr(module, "bias", None)):
                if isinstance(tensor, ox.Tensor):
                    tensor.add_(0.1 * ox.randn(*tensor.shape))
            variance = getattr(module, "running_var", None)
            if isinstance(variance, ox.Tensor):
                variance.mul_(ox.rand(*variance.shape) + 0.5)
    return model.eval()


def export(name: str, path: Any, **options: Any) -> ox.export.Report:
    """Write a model's file; options are those of `ox.export.save`."""
    model = MODELS[name]
    return ox.export.save(
        trained(name), path, model.example, dims=model.dims, output_names=list(model.outputs), **options
    )
