import argparse
import datetime
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim as optim


def drop_path(x, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True):
    """Drop paths (Stochastic Depth) per sample (when applied in main path of residual blocks)."""
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)  # work with diff dim tensors, not just 2D ConvNets
    random_tensor = x.new_empty(shape).bernoulli_(keep_prob)
    if keep_prob > 0.0 and scale_by_keep:
        random_tensor.div_(keep_prob)
    return x * random_tensor


class DropPath(nn.Module):
    def __init__(self, drop_prob=None, scale_by_keep=True):
        super(DropPath, self).__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x):
        return drop_path(x, self.drop_prob, self.training, self.scale_by_keep)

    def extra_repr(self):
        return f"drop_prob={round(self.drop_prob, 3):0.3f}"


class LayerNorm(nn.Module):
    r"""LayerNorm that supports two data formats: channels_last (default) or channels_first."""

    def __init__(self, normalized_shape, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.data_format = data_format
        if self.data_format not in ["channels_last", "channels_first"]:
            raise NotImplementedError
        self.normalized_shape = (normalized_shape,)

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        elif self.data_format == "channels_first":
            u = x.mean(1, keepdim=True)
            s = (x - u).pow(2).mean(1, keepdim=True)
            x = (x - u) / torch.sqrt(s + self.eps)
            x = self.weight[:, None, None] * x + self.bias[:, None, None]
            return x


class GRN(nn.Module):
    """GRN (Global Response Normalization) layer"""

    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1, 1, 1, dim))
        self.beta = nn.Parameter(torch.zeros(1, 1, 1, dim))

    def forward(self, x):
        Gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        Nx = Gx / (Gx.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma * (x * Nx) + self.beta + x


class Block(nn.Module):
    def __init__(self, dim, drop_path=0.0, layer_scale_init_value=1e-6, grn=False):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)  # depthwise conv
        self.norm = LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)  # pointwise/1x1 convs, implemented with linear layers
        self.act = nn.GELU()
        self.grn = GRN(4 * dim) if grn else nn.Identity()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = (
            nn.Parameter(layer_scale_init_value * torch.ones((dim)), requires_grad=True)
            if layer_scale_init_value > 0
            else None
        )
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x):
        input = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)  # (N, C, H, W) -> (N, H, W, C)
        x = self.norm(x)
        x = self.pwconv1(x)
        x = self.act(x)
        x = self.grn(x)
        x = self.pwconv2(x)
        if self.gamma is not None:
            x = self.gamma * x
        x = x.permute(0, 3, 1, 2)  # (N, H, W, C) -> (N, C, H, W)
        x = input + self.drop_path(x)
        return x


def _no_grad_trunc_normal_(tensor, mean, std, a, b):
    # Method based on https://people.sc.fsu.edu/~jburkardt/presentations/truncated_normal.pdf
    def norm_cdf(x):
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    with torch.no_grad():
        low, up = norm_cdf((a - mean) / std), norm_cdf((b - mean) / std)
        tensor.uniform_(2 * low - 1, 2 * up - 1)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0))
        tensor.add_(mean)
        tensor.clamp_(min=a, max=b)
        return tensor


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0):
    return _no_grad_trunc_normal_(tensor, mean, std, a, b)


