"""Regression with uncertainty: an exact Gaussian process by Cholesky, a Bayesian network, MC dropout, an ensemble."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Gamma, Normal, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class RBFKernel(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.raw_lengthscale = nn.Parameter(torch.zeros(dims))
        self.raw_outputscale = nn.Parameter(torch.tensor(0.0))

    @property
    def lengthscale(self):
        return F.softplus(self.raw_lengthscale)

    @property
    def outputscale(self):
        return F.softplus(self.raw_outputscale)

    def forward(self, a, b):
        sq = torch.cdist(a / self.lengthscale, b / self.lengthscale, compute_mode="donot_use_mm_for_euclid_dist").pow(2)
        return self.outputscale * torch.exp(-0.5 * sq)


class GP(nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.kernel = RBFKernel(x.shape[1])
        self.raw_noise = nn.Parameter(torch.tensor(-2.0, dtype=x.dtype))
        self.register_buffer("x", x)
        self.register_buffer("y", y)

    def _factor(self):
        K = self.kernel(self.x, self.x)
        K.diagonal().add_(F.softplus(self.raw_noise) + 1e-6)
        return torch.linalg.cholesky(K)

    def nll(self):
        L = self._factor()
        alpha = torch.cholesky_solve(self.y.unsqueeze(1), L).squeeze(1)
        return 0.5 * self.y.dot(alpha) + L.diagonal().log().sum() + 0.5 * len(self.y) * math.log(2 * math.pi)

    def forward(self, x):
        L = self._factor()
        Ks = self.kernel(self.x, x)
        v = torch.linalg.solve_triangular(L, Ks, upper=False)
        mean = v.T @ torch.linalg.solve_triangular(L, self.y.unsqueeze(-1), upper=False)
        var = self.kernel.outputscale - v.pow(2).sum(0)
        return mean.squeeze(-1), var.clamp_min(1e-9)


class BayesLinear(nn.Module):
    """Weights as Gaussians, drawn by reparametrisation, with a scale mixture as their prior."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight_mu = nn.Parameter(torch.Tensor(out_features, in_features).uniform_(-0.2, 0.2))
        self.weight_rho = nn.Parameter(torch.Tensor(out_features, in_features).uniform_(-5, -4))
        self.bias_mu = nn.Parameter(torch.Tensor(out_features).uniform_(-0.2, 0.2))
        self.log_prior = self.log_variational_posterior = 0

    def _prior(self, w, pi=0.5, s1=1.0, s2=math.exp(-6)):
        p1 = torch.exp(Normal(0, s1).log_prob(w))
        p2 = torch.exp(Normal(0, s2).log_prob(w))
        return torch.log(pi * p1 + (1 - pi) * p2).sum()

    def forward(self, x, sample=False):
        sigma = torch.log1p(torch.exp(self.weight_rho))
        if self.training or sample:
            weight = self.weight_mu + sigma * torch.randn(self.weight_mu.size())
        else:
            weight = self.weight_mu
        if self.training:
            self.log_prior = self._prior(weight)
            self.log_variational_posterior = Normal(self.weight_mu, sigma).log_prob(weight).sum()
        return F.linear(x, weight, self.bias_mu)


class BayesNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = BayesLinear(1, 16), BayesLinear(16, 1)

    def forward(self, x, sample=False):
        return self.l2(torch.tanh(self.l1(x, sample)), sample)

    def sample_elbo(self, x, y, samples=2):
        total = torch.zeros(3)
        for _ in range(samples):
            out = self(x, sample=True)
            total[0] += self.l1.log_prior + self.l2.log_prior
            total[1] += self.l1.log_variational_posterior + self.l2.log_variational_posterior
            total[2] += F.gaussian_nll_loss(out, y, torch.full_like(y, 0.05), reduction="sum", full=True)
        prior, posterior, nll = (total / samples).unbind()
        return (posterior - prior) / 10 + nll


torch.manual_seed(14)
rng = np.random.RandomState(2)
x_np = np.sort(rng.uniform(-3, 3, (24, 1)), axis=0)
y_np = np.sin(x_np[:, 0]) + 0.1 * rng.randn(24)
x, y = torch.tensor(x_np), torch.tensor(y_np)
grid = torch.linspace(-4, 4, 9, dtype=torch.float64).unsqueeze(-1)
gp = GP(x, y).double()
optimizer = torch.optim.LBFGS(gp.parameters(), lr=0.3, max_iter=5, line_search_fn="strong_wolfe")
for i in range(3):

    def closure():
        optimizer.zero_grad()
        loss = gp.nll()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    noise = F.softplus(gp.raw_noise).item()
    print("Iter %d - Loss: %.4f lengthscale: %.4f noise: %.4f" % (i, loss.item(), gp.kernel.lengthscale.item(), noise))
with torch.no_grad():
    mean, var = gp(grid)
    print(mean, var.sqrt(), torch.get_default_dtype(), mean.dtype)
outer = lambda r: gp.kernel.outputscale * r.exp().prod()
hessian = torch.autograd.functional.hessian(outer, torch.zeros(2, dtype=torch.float64))
print(hessian)
xf, yf = x.float(), y.float().view(-1, 1)
net = BayesNet()
opt = torch.optim.Adam(net.parameters(), lr=0.02)
for epoch in range(4):
    net.train()
    loss = net.sample_elbo(xf, yf)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("elbo", epoch, loss.item(), net.l1.weight_rho.mean().item())
net.eval()
with torch.no_grad():
    draws = torch.stack([net(grid.float(), sample=True) for _ in range(5)]).squeeze(-1)
    print(draws.mean(0)[::4], torch.quantile(draws, torch.tensor([0.25, 0.75]), dim=0)[:, 0])
dropout = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
opt = torch.optim.SGD(dropout.parameters(), lr=0.02, momentum=0.9)
for epoch in range(4):
    mu, log_var = dropout(xf).chunk(2, dim=-1)
    loss = (0.5 * torch.exp(-log_var) * (yf - mu) ** 2 + 0.5 * log_var).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("hetero", epoch, loss.item())
vector = parameters_to_vector(dropout.parameters())
vector_to_parameters(vector * 0.5, dropout.parameters())
print(vector.norm().item(), dropout[0].weight.norm().item(), Gamma(2.0, 3.0).log_prob(torch.tensor(0.5)).item())
print(kl_divergence(Normal(mu[:3], log_var[:3].exp()), Normal(0.0, 1.0)).sum().item())
dropout.eval()
model, example = dropout, xf[:5]
