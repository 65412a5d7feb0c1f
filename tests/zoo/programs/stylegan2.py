"""A style-based generator: equalised learning rates, modulated convolutions in groups, R1 and path-length penalties."""

import math
import random

import numpy as np
import torch
from torch import autograd, nn, optim
from torch.autograd import Function
from torch.nn import functional as F


class FusedLeakyReLUFunctionBackward(Function):
    @staticmethod
    def forward(ctx, grad_output, out, negative_slope, scale):
        ctx.save_for_backward(out)
        ctx.negative_slope = negative_slope
        ctx.scale = scale
        grad_input = torch.where(out >= 0, grad_output, grad_output * negative_slope) * scale
        dim = [0] + list(range(2, grad_input.ndim))
        grad_bias = grad_input.sum(dim).detach()
        return grad_input, grad_bias

    @staticmethod
    def backward(ctx, gradgrad_input, gradgrad_bias):
        (out,) = ctx.saved_tensors
        gradgrad = gradgrad_input + gradgrad_bias.view(1, -1, *([1] * (out.ndim - 2)))
        return torch.where(out >= 0, gradgrad, gradgrad * ctx.negative_slope) * ctx.scale, None, None, None


class FusedLeakyReLUFunction(Function):
    @staticmethod
    def forward(ctx, input, bias, negative_slope, scale):
        shape = [1, -1] + [1] * (input.ndim - 2)
        out = F.leaky_relu(input + bias.view(*shape), negative_slope) * scale
        ctx.save_for_backward(out)
        ctx.negative_slope, ctx.scale = negative_slope, scale
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (out,) = ctx.saved_tensors
        grad_input, grad_bias = FusedLeakyReLUFunctionBackward.apply(grad_output, out, ctx.negative_slope, ctx.scale)
        return grad_input, grad_bias, None, None


class FusedLeakyReLU(nn.Module):
    def __init__(self, channel, negative_slope=0.2, scale=2**0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channel))
        self.negative_slope, self.scale = negative_slope, scale

    def forward(self, input):
        if torch.is_grad_enabled():
            return FusedLeakyReLUFunction.apply(input, self.bias, self.negative_slope, self.scale)
        rest_dim = [1] * (input.ndim - self.bias.ndim - 1)
        return F.leaky_relu(input + self.bias.view(1, self.bias.shape[0], *rest_dim), self.negative_slope) * self.scale


def make_kernel(k):
    k = torch.tensor(k, dtype=torch.float32)
    if k.ndim == 1:
        k = k[None, :] * k[:, None]
    k /= k.sum()
    return k


def upfirdn2d(input, kernel, up=1, down=1, pad=(0, 0)):
    _, channel, in_h, in_w = input.shape
    input = input.reshape(-1, in_h, in_w, 1)
    _, in_h, in_w, minor = input.shape
    kernel_h, kernel_w = kernel.shape
    out = input.view(-1, in_h, 1, in_w, 1, minor)
    out = F.pad(out, [0, 0, 0, up - 1, 0, 0, 0, up - 1])
    out = out.view(-1, in_h * up, in_w * up, minor)
    out = F.pad(out, [0, 0, max(pad[0], 0), max(pad[1], 0), max(pad[0], 0), max(pad[1], 0)])
    out = out.permute(0, 3, 1, 2)
    out = out.reshape([-1, 1, in_h * up + pad[0] + pad[1], in_w * up + pad[0] + pad[1]])
    w = torch.flip(kernel, [0, 1]).view(1, 1, kernel_h, kernel_w)
    out = F.conv2d(out, w)
    out = out[:, :, ::down, ::down]
    return out.view(-1, channel, out.shape[2], out.shape[3])


class PixelNorm(nn.Module):
    def forward(self, input):
        return input * torch.rsqrt(torch.mean(input**2, dim=1, keepdim=True) + 1e-8)


class EqualLinear(nn.Module):
    def __init__(self, in_dim, out_dim, bias_init=0, lr_mul=1, activation=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
        self.bias = nn.Parameter(torch.zeros(out_dim).fill_(bias_init))
        self.activation = activation
        self.scale = (1 / math.sqrt(in_dim)) * lr_mul
        self.lr_mul = lr_mul

    def forward(self, input):
        if self.activation:
            out = F.linear(input, self.weight * self.scale)
            return F.leaky_relu(out + self.bias * self.lr_mul, 0.2) * 2**0.5
        return F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)

    def __repr__(self):
        return f"{self.__class__.__name__}({self.weight.shape[1]}, {self.weight.shape[0]})"


