"""Encoders with attention: texts, images, sounds."""

from __future__ import annotations

import math
from typing import Any

from architecture import Dim, architecture, integers, normal, program

import ox
import ox.nn.functional as F
from ox import nn


class ViT(nn.Module):
    """Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020; places are interpolated to the size of the image."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.patch_embed, self.patch = nn.Conv2d(3, dim, 4, 4), 4
        self.cls_token, self.pos_embed = (
            nn.Parameter(ox.zeros(1, 1, dim)),
            nn.Parameter(ox.randn(1, 1 + 16, dim) * 0.02),
        )
        layer = nn.TransformerEncoderLayer(dim, 2, 32, activation="gelu", batch_first=True, norm_first=True)
        self.blocks, self.norm, self.head = nn.TransformerEncoder(layer, 2), nn.LayerNorm(dim), nn.Linear(dim, 10)

    def interpolate_pos_encoding(self, w: int, h: int) -> Any:
        dim = self.pos_embed.shape[-1]
        patch_pos = self.pos_embed[:, 1:].reshape(1, 4, 4, dim).permute(0, 3, 1, 2)
        patch_pos = F.interpolate(
            patch_pos, size=(h // self.patch, w // self.patch), mode="bicubic", align_corners=False
        )
        patch_pos = patch_pos.permute(0, 2, 3, 1).view(1, -1, dim)
        return ox.cat((self.pos_embed[:, :1], patch_pos), dim=1)

    def forward(self, x: Any) -> Any:
        B, _, h, w = x.shape
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = ox.cat((self.cls_token.expand(B, -1, -1), x), dim=1) + self.interpolate_pos_encoding(w, h)
        return self.head(self.norm(self.blocks(x))[:, 0])


def window_partition(x: Any, size: int) -> Any:
    B, H, W, C = x.shape
    x = x.view(B, H // size, size, W // size, size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size, size, C)


def window_reverse(windows: Any, size: int, H: int, W: int) -> Any:
    B = int(windows.shape[0] / (H * W / size / size))
    x = windows.view(B, H // size, W // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class SwinBlock(nn.Module):
    def __init__(self, dim: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift, self.scale = heads, window, shift, (dim // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.relative_position_bias_table = nn.Parameter(ox.randn((2 * window - 1) * (2 * window - 1), heads) * 0.02)
        coords = ox.stack(ox.meshgrid(ox.arange(window), ox.arange(window), indexing="ij"))
        flat = ox.flatten(coords, 1)
        relative = (flat[:, :, None] - flat[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += window - 1
        relative[:, :, 1] += window - 1
        relative[:, :, 0] *= 2 * window - 1
        self.register_buffer("relative_position_index", relative.sum(-1))

    def shift_mask(self, H: int, W: int) -> Any:
        img_mask = ox.zeros((1, H, W, 1))
        slices = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        cnt = 0
        for h in slices:
            for w in slices:
                img_mask[:, h, w, :] = cnt
                cnt += 1
        mask = window_partition(img_mask, self.window).view(-1, self.window * self.window)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def attention(self, x: Any, mask: Any) -> Any:
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        attn = attn + bias.view(N, N, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.heads, N, N)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C))

    def forward(self, x: Any) -> Any:
        _, H, W, C = x.shape
        shortcut, x, mask = x, self.norm1(x), None
        if self.shift > 0:
            x = ox.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
            mask = self.shift_mask(H, W)
        windows = window_partition(x, self.window).view(-1, self.window * self.window, C)
        windows = self.attention(windows, mask).view(-1, self.window, self.window, C)
        x = window_reverse(windows, self.window, H, W)
        if self.shift > 0:
            x = ox.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + x
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """Liu et al., "Swin Transformer", 2021."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 2, 2)
        self.blocks = nn.Sequential(SwinBlock(dim, 2, 4, 0), SwinBlock(dim, 2, 4, 2))
        self.reduction, self.norm, self.head = (
            nn.Linear(4 * dim, 2 * dim, bias=False),
            nn.LayerNorm(4 * dim),
            nn.Linear(2 * dim, 5),
        )

    def forward(self, x: Any) -> Any:
        x = self.blocks(self.patch_embed(x).permute(0, 2, 3, 1))
        x = ox.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.reduction(self.norm(x)).flatten(1, 2).mean(1))


