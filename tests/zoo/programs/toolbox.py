"""The craft around a loop: custom Functions, hooks, checkpointing, writes in place, anomaly detection, round trips."""

import io
import os
import random
import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Function, Variable
from torch.autograd.function import once_differentiable
from torch.optim.lr_scheduler import ChainedScheduler, CosineAnnealingWarmRestarts, LinearLR, MultiStepLR
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.benchmark import Timer
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    os.environ["PYTHONHASHSEED"] = str(seed)


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class Round(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return torch.round(input * 8) / 8

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input.abs() > 1] = 0
        return grad_input


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(size, size), nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x):
        return self.norm(x + self.fc2(torch.relu(self.fc1(x))))


class Net(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(3))
        self.tail = nn.Sequential(Block(size), Block(size))
        self.register_buffer("running", torch.zeros(size))
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long))
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(size, 2))

    def forward(self, x, keep=True):
        if self.training:
            self.running.mul_(0.9).add_(0.1 * x.detach().mean(0))
            self.steps += 1
        x = x - self.running
        padded = torch.zeros(x.size(0), x.size(1) + 2, device=x.device, dtype=x.dtype)
        padded[:, 1:-1] = x
        padded[:, 0], padded[:, -1] = x[:, 0] * 0.5, x[:, -1] ** 2
        padded[padded > 2.0] = 2.0
        padded[:, 2] += 0.1
        x = padded[:, 1:-1] + padded[:, :-2] * padded[..., 2:]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if keep else block(x)
        x = checkpoint_sequential(self.tail, 2, x, use_reentrant=False)
        x = Round.apply(x)
        return self.head(x), ReverseLayerF.apply(x, 0.5)


def main():
    set_seed(42)
    model = Net()
    activations, grads = {}, {}

    def get_activation(name):
        def hook(module, inputs, output):
            activations[name] = output.detach()

        return hook

    handles = [model.blocks[1].register_forward_hook(get_activation("block1"))]
    handles.append(model.blocks[0].fc1.weight.register_hook(lambda g: g.clamp(-0.1, 0.1)))
    handles.append(model.tail[0].register_full_backward_hook(lambda m, gi, go: grads.update(tail=go[0].norm().item())))
    optimizer = torch.optim.SGD(
        [
            {"params": model.blocks.parameters()},
            {"params": list(model.tail.parameters()) + list(model.head.parameters()), "lr": 0.02},
        ],
        lr=0.05,
        momentum=0.9,
        weight_decay=1e-3,
    )
    scheduler = ChainedScheduler(
        [LinearLR(optimizer, 0.5, total_iters=3), MultiStepLR(optimizer, milestones=[2, 4], gamma=0.3)]
    )
    x, y = Variable(torch.randn(8, 6)), torch.arange(8) % 2
    trace = []
    for step in range(5):
        context = torch.autograd.detect_anomaly(check_nan=True) if step == 0 else nullcontext()
        with warnings.catch_warnings(), context:
            warnings.simplefilter("ignore")
            logits, reversed_features = model(x, keep=step % 2 == 0)
            aux = (reversed_features.mean(1) - y.float()).pow(2).mean()
            loss = nn.functional.cross_entropy(logits, y) + 0.1 * aux
            optimizer.zero_grad()
            loss.backward()
        total_norm = 0.0
        for p in model.parameters():
            if p.grad is not None:
                total_norm += p.grad.detach().data.norm(2).item() ** 2
        optimizer.step()
        scheduler.step()
        if step == 2:
            buffer = io.BytesIO()
            torch.save(
                {
                    "model": model.state_dict(),
                    "optim": optimizer.state_dict(),
                    "sched": scheduler.state_dict(),
                    "step": step,
                },
                buffer,
            )
        trace += [
            loss.item(),
            total_norm**0.5,
            grads["tail"],
            activations["block1"].mean().item(),
            *[g["lr"] for g in optimizer.param_groups],
        ]
    for handle in handles:
        handle.remove()
    buffer.seek(0)
    state = torch.load(buffer, map_location=torch.device("cpu"), weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optim"])
    scheduler.load_state_dict(state["sched"])
    for step in range(state["step"] + 1, 5):
        loss = nn.functional.cross_entropy(model(x)[0], y) + 0.0 * model(x)[1].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    trace += [loss.item(), float(model.steps), *scheduler.get_last_lr()]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof, record_function("model_inference"):
        model(x)
    assert "model_inference" in prof.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    timer = Timer(stmt="model(x)", globals={"model": model, "x": x})
    assert timer.timeit(2).mean > 0
    restarts = CosineAnnealingWarmRestarts(torch.optim.Adam(model.parameters(), lr=0.1), T_0=2, T_mult=2)
    for i in range(5):
        restarts.step(i + 0.5)
        trace.append(restarts.get_last_lr()[0])
    try:
        bad = torch.zeros(2, requires_grad=True)
        with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (bad.sqrt() * 0).sum().backward()
    except RuntimeError:
        trace.append(1.0)
    a = np.asarray(model.running)
    array = np.ones(3, dtype=np.float32)
    shared = torch.from_numpy(array)
    shared += 1
    trace += [float(a.sum()), float(array.sum()), float(np.dot(array, shared)), float((shared * 2).sum())]
    trace += [float(f) for f in map(partial(torch.sum, dim=0), [torch.ones(3), x[0]])]
    print(trace)
    return model, x.detach()


if __name__ == "__main__":
    trained, inputs = main()
