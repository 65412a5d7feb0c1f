"""A decoder with routed experts, a state-space mixer, ALiBi, and balance losses: top-k routing, scatter, scans."""

import math
from dataclasses import dataclass, field
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import einsum, rearrange, repeat


@dataclass
class Args:
    dim: int = 16
    n_layers: int = 2
    vocab_size: int = 20
    d_state: int = 4
    expand: int = 2
    d_conv: int = 3
    n_experts: int = 4
    top_k: int = 2
    heads: int = 2
    dt_rank: Optional[int] = None
    names: list = field(default_factory=lambda: ["mamba", "attention"])

    def __post_init__(self):
        self.d_inner = int(self.expand * self.dim)
        if self.dt_rank is None:
            self.dt_rank = math.ceil(self.dim / 16)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    """A selective state space, step after step."""

    def __init__(self, args):
        super().__init__()
        self.args = args
        self.in_proj = nn.Linear(args.dim, args.d_inner * 2, bias=False)
        self.conv1d = nn.Conv1d(
            args.d_inner, args.d_inner, args.d_conv, bias=True, groups=args.d_inner, padding=args.d_conv - 1
        )
        self.x_proj = nn.Linear(args.d_inner, args.dt_rank + args.d_state * 2, bias=False)
        self.dt_proj = nn.Linear(args.dt_rank, args.d_inner, bias=True)
        A = repeat(torch.arange(1, args.d_state + 1), "n -> d n", d=args.d_inner)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(args.d_inner))
        self.out_proj = nn.Linear(args.d_inner, args.dim, bias=False)

    def forward(self, x):
        (b, l, d) = x.shape  # noqa: E741
        x_and_res = self.in_proj(x)
        (x, res) = x_and_res.split(split_size=[self.args.d_inner, self.args.d_inner], dim=-1)
        x = rearrange(x, "b l d_in -> b d_in l")
        x = self.conv1d(x)[:, :, :l]
        x = rearrange(x, "b d_in l -> b l d_in")
        x = F.silu(x)
        y = self.ssm(x)
        y = y * F.silu(res)
        return self.out_proj(y)

    def ssm(self, x):
        (d_in, n) = self.A_log.shape
        A = -torch.exp(self.A_log.float())
        x_dbl = self.x_proj(x)
        (delta, B, C) = x_dbl.split(split_size=[self.args.dt_rank, n, n], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        return self.selective_scan(x, delta, A, B, C, self.D.float())

    def selective_scan(self, u, delta, A, B, C, D):
        (b, l, d_in) = u.shape  # noqa: E741
        n = A.shape[1]
        deltaA = torch.exp(einsum(delta, A, "b l d_in, d_in n -> b l d_in n"))
        deltaB_u = einsum(delta, B, u, "b l d_in, b l n, b l d_in -> b l d_in n")
        x = torch.zeros((b, d_in, n), device=deltaA.device)
        ys = []
        for i in range(l):
            x = deltaA[:, i] * x + deltaB_u[:, i]
            y = einsum(x, C[:, i, :], "b d_in n, b n -> b d_in")
            ys.append(y)
        y = torch.stack(ys, dim=1)
        return y + u * D


def alibi(heads, length):
    slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    bias = slopes[:, None, None] * distance
    return bias.masked_fill(torch.ones(length, length).triu_(1).bool(), float("-inf"))


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads = args.heads
        self.qkv = nn.Linear(args.dim, 3 * args.dim, bias=False)
        self.out = nn.Linear(args.dim, args.dim, bias=False)
        self.register_buffer("bias", alibi(args.heads, 32), persistent=False)

    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=self.heads)
        n = x.shape[1]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[:, :n, :n])
        return self.out(rearrange(y, "b h n d -> b n (h d)"))


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x), approximate="tanh"))


class SparseMoe(nn.Module):
    """Each token goes to its top-k experts; every expert sees its tokens only."""

    def __init__(self, args):
        super().__init__()
        self.num_experts, self.top_k = args.n_experts, args.top_k
        self.gate = nn.Linear(args.dim, args.n_experts, bias=False)
        self.noise = nn.Linear(args.dim, args.n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(args.dim) for _ in range(args.n_experts)])

    def forward(self, hidden_states):
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, hidden_dim)
        router_logits = self.gate(hidden_states)
        if self.training:
            router_logits = router_logits + torch.randn_like(router_logits) * F.softplus(self.noise(hidden_states))
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected_experts = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        routing_weights = routing_weights.to(hidden_states.dtype)
        final = torch.zeros((batch_size * sequence_length, hidden_dim), dtype=hidden_states.dtype)
        expert_mask = F.one_hot(selected_experts, num_classes=self.num_experts).permute(2, 1, 0)
        for expert_idx in range(self.num_experts):
            expert_layer = self.experts[expert_idx]
            idx, top_x = torch.where(expert_mask[expert_idx])
            current_state = hidden_states[None, top_x].reshape(-1, hidden_dim)
            current = expert_layer(current_state) * routing_weights[top_x, idx, None]
            final.index_add_(0, top_x, current.to(hidden_states.dtype))
        return final.reshape(batch_size, sequence_length, hidden_dim), router_logits


