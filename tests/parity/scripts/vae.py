"""A variational autoencoder with the noise given."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 16)
        self.fc21, self.fc22 = nn.Linear(16, 4), nn.Linear(16, 4)
        self.fc3 = nn.Linear(4, 16)
        self.fc4 = nn.Linear(16, 20)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 20))
        std = torch.exp(0.5 * logvar)
        z = mu + eps * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 20), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def main(fill, numbers):
    model = fill(VAE())
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    data = torch.clamp(torch.from_numpy(numbers(12, 4, 5)).abs(), 0, 1)
    trace = []
    for _ in range(6):
        eps = torch.as_tensor(numbers(12, 4))
        optimizer.zero_grad()
        recon, mu, logvar = model(data, eps)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        optimizer.step()
        trace.append(loss.item())
    return trace
