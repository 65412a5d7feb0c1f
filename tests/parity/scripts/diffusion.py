"""DDPM: a U-Net with time embeddings, betas, gathered coefficients, an EMA of the weights, and sampling."""

import copy
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F


def exists(x):
    return x is not None


def linear_beta_schedule(timesteps):
    scale = 80 / timesteps
    return torch.linspace(scale * 0.0001, scale * 0.02, timesteps, dtype=torch.float64)


def cosine_beta_schedule(timesteps, s=0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps, steps, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        device = x.device
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x, *args, **kwargs):
        return self.fn(x, *args, **kwargs) + x


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.ones(1, dim, 1, 1))

    def forward(self, x):
        return F.normalize(x, dim=1) * self.g * (x.shape[1] ** 0.5)


class ResBlock(nn.Module):
    def __init__(self, i, o, *, time_dim=None, groups=4):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, o * 2)) if exists(time_dim) else None
        self.proj1, self.norm1 = nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(groups, o)
        self.proj2, self.norm2 = nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(groups, o)
        self.act = nn.SiLU()
        self.res = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, time_emb=None):
        h = self.norm1(self.proj1(x))
        if exists(self.mlp) and exists(time_emb):
            scale, shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
            h = h * (scale + 1) + shift
        h = self.norm2(self.proj2(self.act(h)))
        return self.act(h) + self.res(x)


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4):
        super().__init__()
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_qkv = nn.Conv2d(dim, dim_head * heads * 3, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(dim_head * heads, dim, 1), RMSNorm(dim))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (t.reshape(b, self.heads, -1, h * w) for t in self.to_qkv(x).chunk(3, dim=1))
        q = q.softmax(dim=-2) * self.scale
        k = k.softmax(dim=-1)
        context = torch.einsum("bhdn,bhen->bhde", k, v / (h * w))
        out = torch.einsum("bhde,bhdn->bhen", context, q)
        return self.to_out(out.reshape(b, -1, h, w))


def Upsample(i, o):
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(i, o, 3, padding=1))


class Unet(nn.Module):
    def __init__(self, dim=8, mults=(1, 2)):
        super().__init__()
        time_dim = dim * 4
        self.time_mlp = nn.Sequential(
            SinusoidalPosEmb(dim), nn.Linear(dim, time_dim), nn.GELU(), nn.Linear(time_dim, time_dim)
        )
        self.init_conv = nn.Conv2d(1, dim, 7, padding=3)
        dims = [dim, *(dim * m for m in mults)]
        in_out = list(itertools.pairwise(dims))
        self.downs, self.ups = nn.ModuleList([]), nn.ModuleList([])
        for i, o in in_out:
            self.downs.append(
                nn.ModuleList(
                    [ResBlock(i, i, time_dim=time_dim), Residual(LinearAttention(i)), nn.Conv2d(i, o, 4, 2, 1)]
                )
            )
        self.mid = ResBlock(dims[-1], dims[-1], time_dim=time_dim)
        for i, o in reversed(in_out):
            self.ups.append(nn.ModuleList([Upsample(o, o), ResBlock(o + i, i, time_dim=time_dim)]))
        self.final_conv = nn.Conv2d(dim, 1, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        h = []
        for block, attn, down in self.downs:
            x = attn(block(x, t))
            h.append(x)
            x = down(x)
        x = self.mid(x, t)
        for up, block in self.ups:
            x = block(torch.cat((up(x), h.pop()), dim=1), t)
        return self.final_conv(x)


class EMA:
    def __init__(self, model, decay):
        self.decay, self.ema = decay, copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        params = dict(model.named_parameters())
        for name, p in self.ema.named_parameters():
            p.mul_(self.decay).add_(params[name].data, alpha=1 - self.decay)
        for current, ma in zip(model.buffers(), self.ema.buffers()):
            ma.copy_(current)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=8, schedule="cosine"):
        super().__init__()
        self.model = model
        betas = cosine_beta_schedule(timesteps) if schedule == "cosine" else linear_beta_schedule(timesteps)
        alphas = 1.0 - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
        self.num_timesteps = int(betas.shape[0])
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
        register_buffer("betas", betas)
        register_buffer("alphas_cumprod", alphas_cumprod)
        register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))
        register_buffer("sqrt_recip_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod))
        register_buffer("sqrt_recipm1_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod - 1))
        var = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)
        register_buffer("posterior_log_variance_clipped", torch.log(var.clamp(min=1e-20)))
        register_buffer("coef1", betas * torch.sqrt(alphas_cumprod_prev) / (1.0 - alphas_cumprod))
        register_buffer("coef2", (1.0 - alphas_cumprod_prev) * torch.sqrt(alphas) / (1.0 - alphas_cumprod))
        snr = alphas_cumprod / (1 - alphas_cumprod)
        maybe_clipped = snr.clone()
        maybe_clipped.clamp_(max=5)
        register_buffer("loss_weight", maybe_clipped / snr)

    def q_sample(self, x_start, t, noise=None):
        noise = noise if exists(noise) else torch.randn_like(x_start)
        return (
            extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )

    def forward(self, x, t, noise):
        loss = F.mse_loss(self.model(self.q_sample(x, t, noise), t), noise, reduction="none")
        loss = loss.flatten(1).mean(1)
        return (loss * extract(self.loss_weight, t, loss.shape)).mean()

    @torch.inference_mode()
    def sample(self, img, numbers):
        for i in reversed(range(self.num_timesteps)):
            t = torch.full((img.shape[0],), i, dtype=torch.long, device=self.betas.device)
            noise = self.model(img, t)
            x0 = (
                extract(self.sqrt_recip_alphas_cumprod, t, img.shape) * img
                - extract(self.sqrt_recipm1_alphas_cumprod, t, img.shape) * noise
            )
            x0.clamp_(-1.0, 1.0)
            mean = extract(self.coef1, t, img.shape) * x0 + extract(self.coef2, t, img.shape) * img
            log_var = extract(self.posterior_log_variance_clipped, t, img.shape)
            z = torch.from_numpy(numbers(*img.shape)) if i > 0 else 0.0
            img = mean + (0.5 * log_var).exp() * z
        return (img + 1) * 0.5


def main(fill, numbers):
    trace = []
    for schedule in ("linear", "cosine"):
        unet = fill(Unet())
        diffusion = GaussianDiffusion(unet, schedule=schedule)
        ema = EMA(diffusion, 0.9)
        opt = torch.optim.Adam(diffusion.parameters(), lr=2e-3, betas=(0.9, 0.99))
        for step in range(2):
            opt.zero_grad()
            for _ in range(2):
                x = torch.from_numpy(numbers(3, 1, 8, 8)).tanh()
                t = torch.randint(0, diffusion.num_timesteps, (x.shape[0],), device=x.device).long()
                t = torch.tensor([step, (step + 4) % 8, 7])
                loss = diffusion(x, t, torch.from_numpy(numbers(*x.shape))) / 2
                loss.backward()
                trace.append(loss.item())
            torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
            opt.step()
            ema.update(diffusion)
        out = ema.ema.sample(torch.from_numpy(numbers(2, 1, 8, 8)), numbers)
        trace += [out.mean().item(), out.std().item(), out.min().item(), out.max().item()]
    trace.append(len(diffusion.state_dict()))
    return trace