class ConvNeXt(nn.Module):
    def __init__(
        self,
        in_chans=3,
        num_classes=5,
        depths=[1, 1, 2],
        dims=[8, 12, 16],
        drop_path_rate=0.1,
        layer_scale_init_value=1e-2,
        head_init_scale=1.0,
        grn=False,
    ):
        super().__init__()
        self.downsample_layers = nn.ModuleList()  # stem and intermediate downsampling conv layers
        stem = nn.Sequential(
            nn.Conv2d(in_chans, dims[0], kernel_size=4, stride=4),
            LayerNorm(dims[0], eps=1e-6, data_format="channels_first"),
        )
        self.downsample_layers.append(stem)
        for i in range(len(dims) - 1):
            self.downsample_layers.append(
                nn.Sequential(
                    LayerNorm(dims[i], eps=1e-6, data_format="channels_first"),
                    nn.Conv2d(dims[i], dims[i + 1], kernel_size=2, stride=2),
                )
            )
        self.stages = nn.ModuleList()
        dp_rates = [x.item() for x in torch.linspace(0, drop_path_rate, sum(depths))]
        cur = 0
        for i in range(len(dims)):
            stage = nn.Sequential(
                *[
                    Block(
                        dim=dims[i], drop_path=dp_rates[cur + j], grn=grn, layer_scale_init_value=layer_scale_init_value
                    )
                    for j in range(depths[i])
                ]
            )
            self.stages.append(stage)
            cur += depths[i]
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)  # final norm layer
        self.head = nn.Linear(dims[-1], num_classes)
        self.apply(self._init_weights)
        self.head.weight.data.mul_(head_init_scale)
        self.head.bias.data.mul_(head_init_scale)

    def _init_weights(self, m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            trunc_normal_(m.weight, std=0.02)
            nn.init.constant_(m.bias, 0)

    def forward_features(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        return self.norm(x.mean([-2, -1]))  # global average pooling, (N, C, H, W) -> (N, C)

    def forward(self, x):
        return self.head(self.forward_features(x))


def get_num_layer_for_convnext(var_name):
    if var_name.startswith("downsample_layers"):
        stage_id = int(var_name.split(".")[1])
        return 0 if stage_id == 0 else stage_id + 1
    elif var_name.startswith("stages"):
        return int(var_name.split(".")[1]) + 1
    return 4


def get_parameter_groups(model, weight_decay=0.05, base_lr=4e-3, decay_rate=0.7, skip_list=()):
    parameter_group_names, parameter_group_vars = {}, {}
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue  # frozen weights
        if len(param.shape) == 1 or name.endswith(".bias") or name in skip_list:
            group_name, this_weight_decay = "no_decay", 0.0
        else:
            group_name, this_weight_decay = "decay", weight_decay
        layer_id = get_num_layer_for_convnext(name)
        group_name = "layer_%d_%s" % (layer_id, group_name)
        if group_name not in parameter_group_names:
            scale = decay_rate ** (4 - layer_id)
            parameter_group_names[group_name] = {"weight_decay": this_weight_decay, "params": [], "lr_scale": scale}
            parameter_group_vars[group_name] = {"weight_decay": this_weight_decay, "params": [], "lr_scale": scale}
        parameter_group_vars[group_name]["params"].append(param)
        parameter_group_names[group_name]["params"].append(name)
    print("Param groups = %s" % json.dumps(parameter_group_names, indent=2)[:300])
    return list(parameter_group_vars.values())


def cosine_scheduler(base_value, final_value, epochs, niter_per_ep, warmup_epochs=0, start_warmup_value=0):
    warmup_schedule = np.array([])
    warmup_iters = warmup_epochs * niter_per_ep
    if warmup_epochs > 0:
        warmup_schedule = np.linspace(start_warmup_value, base_value, warmup_iters)
    iters = np.arange(epochs * niter_per_ep - warmup_iters)
    schedule = np.array(
        [final_value + 0.5 * (base_value - final_value) * (1 + math.cos(math.pi * i / (len(iters)))) for i in iters]
    )
    return np.concatenate((warmup_schedule, schedule))


class NativeScalerWithGradNormCount:
    state_dict_key = "amp_scaler"

    def __init__(self):
        self._scaler = torch.cuda.amp.GradScaler(enabled=torch.cuda.is_available())

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False, update_grad=True):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        norm = None
        if update_grad:
            self._scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad) if clip_grad else get_grad_norm_(parameters)
            self._scaler.step(optimizer)
            self._scaler.update()
        return norm

    def state_dict(self):
        return self._scaler.state_dict()


def get_grad_norm_(parameters, norm_type: float = 2.0) -> torch.Tensor:
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = [p for p in parameters if p.grad is not None]
    norm_type = float(norm_type)
    if len(parameters) == 0:
        return torch.tensor(0.0)
    device = parameters[0].grad.device
    if norm_type == math.inf:
        return max(p.grad.detach().abs().max().to(device) for p in parameters)
    return torch.norm(torch.stack([torch.norm(p.grad.detach(), norm_type).to(device) for p in parameters]), norm_type)


class Mixup:
    """Mixup and cutmix of a batch with itself in the opposite order."""

    def __init__(self, mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=5, label_smoothing=0.1):
        self.mixup_alpha, self.cutmix_alpha, self.num_classes, self.smoothing = (
            mixup_alpha,
            cutmix_alpha,
            num_classes,
            label_smoothing,
        )

    def one_hot(self, x, on_value=1.0, off_value=0.0):
        x = x.long().view(-1, 1)
        return torch.full((x.size()[0], self.num_classes), off_value, device=x.device).scatter_(1, x, on_value)

    def __call__(self, x, target):
        use_cutmix = np.random.rand() < 0.5
        lam = float(
            np.random.beta(self.cutmix_alpha, self.cutmix_alpha)
            if use_cutmix
            else np.random.beta(self.mixup_alpha, self.mixup_alpha)
        )
        if use_cutmix:
            h, w = x.shape[-2:]
            ratio = np.sqrt(1 - lam)
            ch, cw = int(h * ratio), int(w * ratio)
            y0, x0 = np.random.randint(0, h - ch + 1), np.random.randint(0, w - cw + 1)
            x[:, :, y0 : y0 + ch, x0 : x0 + cw] = x.flip(0)[:, :, y0 : y0 + ch, x0 : x0 + cw]
            lam = 1.0 - ch * cw / float(h * w)
        else:
            x_flipped = x.flip(0).mul_(1.0 - lam)
            x.mul_(lam).add_(x_flipped)
        off_value = self.smoothing / self.num_classes
        y1 = self.one_hot(target, 1.0 - self.smoothing + off_value, off_value)
        y2 = self.one_hot(target.flip(0), 1.0 - self.smoothing + off_value, off_value)
        return x, y1 * lam + y2 * (1.0 - lam)


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1)
        return loss.mean()


