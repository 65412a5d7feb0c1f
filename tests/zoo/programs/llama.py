"""A LLaMA-like decoder: RMSNorm, rotary embeddings, grouped queries, SwiGLU, and greedy decoding through a cache."""

from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelArgs:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: Optional[int] = 2
    vocab_size: int = 40
    norm_eps: float = 1e-5
    max_seq_len: int = 24


class RMSNorm(torch.nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs(dim: int, end: int, theta: float = 10000.0) -> Tuple[torch.Tensor, torch.Tensor]:
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end, device=freqs.device), freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def apply_rotary_emb(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    xr, xi = x.float().reshape(x.shape[:-1] + (-1, 2)).unbind(-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.stack([xr * cos - xi * sin, xr * sin + xi * cos], dim=-1).flatten(3).type_as(x)


def repeat_kv(x: torch.Tensor, n_rep: int) -> torch.Tensor:
    bs, slen, n_kv_heads, head_dim = x.shape
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.kv = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
        self.n_heads, self.head_dim = args.n_heads, args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk, self.wv = (nn.Linear(args.dim, self.kv * self.head_dim, bias=False) for _ in range(2))
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)
        self.cache = None

    def forward(self, x, start_pos, cos, sin, mask):
        bsz, seqlen, _ = x.shape
        xq = apply_rotary_emb(self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim), cos, sin)
        xk = apply_rotary_emb(self.wk(x).view(bsz, seqlen, self.kv, self.head_dim), cos, sin)
        xv = self.wv(x).view(bsz, seqlen, self.kv, self.head_dim)
        if self.cache is not None:
            ck, cv = self.cache
            ck[:bsz, start_pos : start_pos + seqlen] = xk
            cv[:bsz, start_pos : start_pos + seqlen] = xv
            xk, xv = ck[:bsz, : start_pos + seqlen], cv[:bsz, : start_pos + seqlen]
        keys, values = (repeat_kv(t, self.n_heads // self.kv).transpose(1, 2) for t in (xk, xv))
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / self.head_dim**0.5
        if mask is not None:
            scores = scores + mask
        output = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(xq), values)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class TransformerBlock(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.attention = Attention(args)
        hidden = 8 * ((int(2 * 4 * args.dim / 3) + 7) // 8)
        self.w1, self.w2, self.w3 = (
            nn.Linear(args.dim, hidden, False),
            nn.Linear(hidden, args.dim, False),
            nn.Linear(args.dim, hidden, False),
        )
        self.attention_norm, self.ffn_norm = RMSNorm(args.dim, args.norm_eps), nn.RMSNorm(args.dim, args.norm_eps)

    def forward(self, x, *rest):
        h = x + self.attention(self.attention_norm(x), *rest)
        n = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(n)) * self.w3(n))


class Transformer(nn.Module):
    def __init__(self, params: ModelArgs):
        super().__init__()
        self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
        self.layers = torch.nn.ModuleList(TransformerBlock(params) for _ in range(params.n_layers))
        self.norm, self.output = (
            RMSNorm(params.dim, eps=params.norm_eps),
            nn.Linear(params.dim, params.vocab_size, bias=False),
        )
        cos, sin = precompute_freqs(params.dim // params.n_heads, params.max_seq_len * 2)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: torch.Tensor, start_pos: int = 0):
        seqlen = tokens.shape[1]
        h = self.tok_embeddings(tokens)
        mask = None
        if seqlen > 1:
            mask = torch.triu(torch.full((seqlen, seqlen), float("-inf"), device=tokens.device), diagonal=1)
            if start_pos > 0:
                mask = torch.hstack([torch.zeros((seqlen, start_pos), device=tokens.device), mask]).type_as(h)
        cos, sin = self.cos[start_pos : start_pos + seqlen], self.sin[start_pos : start_pos + seqlen]
        for layer in self.layers:
            h = layer(h, start_pos, cos, sin, mask)
        return self.output(self.norm(h)).float()


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Transformer(ModelArgs())
    print(sum(p.nelement() for p in model.parameters()), sorted(model.state_dict())[:2])
    tokens = torch.randint(0, 40, (6, 13))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=6, pct_start=0.3)
    for step in range(6):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{step} {loss.item():.4f} {scheduler.get_last_lr()[0]:.6f}")
        scheduler.step()
    model.eval()
    for layer in model.layers:
        layer.attention.cache = torch.zeros(2, 24, 2, 8), torch.zeros(2, 24, 2, 8)
    with torch.inference_mode():
        model(tokens[:2, :3], 0)
        print("the rest of a prompt", model(tokens[:2, 3:9], 3)[:, -1].std().item())
        out, pos = tokens[:2, :4], 0
        for _ in range(8):
            logits = model(out[:, pos:], pos)
            pos = out.shape[1]
            out = torch.cat([out, logits[:, -1].argmax(-1, keepdim=True)], 1)
    print(out.tolist())
    for layer in model.layers:
        layer.attention.cache = None
    example = tokens