def load_balancing_loss(router_logits, num_experts, top_k):
    routing_weights = F.softmax(torch.cat(router_logits, dim=0), dim=-1)
    _, selected = torch.topk(routing_weights, top_k, dim=-1)
    tokens_per_expert = torch.mean(F.one_hot(selected, num_experts).float(), dim=0)
    router_prob_per_expert = torch.mean(routing_weights, dim=0)
    return torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0)) * num_experts


class SoftMoe(nn.Module):
    """Every expert, weighted by what the router's top-k leave: a form without a choice of tokens."""

    def __init__(self, args):
        super().__init__()
        self.router = nn.Linear(args.dim, args.n_experts)
        self.w1 = nn.Parameter(torch.randn(args.n_experts, args.dim, 8) * 0.1)
        self.w2 = nn.Parameter(torch.randn(args.n_experts, 8, args.dim) * 0.1)
        self.top_k = args.top_k

    def forward(self, x):
        logits = self.router(x)
        top, indices = logits.topk(self.top_k, dim=-1)
        sparse = torch.full_like(logits, float("-inf")).scatter(-1, indices, top)
        gates = F.softmax(sparse, dim=-1)
        h = torch.einsum("bnd,edh->bneh", x, self.w1).relu()
        return torch.einsum("bneh,ehd,bne->bnd", h, self.w2, gates)


class Model(nn.Module):
    def __init__(self, args, moe=SparseMoe):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab_size, args.dim)
        mixers = {"mamba": MambaBlock, "attention": Attention}
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {"norm1": RMSNorm(args.dim), "mixer": mixers[n](args), "norm2": RMSNorm(args.dim), "ff": moe(args)}
            )
            for n in args.names
        )
        self.norm_f = RMSNorm(args.dim)
        self.lm_head = nn.Linear(args.dim, args.vocab_size, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x, self.router_logits = self.embedding(ids), []
        for layer in self.layers:
            x = layer["mixer"](layer["norm1"](x)) + x
            y = layer["ff"](layer["norm2"](x))
            if isinstance(y, tuple):
                y, logits = y
                self.router_logits.append(logits)
            x = x + y
        return self.lm_head(self.norm_f(x))


if __name__ == "__main__":
    args = Args()
    torch.manual_seed(31)
    text = torch.arange(60).remainder(7).add(torch.arange(60) // 20)
    batches = text.unfold(0, 12, 6)
    for kind in (SparseMoe, SoftMoe):
        model = Model(args, kind)
        print(
            kind.__name__,
            sum(p.numel() for p in model.parameters()),
            "tied",
            model.lm_head.weight is model.embedding.weight,
        )
        decay = {id(p) for n, p in model.named_parameters() if p.dim() > 1 and "A_log" not in n}
        groups = [
            {"params": [p for p in model.parameters() if id(p) in decay], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if id(p) not in decay], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
        for step in range(4):
            logits = model(batches[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), batches[:, 1:].reshape(-1), ignore_index=-1)
            aux = load_balancing_loss(model.router_logits, 4, 2) if model.router_logits else torch.zeros(())
            optimizer.zero_grad(set_to_none=True)
            (loss + 0.01 * aux).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            optimizer.step()
            print(f"{step} loss {loss.item():.4f} aux {aux.item():.4f} norm {norm:.4f}")
        model.eval()
        ids = batches[:1, :4]
        with torch.no_grad():
            for _ in range(4):
                probs = F.softmax(model(ids)[:, -1], dim=-1)
                sorted_probs, sorted_idx = torch.sort(probs, descending=True)
                remove = torch.cumsum(sorted_probs, dim=-1) - sorted_probs > 0.8
                sorted_probs[remove] = 0.0
                sorted_probs.div_(sorted_probs.sum(dim=-1, keepdim=True))
                next_id = torch.gather(sorted_idx, -1, torch.multinomial(sorted_probs, num_samples=1))
                ids = torch.cat([ids, next_id], dim=1)
        print(ids)
    example = batches[:3, :8]
