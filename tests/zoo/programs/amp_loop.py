"""The usual mixed-precision loop: autocast, a scaler, accumulation, clipping, EMA, AverageMeters, resumed state."""

import argparse
import copy
import math
import os
import shutil
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.9, device=None):
        super(ModelEma, self).__init__()
        self.module = copy.deepcopy(model)
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


class SqueezeExcite(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, c // r, 1), nn.Conv2d(c // r, c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(s))))


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = nn.GroupNorm(4, 8)
        self.se = SqueezeExcite(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        x = F.silu(self.norm(self.stem(x)), inplace=True)
        x = self.se(x).flatten(2).transpose(1, 2)
        a, _ = self.attn(x, x, x, need_weights=False)
        with autocast(device_type="cpu", enabled=False):
            x = x.float() + a.float()
        return self.head(x.mean(dim=1))


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def cosine_lr(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def run(args, resume=None):
    torch.manual_seed(args.seed)
    device_type = "cuda" if torch.cuda.is_available() and args.gpu else "cpu"
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[args.dtype]
    ctx = nullcontext() if args.dtype == "float32" else autocast(device_type=device_type, dtype=dtype)
    scaler = GradScaler(device_type, enabled=(args.dtype == "float16"))
    model = Net().to(device_type)
    ema = ModelEma(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: cosine_lr(s, 2, 8))
    x = torch.randn(32, 3, 8, 8)
    data = TensorDataset(x, x.mean((1, 2, 3)).mul(40).long().clamp(-2, 2) + 2)
    loader = DataLoader(data, batch_size=8, shuffle=False, pin_memory=device_type == "cuda")
    start, best = 0, float("inf")
    if resume and os.path.isfile(resume):
        checkpoint = torch.load(resume, map_location="cpu", weights_only=True)
        start, best = checkpoint["epoch"], checkpoint["best"]
        for each, name in ((model, "model"), (ema.module, "ema"), (optimizer, "optimizer"), (scheduler, "scheduler")):
            each.load_state_dict(checkpoint[name])
        scaler.load_state_dict(checkpoint["scaler"])
        print("=> loaded checkpoint '{}' (epoch {})".format(resume, start))
    for epoch in range(start, args.epochs):
        model.train()
        total, norm = 0.0, torch.tensor(0.0)
        for i, (images, target) in enumerate(loader):
            images, target = images.to(device_type, non_blocking=True), target.to(device_type, non_blocking=True)
            with ctx:
                output = model(images)
                loss = F.cross_entropy(output, target) / args.accumulate
            scaler.scale(loss).backward()
            if (i + 1) % args.accumulate == 0:
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
                ema.update(model)
            total += loss.item() * args.accumulate
        with torch.inference_mode(), ctx:
            val = F.cross_entropy(ema.module(x).float(), data.tensors[1])
        best = min(best, val.item())
        names = ("model", "ema", "optimizer", "scheduler", "scaler")
        parts = (model, ema.module, optimizer, scheduler, scaler)
        state = {name: part.state_dict() for name, part in zip(names, parts)}
        save_checkpoint({"epoch": epoch + 1, "best": best, "args": vars(args), **state}, best == val.item())
        print(f"{args.dtype} epoch {epoch}: loss {total / len(loader):.3f} val {val:.3f} {output.dtype} {loss.dtype}")
        print(f"   norm {norm:.3f} lr {optimizer.param_groups[0]['lr']:.6f} scale {scaler.get_scale()}")
    return model, x


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--gpu", action="store_true")
for dtype in ("float32", "bfloat16"):
    args = parser.parse_args(["--dtype", dtype])
    model, x = run(args)
args = parser.parse_args(["--epochs", "3"])
model, x = run(args, resume="checkpoint.pth.tar")
print(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), os.path.exists("model_best.pth.tar"))
with torch.autocast("cpu", dtype=torch.bfloat16):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    products = [torch.mm(a, b), a @ b, F.linear(a, b), a + b, F.softmax(a, dim=-1), torch.cat([a.bfloat16(), b])]
    print([p.dtype for p in products])
model, example = model.eval(), x[:2]
