"""A convolutional GAN: two optimizers, transposed convolutions, detach."""

import torch
import torch.nn as nn
import torch.optim as optim


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1, 1).squeeze(1)


def main(fill, numbers):
    net_g, net_d = fill(Generator()), fill(Discriminator())
    criterion = nn.BCELoss()
    opt_d = optim.Adam(net_d.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_g = optim.Adam(net_g.parameters(), lr=2e-3, betas=(0.5, 0.999))
    trace = []
    for _ in range(4):
        net_d.zero_grad()
        real = torch.from_numpy(numbers(5, 1, 8, 8)).tanh()
        label = torch.full((5,), 1.0, dtype=real.dtype)
        err_real = criterion(net_d(real), label)
        err_real.backward()
        fake = net_g(torch.from_numpy(numbers(5, 6, 1, 1)))
        label.fill_(0.0)
        err_fake = criterion(net_d(fake.detach()), label)
        err_fake.backward()
        opt_d.step()
        net_g.zero_grad()
        label.fill_(1.0)
        err_g = criterion(net_d(fake), label)
        err_g.backward()
        opt_g.step()
        trace += [(err_real + err_fake).item(), err_g.item(), net_d(fake).mean().item()]
    return trace
