"""Models that generate, and models of densities."""

from __future__ import annotations

import math
from typing import Any

from architecture import Dim, architecture, integers, normal

import ox
import ox.nn.functional as F
from ox import nn


def timestep_embedding(timesteps: Any, dim: int, max_period: int = 10000) -> Any:
    half = dim // 2
    freqs = ox.exp(-math.log(max_period) * ox.arange(start=0, end=half, dtype=ox.float32) / half)
    args = timesteps[:, None].float() * freqs[None]
    embedding = ox.cat([ox.cos(args), ox.sin(args)], dim=-1)
    if dim % 2:
        embedding = ox.cat([embedding, ox.zeros_like(embedding[:, :1])], dim=-1)
    return embedding


class TimeBlock(nn.Module):
    def __init__(self, cin: int, cout: int, emb: int) -> None:
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(4, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * cout))
        self.norm, self.out = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x: Any, emb: Any) -> Any:
        h = self.in_layers(x)
        emb_out = self.emb_layers(emb)
        while len(emb_out.shape) < len(h.shape):
            emb_out = emb_out[..., None]
        scale, shift = ox.chunk(emb_out, 2, dim=1)
        h = self.out(F.silu(self.norm(h) * (1 + scale) + shift))
        return self.skip(x) + h


class SpatialAttention(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj_out = nn.GroupNorm(4, c), nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x: Any) -> Any:
        b, c, *spatial = x.shape
        y = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(y)).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(c))
        weight = ox.softmax(ox.einsum("bct,bcs->bts", q * scale, k * scale).float(), dim=-1)
        h = self.proj_out(ox.einsum("bts,bcs->bct", weight, v))
        return (y + h).reshape(b, c, *spatial)


class Diffusion(nn.Module):
    """Dhariwal and Nichol, "Diffusion Models Beat GANs", 2021: a U-Net with time, class and attention."""

    def __init__(self, ch: int = 8) -> None:
        super().__init__()
        self.ch = ch
        self.time_embed = nn.Sequential(nn.Linear(ch, 16), nn.SiLU(), nn.Linear(16, 16))
        self.label_emb, self.enter = nn.Embedding(10, 16), nn.Conv2d(3, ch, 3, padding=1)
        self.block1, self.down = TimeBlock(ch, ch, 16), nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.block2, self.attn = TimeBlock(ch, 16, 16), SpatialAttention(16)
        self.up, self.block3 = nn.Conv2d(16, 16, 3, padding=1), TimeBlock(24, ch, 16)
        self.out = nn.Sequential(nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 3, 3, padding=1))

    def forward(self, x: Any, timesteps: Any, y: Any) -> Any:
        emb = self.time_embed(timestep_embedding(timesteps, self.ch)) + self.label_emb(y)
        first = self.block1(self.enter(x), emb)
        h = self.attn(self.block2(self.down(first), emb))
        h = self.up(F.interpolate(h, scale_factor=2, mode="nearest"))
        return self.out(self.block3(ox.cat([h, first], dim=1), emb))


