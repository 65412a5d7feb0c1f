"""Models that write: decoders, with and without an encoder."""

from __future__ import annotations

import math
from typing import Any

from architecture import Architecture, Dim, integers, normal

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


def rotate_half(x: Any) -> Any:
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return ox.cat((-x2, x1), dim=-1)


def repeat_kv(x: Any, n_rep: int) -> Any:
    bs, n_kv_heads, slen, head_dim = x.shape
    if n_rep == 1:
        return x
    x = x[:, :, None, :, :].expand(bs, n_kv_heads, n_rep, slen, head_dim)
    return x.reshape(bs, n_kv_heads * n_rep, slen, head_dim)


class LlamaLayer(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.q_proj, self.o_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(dim, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.down_proj = nn.Linear(2 * dim, dim, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(dim), nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x: Any, cos: Any, sin: Any, mask: Any) -> Any:
        h = self.input_layernorm(x)
        b, t, _ = h.shape
        q = self.q_proj(h).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(h).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(h).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = repeat_kv(k, self.heads // self.kv_heads), repeat_kv(v, self.heads // self.kv_heads)
        scores = ox.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim) + mask
        probs = F.softmax(scores, dim=-1, dtype=ox.float32).to(q.dtype)
        x = x + self.o_proj(ox.matmul(probs, v).transpose(1, 2).contiguous().reshape(b, t, -1))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    """Touvron et al., "Llama 2", 2023: rotary places, grouped queries, RMS norms, SwiGLU."""

    def __init__(self, dim: int = 16, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        head_dim = dim // heads
        self.embed_tokens, self.norm = nn.Embedding(50, dim), RMSNorm(dim)
        self.layers = nn.ModuleList([LlamaLayer(dim, heads, kv_heads) for _ in range(2)])
        inv_freq = 1.0 / (10000.0 ** (ox.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.lm_head = nn.Linear(dim, 50, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed_tokens(tokens)
        seqlen = tokens.shape[-1]
        t = ox.arange(seqlen, dtype=self.inv_freq.dtype)
        freqs = ox.outer(t, self.inv_freq)
        emb = ox.cat((freqs, freqs), dim=-1)
        mask = ox.full((seqlen, seqlen), ox.finfo(x.dtype).min)
        mask = ox.triu(mask, diagonal=1)[None, None, :, :]
        for layer in self.layers:
            x = layer(x, emb.cos(), emb.sin(), mask)
        return self.lm_head(self.norm(x))[:, -1:, :]


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


class MixtureOfExperts(nn.Module):
    """Shazeer et al., "Outrageously Large Neural Networks", 2017: the best two of four experts for each token."""

    def __init__(self, dim: int = 16, experts: int = 4, top_k: int = 2) -> None:
        super().__init__()
        self.top_k, self.num_experts = top_k, experts
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim)) for _ in range(experts)]
        )

    def forward(self, hidden_states: Any) -> Any:
        batch, length, dim = hidden_states.shape
        x = hidden_states.view(-1, dim)
        router_logits = self.gate(x)
        weights, selected = ox.topk(F.softmax(router_logits, dim=1, dtype=ox.float), self.top_k, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        final = ox.zeros((batch * length, dim), dtype=x.dtype)
        expert_mask = F.one_hot(selected, num_classes=self.num_experts).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            idx, top_x = ox.where(expert_mask[i])
            current = expert(x[None, top_x].reshape(-1, dim)) * weights[top_x, idx, None]
            final.index_add_(0, top_x, current.to(x.dtype))
        return final.reshape(batch, length, dim), router_logits


TOKENS: dict[str, list[Any]] = {"tokens": ["batch", "length"]}


def _tokens(batch: int, length: int) -> tuple[Any, ...]:
    return (integers(50, batch, length),)


def _pairs(batch: int, source: int, target: int) -> tuple[Any, ...]:
    src = integers(30, source, batch, low=1)
    src[source - 2 :, ::2] = 0
    return src, integers(30, target, batch, low=1)


MODELS = {
    "GPT": Architecture(
        GPT,
        _tokens,
        {"idx": ["batch", Dim("length", max=32)]},
        {"batch": 8, "length": 12},
        {"batch": 3, "length": 32},
    ),
    "CachedGPT": Architecture(
        CachedGPT,
        lambda batch, new, past: (integers(50, batch, new), normal(2, 2, batch, 2, past, 8)),
        {"input_ids": ["batch", "new"], "past_key_values": [2, 2, "batch", 2, "past", 8]},
        {"batch": 8, "new": 3, "past": 5},
        {"batch": 3, "new": 1, "past": 11},
    ),
    "Llama": Architecture(Llama, _tokens, TOKENS, {"batch": 8, "length": 12}, {"batch": 3, "length": 19}),
    "T5": Architecture(T5, _tokens, TOKENS, {"batch": 8, "length": 12}, {"batch": 3, "length": 40}),
    "Translator": Architecture(
        Translator,
        _pairs,
        {"src": ["source", "batch"], "tgt": ["target", "batch"]},
        {"batch": 8, "source": 10, "target": 7},
        {"batch": 3, "source": 14, "target": 9},
    ),
    "MixtureOfExperts": Architecture(
        MixtureOfExperts,
        lambda batch, length: (normal(batch, length, 16),),
        {"hidden_states": ["batch", "length", 16]},
        {"batch": 8, "length": 6},
        {"batch": 3, "length": 9},
        lowest=16,
    ),
}
