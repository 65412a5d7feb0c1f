"""A Llama-style block: rotary embedding, RMSNorm, SwiGLU, grouped heads, a key-value cache."""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(torch.nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float()).type_as(x)
        return output * self.weight


def precompute(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    t = torch.arange(end, device=freqs.device)
    freqs = torch.outer(t, freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary(x, cos, sin):
    shape = [d if i in (1, x.ndim - 1) else 1 for i, d in enumerate(x.shape)]
    cos, sin = (torch.cat([t, t], dim=-1).view(*shape) for t in (cos, sin))
    return (x * cos) + (rotate_half(x) * sin)


def repeat_kv(x: torch.Tensor, n_rep: int) -> torch.Tensor:
    bs, slen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class Attention(nn.Module):
    def __init__(self, dim=16, heads=4, kv_heads=2, longest=12):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(heads * self.head_dim, dim, bias=False)
        self.register_buffer("cache_k", torch.zeros((2, longest, kv_heads, self.head_dim)), persistent=False)
        self.register_buffer("cache_v", torch.zeros((2, longest, kv_heads, self.head_dim)), persistent=False)

    def forward(self, x, start_pos, cos, sin, mask, cached):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.heads, self.head_dim)
        xk = xk.view(bsz, seqlen, self.kv_heads, self.head_dim)
        xv = xv.view(bsz, seqlen, self.kv_heads, self.head_dim)
        xq, xk = apply_rotary(xq, cos, sin), apply_rotary(xk, cos, sin)
        if cached:
            self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk
            self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv
            xk = self.cache_k[:bsz, : start_pos + seqlen]
            xv = self.cache_v[:bsz, : start_pos + seqlen]
        keys, values = repeat_kv(xk, self.heads // self.kv_heads), repeat_kv(xv, self.heads // self.kv_heads)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / self.head_dim**0.5
        if mask is not None:
            scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        output = torch.matmul(scores, values)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Llama(nn.Module):
    def __init__(self, vocab=13, dim=16, layers=2, longest=12):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = torch.nn.ModuleList()
        for layer_id in range(layers):
            self.layers.append(
                nn.ModuleList([RMSNorm(dim), Attention(dim), nn.RMSNorm(dim, eps=1e-6), FeedForward(dim, 24)])
            )
        self.norm = RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)
        self.cos, self.sin = precompute(dim // 4, longest)

    def forward(self, tokens, start_pos=0, cached=False):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        self.cos, self.sin = self.cos.to(h.device), self.sin.to(h.device)
        cos, sin = self.cos[start_pos : start_pos + seqlen], self.sin[start_pos : start_pos + seqlen]
        mask = None
        if seqlen > 1:
            mask = torch.full((seqlen, seqlen), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((seqlen, start_pos), device=tokens.device), mask]).type_as(h)
        for norm1, attention, norm2, ff in self.layers:
            h = h + attention(norm1(h), start_pos, cos, sin, mask, cached)
            h = h + ff(norm2(h))
        return self.output(self.norm(h)).float()


@torch.inference_mode()
def sample(model, prompt, total):
    tokens = torch.full((2, total), -1, dtype=torch.long)
    for k, t in enumerate(prompt):
        tokens[k, : len(t)] = torch.tensor(t, dtype=torch.long)
    input_text_mask = tokens != -1
    prev_pos, low = 0, min(len(t) for t in prompt)
    eos = torch.tensor([False] * 2)
    for cur_pos in range(low, total):
        logits = model.forward(tokens[:, prev_pos:cur_pos], prev_pos, cached=True)
        probs = torch.softmax(logits[:, -1] / 0.6, dim=-1)
        probs_sort, probs_idx = torch.sort(probs, dim=-1, descending=True)
        probs_sum = torch.cumsum(probs_sort, dim=-1)
        cut = probs_sum - probs_sort > 1e-4
        probs_sort[cut] = 0.0
        probs_sort.div_(probs_sort.sum(dim=-1, keepdim=True))
        next_token = torch.gather(probs_idx, -1, torch.multinomial(probs_sort, num_samples=1))
        next_token = next_token.reshape(-1)
        next_token = torch.where(input_text_mask[:, cur_pos], tokens[:, cur_pos], next_token)
        tokens[:, cur_pos] = next_token
        eos |= (~input_text_mask[:, cur_pos]) & (next_token == 12)
        prev_pos = cur_pos
        if all(eos):
            break
    return tokens


def main(fill, numbers):
    model = fill(Llama())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    trace = []
    tokens = torch.from_numpy((abs(numbers(2, 9)) * 9).astype("int64") % 12)
    for step in range(5):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        trace.append(loss.item())
    model.eval()
    whole = model(tokens)
    out = sample(model, [[1, 2, 3], [4, 5, 6, 7]], 10)
    with torch.no_grad():
        parts = [model(tokens[:, :4], 0, cached=True)]
        parts += [model(tokens[:, i : i + 1], i, cached=True) for i in range(4, 9)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    return trace + out.float().flatten().tolist() + [whole.std().item()]