def main(args):
    device = torch.device(args.device)
    seed = args.seed
    torch.manual_seed(seed)
    np.random.seed(seed)
    torch.backends.cudnn.benchmark = True
    model = ConvNeXt(drop_path_rate=args.drop_path, layer_scale_init_value=args.layer_scale_init_value, grn=args.grn)
    model.to(device)
    n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print("Model = %s" % str(model.stages))
    print("number of params:", n_parameters)
    optimizer = optim.AdamW(get_parameter_groups(model), lr=args.lr, eps=1e-8, betas=(0.9, 0.999), weight_decay=0.05)
    scaler = NativeScalerWithGradNormCount()
    lr_schedule = cosine_scheduler(args.lr, 1e-6, args.epochs, 3, warmup_epochs=1)
    wd_schedule = cosine_scheduler(0.05, 0.1, args.epochs, 3)
    print("Max WD = %.7f, Min WD = %.7f" % (max(wd_schedule), min(wd_schedule)))
    mixup_fn, criterion = Mixup(), SoftTargetCrossEntropy()
    images, labels = torch.randn(24, 3, 32, 32), torch.randint(0, 5, (24,))
    start_time = time.time()
    for epoch in range(args.epochs):
        model.train(True)
        optimizer.zero_grad()
        for i, (samples, targets) in enumerate(zip(images.clone().split(8), labels.split(8))):
            it = epoch * 3 + i
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr_schedule[it] * param_group["lr_scale"]
                if param_group["weight_decay"] > 0:
                    param_group["weight_decay"] = wd_schedule[it]
            samples, targets = mixup_fn(samples.to(device, non_blocking=True), targets.to(device, non_blocking=True))
            with torch.cuda.amp.autocast(enabled=torch.cuda.is_available()):
                output = model(samples)
                loss = criterion(output, targets)
            loss_value = loss.item()
            if not math.isfinite(loss_value):
                raise SystemExit("Loss is {}, stopping training".format(loss_value))
            norm = scaler(loss, optimizer, parameters=model.parameters(), clip_grad=None, update_grad=True)
            optimizer.zero_grad()
            min_lr, max_lr = 10.0, 0.0
            for group in optimizer.param_groups:
                min_lr, max_lr = min(min_lr, group["lr"]), max(max_lr, group["lr"])
            print(
                {
                    "epoch": epoch,
                    "loss": round(loss_value, 4),
                    "grad_norm": round(norm.item(), 4),
                    "min_lr": min_lr,
                    "lr": max_lr,
                }
            )
    assert datetime.timedelta(seconds=int(time.time() - start_time)) < datetime.timedelta(hours=1)
    output_dir = Path(args.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    to_save = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "scaler": scaler.state_dict(),
        "args": vars(args),
    }
    torch.save(to_save, output_dir / ("checkpoint-%s.pth" % epoch))
    checkpoint = torch.load(output_dir / "checkpoint-1.pth", map_location="cpu", weights_only=False)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    print(checkpoint["epoch"], sorted(checkpoint["args"]), checkpoint["scaler"])
    model.eval()
    with torch.no_grad():
        print(*model(images[:6]).softmax(-1).topk(2, dim=1), sep="\n")
    return model, images[:2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser("ConvNeXt training and evaluation script")
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--drop_path", type=float, default=0.3, metavar="PCT")
    parser.add_argument("--layer_scale_init_value", default=1e-2, type=float)
    parser.add_argument("--lr", type=float, default=4e-3, metavar="LR")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output_dir", default="results")
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--grn", type=lambda v: v.lower() in ("yes", "true", "1"), default=False)
    args = parser.parse_args()
    main(args)
    args.grn, args.layer_scale_init_value = True, 0.0
    model, example = main(args)