class VAE(nn.Module):
    """Kingma and Welling, "Auto-Encoding Variational Bayes", 2013."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 16))
        self.fc_mu, self.fc_var = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(
            nn.Linear(4, 8 * 7 * 7), nn.Unflatten(1, (8, 7, 7)), nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
            nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def reparameterize(self, mu: Any, logvar: Any) -> Any:
        std = ox.exp(0.5 * logvar)
        eps = ox.randn_like(std)
        return eps * std + mu

    def forward(self, x: Any) -> Any:
        result = self.encoder(x)
        mu, log_var = self.fc_mu(result), self.fc_var(result)
        z = self.reparameterize(mu, log_var)
        kld = -0.5 * ox.sum(1 + log_var - mu**2 - log_var.exp(), dim=1)
        return {"reconstruction": self.decoder(z), "kld": kld}


class Coupling(nn.Module):
    def __init__(self, dim: int, parity: int) -> None:
        super().__init__()
        mask = (ox.arange(dim) % 2 == parity).float()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(dim, 16), nn.Tanh(), nn.Linear(16, 2 * dim))

    def forward(self, x: Any) -> Any:
        s, t = self.net(x * self.mask).chunk(2, dim=-1)
        s, t = ox.tanh(s) * (1 - self.mask), t * (1 - self.mask)
        return x * ox.exp(s) + t, s.sum(-1)


class RealNVP(nn.Module):
    """Dinh et al., "Density Estimation using Real NVP", 2016: the logarithm of the density of each point."""

    def __init__(self, dim: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Coupling(dim, i % 2) for i in range(4)])
        self.weight = nn.Parameter(ox.linalg.qr(ox.randn(dim, dim))[0])
        self.register_buffer("loc", ox.zeros(dim))
        self.register_buffer("scale", ox.ones(dim))

    def forward(self, x: Any) -> Any:
        log_det = ox.zeros(x.shape[0])
        z = x @ self.weight
        log_det = log_det + ox.linalg.slogdet(self.weight)[1]
        for layer in self.layers:
            z, ld = layer(z)
            log_det += ld
        prior = ox.distributions.Independent(ox.distributions.Normal(self.loc, self.scale), 1)
        return prior.log_prob(z) + log_det


class NeuralODE(nn.Module):
    """Chen et al., "Neural Ordinary Differential Equations", 2018: the states at given times, by Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def f(self, t: Any, y: Any) -> Any:
        return self.net(ox.cat([y, t.expand(y.shape[0], 1)], -1))

    def forward(self, y0: Any, times: Any) -> Any:
        def step(carry: Any, t1: Any) -> Any:
            y, t0 = carry
            h = t1 - t0
            k1 = self.f(t0, y)
            k2 = self.f(t0 + h / 2, y + h / 2 * k1)
            k3 = self.f(t0 + h / 2, y + h / 2 * k2)
            k4 = self.f(t1, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return (y, t1), y

        _, ys = ox.scan(step, (y0, times[0]), times[1:])
        return ox.cat([y0.unsqueeze(0), ys]).transpose(0, 1)


class MixtureDensity(nn.Module):
    """Bishop, "Mixture Density Networks", 1994: the likelihood of a target and the mean of the mixture."""

    def __init__(self, k: int = 3, out: int = 2) -> None:
        super().__init__()
        self.k, self.out = k, out
        self.hidden = nn.Sequential(nn.Linear(5, 16), nn.ELU())
        self.pi, self.mu, self.sigma = nn.Linear(16, k), nn.Linear(16, k * out), nn.Linear(16, k * out)

    def forward(self, x: Any, target: Any) -> Any:
        h = self.hidden(x)
        pi = F.softmax(self.pi(h), -1)
        mu, sigma = self.mu(h).view(-1, self.k, self.out), F.softplus(self.sigma(h)).view(-1, self.k, self.out) + 1e-3
        component = ox.distributions.Normal(mu, sigma)
        log_prob = component.log_prob(target.unsqueeze(1).expand_as(mu)).sum(-1)
        nll = -ox.logsumexp(ox.log(pi) + log_prob, dim=-1)
        return nll, (pi.unsqueeze(-1) * mu).sum(1), pi.argmax(-1)


class HyperNetwork(nn.Module):
    """Ha et al., "HyperNetworks", 2016: a network writes the weights of another, for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.hyper = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4 * 8 + 8 + 8 * 2))
        self.kernel = nn.Linear(3, 4 * 1 * 3)

    def forward(self, condition: Any, x: Any) -> Any:
        w1, b1, w2 = ox.split(self.hyper(condition), [32, 8, 16], dim=-1)
        b = condition.shape[0]
        h = ox.relu(ox.bmm(x, w1.view(b, 4, 8)) + b1.unsqueeze(1))
        y = ox.bmm(h, w2.view(b, 8, 2))
        kernels = self.kernel(condition).view(b * 4, 1, 3)
        filtered = F.conv1d(x.transpose(1, 2).reshape(1, b * 4, -1), kernels, padding=1, groups=b * 4)
        return y, filtered.view(b, 4, -1)


class Sampler(nn.Module):
    """One step of sampling text: temperature, the best k, the nucleus, a draw."""

    def __init__(self, vocabulary: int = 20, k: int = 8, p: float = 0.9) -> None:
        super().__init__()
        self.head, self.k, self.p = nn.Linear(6, vocabulary), k, p

    def forward(self, hidden: Any, temperature: Any, noise: Any) -> Any:
        logits = self.head(hidden) / temperature.clamp(min=1e-3).unsqueeze(-1)
        v, _ = ox.topk(logits, self.k)
        logits = logits.masked_fill(logits < v[:, [-1]], -float("inf"))
        probs, indices = ox.sort(F.softmax(logits, dim=-1), dim=-1, descending=True)
        cumulative = ox.cumsum(probs, dim=-1)
        probs = probs.masked_fill(cumulative - probs > self.p, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
        drawn = (ox.cumsum(probs, -1) > noise.unsqueeze(-1)).int().argmax(-1, keepdim=True)
        return indices.gather(-1, drawn).squeeze(-1), probs


EVEN = [Dim(name, multiple_of=2) for name in ("h", "w")]

MODELS = {
    "Diffusion": architecture(
        Diffusion,
        lambda batch, h, w: (normal(batch, 3, h, w), integers(1000, batch), integers(10, batch)),
        {"x": ["batch", 3, *EVEN], "timesteps": ["batch"], "y": ["batch"]},
        batch=(8, 3),
        h=(16, 12),
        w=(16, 22),
    ),
    "VAE": architecture(
        VAE,
        lambda batch: (normal(batch, 1, 14, 14),),
        {"x": ["batch", 1, 14, 14]},
        batch=(8, 3),
        lowest=18,
        seed="seed",
    ),
    "RealNVP": architecture(RealNVP, lambda batch: (normal(batch, 6),), {"x": ["batch", 6]}, batch=(8, 3)),
    "NeuralODE": architecture(
        NeuralODE,
        lambda batch, times: (normal(batch, 2), normal(times).cumsum() * 0.1),
        {"y0": ["batch", 2], "times": ["times"]},
        batch=(8, 3),
        times=(5, 9),
        varying=("batch", "times"),
        alone=True,
    ),
    "MixtureDensity": architecture(
        MixtureDensity,
        lambda batch: (normal(batch, 5), normal(batch, 2, seed=1)),
        {"x": ["batch", 5], "target": ["batch", 2]},
        batch=(8, 3),
    ),
    "HyperNetwork": architecture(
        HyperNetwork,
        lambda batch, n: (normal(batch, 3), normal(batch, n, 4, seed=1)),
        {"condition": ["batch", 3], "x": ["batch", "n", 4]},
        batch=(8, 3),
        n=(5, 9),
    ),
    "Sampler": architecture(
        Sampler,
        lambda batch: (normal(batch, 6), abs(normal(batch)) + 0.5, abs(normal(batch, seed=1)) % 1),
        {"hidden": ["batch", 6], "temperature": ["batch"], "noise": ["batch"]},
        batch=(8, 3),
    ),
}