class ModulatedConv2d(nn.Module):
    def __init__(self, in_channel, out_channel, kernel_size, style_dim, demodulate=True, upsample=False):
        super().__init__()
        self.eps = 1e-8
        self.kernel_size, self.in_channel, self.out_channel = kernel_size, in_channel, out_channel
        self.upsample, self.demodulate = upsample, demodulate
        if upsample:
            self.register_buffer("blur", make_kernel([1, 3, 3, 1]) * 4, persistent=False)
        self.scale = 1 / math.sqrt(in_channel * kernel_size**2)
        self.padding = kernel_size // 2
        self.weight = nn.Parameter(torch.randn(1, out_channel, in_channel, kernel_size, kernel_size))
        self.modulation = EqualLinear(style_dim, in_channel, bias_init=1)

    def forward(self, input, style):
        batch, in_channel, height, width = input.shape
        style = self.modulation(style).view(batch, 1, in_channel, 1, 1)
        weight = self.scale * self.weight * style
        if self.demodulate:
            demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * demod.view(batch, self.out_channel, 1, 1, 1)
        weight = weight.view(batch * self.out_channel, in_channel, self.kernel_size, self.kernel_size)
        if self.upsample:
            input = input.view(1, batch * in_channel, height, width)
            weight = weight.view(batch, self.out_channel, in_channel, self.kernel_size, self.kernel_size)
            weight = weight.transpose(1, 2).reshape(
                batch * in_channel, self.out_channel, self.kernel_size, self.kernel_size
            )
            out = F.conv_transpose2d(input, weight, padding=0, stride=2, groups=batch)
            _, _, height, width = out.shape
            out = out.view(batch, self.out_channel, height, width)
            return upfirdn2d(out, self.blur, pad=(1, 1))
        input = input.view(1, batch * in_channel, height, width)
        out = F.conv2d(input, weight, padding=self.padding, groups=batch)
        _, _, height, width = out.shape
        return out.view(batch, self.out_channel, height, width)


class NoiseInjection(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, image, noise=None):
        if noise is None:
            batch, _, height, width = image.shape
            noise = image.new_empty(batch, 1, height, width).normal_()
        return image + self.weight * noise


class StyledConv(nn.Module):
    def __init__(self, in_channel, out_channel, style_dim, upsample=False):
        super().__init__()
        self.conv = ModulatedConv2d(in_channel, out_channel, 3, style_dim, upsample=upsample)
        self.noise = NoiseInjection()
        self.activate = FusedLeakyReLU(out_channel)

    def forward(self, input, style, noise=None):
        return self.activate(self.noise(self.conv(input, style), noise=noise))


class Generator(nn.Module):
    def __init__(self, style_dim=8, channels=(8, 6)):
        super().__init__()
        layers = [PixelNorm()]
        for _ in range(2):
            layers.append(EqualLinear(style_dim, style_dim, lr_mul=0.01, activation="fused_lrelu"))
        self.style = nn.Sequential(*layers)
        self.input = nn.Parameter(torch.randn(1, channels[0], 4, 4))
        self.conv1 = StyledConv(channels[0], channels[0], style_dim)
        self.conv2 = StyledConv(channels[0], channels[1], style_dim, upsample=True)
        self.to_rgb = ModulatedConv2d(channels[1], 3, 1, style_dim, demodulate=False)
        self.noises = nn.Module()
        for i, size in enumerate((4, 8)):
            self.noises.register_buffer(f"noise_{i}", torch.randn(1, 1, size, size))

    def mean_latent(self, n_latent):
        return self.style(torch.randn(n_latent, 8)).mean(0, keepdim=True)

    def forward(self, styles, return_latents=False, inject=None, randomize_noise=True):
        styles = [self.style(s) for s in styles]
        noise = [None] * 2 if randomize_noise else [getattr(self.noises, f"noise_{i}") for i in range(2)]
        if len(styles) < 2:
            latent = styles[0].unsqueeze(1).repeat(1, 3, 1)
        else:
            inject = random.randint(1, 2) if inject is None else inject
            first, second = styles[0].unsqueeze(1), styles[1].unsqueeze(1)
            latent = torch.cat([first.repeat(1, inject, 1), second.repeat(1, 3 - inject, 1)], 1)
        out = self.input.repeat(latent.shape[0], 1, 1, 1)
        out = self.conv1(out, latent[:, 0], noise=noise[0])
        out = self.conv2(out, latent[:, 1], noise=noise[1])
        image = self.to_rgb(out, latent[:, 2])
        return (image, latent) if return_latents else (image, None)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.act1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), FusedLeakyReLU(8)
        self.conv2, self.act2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False), FusedLeakyReLU(8)
        self.register_buffer("kernel", make_kernel([1, 2, 1]))
        self.final = nn.Sequential(EqualLinear(9 * 16, 8, activation="fused_lrelu"), EqualLinear(8, 1))

    def forward(self, input):
        out = self.act1(self.conv1(input))
        out = self.act2(self.conv2(upfirdn2d(out, self.kernel, pad=(1, 1))))
        batch, channel, height, width = out.shape
        group = min(batch, 4)
        stddev = out.view(group, -1, 1, channel // 1, height, width)
        stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8)
        stddev = stddev.mean([2, 3, 4], keepdims=True).squeeze(2)
        stddev = stddev.repeat(group, 1, height, width)
        out = torch.cat([out, stddev], 1)
        return self.final(out.view(batch, -1))


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def accumulate(model1, model2, decay=0.999):
    par1, par2 = dict(model1.named_parameters()), dict(model2.named_parameters())
    for k in par1.keys():
        par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)


