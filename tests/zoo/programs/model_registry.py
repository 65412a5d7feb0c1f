"""Backbones that register themselves, with a configuration and a factory that reads `name.variant`."""

import argparse
import fnmatch
import logging
import re
from collections import OrderedDict, defaultdict
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Callable, ClassVar, Dict, List, Optional, Tuple, Type

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.hub import load_state_dict_from_url

_logger = logging.getLogger("train")
IMAGENET_DEFAULT_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEFAULT_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelCfg:
    embed_dim: Tuple[int, ...] = (8, 16)
    depths: Tuple[int, ...] = (1, 1)
    num_classes: int = 4
    drop_rate: float = 0.0
    norm_layer: Callable[..., nn.Module] = nn.BatchNorm2d
    act_layer: Type[nn.Module] = nn.ReLU
    url: str = ""
    mean: Tuple[float, ...] = field(default=IMAGENET_DEFAULT_MEAN)
    std: Tuple[float, ...] = field(default=IMAGENET_DEFAULT_STD)


class Backbone(nn.Module):
    """Every subclass is known by its name."""

    registry: ClassVar[Dict[str, Type["Backbone"]]] = {}
    variants: ClassVar[Dict[str, ModelCfg]] = {}
    _entrypoints: ClassVar[Dict[str, List[str]]] = defaultdict(list)

    def __init_subclass__(cls, name: Optional[str] = None, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        key = name or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        assert key not in Backbone.registry, f"{key} is registered twice"
        Backbone.registry[key] = cls
        Backbone._entrypoints[cls.__module__.split(".")[0]].append(key)

    def __init__(self, cfg: ModelCfg) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_classes = cfg.num_classes
        self.grad_checkpointing = False
        self.feature_info: List[Dict[str, Any]] = []

    @torch.jit.ignore
    def no_weight_decay(self) -> set:
        return set()

    def reset_classifier(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()

    def forward_features(self, x):
        raise NotImplementedError

    def forward_head(self, x, pre_logits: bool = False):
        x = x.mean(dim=[2, 3])
        if self.cfg.drop_rate > 0.0:
            x = F.dropout(x, p=self.cfg.drop_rate, training=self.training)
        return x if pre_logits else self.head(x)

    def forward(self, x):
        x = self.forward_features(x)
        x = self.forward_head(x)
        return x


class ConvNormAct(nn.Sequential):
    def __init__(self, cin, cout, k=3, s=1, norm_layer=nn.BatchNorm2d, act_layer=nn.ReLU, groups=1):
        super().__init__(
            OrderedDict(
                [
                    ("conv", nn.Conv2d(cin, cout, k, s, k // 2, groups=groups, bias=False)),
                    ("bn", norm_layer(cout)),
                ]
            )
        )
        if act_layer is not None:
            self.add_module("act", act_layer(inplace=True))


class VggLike(Backbone):
    variants = {
        "tiny": ModelCfg(),
        "small": ModelCfg(embed_dim=(8, 12, 16), depths=(1, 2, 1), act_layer=nn.SiLU, drop_rate=0.2),
    }

    def __init__(self, cfg):
        super().__init__(cfg)
        layer = partial(ConvNormAct, norm_layer=cfg.norm_layer, act_layer=cfg.act_layer)
        stages, prev = [], 3
        for i, (dim, depth) in enumerate(zip(cfg.embed_dim, cfg.depths)):
            stages.append(nn.Sequential(*[layer(prev if j == 0 else dim, dim) for j in range(depth)], nn.MaxPool2d(2)))
            self.feature_info.append(dict(num_chs=dim, reduction=2 ** (i + 1), module=f"stages.{i}"))
            prev = dim
        self.stages = nn.ModuleList(stages)
        self.num_features = prev
        self.head = nn.Linear(prev, cfg.num_classes)
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            if m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward_features(self, x):
        for stage in self.stages:
            if self.grad_checkpointing and not torch.jit.is_scripting():
                x = torch.utils.checkpoint.checkpoint(stage, x, use_reentrant=False)
            else:
                x = stage(x)
        return x


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm for channels of '2D' spatial NCHW tensors"""

    def __init__(self, num_channels, eps=1e-6, affine=True):
        super().__init__(num_channels, eps=eps, elementwise_affine=affine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class MixerBackbone(Backbone, name="mixer"):
    variants = {"tiny": ModelCfg(norm_layer=LayerNorm2d, act_layer=nn.GELU)}

    def __init__(self, cfg):
        super().__init__(cfg)
        dim = cfg.embed_dim[-1]
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.pos_embed = nn.Parameter(torch.zeros(1, dim, 4, 4))
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    cfg.norm_layer(dim),
                    nn.Conv2d(dim, dim, 3, padding="same", groups=dim),
                    cfg.act_layer(),
                    nn.Conv2d(dim, dim, 1),
                )
                for _ in range(sum(cfg.depths))
            )
        )
        self.num_features = dim
        self.head = nn.Linear(dim, cfg.num_classes)
        nn.init.normal_(self.pos_embed, std=0.02)

    @torch.jit.ignore
    def no_weight_decay(self):
        return {"pos_embed"}

    def forward_features(self, x):
        x = self.stem(x) + self.pos_embed
        for block in self.blocks:
            x = x + block(x)
        return x


def list_models(filter: str = "*") -> List[str]:
    names = [f"{k}.{v}" for k, cls in Backbone.registry.items() for v in cls.variants]
    return sorted(fnmatch.filter(names, filter))


def create_model(name: str, checkpoint: str = "", **overrides) -> Backbone:
    arch, _, variant = name.partition(".")
    cls = Backbone.registry[arch]
    cfg = replace(cls.variants[variant or "tiny"], **overrides)
    model = cls(cfg)
    if cfg.url:
        model.load_state_dict(load_state_dict_from_url(cfg.url, progress=False))
    if checkpoint:
        state_dict = torch.load(checkpoint, map_location="cpu")
        state_dict = {re.sub(r"^module\.", "", k): v for k, v in state_dict["state_dict"].items()}
        if state_dict["head.weight"].shape[0] != cfg.num_classes:
            del state_dict["head.weight"], state_dict["head.bias"]
        print(model.load_state_dict(state_dict, strict=False))
    return model


def param_groups_weight_decay(model, weight_decay=1e-2, no_weight_decay_list=()):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        if param.ndim <= 1 or name.endswith(".bias") or name in no_weight_decay_list:
            no_decay.append(param)
        else:
            decay.append(param)
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": weight_decay}]


class ModelEmaV2(nn.Module):
    def __init__(self, model, decay=0.9, device=None):
        super().__init__()
        self.module = deepcopy(model)
        self.module.eval()
        self.decay = decay
        self.device = device
        if self.device is not None:
            self.module.to(device=device)

    def _update(self, model, update_fn):
        with torch.no_grad():
            for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
                if self.device is not None:
                    model_v = model_v.to(device=self.device)
                ema_v.copy_(update_fn(ema_v, model_v))

    def update(self, model):
        self._update(model, update_fn=lambda e, m: self.decay * e + (1.0 - self.decay) * m)

    def set(self, model):
        self._update(model, update_fn=lambda e, m: m)


class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
        self.avg = self.sum / self.count


def accuracy(output, target, topk=(1,)):
    """Computes the accuracy over the k top predictions for the specified values of k"""
    maxk = min(max(topk), output.size()[1])
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.reshape(1, -1).expand_as(pred))
    return [correct[: min(k, maxk)].reshape(-1).float().sum(0) * 100.0 / batch_size for k in topk]


def rand_bbox(size, lam):
    w, h = size[-1], size[-2]
    cut = (1 - lam) ** 0.5
    cx, cy = torch.randint(0, w, (1,)).item(), torch.randint(0, h, (1,)).item()
    x1, x2 = max(cx - int(w * cut) // 2, 0), min(cx + int(w * cut) // 2, w)
    y1, y2 = max(cy - int(h * cut) // 2, 0), min(cy + int(h * cut) // 2, h)
    return y1, y2, x1, x2


parser = argparse.ArgumentParser()
parser.add_argument("--models", nargs="+", default=["vgg_like.tiny", "vgg_like.small", "mixer.tiny"])
parser.add_argument("--clip-grad", type=float, default=0.01)
parser.add_argument("--channels-last", action="store_true", default=True)
args = parser.parse_args()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
print(list_models(), list_models("vgg*"), sorted(asdict(ModelCfg())))

for name in args.models:
    torch.manual_seed(1234)
    model = create_model(name).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model.grad_checkpointing = True
    ema = ModelEmaV2(model)
    optimizer = torch.optim.RMSprop(
        param_groups_weight_decay(model, 0.05, model.no_weight_decay()), lr=2e-3, alpha=0.9, momentum=0.9
    )
    print(name, [len(group["params"]) for group in optimizer.param_groups])
    images = torch.randn(16, 3, 16, 16).to(device).contiguous(memory_format=torch.channels_last)
    target = torch.randint(0, 4, (16,), device=device)
    losses, top1 = AverageMeter(), AverageMeter()
    for step in range(4):
        model.train()
        lam = 0.7
        y1, y2, x1, x2 = rand_bbox(images.size(), lam)
        perm = torch.randperm(images.size(0))
        mixed = images.clone()
        mixed[:, :, y1:y2, x1:x2] = images[perm, :, y1:y2, x1:x2]
        soft = lam * F.one_hot(target, 4).float() + (1 - lam) * F.one_hot(target[perm], 4).float()
        output = model(mixed)
        loss = torch.sum(-soft * F.log_softmax(output, dim=-1), dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():  # adaptive clipping by the norm of units
            g_norm = p.grad.detach().norm(2.0)
            max_norm = p.detach().norm(2.0).clamp_(min=1e-3).mul_(args.clip_grad)
            clipped = p.grad.detach() * (max_norm / g_norm.clamp(min=1e-6))
            p.grad.detach().copy_(torch.where(g_norm < max_norm, p.grad.detach(), clipped))
        optimizer.step()
        ema.update(model)
        losses.update(loss.item(), images.size(0))
        acc1, acc3 = accuracy(output.detach(), target, topk=(1, 3))
        top1.update(acc1.item(), images.size(0))
        print(
            f"Train: {step} Loss: {losses.val:#.4g} ({losses.avg:#.3g}) Acc@1 {acc1.item():.2f} Acc@3 {acc3.item():.2f}"
        )
    torch.save(
        {"state_dict": {"module." + k: v for k, v in ema.module.state_dict().items()}, "arch": name}, "last.pth.tar"
    )
    tuned = create_model(name, checkpoint="last.pth.tar", num_classes=2)
    for n, p in tuned.named_parameters():
        p.requires_grad = n.startswith("head")
    print([n for n, p in tuned.named_parameters() if p.requires_grad], tuned.eval()(images).std().item())
    with suppress(KeyError):
        create_model("nothing.at.all")
model, example = ema.module, images
