"""SNGAN: projection-free spectral normalization of the discriminator, hinge loss, residual blocks."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable
from torch.nn import Parameter
from torch.nn.utils import spectral_norm
from torch.optim.lr_scheduler import ExponentialLR


def l2normalize(v, eps=1e-12):
    return v / (v.norm() + eps)


class SpectralNorm(nn.Module):
    """The same by hand, as it was written before the library had it."""

    def __init__(self, module, name="weight", power_iterations=1):
        super(SpectralNorm, self).__init__()
        self.module = module
        self.name = name
        self.power_iterations = power_iterations
        if not self._made_params():
            self._make_params()

    def _update_u_v(self):
        u = getattr(self.module, self.name + "_u")
        v = getattr(self.module, self.name + "_v")
        w = getattr(self.module, self.name + "_bar")
        height = w.data.shape[0]
        for _ in range(self.power_iterations):
            v.data = l2normalize(torch.mv(torch.t(w.view(height, -1).data), u.data))
            u.data = l2normalize(torch.mv(w.view(height, -1).data, v.data))
        sigma = u.dot(w.view(height, -1).mv(v))
        setattr(self.module, self.name, w / sigma.expand_as(w))

    def _made_params(self):
        try:
            getattr(self.module, self.name + "_u")
            getattr(self.module, self.name + "_v")
            getattr(self.module, self.name + "_bar")
            return True
        except AttributeError:
            return False

    def _make_params(self):
        w = getattr(self.module, self.name)
        height = w.data.shape[0]
        width = w.view(height, -1).data.shape[1]
        u = Parameter(w.data.new(height).normal_(0, 1), requires_grad=False)
        v = Parameter(w.data.new(width).normal_(0, 1), requires_grad=False)
        u.data = l2normalize(u.data)
        v.data = l2normalize(v.data)
        w_bar = Parameter(w.data)
        del self.module._parameters[self.name]
        self.module.register_parameter(self.name + "_u", u)
        self.module.register_parameter(self.name + "_v", v)
        self.module.register_parameter(self.name + "_bar", w_bar)

    def forward(self, *args):
        self._update_u_v()
        return self.module.forward(*args)


class ResBlockGenerator(nn.Module):
    def __init__(self, in_channels, out_channels, stride=1):
        super(ResBlockGenerator, self).__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, padding=1)
        nn.init.xavier_uniform_(self.conv1.weight.data, 1.0)
        nn.init.xavier_uniform_(self.conv2.weight.data, np.sqrt(2))
        self.model = nn.Sequential(
            nn.BatchNorm2d(in_channels),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            self.conv1,
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            self.conv2,
        )
        self.bypass = nn.Sequential()
        if stride != 1:
            self.bypass = nn.Upsample(scale_factor=2)

    def forward(self, x):
        return self.model(x) + self.bypass(x)


class ResBlockDiscriminator(nn.Module):
    def __init__(self, in_channels, out_channels, stride=1, norm=SpectralNorm):
        super(ResBlockDiscriminator, self).__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, padding=1)
        nn.init.xavier_uniform_(self.conv1.weight.data, 1.0)
        nn.init.xavier_uniform_(self.conv2.weight.data, 1.0)
        self.model = nn.Sequential(nn.ReLU(), norm(self.conv1), nn.ReLU(), norm(self.conv2))
        if stride != 1:
            self.model.add_module("pool", nn.AvgPool2d(2, stride=stride, padding=0))
        self.bypass_conv = nn.Conv2d(in_channels, out_channels, 1, 1, padding=0)
        nn.init.xavier_uniform_(self.bypass_conv.weight.data, np.sqrt(2))
        self.bypass = (
            nn.Sequential(norm(self.bypass_conv), nn.AvgPool2d(2, stride=stride, padding=0))
            if stride != 1
            else norm(self.bypass_conv)
        )

    def forward(self, x):
        return self.model(x) + self.bypass(x)


class Generator(nn.Module):
    def __init__(self, z_dim, size=8):
        super(Generator, self).__init__()
        self.size = size
        self.dense = nn.Linear(z_dim, 4 * 4 * size)
        self.final = nn.Conv2d(size, 3, 3, stride=1, padding=1)
        nn.init.xavier_uniform_(self.dense.weight.data, 1.0)
        nn.init.xavier_uniform_(self.final.weight.data, 1.0)
        self.model = nn.Sequential(
            ResBlockGenerator(size, size, stride=2), nn.BatchNorm2d(size), nn.ReLU(), self.final, nn.Tanh()
        )

    def forward(self, z):
        return self.model(self.dense(z).view(-1, self.size, 4, 4))


class Discriminator(nn.Module):
    def __init__(self, norm, size=8):
        super(Discriminator, self).__init__()
        self.size = size
        self.model = nn.Sequential(
            ResBlockDiscriminator(3, size, stride=2, norm=norm),
            ResBlockDiscriminator(size, size, norm=norm),
            nn.ReLU(),
            nn.AvgPool2d(4),
        )
        self.fc = nn.Linear(size, 1)
        nn.init.xavier_uniform_(self.fc.weight.data, 1.0)
        self.fc = norm(self.fc)

    def forward(self, x):
        return self.fc(self.model(x).view(-1, self.size))


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--loss", type=str, default="hinge")
parser.add_argument("--checkpoint_dir", type=str, default="checkpoints")
args = parser.parse_args()

Z_dim = 8
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
os.makedirs(args.checkpoint_dir, exist_ok=True)


def run(norm):
    torch.manual_seed(11)
    discriminator, generator = Discriminator(norm).to(device), Generator(Z_dim).to(device)
    # because the spectral normalization module creates parameters that don't require gradients (u and v),
    # we don't want to optimize these using sgd
    optim_disc = optim.Adam(filter(lambda p: p.requires_grad, discriminator.parameters()), lr=args.lr, betas=(0.0, 0.9))
    optim_gen = optim.Adam(generator.parameters(), lr=args.lr, betas=(0.0, 0.9))
    scheduler_d = ExponentialLR(optim_disc, gamma=0.99)
    scheduler_g = ExponentialLR(optim_gen, gamma=0.99)
    real = torch.rand(16, 3, 8, 8).mul_(2).sub_(1)
    fixed_z = Variable(torch.randn(args.batch_size, Z_dim).to(device))
    for batch_idx in range(4):
        for _ in range(2):
            data = real[torch.randperm(len(real))[: args.batch_size]].to(device)
            z = Variable(torch.randn(args.batch_size, Z_dim).to(device))
            optim_disc.zero_grad()
            optim_gen.zero_grad()
            if args.loss == "hinge":
                disc_loss = (
                    nn.ReLU()(1.0 - discriminator(data)).mean() + nn.ReLU()(1.0 + discriminator(generator(z))).mean()
                )
            else:
                disc_loss = -discriminator(data).mean() + discriminator(generator(z)).mean()
            disc_loss.backward()
            optim_disc.step()
        z = Variable(torch.randn(args.batch_size, Z_dim).to(device))
        optim_disc.zero_grad()
        optim_gen.zero_grad()
        gen_loss = -discriminator(generator(z)).mean()
        gen_loss.backward()
        optim_gen.step()
        print("disc loss", disc_loss.item(), "gen loss", gen_loss.item())
        scheduler_d.step()
        scheduler_g.step()
    print(scheduler_d.get_last_lr(), [(k, tuple(v.size())) for k, v in sorted(discriminator.state_dict().items())])
    torch.save(discriminator.state_dict(), os.path.join(args.checkpoint_dir, "disc_{}".format(0)))
    torch.save(generator.state_dict(), os.path.join(args.checkpoint_dir, "gen_{}".format(0)))
    again = Discriminator(norm)
    again.load_state_dict(torch.load(os.path.join(args.checkpoint_dir, "disc_0"), map_location=device))
    samples = generator.eval()(fixed_z).cpu().data.numpy()
    print(
        samples.shape, samples[:2].mean(axis=(1, 2, 3)), again.eval()(torch.from_numpy(samples)).flatten().tolist()[:3]
    )
    return discriminator, generator, fixed_z


run(SpectralNorm)
run(torch.nn.utils.parametrizations.spectral_norm)
discriminator, generator, fixed_z = run(spectral_norm)
conv = discriminator.model[0].conv1
sigma = torch.linalg.svdvals(conv.weight.detach().flatten(1))
print("largest singular value", sigma.max().item(), sum(1 for _ in discriminator.buffers()))
torch.nn.utils.remove_spectral_norm(discriminator.model[0].model[1])
print(sorted(n for n, _ in discriminator.model[0].named_parameters()))
model, example = generator, fixed_z
