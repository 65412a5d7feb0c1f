"""Models that write: decoders, with and without an encoder."""

from __future__ import annotations

import math
from typing import Any

from architecture import Dim, architecture, integers, normal, program

import ox
import ox.nn.functional as F
from ox import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int, block_size: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd = n_head, n_embd
        self.register_buffer("bias", ox.tril(ox.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x: Any) -> Any:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    """Radford et al., "Language Models are Unsupervised Multitask Learners", 2019."""

    def __init__(self, n_embd: int = 16, block_size: int = 32) -> None:
        super().__init__()
        self.block_size = block_size
        self.wte, self.wpe, self.drop = nn.Embedding(50, n_embd), nn.Embedding(block_size, n_embd), nn.Dropout(0.1)
        self.h = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(n_embd),
                    "attn": CausalSelfAttention(n_embd, 2, block_size),
                    "ln_2": nn.LayerNorm(n_embd),
                    "mlp": nn.Sequential(nn.Linear(n_embd, 32), nn.GELU(approximate="tanh"), nn.Linear(32, n_embd)),
                }
            )
            for _ in range(2)
        )
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, 50, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx: Any) -> Any:
        _, t = idx.size()
        assert t <= self.block_size, f"Cannot forward sequence of length {t}"
        pos = ox.arange(0, t, dtype=ox.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = x + block["attn"](block["ln_1"](x))
            x = x + block["mlp"](block["ln_2"](x))
        return self.lm_head(self.ln_f(x))


class CachedGPT(nn.Module):
    """A step of a decoder: new tokens attend to themselves and to the keys and values of those before."""

    def __init__(self, dim: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.wte, self.wpe = nn.Embedding(50, dim), nn.Embedding(64, dim)
        self.qkv = nn.ModuleList([nn.Linear(dim, 3 * dim) for _ in range(layers)])
        self.proj = nn.ModuleList([nn.Linear(dim, dim) for _ in range(layers)])
        self.head = nn.Linear(dim, 50)

    def forward(self, input_ids: Any, past_key_values: Any) -> Any:
        b, t = input_ids.shape
        past = past_key_values.shape[-2]
        positions = ox.arange(past, past + t).unsqueeze(0)
        x = self.wte(input_ids) + self.wpe(positions)
        presents = []
        for i, (qkv, proj) in enumerate(zip(self.qkv, self.proj)):
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in qkv(x).chunk(3, -1))
            k = ox.cat([past_key_values[i, 0], k], dim=-2)
            v = ox.cat([past_key_values[i, 1], v], dim=-2)
            presents.append(ox.stack([k, v]))
            mask = ox.ones(t, past + t, dtype=ox.bool).tril(diagonal=past)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + proj(y.transpose(1, 2).reshape(b, t, self.dim))
        return {"logits": self.head(x), "present_key_values": ox.stack(presents)}


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(ox.ones(dim))

    def forward(self, x: Any) -> Any:
        x = x.float()
        return (x * ox.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


class RelativeAttention(nn.Module):
    def __init__(self, dim: int, heads: int, buckets: int = 8, max_distance: int = 16) -> None:
        super().__init__()
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(buckets, heads)

    def bucket(self, relative_position: Any) -> Any:
        num_buckets = self.buckets // 2
        result = (relative_position > 0).to(ox.long) * num_buckets
        relative_position = ox.abs(relative_position)
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            ox.log(relative_position.float() / max_exact)
            / math.log(self.max_distance / max_exact)
            * (num_buckets - max_exact)
        ).to(ox.long)
        large = ox.min(large, ox.full_like(large, num_buckets - 1))
        result += ox.where(is_small, relative_position, large)
        return result

    def forward(self, x: Any) -> Any:
        b, n, d = x.shape
        q, k, v = (f(x).view(b, -1, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = ox.matmul(q, k.transpose(3, 2))
        context = ox.arange(n, dtype=ox.long)[:, None]
        memory = ox.arange(n, dtype=ox.long)[None, :]
        values = self.relative_attention_bias(self.bucket(memory - context))
        scores += values.permute([2, 0, 1]).unsqueeze(0)
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(ox.matmul(weights, v).transpose(1, 2).contiguous().view(b, -1, d))


class T5(nn.Module):
    """Raffel et al., "Exploring the Limits of Transfer Learning", 2019: the encoder, with biases by distance."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.shared, self.attention = nn.Embedding(50, dim), RelativeAttention(dim, 2)
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.wi_0, self.wi_1, self.wo = nn.Linear(dim, 32), nn.Linear(dim, 32), nn.Linear(32, dim)

    def forward(self, tokens: Any) -> Any:
        x = self.shared(tokens)
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.wo(F.gelu(self.wi_0(h), approximate="tanh") * self.wi_1(h))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int = 64) -> None:
        super().__init__()
        position = ox.arange(max_len).unsqueeze(1)
        div_term = ox.exp(ox.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = ox.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = ox.sin(position * div_term)
        pe[:, 0, 1::2] = ox.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Any) -> Any:
        return x + self.pe[: x.size(0)]


class Translator(nn.Module):
    """Vaswani et al., "Attention Is All You Need", 2017: `nn.Transformer`, masks of padding and of the future."""

    def __init__(self, d_model: int = 16) -> None:
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(30, d_model), nn.Embedding(30, d_model)
        self.pos, self.d_model = PositionalEncoding(d_model), d_model
        self.transformer = nn.Transformer(d_model, 2, 1, 1, 32, dropout=0.1)
        self.generator = nn.Linear(d_model, 30)

    def forward(self, src: Any, tgt: Any) -> Any:
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(0))
        src_padding = (src == 0).transpose(0, 1)
        s = self.pos(self.src_embed(src) * math.sqrt(self.d_model))
        t = self.pos(self.tgt_embed(tgt) * math.sqrt(self.d_model))
        out = self.transformer(
            s, t, tgt_mask=tgt_mask, src_key_padding_mask=src_padding, memory_key_padding_mask=src_padding
        )
        return self.generator(out)


TOKENS: dict[str, list[Any]] = {"tokens": ["batch", "length"]}


def _llama() -> Any:
    llama = program(ox, "llama")
    return llama.Transformer(llama.ModelArgs(dim=16, vocab_size=50))


def _experts() -> Any:
    experts = program(ox, "mixture_of_experts")
    return experts.SparseMoe(experts.Args())


def _tokens(batch: int, length: int) -> tuple[Any, ...]:
    return (integers(50, batch, length),)


def _pairs(batch: int, source: int, target: int) -> tuple[Any, ...]:
    src = integers(30, source, batch, low=1)
    src[source - 2 :, ::2] = 0
    return src, integers(30, target, batch, low=1)


MODELS = {
    "GPT": architecture(GPT, _tokens, {"idx": ["batch", Dim("length", max=32)]}, batch=(8, 3), length=(12, 32)),
    "CachedGPT": architecture(
        CachedGPT,
        lambda batch, new, past: (integers(50, batch, new), normal(2, 2, batch, 2, past, 8)),
        {"input_ids": ["batch", "new"], "past_key_values": [2, 2, "batch", 2, "past", 8]},
        batch=(8, 3),
        new=(3, 1),
        past=(5, 11),
    ),
    "Llama": architecture(_llama, _tokens, {"tokens": ["batch", Dim("length", max=48)]}, batch=(8, 3), length=(12, 19)),
    "T5": architecture(T5, _tokens, TOKENS, batch=(8, 3), length=(12, 40)),
    "Translator": architecture(
        Translator,
        _pairs,
        {"src": ["source", "batch"], "tgt": ["target", "batch"]},
        batch=(8, 3),
        source=(10, 14),
        target=(7, 9),
    ),
    "MixtureOfExperts": architecture(
        _experts,
        lambda batch, length: (normal(batch, length, 16),),
        {"hidden_states": ["batch", "length", 16]},
        batch=(8, 3),
        length=(6, 9),
        lowest=16,
    ),
}
