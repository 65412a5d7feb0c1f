"""Denoising diffusion: a U-Net with time embeddings and attention, EMA of its weights, DDPM and DDIM sampling."""

import copy
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Tuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import einsum, nn
from torch.optim import Adam


@dataclass
class Config:
    timesteps: int = 20
    dim: int = 8
    dim_mults: Tuple[int, ...] = (1, 2)
    lr: float = 2e-3
    betas: Tuple[float, float] = field(default_factory=lambda: (0.9, 0.99))


def exists(x):
    return x is not None


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        half = self.dim // 2
        emb = torch.exp(torch.arange(half, device=x.device) * -(math.log(10000) / (half - 1)))
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, dim, dim_out, time_dim, groups=4):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, dim_out * 2))
        self.proj, self.norm, self.act = nn.Conv2d(dim, dim_out, 3, padding=1), nn.GroupNorm(groups, dim_out), nn.SiLU()
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, t):
        scale, shift = rearrange(self.mlp(t), "b c -> b c 1 1").chunk(2, dim=1)
        return self.act(self.norm(self.proj(x)) * (scale + 1) + shift) + self.res_conv(x)


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=8):
        super().__init__()
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = map(
            lambda t: rearrange(t, "b (h c) x y -> b h c (x y)", h=self.heads), self.to_qkv(x).chunk(3, dim=1)
        )
        q, k = q.softmax(dim=-2) * self.scale, k.softmax(dim=-1)
        context = einsum("b h d n, b h e n -> b h d e", k, v)
        out = einsum("b h d e, b h d n -> b h e n", context, q)
        return self.to_out(rearrange(out, "b h c (x y) -> b (h c) x y", h=self.heads, x=h, y=w)) + x


class Unet(nn.Module):
    def __init__(self, dim, dim_mults, channels=1):
        super().__init__()
        self.time_mlp = nn.Sequential(
            SinusoidalPosEmb(dim), nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim * 4)
        )
        block = partial(Block, time_dim=dim * 4)
        dims = [dim, *map(lambda m: dim * m, dim_mults)]
        self.init_conv = nn.Conv2d(channels, dim, 3, padding=1)
        self.downs = nn.ModuleList(
            [nn.ModuleList([block(a, b), nn.Conv2d(b, b, 4, 2, 1)]) for a, b in zip(dims[:-1], dims[1:])]
        )
        self.mid, self.attn = block(dims[-1], dims[-1]), LinearAttention(dims[-1])
        self.ups = nn.ModuleList(
            [
                nn.ModuleList([nn.Upsample(scale_factor=2, mode="nearest"), block(b * 2, a)])
                for a, b in reversed(list(zip(dims[:-1], dims[1:])))
            ]
        )
        self.final = nn.Conv2d(dim, channels, 1)

    def forward(self, x, time):
        x, t, h = self.init_conv(x), self.time_mlp(time), []
        for block, down in self.downs:
            x = block(x, t)
            h.append(x)
            x = down(x)
        x = self.attn(self.mid(x, t))
        for up, block in self.ups:
            x = block(torch.cat((up(x), h.pop()), dim=1), t)
        return self.final(x)


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, m in zip(self.module.state_dict().values(), model.state_dict().values()):
            e.copy_(self.decay * e + (1.0 - self.decay) * m)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def main(cfg: Config):
    torch.manual_seed(0)
    x = torch.linspace(0, cfg.timesteps, cfg.timesteps + 1, dtype=torch.float64)
    bar = torch.cos(((x / cfg.timesteps) + 0.008) / 1.008 * math.pi * 0.5) ** 2
    betas = torch.clip(1 - (bar[1:] / bar[:-1]), 0, 0.999).to(torch.float32)
    alphas_bar = torch.cumprod(1.0 - betas, dim=0)
    prev = F.pad(alphas_bar[:-1], (1, 0), value=1.0)
    model = Unet(cfg.dim, cfg.dim_mults)
    ema, opt = EMA(model, 0.9), Adam(model.parameters(), lr=cfg.lr, betas=cfg.betas)
    images = torch.rand(8, 1, 8, 8).mul(2).sub(1)
    for step in range(6):
        t, noise = torch.randint(0, cfg.timesteps, (8,)).long(), torch.randn_like(images)
        noisy = (
            extract(alphas_bar.sqrt(), t, images.shape) * images
            + extract((1 - alphas_bar).sqrt(), t, images.shape) * noise
        )
        loss = F.smooth_l1_loss(model(noisy, t), noise)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        ema.update(model)
        print(f"step {step} loss {loss.item():.5f} t {t.tolist()}")
    with torch.inference_mode():
        img = torch.randn(2, 1, 8, 8)
        for i in reversed(range(cfg.timesteps)):
            eps = ema.module(img, torch.full((2,), i, dtype=torch.long))
            x0 = ((img - (1 - alphas_bar[i]).sqrt() * eps) / alphas_bar[i].sqrt()).clamp(-1.0, 1.0)
            mean = (
                betas[i] * prev[i].sqrt() / (1 - alphas_bar[i]) * x0
                + (1 - prev[i]) * (1 - betas[i]).sqrt() / (1 - alphas_bar[i]) * img
            )
            var = (betas[i] * (1.0 - prev[i]) / (1.0 - alphas_bar[i])).clamp(min=1e-20)
            img = mean + (torch.randn_like(img) if i > 0 else 0.0) * (0.5 * var.log()).exp()
        print("ddpm", img.mean().item(), img.std().item())
        img = torch.randn(2, 1, 8, 8)
        times = list(reversed(torch.linspace(-1, cfg.timesteps - 1, steps=6).int().tolist()))
        for now, nxt in zip(times[:-1], times[1:]):
            eps = ema.module(img, torch.full((2,), now, dtype=torch.long))
            x0 = ((img - (1 - alphas_bar[now]).sqrt() * eps) / alphas_bar[now].sqrt()).clamp_(-1.0, 1.0)
            img = x0 if nxt < 0 else x0 * alphas_bar[nxt].sqrt() + (1 - alphas_bar[nxt]).sqrt() * eps
        print("ddim", img.flatten()[:4].tolist())
    return model, (torch.randn(2, 1, 8, 8), torch.tensor([3, 7]))


if __name__ == "__main__":
    model, example = main(Config())
