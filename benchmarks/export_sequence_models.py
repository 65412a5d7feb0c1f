"""Networks for text, sound, graphs and vectors, written once for ox and PyTorch, for `bench_export_nodes.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from export_vision_models import Model, images

RANDOM = np.random.default_rng(0)


def sequence_models(lib: Any) -> dict[str, Model]:
    """The networks by name. `lib` is ox or torch."""
    nn, F = lib.nn, lib.nn.functional

    class Llama(nn.Module):  # type: ignore[misc]
        """RMS norms, rotary embedding, SwiGLU, a causal mask (Touvron et al., 2023)."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm, self.last = nn.Embedding(200, 64), nn.RMSNorm(64), nn.RMSNorm(64)
            self.qkv, self.out = nn.Linear(64, 192, bias=False), nn.Linear(64, 64, bias=False)
            self.norm2, self.down = nn.RMSNorm(64), nn.Linear(128, 64, bias=False)
            self.gate, self.up = nn.Linear(64, 128, bias=False), nn.Linear(64, 128, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.table(tokens)
            q, k, v = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
            angle = lib.arange(tokens.shape[1])[:, None] * 10.0 ** -lib.arange(8)
            turn = lib.cat([angle, angle], -1)

            def rotated(y: Any) -> Any:
                half = lib.cat([-y[..., 8:], y[..., :8]], -1)
                return y * turn.cos() + half * turn.sin()

            y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = self.norm2(x)
            return self.last(x + self.down(F.silu(self.gate(y)) * self.up(y))) @ self.table.weight.T

    class BERT(nn.Module):  # type: ignore[misc]
        """An encoder with a mask of padding (Devlin et al., 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.place, self.norm = nn.Embedding(200, 64), nn.Embedding(64, 64), nn.LayerNorm(64)
            self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))
            self.norm2, self.up, self.down, self.norm3 = (
                nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64), nn.LayerNorm(64),
            )  # fmt: skip
            self.head = nn.Linear(64, 3)

        def forward(self, tokens: Any, mask: Any) -> Any:
            x = self.norm(self.table(tokens) + self.place(lib.arange(tokens.shape[1])))
            batch, length, width = x.shape
            q, k, v = (layer(x).view(batch, length, 4, 16).permute(0, 2, 1, 3) for layer in (self.q, self.k, self.v))
            scores = q @ k.transpose(-1, -2) / 4.0 + (1.0 - mask[:, None, None, :].float()) * -10000.0
            y = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).contiguous().view(batch, length, width)
            x = self.norm2(x + self.out(y))
            x = self.norm3(x + self.down(F.gelu(self.up(x))))
            return F.log_softmax(self.head(x[:, 0].tanh()), -1)

    class Encoder(nn.Module):  # type: ignore[misc]
        """`nn.TransformerEncoder`, norms last."""

        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(x))

    class Translator(nn.Module):  # type: ignore[misc]
        """`nn.Transformer`, encoder and decoder."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(200, 32), nn.Linear(32, 200)
            self.body = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)

        def forward(self, source: Any, target: Any) -> Any:
            return self.head(self.body(self.table(source), self.table(target)))

    class Decoder(nn.Module):  # type: ignore[misc]
        """One step of a GPT with a cache of keys and values (Radford et al., 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm, self.norm2 = nn.Embedding(200, 64), nn.LayerNorm(64), nn.LayerNorm(64)
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, token: Any, keys: Any, values: Any) -> Any:
            x = self.table(token)
            q, k, v = self.qkv(self.norm(x)).split(64, 2)
            q, k, v = (y.view(y.shape[0], y.shape[1], 4, 16).transpose(1, 2) for y in (q, k, v))
            keys, values = lib.cat([keys, k], 2), lib.cat([values, v], 2)
            y = F.scaled_dot_product_attention(q, keys, values)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape[0], -1, 64))
            x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
            return x @ self.table.weight.t(), keys, values

    class Tagger(nn.Module):  # type: ignore[misc]
        """A bidirectional LSTM and a GRU."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(200, 32), nn.Linear(32, 5)
            self.forth, self.back = nn.LSTM(32, 32, batch_first=True, bidirectional=True), nn.GRU(64, 32)

        def forward(self, tokens: Any) -> Any:
            x = self.forth(self.table(tokens))[0]
            return self.head(self.back(x.transpose(0, 1))[0]).transpose(0, 1)

    class Forecaster(nn.Module):  # type: ignore[misc]
        """Two layers of an LSTM, and its last step."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(8, 32, 2, batch_first=True), nn.Linear(32, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    class Elman(nn.Module):  # type: ignore[misc]
        """A recurrent network without gates."""

        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(8, 32, batch_first=True), nn.Linear(32, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[1][0])

    class WaveNet(nn.Module):  # type: ignore[misc]
        """Dilated causal convolutions with weight norms, gated (van den Oord et al., 2016)."""

        def __init__(self) -> None:
            super().__init__()
            norm = nn.utils.parametrizations.weight_norm
            self.enter, self.out = nn.Conv1d(1, 16, 1), nn.Conv1d(16, 8, 1)
            self.layers = nn.ModuleList([norm(nn.Conv1d(16, 32, 2, dilation=2**i)) for i in range(4)])

        def forward(self, x: Any) -> Any:
            x = self.enter(x)
            for i, layer in enumerate(self.layers):
                a, b = layer(F.pad(x, (2**i, 0))).chunk(2, 1)
                x = x + a.tanh() * b.sigmoid()
            return self.out(F.relu(x))

    class Conformer(nn.Module):  # type: ignore[misc]
        """Convolution and attention for speech (Gulati et al., 2020)."""

        def __init__(self) -> None:
            super().__init__()
            self.enter, self.norm, self.norm2 = nn.Linear(20, 32), nn.LayerNorm(32), nn.LayerNorm(32)
            self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
            self.point, self.depth = nn.Conv1d(32, 64, 1), nn.Conv1d(32, 32, 9, 1, 4, groups=32)
            self.batch, self.point2, self.head = nn.BatchNorm1d(32), nn.Conv1d(32, 32, 1), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.enter(x)
            y = self.norm(x)
            x = x + self.attend(y, y, y, need_weights=False)[0]
            y = F.glu(self.point(self.norm2(x).transpose(1, 2)), 1)
            y = self.point2(F.silu(self.batch(self.depth(y)))).transpose(1, 2)
            return self.head(x + y).log_softmax(-1)

    class GNN(nn.Module):  # type: ignore[misc]
        """Sums of messages over edges."""

        def __init__(self) -> None:
            super().__init__()
            self.own, self.other, self.head = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 2)

        def forward(self, x: Any, edges: Any) -> Any:
            y = self.own(x)
            return self.head(F.relu(y + lib.zeros_like(y).index_add(0, edges[1], self.other(x)[edges[0]])))

    class VAE(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(64, 32), nn.Linear(16, 64)

        def forward(self, x: Any) -> Any:
            mean, spread = self.encode(F.layer_norm(x, (64,))).split(16, -1)
            z = mean + spread.clamp(-5, 5).exp() * 0.1
            return self.decode(F.normalize(z, dim=-1)).sigmoid(), z

    class NeRF(nn.Module):  # type: ignore[misc]
        """Fourier features and a skip connection (Mildenhall et al., 2020)."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(39, 64), nn.Linear(103, 64), nn.Linear(64, 4)

        def forward(self, x: Any) -> Any:
            turns = (x[..., None] * 2.0 ** lib.arange(6)).flatten(1)
            features = lib.cat([x, turns.sin(), turns.cos()], -1)
            y = F.relu(self.b(lib.cat([F.relu(self.a(features)), features], -1)))
            color, density = self.out(y).split([3, 1], -1)
            return color.sigmoid(), F.softplus(density)

    class DLRM(nn.Module):  # type: ignore[misc]
        """Products of embeddings (Naumov et al., 2019)."""

        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(100, 16) for _ in range(4)])
            self.dense, self.head = nn.Linear(8, 16), nn.Sequential(nn.Linear(41, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, x: Any, ids: Any) -> Any:
            dense = F.relu(self.dense(x))
            rows = lib.stack([dense, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
            products = rows @ rows.transpose(1, 2)
            return self.head(lib.cat([dense, products.flatten(1)], 1)).sigmoid().squeeze(-1)

    tokens, text = {"tokens": RANDOM.integers(0, 200, (4, 24))}, {"tokens": {0: "batch", 1: "length"}}
    series = {"x": images(4, 24, 8)}
    steps = {"x": {0: "batch", 1: "length"}}
    edges = RANDOM.integers(0, 40, (2, 120))
    cache = {n: images(4, 4, 12, 16) for n in ("keys", "values")}
    return {
        "Llama": Model(Llama, tokens, text),
        "BERT": Model(
            BERT, {**tokens, "mask": (tokens["tokens"] > 20).astype(np.int64)}, {**text, "mask": text["tokens"]}
        ),
        "Encoder": Model(Encoder, {"x": images(4, 24, 64)}, steps),
        "Translator": Model(
            Translator, {"source": tokens["tokens"], "target": tokens["tokens"][:, :16]},
            {"source": {0: "batch", 1: "source"}, "target": {0: "batch", 1: "target"}},
        ),
        "Decoder with cache": Model(
            Decoder, {"token": tokens["tokens"][:, :1], **cache},
            {"token": {0: "batch"}, **{n: {0: "batch", 2: "past"} for n in ("keys", "values")}},
        ),
        "Tagger": Model(Tagger, tokens, text),
        "Forecaster": Model(Forecaster, series, steps),
        "Elman": Model(Elman, series, steps),
        "WaveNet": Model(WaveNet, {"x": images(4, 1, 64)}, {"x": {0: "batch", 2: "time"}}),
        "Conformer": Model(Conformer, {"x": images(4, 24, 20)}, steps),
        "GNN": Model(GNN, {"x": images(40, 8), "edges": edges}, {"x": {0: "nodes"}, "edges": {1: "edges"}}),
        "VAE": Model(VAE, {"x": images(4, 64)}, {"x": {0: "batch"}}),
        "NeRF": Model(NeRF, {"x": images(4, 3)}, {"x": {0: "batch"}}),
        "DLRM": Model(
            DLRM, {"x": images(4, 8), "ids": RANDOM.integers(0, 100, (4, 4))}, {"x": {0: "batch"}, "ids": {0: "batch"}}
        ),
    }  # fmt: skip
