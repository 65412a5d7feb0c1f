"""WGAN-GP: critic, gradient penalty with create_graph, spectral norm and weight norm, frozen critic."""

import torch
import torch.nn as nn
from torch import autograd
from torch.autograd import Variable
from torch.nn.utils import parameters_to_vector, spectral_norm, vector_to_parameters
from torch.nn.utils.parametrizations import weight_norm


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        m.weight.data.normal_(0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)


class Reshape(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.view(x.size(0), *self.shape)

    def extra_repr(self):
        return f"shape={self.shape}"


class Generator(nn.Module):
    def __init__(self, nz=5):
        super().__init__()

        def block(i, o, normalize=True):
            layers = [nn.Linear(i, o)]
            if normalize:
                layers.append(nn.BatchNorm1d(o, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(nz, 16, normalize=False), *block(16, 32), nn.Linear(32, 64), nn.Tanh(), Reshape(1, 8, 8)
        )

    def forward(self, z):
        return self.model(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 6, 4, 2, 1),
            nn.InstanceNorm2d(6, affine=True),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(6, 8, 4, 2, 1),
            nn.ELU(),
        )
        self.out = nn.Linear(8 * 2 * 2, 1)

    def forward(self, x):
        return self.out(self.conv(x).view(-1, 32))


def compute_gradient_penalty(D, real_samples, fake_samples, alpha):
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(torch.Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def main(fill, numbers):
    torch.manual_seed(0)
    g, d = Generator(), Critic()
    g.apply(weights_init)
    d.apply(weights_init)
    fill(g), fill(d)
    opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.RMSprop(d.parameters(), lr=1e-3)
    one = torch.tensor(1, dtype=torch.float)
    mone = one * -1
    trace = []
    for i in range(6):
        for p in d.parameters():
            p.requires_grad = True
        real = Variable(torch.from_numpy(numbers(6, 1, 8, 8)))
        z = torch.from_numpy(numbers(6, 5))
        d.zero_grad()
        d_real = d(real).mean()
        d_real.backward(mone)
        with torch.no_grad():
            fake = g(z)
        d_fake = d(fake).mean()
        d_fake.backward(one)
        alpha = torch.sigmoid(torch.from_numpy(numbers(6, 1, 1, 1)))
        gp = 10 * compute_gradient_penalty(d, real.data, fake.data, alpha)
        gp.backward()
        opt_d.step()
        trace += [(d_fake - d_real + gp).item(), gp.item()]
        if i % 2 == 0:
            for p in d.parameters():
                p.requires_grad = False
            g.zero_grad()
            loss = d(g(z)).mean()
            loss.backward(mone)
            opt_g.step()
            trace.append(-loss.item())
    # Lipschitz by construction
    sn = nn.Sequential(weight_norm(nn.Linear(8, 6)), nn.ReLU(), spectral_norm(nn.Linear(6, 1)))
    names = sorted(n for n, _ in sn.named_parameters())
    trace.append(len(names))
    assert names[-1] == "2.weight_orig" and "0.parametrizations.weight.original0" in names
    fill(sn)
    with torch.no_grad():
        sn[2].weight_u.copy_(torch.ones(1))
    sn.train()
    opt = torch.optim.SGD(sn.parameters(), lr=0.1)
    x = torch.from_numpy(numbers(7, 8))
    for _ in range(4):
        opt.zero_grad()
        loss = (sn(x) - 1).pow(2).mean()
        loss.backward()
        opt.step()
        trace.append(loss.item())
    nn.utils.parametrize.remove_parametrizations(sn[0], "weight")
    trace.append(sn(x).sum().item())
    par = nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 2, 3))
    fill(par)
    par.eval()
    vec = parameters_to_vector(g.parameters())
    vector_to_parameters(vec * 0.5, g.parameters())
    g.eval()
    trace.append(g(torch.ones(2, 5)).norm().item())
    return trace
