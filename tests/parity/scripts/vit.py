"""A Vision Transformer from scratch: patches by Conv2d and by unfold, a class token, attention in einsum."""

import math
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import einsum


def pair(t):
    return t if isinstance(t, tuple) else (t, t)


class PatchEmbed(nn.Module):
    def __init__(self, img_size=8, patch_size=4, in_chans=3, embed_dim=16):
        super().__init__()
        self.grid = (pair(img_size)[0] // patch_size, pair(img_size)[1] // patch_size)
        self.num_patches = self.grid[0] * self.grid[1]
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        B, C, H, W = x.shape
        return self.proj(x).flatten(2).transpose(1, 2)


class UnfoldEmbed(nn.Module):
    def __init__(self, patch=4, chans=3, dim=16):
        super().__init__()
        self.p = patch
        self.norm = nn.LayerNorm(chans * patch * patch)
        self.proj = nn.Linear(chans * patch * patch, dim)

    def forward(self, x):
        b, c, h, w = x.size()
        p = self.p
        patches = x.unfold(2, p, p).unfold(3, p, p)
        patches = patches.permute(0, 2, 3, 1, 4, 5).contiguous().view(b, -1, c * p * p)
        other = F.unfold(x, kernel_size=p, stride=p).transpose(1, 2)
        assert torch.allclose(patches, other, atol=1e-6)
        return self.proj(self.norm(patches))


def drop_path(x, drop_prob: float = 0.0, training: bool = False):
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    random_tensor = keep_prob + torch.rand(shape, dtype=x.dtype, device=x.device)
    random_tensor.floor_()
    return x.div(keep_prob) * random_tensor


class Attention(nn.Module):
    def __init__(self, dim, heads=4, qkv_bias=False, way="einsum"):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))
        self.way = way

    def forward(self, x):
        b, n, d, h = *x.shape, self.heads
        if self.way == "einsum":
            q, k, v = self.to_qkv(x).chunk(3, dim=-1)
            q, k, v = (t.view(b, n, h, -1).transpose(1, 2) for t in (q, k, v))
            dots = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
            attn = dots.softmax(dim=-1)
            out = einsum("bhij,bhjd->bhid", attn, v)
        elif self.way == "unbind":
            qkv = self.to_qkv(x).reshape(b, n, 3, h, d // h).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.unbind(0)
            attn = (q @ k.transpose(-2, -1)) * self.scale
            out = attn.softmax(-1) @ v
        else:
            qkv = self.to_qkv(x).reshape(b, n, 3, h, d // h).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            out = F.scaled_dot_product_attention(q, k, v)
        out = out.transpose(1, 2).reshape(b, n, d)
        return self.proj(out)


class Mlp(nn.Module):
    def __init__(self, dim, hidden=None, act_layer=nn.GELU):
        super().__init__()
        hidden = hidden or dim * 2
        self.fc1, self.act, self.fc2 = nn.Linear(dim, hidden), act_layer(), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim, way, norm_layer=nn.LayerNorm, init_values=0.1):
        super().__init__()
        self.norm1, self.norm2 = norm_layer(dim), norm_layer(dim)
        self.attn, self.mlp = Attention(dim, way=way), Mlp(dim)
        self.gamma = nn.Parameter(init_values * torch.ones(dim), requires_grad=True)

    def forward(self, x):
        x = x + drop_path(self.gamma * self.attn(self.norm1(x)), 0.1, False)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=16, classes=5, embed=None):
        super().__init__()
        self.patch_embed = embed or PatchEmbed(embed_dim=dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 4 + 1, dim) * 0.02)
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.blocks = nn.Sequential(*[Block(dim, way, norm_layer) for way in ("einsum", "unbind", "sdpa")])
        self.norm = norm_layer(dim)
        self.head = nn.Linear(dim, classes) if classes > 0 else nn.Identity()
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            if m.bias is not None:
                nn.init.normal_(m.bias, std=1e-6)

    @torch.no_grad()
    def no_weight_decay(self):
        return {"pos_embed", "cls_token"}

    def forward(self, x):
        x = self.patch_embed(x)
        cls_tokens = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        x += self.pos_embed[:, : x.shape[1]]
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0]), x[:, 1:].mean(dim=1)


def adjust_learning_rate(optimizer, step, warmup, total, base):
    if step < warmup:
        lr = base * (step + 1) / warmup
    else:
        lr = 0.5 * base * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    return lr


def mixup(x, y, lam, classes=5):
    index = torch.arange(x.size(0) - 1, -1, -1)
    onehot = F.one_hot(y, num_classes=classes).float()
    return lam * x + (1 - lam) * x[index], lam * onehot + (1 - lam) * onehot[index]


def main(fill, numbers):
    torch.manual_seed(0)
    trace = []
    for embed in (None, UnfoldEmbed()):
        model = fill(ViT(embed=embed))
        skip = model.no_weight_decay()
        groups = {"decay": [], "none": []}
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            groups["none" if p.ndim == 1 or name.endswith(".bias") or name in skip else "decay"].append(p)
        optimizer = torch.optim.AdamW(
            [
                {"params": groups["decay"], "weight_decay": 0.05},
                {"params": groups["none"], "weight_decay": 0.0, "lr_scale": 0.5},
            ],
            lr=1e-2,
            betas=(0.9, 0.95),
        )
        x = torch.from_numpy(numbers(10, 3, 8, 8))
        y = torch.tensor([i % 5 for i in range(10)])
        for step in range(5):
            lr = adjust_learning_rate(optimizer, step, 2, 5, 1e-2)
            mixed, target = mixup(x, y, 0.7)
            logits, feature = model(mixed)
            loss = torch.sum(-target * F.log_softmax(logits, dim=-1), dim=-1).mean()
            loss = loss + 1e-2 * feature.norm(dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            trace += [loss.item(), norm.item(), lr]
        # positions for a larger picture
        pos = model.pos_embed[:, 1:]
        size = int(math.sqrt(pos.shape[1]))
        grid = pos.reshape(1, size, size, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(4, 4), mode="bicubic", align_corners=False)
        trace.append(grid.permute(0, 2, 3, 1).flatten(1, 2).abs().sum().item())
    return trace
