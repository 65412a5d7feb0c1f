"""MobileNetV2 and V3: inverted residuals, squeeze and excitation, hard activations, cosine learning rate, fine-tuning."""

import argparse
import math
import os
import shutil
from functools import partial
from typing import Any, Callable, List, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["MobileNetV2", "MobileNetV3"]
model_urls = {"mobilenet_v2": "https://example.com/models/mobilenet_v2.pth"}


def _make_divisible(v: float, divisor: int, min_value: Optional[int] = None) -> int:
    if min_value is None:
        min_value = divisor
    new_v = max(min_value, int(v + divisor / 2) // divisor * divisor)
    # Make sure that round down does not go down by more than 10%.
    if new_v < 0.9 * v:
        new_v += divisor
    return new_v


class ConvBNActivation(nn.Sequential):
    def __init__(
        self,
        in_planes: int,
        out_planes: int,
        kernel_size: int = 3,
        stride: int = 1,
        groups: int = 1,
        norm_layer: Optional[Callable[..., nn.Module]] = None,
        activation_layer: Optional[Callable[..., nn.Module]] = None,
        dilation: int = 1,
    ) -> None:
        padding = (kernel_size - 1) // 2 * dilation
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        if activation_layer is None:
            activation_layer = nn.ReLU6
        super().__init__(
            nn.Conv2d(
                in_planes, out_planes, kernel_size, stride, padding, dilation=dilation, groups=groups, bias=False
            ),
            norm_layer(out_planes),
            activation_layer(inplace=True),
        )
        self.out_channels = out_planes


class InvertedResidual(nn.Module):
    def __init__(
        self,
        inp: int,
        oup: int,
        stride: int,
        expand_ratio: float,
        norm_layer: Optional[Callable[..., nn.Module]] = None,
    ) -> None:
        super(InvertedResidual, self).__init__()
        self.stride = stride
        assert stride in [1, 2]
        norm_layer = norm_layer or nn.BatchNorm2d
        hidden_dim = int(round(inp * expand_ratio))
        self.use_res_connect = self.stride == 1 and inp == oup
        layers: List[nn.Module] = []
        if expand_ratio != 1:
            # pw
            layers.append(ConvBNActivation(inp, hidden_dim, kernel_size=1, norm_layer=norm_layer))
        layers.extend(
            [
                # dw
                ConvBNActivation(hidden_dim, hidden_dim, stride=stride, groups=hidden_dim, norm_layer=norm_layer),
                # pw-linear
                nn.Conv2d(hidden_dim, oup, 1, 1, 0, bias=False),
                norm_layer(oup),
            ]
        )
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.use_res_connect:
            return x + self.conv(x)
        else:
            return self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(
        self,
        num_classes: int = 4,
        width_mult: float = 0.35,
        round_nearest: int = 8,
        inverted_residual_setting: Optional[List[List[int]]] = None,
    ) -> None:
        super(MobileNetV2, self).__init__()
        block = InvertedResidual
        input_channel, last_channel = 32, 64
        if inverted_residual_setting is None:
            inverted_residual_setting = [
                # t, c, n, s
                [1, 16, 1, 1],
                [6, 24, 2, 2],
                [6, 32, 1, 2],
            ]
        if len(inverted_residual_setting) == 0 or len(inverted_residual_setting[0]) != 4:
            raise ValueError(
                "inverted_residual_setting should be non-empty or a 4-element list, got {}".format(
                    inverted_residual_setting
                )
            )
        input_channel = _make_divisible(input_channel * width_mult, round_nearest)
        self.last_channel = _make_divisible(last_channel * max(1.0, width_mult), round_nearest)
        features: List[nn.Module] = [ConvBNActivation(3, input_channel, stride=2)]
        for t, c, n, s in inverted_residual_setting:
            output_channel = _make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                stride = s if i == 0 else 1
                features.append(block(input_channel, output_channel, stride, expand_ratio=t))
                input_channel = output_channel
        features.append(ConvBNActivation(input_channel, self.last_channel, kernel_size=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(self.last_channel, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.ones_(m.weight)
                nn.init.zeros_(m.bias)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.zeros_(m.bias)

    def _forward_impl(self, x: Tensor) -> Tensor:
        # This exists since TorchScript doesn't support inheritance, so the superclass method
        # (this one) needs to have a name other than `forward` that can be accessed in a subclass
        x = self.features(x)
        # Cannot use "squeeze" as batch-size can be 1
        x = F.adaptive_avg_pool2d(x, (1, 1))
        x = torch.flatten(x, 1)
        x = self.classifier(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


class SqueezeExcitation(nn.Module):
    def __init__(self, input_channels: int, squeeze_factor: int = 4):
        super().__init__()
        squeeze_channels = _make_divisible(input_channels // squeeze_factor, 8)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.relu = nn.ReLU(inplace=True)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)

    def _scale(self, input: Tensor, inplace: bool) -> Tensor:
        scale = F.adaptive_avg_pool2d(input, 1)
        scale = self.fc1(scale)
        scale = self.relu(scale)
        scale = self.fc2(scale)
        return F.hardsigmoid(scale, inplace=inplace)

    def forward(self, input: Tensor) -> Tensor:
        scale = self._scale(input, True)
        return scale * input


class h_sigmoid(nn.Module):
    def __init__(self, inplace=True):
        super(h_sigmoid, self).__init__()
        self.relu = nn.ReLU6(inplace=inplace)

    def forward(self, x):
        return self.relu(x + 3) / 6


class h_swish(nn.Module):
    def __init__(self, inplace=True):
        super(h_swish, self).__init__()
        self.sigmoid = h_sigmoid(inplace=inplace)

    def forward(self, x):
        return x * self.sigmoid(x)


class InvertedResidualV3(nn.Module):
    def __init__(self, cin, kernel, exp, cout, use_se, use_hs, stride, norm_layer, hs=nn.Hardswish):
        super().__init__()
        self.use_res_connect = stride == 1 and cin == cout
        activation = hs if use_hs else nn.ReLU
        layers = []
        if exp != cin:
            layers.append(ConvBNActivation(cin, exp, kernel_size=1, norm_layer=norm_layer, activation_layer=activation))
        layers.append(ConvBNActivation(exp, exp, kernel, stride, exp, norm_layer, activation))
        if use_se:
            layers.append(SqueezeExcitation(exp))
        layers.append(
            ConvBNActivation(
                exp, cout, 1, norm_layer=norm_layer, activation_layer=lambda inplace: nn.Identity(inplace=inplace)
            )
        )
        self.block = nn.Sequential(*layers)

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        if self.use_res_connect:
            result += input
        return result


class MobileNetV3(nn.Module):
    def __init__(self, num_classes=4, hs=nn.Hardswish, **kwargs: Any):
        super().__init__()
        norm_layer = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        self.features = nn.Sequential(
            ConvBNActivation(3, 8, kernel_size=3, stride=2, norm_layer=norm_layer, activation_layer=hs),
            InvertedResidualV3(8, 3, 8, 8, True, False, 2, norm_layer, hs),
            InvertedResidualV3(8, 3, 24, 16, False, False, 1, norm_layer, hs),
            InvertedResidualV3(16, 5, 32, 16, True, True, 1, norm_layer, hs),
            ConvBNActivation(16, 32, kernel_size=1, norm_layer=norm_layer, activation_layer=hs),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(32, 32), hs(inplace=True), nn.Dropout(p=0.2, inplace=True), nn.Linear(32, num_classes)
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def fuse_conv_and_bn(conv, bn):
    with torch.no_grad():
        fused = (
            nn.Conv2d(
                conv.in_channels,
                conv.out_channels,
                conv.kernel_size,
                conv.stride,
                conv.padding,
                conv.dilation,
                conv.groups,
                bias=True,
            )
            .requires_grad_(False)
            .to(conv.weight.device)
        )
        w_conv = conv.weight.clone().view(conv.out_channels, -1)
        w_bn = torch.diag(bn.weight.div(torch.sqrt(bn.eps + bn.running_var)))
        fused.weight.copy_(torch.mm(w_bn, w_conv).view(fused.weight.size()))
        b_conv = torch.zeros(conv.weight.size(0), device=conv.weight.device) if conv.bias is None else conv.bias
        b_bn = bn.bias - bn.weight.mul(bn.running_mean).div(torch.sqrt(bn.running_var + bn.eps))
        fused.bias.copy_(torch.mm(w_bn, b_conv.reshape(-1, 1)).reshape(-1) + b_bn)
    return fused


def fuse(model):
    for m in model.modules():
        if type(m) is ConvBNActivation:
            m[0] = fuse_conv_and_bn(m[0], m[1])
            m[1] = nn.Identity()
    return model


class LabelSmoothingCrossEntropy(nn.Module):
    def __init__(self, num_classes, epsilon):
        super().__init__()
        self.num_classes = num_classes
        self.epsilon = epsilon
        self.logsoftmax = nn.LogSoftmax(dim=1)

    def forward(self, inputs, targets):
        log_probs = self.logsoftmax(inputs)
        targets = torch.zeros_like(log_probs).scatter_(1, targets.unsqueeze(1), 1)
        targets = (1 - self.epsilon) * targets + self.epsilon / self.num_classes
        loss = (-targets * log_probs).mean(0).sum()
        return loss


def adjust_learning_rate(optimizer, epoch, iteration, num_iter, args):
    warmup_epoch = 1
    warmup_iter = warmup_epoch * num_iter
    current_iter = iteration + epoch * num_iter
    max_iter = args.epochs * num_iter
    lr = args.lr * (1 + math.cos(math.pi * (current_iter - warmup_iter) / (max_iter - warmup_iter))) / 2
    if epoch < warmup_epoch:
        lr = args.lr * current_iter / warmup_iter
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


def save_checkpoint(state, is_best, checkpoint="checkpoint", filename="checkpoint.pth.tar"):
    os.makedirs(checkpoint, exist_ok=True)
    filepath = os.path.join(checkpoint, filename)
    torch.save(state, filepath)
    if is_best:
        shutil.copyfile(filepath, os.path.join(checkpoint, "model_best.pth.tar"))


class ApplyEma:
    def __init__(self, model, decay):
        self.averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, m, n: decay * a + (1 - decay) * m)

    def update(self, model):
        self.averaged.update_parameters(model)


def profile(model, x):
    """Multiplications of convolutions and linear layers, counted by hooks."""
    total = []

    def count(m, inputs, output):
        if isinstance(m, nn.Conv2d):
            total.append(output.numel() * (m.in_channels // m.groups) * m.kernel_size[0] * m.kernel_size[1])
        else:
            total.append(output.numel() * m.in_features)

    handles = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    model.eval()(x)
    for handle in handles:
        handle.remove()
    return sum(total)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--alpha", default=0.1, type=float)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"

for name, build in (("v2", MobileNetV2), ("v3", MobileNetV3), ("v3 by hand", lambda: MobileNetV3(hs=h_swish))):
    torch.manual_seed(0)
    model = build().to(device)
    print(name, sum(p.numel() for p in model.parameters()), profile(model, torch.randn(1, 3, 32, 32)))
    if name == "v2":
        print(model.features[2])
    criterion = LabelSmoothingCrossEntropy(4, args.alpha)
    no_wd = [p for n, p in model.named_parameters() if "bias" in n or p.ndim == 1]
    wd = [p for n, p in model.named_parameters() if not ("bias" in n or p.ndim == 1)]
    optimizer = torch.optim.SGD(
        [{"params": wd, "weight_decay": 4e-5}, {"params": no_wd, "weight_decay": 0}],
        args.lr,
        momentum=0.9,
        nesterov=True,
    )
    images, target = torch.randn(12, 3, 32, 32), torch.arange(12) % 4
    images += target.view(-1, 1, 1, 1).float() * 0.3
    ema = ApplyEma(model, 0.8)
    best = -1
    for epoch in range(args.epochs):
        model.train()
        for i in range(3):
            adjust_learning_rate(optimizer, epoch, i, 3, args)
            x, y = images[i::3], target[i::3]
            output = model(x)
            loss = criterion(output, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            print(
                "epoch {} lr {:.4f} loss {:.4f} prec {:.1f}".format(
                    epoch, optimizer.param_groups[0]["lr"], loss.item(), (output.argmax(1) == y).float().mean() * 100
                )
            )
        model.eval()
        with torch.no_grad():
            prec1 = (model(images).max(dim=1).indices == target).sum().div(len(target)).item()
        is_best = prec1 > best
        best = max(prec1, best)
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "best_prec1": best}, is_best)
    torch.optim.swa_utils.update_bn([images[:6], images[6:]], ema.averaged)
    best_state = torch.load("checkpoint/model_best.pth.tar")
    model.load_state_dict(best_state["state_dict"])
    model.eval()
    ema.averaged.eval()
    with torch.no_grad():
        before = model(images)
        after = fuse(model)(images)
        print(best_state["best_prec1"], ema.averaged(images).std().item(), torch.allclose(before, after, atol=1e-3))
    tuned = build()
    tuned.load_state_dict(best_state["state_dict"])
    for param in tuned.features.parameters():
        param.requires_grad = False
    tuned.classifier[-1] = nn.Linear(tuned.classifier[-1].in_features, 2)
    F.cross_entropy(tuned(images), target % 2).backward()
    print([n for n, p in tuned.named_parameters() if p.grad is not None])
example = images[:2]
