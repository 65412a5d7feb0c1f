"""A flow of masked affine couplings on two moons: the log-determinant, a prior to sample from, exact inverses."""

import math

import numpy as np
import torch
from torch import distributions, nn
from torch.nn.parameter import Parameter


class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super(RealNVP, self).__init__()
        self.prior = prior
        self.mask = nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x * self.mask[i]
            s = self.s[i](x_) * (1 - self.mask[i])
            t = self.t[i](x_) * (1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1 - self.mask[i])
            t = self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp

    def sample(self, batchSize):
        z = self.prior.sample((batchSize, 1))
        return self.g(z.squeeze(1))

    def forward(self, x):
        z, log_det = self.f(x)
        return torch.cat([z, log_det.unsqueeze(1)], dim=1)


class ActNorm(nn.Module):
    """Scale and shift, set from the first batch."""

    def __init__(self, dim):
        super().__init__()
        self.loc = Parameter(torch.zeros(1, dim))
        self.log_scale = Parameter(torch.zeros(1, dim))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.training and self.initialized.item() == 0:
            with torch.no_grad():
                mean, std = x.mean(0, keepdim=True), x.std(0, keepdim=True)
                self.loc.data.copy_(-mean)
                self.log_scale.data.copy_(-torch.log(std + 1e-6))
            self.initialized.fill_(1)
        y = torch.exp(self.log_scale) * (x + self.loc)
        return y, self.log_scale.sum().expand(x.size(0))


def make_moons(n, noise, rng):
    half = n // 2
    a = np.linspace(0, math.pi, half)
    upper = np.stack([np.cos(a), np.sin(a)], 1)
    lower = np.stack([1 - np.cos(a), 0.5 - np.sin(a)], 1)
    return np.concatenate([upper, lower]).astype(np.float32) + rng.normal(0, noise, (n, 2)).astype(np.float32)


torch.manual_seed(11)
rng = np.random.RandomState(0)
nets = lambda: nn.Sequential(
    nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh()
)
nett = lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 16), nn.LeakyReLU(), nn.Linear(16, 2))
masks = torch.from_numpy(np.array([[0, 1], [1, 0]] * 3).astype(np.float32))
prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
flow = RealNVP(nets, nett, masks, prior)
norm = ActNorm(2)
optimizer = torch.optim.Adam(
    [p for p in flow.parameters() if p.requires_grad] + list(norm.parameters()),
    lr=2e-3,
)
for t in range(6):
    batch = torch.from_numpy(make_moons(48, 0.05, rng))
    y, log_det = norm(batch)
    loss = -(flow.log_prob(y) + log_det).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    print("iter %s:" % t, "loss = %.4f" % loss.item(), norm.log_scale.data.numpy().round(3))
flow.eval()
with torch.no_grad():
    z, _ = flow.f(batch)
    print("inverse", torch.allclose(flow.g(z), batch, atol=1e-4), "frozen", flow.mask.grad is None)
    samples = flow.sample(64)
    print("samples", samples.mean(0), samples.std(dim=0))
normal = distributions.Normal(torch.zeros(2), torch.ones(2))
independent = distributions.Independent(normal, 1)
mixture = distributions.MixtureSameFamily(
    distributions.Categorical(logits=torch.tensor([0.1, 0.9])),
    distributions.Independent(distributions.Normal(torch.tensor([[0.0, 1.0], [2.0, -1.0]]), torch.ones(2, 2)), 1),
)
print(independent.log_prob(z[:3]), mixture.log_prob(z[:3]), distributions.kl_divergence(normal, normal).sum())
print(prior.entropy(), prior.covariance_matrix.diagonal(), prior.event_shape, prior.batch_shape)
model, example = flow, batch[:5]