def d_r1_loss(real_pred, real_img):
    (grad_real,) = autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
    return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()


def g_path_regularize(fake_img, latents, mean_path_length, decay=0.01):
    noise = torch.randn_like(fake_img) / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
    (grad,) = autograd.grad(outputs=(fake_img * noise).sum(), inputs=latents, create_graph=True)
    path_lengths = torch.sqrt(grad.pow(2).sum(2).mean(1))
    path_mean = mean_path_length + decay * (path_lengths.mean() - mean_path_length)
    path_penalty = (path_lengths - path_mean).pow(2).mean()
    return path_penalty, path_mean.detach(), path_lengths


def make_noise(batch, latent_dim, prob=0.9):
    if random.random() < prob:
        return list(torch.randn(2, batch, latent_dim).unbind(0))
    return [torch.randn(batch, latent_dim)]


torch.manual_seed(12)
random.seed(12)
np.random.seed(12)
generator, discriminator, g_ema = Generator(), Discriminator(), Generator()
accumulate(g_ema, generator, 0)
g_optim = optim.Adam(generator.parameters(), lr=2e-3 * 4 / 5, betas=(0**0.8, 0.99**0.8))
d_optim = optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.0, 0.99))
mean_path_length = 0
for i in range(3):
    real_img = torch.rand(4, 3, 8, 8) * 2 - 1
    requires_grad(generator, False)
    requires_grad(discriminator, True)
    fake_img, _ = generator(make_noise(4, 8))
    real_pred, fake_pred = discriminator(real_img), discriminator(fake_img)
    d_loss = F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()
    discriminator.zero_grad()
    d_loss.backward()
    d_optim.step()
    real_img.requires_grad = True
    real_pred = discriminator(real_img)
    r1_loss = d_r1_loss(real_pred, real_img)
    discriminator.zero_grad()
    (10 / 2 * r1_loss * 16 + 0 * real_pred[0]).backward()
    d_optim.step()
    requires_grad(generator, True)
    requires_grad(discriminator, False)
    fake_img, _ = generator(make_noise(4, 8))
    g_loss = F.softplus(-discriminator(fake_img)).mean()
    generator.zero_grad()
    g_loss.backward()
    g_optim.step()
    fake_img, latents = generator(make_noise(2, 8), return_latents=True)
    path_loss, mean_path_length, path_lengths = g_path_regularize(fake_img, latents, mean_path_length)
    generator.zero_grad()
    weighted_path_loss = 2 * 4 * path_loss
    weighted_path_loss += 0 * fake_img[0, 0, 0, 0]
    weighted_path_loss.backward()
    g_optim.step()
    accumulate(g_ema, generator, 0.5 ** (32 / 10000))
    print(
        f"d: {d_loss.item():.4f}; g: {g_loss.item():.4f}; r1: {r1_loss.item():.4f}; "
        f"path: {path_loss.item():.4f}; mean path: {mean_path_length.mean().item():.4f}"
    )
g_ema.eval()
with torch.no_grad():
    sample, _ = g_ema([torch.randn(2, 8)], randomize_noise=False)
    print(sample.mean().item(), sample.std().item(), g_ema.mean_latent(16).norm().item(), len(g_ema.state_dict()))
print(generator.style, [n for n, b in g_ema.named_buffers()])
model, example = generator.style, torch.randn(4, 8)
