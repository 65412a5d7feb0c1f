"""WGAN-GP on a two-dimensional mixture: the gradient penalty needs the gradient of a gradient."""

import numpy as np
import torch
import torch.autograd as autograd
from torch import nn, optim
from torch.autograd import Variable

DIM, LAMBDA, CRITIC_ITERS, BATCH_SIZE, ITERS = 24, 0.1, 3, 32, 5
use_cuda = torch.cuda.is_available() and False
torch.manual_seed(1)
np.random.seed(1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, DIM), nn.ReLU(True), nn.Linear(DIM, DIM), nn.ReLU(True), nn.Linear(DIM, 2)
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, DIM), nn.LeakyReLU(0.2), nn.Linear(DIM, DIM), nn.Softplus(), nn.Linear(DIM, 1)
        )

    def forward(self, inputs):
        return self.main(inputs).view(-1)


def weights_init(m):
    if isinstance(m, nn.Linear):
        m.weight.data.normal_(0.0, 0.3)
        m.bias.data.fill_(0)


def inf_train_gen():
    centers = [(np.cos(a), np.sin(a)) for a in np.linspace(0, 2 * np.pi, 8, endpoint=False)]
    while True:
        rows = [np.random.randn(2) * 0.02 + centers[np.random.randint(8)] for _ in range(BATCH_SIZE)]
        yield np.array(rows, dtype="float32") / 1.414


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(BATCH_SIZE, 1)
    alpha = alpha.expand(real_data.size())
    interpolates = alpha * real_data + ((1 - alpha) * fake_data)
    interpolates = autograd.Variable(interpolates, requires_grad=True)
    disc_interpolates = netD(interpolates)
    gradients = autograd.grad(
        outputs=disc_interpolates,
        inputs=interpolates,
        grad_outputs=torch.ones(disc_interpolates.size()),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * LAMBDA


netG, netD = Generator(), Discriminator()
netD.apply(weights_init)
netG.apply(weights_init)
optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
optimizerG = optim.RMSprop(netG.parameters(), lr=1e-3)
one = torch.tensor(1, dtype=torch.float)
mone = one * -1
data = inf_train_gen()
for iteration in range(ITERS):
    for p in netD.parameters():
        p.requires_grad = True
    for _ in range(CRITIC_ITERS):
        real_data = Variable(torch.Tensor(next(data)))
        netD.zero_grad()
        D_real = netD(real_data).mean()
        D_real.backward(mone)
        noise = torch.randn(BATCH_SIZE, 2)
        with torch.no_grad():
            noisev = noise
        fake = Variable(netG(noisev).data)
        D_fake = netD(fake).mean()
        D_fake.backward(one)
        gradient_penalty = calc_gradient_penalty(netD, real_data.data, fake.data)
        gradient_penalty.backward()
        D_cost = D_fake - D_real + gradient_penalty
        optimizerD.step()
    for p in netD.parameters():
        p.requires_grad = False  # to avoid computation
    netG.zero_grad()
    G = netD(netG(torch.randn(BATCH_SIZE, 2))).mean()
    G.backward(mone)
    optimizerG.step()
    print("iter", iteration, "disc cost", D_cost.cpu().data.numpy(), "gen", -G.item(), "gp", gradient_penalty.tolist())
model, example = netG, noise[:4]
