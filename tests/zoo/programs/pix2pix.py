"""Image-to-image translation: a U-Net generator of nested blocks, a PatchGAN, L1 and least-squares losses."""

import functools
import itertools

import torch
import torch.nn as nn
from torch.nn import init
from torch.optim import lr_scheduler


def get_norm_layer(norm_type="instance"):
    if norm_type == "batch":
        return functools.partial(nn.BatchNorm2d, affine=True, track_running_stats=True)
    elif norm_type == "instance":
        return functools.partial(nn.InstanceNorm2d, affine=False, track_running_stats=False)
    raise NotImplementedError("normalization layer [%s] is not found" % norm_type)


def init_weights(net, init_gain=0.02):
    def init_func(m):
        classname = m.__class__.__name__
        if hasattr(m, "weight") and m.weight is not None and ("Conv" in classname or "Linear" in classname):
            init.xavier_normal_(m.weight.data, gain=init_gain)
            if hasattr(m, "bias") and m.bias is not None:
                init.constant_(m.bias.data, 0.0)

    net.apply(init_func)
    return net


class UnetSkipConnectionBlock(nn.Module):
    def __init__(
        self, outer_nc, inner_nc, input_nc=None, submodule=None, outermost=False, innermost=False, norm_layer=None
    ):
        super().__init__()
        self.outermost = outermost
        use_bias = norm_layer.func == nn.InstanceNorm2d
        input_nc = outer_nc if input_nc is None else input_nc
        downconv = nn.Conv2d(input_nc, inner_nc, kernel_size=4, stride=2, padding=1, bias=use_bias)
        downrelu, uprelu = nn.LeakyReLU(0.2, True), nn.ReLU(True)
        if outermost:
            up = [uprelu, nn.ConvTranspose2d(inner_nc * 2, outer_nc, 4, 2, 1), nn.Tanh()]
            layers = [downconv, submodule] + up
        elif innermost:
            upconv = nn.ConvTranspose2d(inner_nc, outer_nc, 4, 2, 1, bias=use_bias)
            layers = [downrelu, downconv, uprelu, upconv, norm_layer(outer_nc)]
        else:
            upconv = nn.ConvTranspose2d(inner_nc * 2, outer_nc, 4, 2, 1, bias=use_bias)
            layers = [
                downrelu,
                downconv,
                norm_layer(inner_nc),
                submodule,
                uprelu,
                upconv,
                norm_layer(outer_nc),
                nn.Dropout(0.5),
            ]
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        return self.model(x) if self.outermost else torch.cat([x, self.model(x)], 1)


class GANLoss(nn.Module):
    def __init__(self, target_real_label=1.0, target_fake_label=0.0):
        super().__init__()
        self.register_buffer("real_label", torch.tensor(target_real_label))
        self.register_buffer("fake_label", torch.tensor(target_fake_label))
        self.loss = nn.MSELoss()

    def __call__(self, prediction, target_is_real):
        target = self.real_label if target_is_real else self.fake_label
        return self.loss(prediction, target.expand_as(prediction))


def set_requires_grad(nets, requires_grad=False):
    for net in nets if isinstance(nets, list) else [nets]:
        for param in net.parameters():
            param.requires_grad = requires_grad


torch.manual_seed(0)
norm = get_norm_layer("instance")
block = UnetSkipConnectionBlock(16, 16, norm_layer=norm, innermost=True)
block = UnetSkipConnectionBlock(8, 16, submodule=block, norm_layer=norm)
netG = init_weights(UnetSkipConnectionBlock(3, 8, input_nc=3, submodule=block, outermost=True, norm_layer=norm))
netD = init_weights(
    nn.Sequential(
        nn.Conv2d(6, 8, 4, 2, 1),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(8, 16, 4, 2, 1),
        norm(16),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(16, 1, 4, 1, 1),
    )
)
criterionGAN, criterionL1 = GANLoss(), torch.nn.L1Loss()
optimizer_G = torch.optim.Adam(itertools.chain(netG.parameters()), lr=2e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
schedulers = [
    lr_scheduler.LambdaLR(o, lr_lambda=lambda e: 1.0 - max(0, e - 2) / 3.0) for o in (optimizer_G, optimizer_D)
]
real_A = torch.rand(4, 3, 16, 16) * 2 - 1
real_B = real_A.flip([3]).clamp_(-0.5, 0.5)
for epoch in range(4):
    fake_B = netG(real_A)
    set_requires_grad(netD, True)
    optimizer_D.zero_grad()
    pred_fake = netD(torch.cat((real_A, fake_B), 1).detach())
    pred_real = netD(torch.cat((real_A, real_B), 1))
    loss_D = (criterionGAN(pred_fake, False) + criterionGAN(pred_real, True)) * 0.5
    loss_D.backward()
    optimizer_D.step()
    set_requires_grad(netD, False)
    optimizer_G.zero_grad()
    loss_GAN = criterionGAN(netD(torch.cat((real_A, fake_B), 1)), True)
    loss_L1 = criterionL1(fake_B, real_B) * 100.0
    (loss_GAN + loss_L1).backward()
    optimizer_G.step()
    for scheduler in schedulers:
        scheduler.step()
    print(
        "epoch %d lr %.7f D %.3f G_GAN %.3f G_L1 %.3f"
        % (epoch, optimizer_G.param_groups[0]["lr"], loss_D, loss_GAN, loss_L1)
    )
model, example = netG, real_A
