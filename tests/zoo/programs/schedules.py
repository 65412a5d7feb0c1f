"""Every scheduler that training scripts reach for, over one small model: warmups, chains, cycles, plateaus, SWA."""

import copy
import math

import torch
from torch import nn, optim
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, _LRScheduler
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


class WarmupMultiStepLR(torch.optim.lr_scheduler._LRScheduler):
    def __init__(self, optimizer, milestones, gamma=0.1, warmup_factor=1.0 / 3, warmup_iters=5, last_epoch=-1):
        if not list(milestones) == sorted(milestones):
            raise ValueError("Milestones should be a list of increasing integers. Got {}", milestones)
        self.milestones, self.gamma = milestones, gamma
        self.warmup_factor, self.warmup_iters = warmup_factor, warmup_iters
        super(WarmupMultiStepLR, self).__init__(optimizer, last_epoch)

    def get_lr(self):
        warmup_factor = 1
        if self.last_epoch < self.warmup_iters:
            alpha = float(self.last_epoch) / self.warmup_iters
            warmup_factor = self.warmup_factor * (1 - alpha) + alpha
        passed = sum(self.last_epoch >= m for m in self.milestones)
        return [base_lr * warmup_factor * self.gamma**passed for base_lr in self.base_lrs]


class PolyLR(_LRScheduler):
    def __init__(self, optimizer, max_iters, power=0.9, last_epoch=-1, min_lr=1e-6):
        self.power, self.max_iters, self.min_lr = power, max_iters, min_lr
        super(PolyLR, self).__init__(optimizer, last_epoch)

    def get_lr(self):
        return [max(b * (1 - self.last_epoch / self.max_iters) ** self.power, self.min_lr) for b in self.base_lrs]


class GradualWarmupScheduler(LRScheduler):
    """Warms up, then hands over to another scheduler."""

    def __init__(self, optimizer, multiplier, total_epoch, after_scheduler=None):
        self.multiplier, self.total_epoch, self.after_scheduler = multiplier, total_epoch, after_scheduler
        self.finished = False
        super(GradualWarmupScheduler, self).__init__(optimizer)

    def get_lr(self):
        if self.last_epoch > self.total_epoch:
            if self.after_scheduler:
                if not self.finished:
                    self.after_scheduler.base_lrs = [base_lr * self.multiplier for base_lr in self.base_lrs]
                    self.finished = True
                return self.after_scheduler.get_last_lr()
            return [base_lr * self.multiplier for base_lr in self.base_lrs]
        return [b * ((self.multiplier - 1.0) * self.last_epoch / self.total_epoch + 1.0) for b in self.base_lrs]

    def step(self, epoch=None, metrics=None):
        if self.finished and self.after_scheduler:
            if epoch is None:
                self.after_scheduler.step(None)
            else:
                self.after_scheduler.step(epoch - self.total_epoch)
            self._last_lr = self.after_scheduler.get_last_lr()
        else:
            return super(GradualWarmupScheduler, self).step(epoch)


class NoamOpt:
    """The schedule of the first transformer: an optimizer in a wrapper."""

    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self.warmup, self.factor, self.model_size, self._rate = warmup, factor, model_size, 0

    def step(self):
        self._step += 1
        rate = self.rate()
        for p in self.optimizer.param_groups:
            p["lr"] = rate
        self._rate = rate
        self.optimizer.step()

    def rate(self, step=None):
        if step is None:
            step = self._step
        return self.factor * (self.model_size ** (-0.5) * min(step ** (-0.5), step * self.warmup ** (-1.5)))


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=0.5, last_epoch=-1):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return float(current_step) / float(max(1, num_warmup_steps))
        progress = float(current_step - num_warmup_steps) / float(max(1, num_training_steps - num_warmup_steps))
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * float(num_cycles) * 2.0 * progress)))

    return lr_scheduler.LambdaLR(optimizer, lr_lambda, last_epoch)


STEPS = 8
schedules = {
    "step": lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, milestones=[2, 5], gamma=0.1),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "constant": lambda o: lr_scheduler.ConstantLR(o, factor=0.5, total_iters=3),
    "linear": lambda o: lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=4),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, total_iters=6, power=2.0),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS, eta_min=1e-4),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 0.1, step_size_up=3, mode="exp_range", gamma=0.9),
    "onecycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=[0.1, 0.2], total_steps=STEPS + 1, pct_start=0.4),
    "threephase": lambda o: lr_scheduler.OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=3, three_phase=True),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.95**e, lambda e: 1 / (e + 1)]),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.9 if e % 2 else 1.1),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 4), PolyLR(o, 10)],
        milestones=[3, 6],
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.8), lr_scheduler.StepLR(o, 4)]
    ),
    "warmup": lambda o: WarmupMultiStepLR(o, [4, 6], warmup_iters=3),
    "poly": lambda o: PolyLR(o, STEPS),
    "gradual": lambda o: GradualWarmupScheduler(o, 4, 3, lr_scheduler.CosineAnnealingLR(o, 5)),
    "huggingface": lambda o: get_cosine_schedule_with_warmup(o, 2, STEPS),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, "min", factor=0.5, patience=1, cooldown=1, threshold=0.05),
    "swa": lambda o: SWALR(o, swa_lr=0.02, anneal_epochs=3, anneal_strategy="cos"),
}
torch.manual_seed(0)
x, y = torch.randn(32, 5), torch.randn(32, 2)
initial = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).state_dict()
for name, make in schedules.items():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    model.load_state_dict(initial)
    optimizer = optim.SGD(
        [{"params": model[:2].parameters(), "lr": 0.05}, {"params": model[3].parameters()}], lr=0.1, momentum=0.9
    )
    scheduler = make(optimizer)
    rates = []
    for step in range(STEPS):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.append([round(g["lr"], 6) for g in optimizer.param_groups])
        if name == "plateau":
            scheduler.step(loss if step < 3 else 5.0)
        else:
            scheduler.step()
        if step == 4:  # resumed in the middle, on new objects
            saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict() if name != "gradual" else None))
            optimizer.load_state_dict(saved[0])
            if saved[1] is not None:
                scheduler.load_state_dict(saved[1])
    print(name, rates, f"{loss.item():.5f}")
    print("   ", scheduler.last_epoch if hasattr(scheduler, "last_epoch") else None, optimizer.param_groups[0]["lr"])
try:
    WarmupMultiStepLR(optimizer, [6, 4])
except ValueError as error:
    print(error.args[1])
noam = NoamOpt(16, 1, 4, optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))
swa_model = AveragedModel(model)
ema_model = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
for step in range(6):
    loss = nn.functional.smooth_l1_loss(model(x), y)
    noam.optimizer.zero_grad()
    loss.backward()
    noam.step()
    swa_model.update_parameters(model)
    ema_model.update_parameters(model)
    print(f"noam {noam._rate:.6f} {loss.item():.5f}")
update_bn(x.split(8), swa_model)
swa_model.eval(), ema_model.eval()
print(
    nn.functional.mse_loss(swa_model(x), y).item(), nn.functional.mse_loss(ema_model(x), y).item(), swa_model.n_averaged
)
model, example = swa_model.module, x[:4]