class Perceiver(nn.Module):
    """Jaegle et al., "Perceiver", 2021: a fixed number of latents attends to inputs of any length."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.latents = nn.Parameter(ox.randn(6, dim))
        self.norm_x, self.norm_z = nn.LayerNorm(8), nn.LayerNorm(dim)
        self.cross = nn.MultiheadAttention(dim, 2, kdim=8, vdim=8, batch_first=True)
        self.self_attn = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True)
        self.queries, self.decode = nn.Parameter(ox.randn(1, 1, dim)), nn.MultiheadAttention(dim, 2, batch_first=True)
        self.head = nn.Linear(dim, 4)

    def forward(self, x: Any) -> Any:
        b = x.shape[0]
        z = self.latents.unsqueeze(0).repeat(b, 1, 1)
        x = self.norm_x(x)
        for _ in range(2):
            z = z + self.cross(self.norm_z(z), x, x)[0]
            z = self.self_attn(z)
        y, weights = self.decode(self.queries.expand(b, -1, -1), z, z)
        return self.head(y).squeeze(1), weights


class ALiBi(nn.Module):
    """Press et al., "Train Short, Test Long", 2021: scores fall with the distance, faster or slower by head."""

    def __init__(self, dim: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.embed, self.qkv, self.out = nn.Embedding(50, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("slopes", ox.tensor([2 ** (-8 / heads * (i + 1)) for i in range(heads)]))

    def forward(self, tokens: Any) -> Any:
        B, T = tokens.shape
        x = self.embed(tokens)
        q, k, v = self.qkv(x).split(self.dim, dim=2)
        q, k, v = (y.view(B, T, self.heads, self.dim // self.heads).transpose(1, 2) for y in (q, k, v))
        distance = ox.arange(T)[None, :] - ox.arange(T)[:, None]
        bias = distance * self.slopes[:, None, None]
        causal = ox.triu(ox.full((T, T), float("-inf")), diagonal=1)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))) + bias + causal
        y = F.softmax(att, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(B, T, self.dim))


class LinearAttention(nn.Module):
    """Katharopoulos et al., "Transformers are RNNs", 2020."""

    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.proj, self.to_qkv, self.out = nn.Linear(8, dim), nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        x = self.proj(x)
        b, n, d = x.shape
        q, k, v = (
            t.reshape(b, n, self.heads, d // self.heads).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1)
        )
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = ox.einsum("bhnd,bhne->bhde", k, v)
        z = 1 / (ox.einsum("bhnd,bhd->bhn", q, k.sum(dim=2)) + 1e-6)
        y = ox.einsum("bhnd,bhde,bhn->bhne", q, kv, z)
        return self.out(y.transpose(1, 2).flatten(2)) + x


class ConformerBlock(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.ff1 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(2 * d, d))
        self.norm, self.attn = nn.LayerNorm(d), nn.MultiheadAttention(d, 2, dropout=0.1, batch_first=True)
        self.conv = nn.Sequential(
            nn.Conv1d(d, 2 * d, 1), nn.GLU(dim=1), nn.Conv1d(d, d, 7, padding="same", groups=d), nn.BatchNorm1d(d),
            nn.SiLU(), nn.Conv1d(d, d, 1),
        )  # fmt: skip
        self.conv_norm, self.ff2, self.last = nn.LayerNorm(d), nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, x: Any, mask: Any) -> Any:
        x = x + 0.5 * self.ff1(x)
        y = self.norm(x)
        x = x + self.attn(y, y, y, key_padding_mask=mask, need_weights=False)[0]
        x = x + self.conv(self.conv_norm(x).transpose(1, 2)).transpose(1, 2)
        return self.last(x + 0.5 * self.ff2(x))


class Conformer(nn.Module):
    """Gulati et al., "Conformer", 2020: convolutions and attention over frames, lengths beside."""

    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU())
        self.proj, self.blocks = nn.Linear(4 * 4, d), nn.ModuleList([ConformerBlock(d) for _ in range(2)])
        self.ctc = nn.Linear(d, 12)

    def forward(self, features: Any, lengths: Any) -> Any:
        x = self.subsample(features.unsqueeze(1))
        b, c, t, f = x.size()
        x = self.proj(x.transpose(1, 2).contiguous().view(b, t, c * f))
        lengths = ((lengths - 1) // 2 - 1) // 2
        mask = ox.arange(t).expand(b, t) >= lengths.unsqueeze(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.ctc(x).log_softmax(dim=-1), lengths


TOKENS = {"tokens": ["batch", "length"]}


def _bert() -> Any:
    bert = program(ox, "bert_mlm")
    return bert.BertModel(bert.BertConfig(vocab_size=50))


def _texts(batch: int, length: int) -> tuple[Any, ...]:
    tokens = integers(50, batch, length, low=1)
    mask = (
        integers(length, batch, 1, low=length // 2) + 1 > integers(length, 1, length) * 0 + list(range(length))
    ).astype("int64")
    return tokens, mask, integers(2, batch, length)


def _frames(batch: int, frames: int) -> tuple[Any, ...]:
    return normal(batch, frames, 20), integers(frames + 1, batch, low=frames - 5)


def _image(batch: int, h: int, w: int) -> tuple[Any, ...]:
    return (normal(batch, 3, h, w),)


def _window(step: int) -> dict[str, list[Any]]:
    return {"x": ["batch", 3, Dim("h", min=2 * step, multiple_of=step), Dim("w", min=2 * step, multiple_of=step)]}


MODELS = {
    "BERT": architecture(
        _bert,
        _texts,
        {name: ["batch", Dim("length", max=24)] for name in ("input_ids", "attention_mask", "token_type_ids")},
        batch=(8, 3),
        length=(12, 20),
    ),
    "ViT": architecture(ViT, _image, {"x": ["batch", 3, "h", "w"]}, batch=(8, 3), h=(16, 24), w=(16, 20)),
    "Swin": architecture(Swin, _image, _window(8), batch=(8, 3), h=(16, 24), w=(16, 40)),
    "Perceiver": architecture(
        Perceiver, lambda batch, n: (normal(batch, n, 8),), {"x": ["batch", "n", 8]}, batch=(8, 3), n=(10, 17)
    ),
    "ALiBi": architecture(
        ALiBi, lambda batch, length: (integers(50, batch, length),), TOKENS, batch=(8, 3), length=(12, 19)
    ),
    "LinearAttention": architecture(
        LinearAttention, lambda batch, n: (normal(batch, n, 8),), {"x": ["batch", "n", 8]}, batch=(8, 3), n=(10, 17)
    ),
    "Conformer": architecture(
        Conformer, _frames, {"features": ["batch", "frames", 20], "lengths": ["batch"]}, batch=(8, 3), frames=(40, 57)
    ),
}
