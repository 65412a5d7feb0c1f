"""A text classifier: encoder layers whose attention and feed-forward blocks a subclass replaces."""

from __future__ import annotations

import copy
import math
from typing import Callable, Optional, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.nn import TransformerEncoder, TransformerEncoderLayer
from torch.utils.data import DataLoader, TensorDataset, random_split


class RotaryEmbedding(nn.Module):
    def __init__(self, dim: int, max_len: int = 64, base: float = 10000.0) -> None:
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        freqs = torch.outer(torch.arange(max_len).type_as(inv_freq), inv_freq)
        self.register_buffer("cos", torch.cat((freqs, freqs), dim=-1).cos()[None, None], persistent=False)
        self.register_buffer("sin", torch.cat((freqs, freqs), dim=-1).sin()[None, None], persistent=False)

    @staticmethod
    def rotate_half(x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-2]
        return x * self.cos[:, :, :n] + self.rotate_half(x) * self.sin[:, :, :n]


class RotaryEncoderLayer(TransformerEncoderLayer):
    """Attention with rotary positions, a gated feed-forward block, and stochastic depth."""

    def __init__(self, d_model: int, nhead: int, drop_path: float = 0.0, **kwargs) -> None:
        super().__init__(d_model, nhead, **kwargs)
        self.nhead = nhead
        self.rotary = RotaryEmbedding(d_model // nhead)
        self.gate = nn.Linear(d_model, self.linear1.out_features)
        self.drop_path = drop_path
        self.last_weights: Optional[Tensor] = None

    def _sa_block(
        self, x: Tensor, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], is_causal: bool = False
    ) -> Tensor:
        B, T, C = x.shape
        qkv = F.linear(x, self.self_attn.in_proj_weight, self.self_attn.in_proj_bias)
        q, k, v = qkv.view(B, T, 3, self.nhead, C // self.nhead).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.rotary(q), self.rotary(k)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if attn_mask is not None:
            scores = scores + attn_mask
        if key_padding_mask is not None:
            if key_padding_mask.dtype != torch.bool:
                scores = scores + key_padding_mask[:, None, None, :]
            else:
                scores = scores.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        self.last_weights = weights.detach()
        out = (weights @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.drop(self.dropout1(self.self_attn.out_proj(out)))

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.gate(x)) * self.linear1(x)))
        return self.drop(self.dropout2(x))

    def drop(self, x: Tensor) -> Tensor:
        if self.drop_path == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_path
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x.div(keep) * mask


class Classifier(nn.Module):
    def __init__(
        self,
        vocab: int = 32,
        d_model: int = 16,
        nhead: int = 2,
        layers: int = 2,
        activation: Union[str, Callable[[Tensor], Tensor]] = F.silu,
        norm_first: bool = True,
    ):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model, padding_idx=0)
        layer = RotaryEncoderLayer(
            d_model,
            nhead,
            dim_feedforward=32,
            dropout=0.1,
            activation=activation,
            batch_first=True,
            norm_first=norm_first,
            drop_path=0.1,
        )
        self.encoder = TransformerEncoder(
            layer, num_layers=layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, d_model))
        self.head = nn.Linear(d_model, 3)
        self._reset_parameters()

    def _reset_parameters(self):
        nn.init.trunc_normal_(self.cls, std=0.02)
        for p in self.parameters():
            if p.dim() > 1 and p is not self.cls:
                nn.init.xavier_uniform_(p)
        with torch.no_grad():
            self.embed.weight[self.embed.padding_idx].fill_(0)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = F.pad(tokens.eq(0), (1, 0), value=False)
        x = self.embed(tokens) * math.sqrt(self.embed.embedding_dim)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], dim=1)
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.head(x[:, 0])


def synthetic(n: int) -> TensorDataset:
    lengths = torch.randint(4, 13, (n,))
    tokens = torch.randint(1, 32, (n, 12))
    tokens[torch.arange(12)[None, :] >= lengths[:, None]] = 0
    counts = torch.stack([((tokens > 0) & (tokens % 3 == k)).sum(1) for k in range(3)], dim=1)
    return TensorDataset(tokens, counts.argmax(1))


def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    was_training = model.training
    model.eval()
    loss, hits, n = 0.0, 0, 0
    with torch.inference_mode():
        for tokens, label in loader:
            logits = model(tokens)
            loss += F.cross_entropy(logits, label, reduction="sum").item()
            hits += int((logits.argmax(-1) == label).sum())
            n += label.numel()
    model.train(was_training)
    return loss / n, hits / n


def main() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(42)
    train_set, valid_set = random_split(synthetic(96), [64, 32], generator=torch.Generator().manual_seed(1))
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=32)
    model = Classifier()
    print(sum(p.numel() for p in model.parameters() if p.requires_grad), "parameters")
    print([name for name, _ in model.named_parameters()])
    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    rest = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=5e-3, betas=(0.9, 0.98)
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=12, pct_start=0.3)
    best, best_loss = None, float("inf")
    for epoch in range(3):
        model.train()
        for tokens, label in train_loader:
            loss = F.cross_entropy(model(tokens), label, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            print(f"{epoch} loss {loss.item():.4f} norm {norm:.4f} lr {optimizer.param_groups[0]['lr']:.2e}")
        valid_loss, accuracy = evaluate(model, valid_loader)
        print(f"epoch {epoch:>2d} | valid {valid_loss:.4f} | {accuracy:.2%}")
        if valid_loss < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), valid_loss
    missing = model.load_state_dict(best, strict=False)
    print(missing)
    evaluate(model, valid_loader)
    for layer in model.encoder.layers:
        entropy = -(layer.last_weights * (layer.last_weights + 1e-9).log()).sum(-1).mean()
        print("attention entropy", entropy.item(), tuple(layer.last_weights.shape))
    post = Classifier(norm_first=False, activation="gelu").eval()
    post.load_state_dict(model.state_dict())
    tokens = next(iter(valid_loader))[0][:4]
    print("post norm", post(tokens).detach().numpy().round(3).tolist())
    causal = nn.Transformer.generate_square_subsequent_mask(12)
    print(post.encoder(post.embed(tokens), mask=causal, is_causal=True).abs().mean().item())
    return model, tokens


if __name__ == "__main__":
    model, example = main()
