"""The update after the backward pass: unscale, clip, optimizer, scheduler, weight averaging."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ox.errors import LoadError, RecipeError
from ox.train.run.train_config import TrainConfig

# the settings of a parameter group that schedulers change
SCHEDULED = ("lr", "initial_lr", "max_lr", "min_lr", "momentum", "base_momentum", "max_momentum", "betas")


def as_list(value: Any) -> list[Any]:
    """Optimizers or schedulers as a list: from one, or a tuple, list or dict of them."""
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, tuple | list) else [] if value is None else [value]


def needs_metric(scheduler: Any) -> bool:
    """Whether the step of a scheduler needs a metric, as that of `ReduceLROnPlateau`; it is called once per epoch."""
    first = next(iter(inspect.signature(scheduler.step).parameters.values()), None)
    return first is not None and first.default is first.empty and first.kind is first.POSITIONAL_OR_KEYWORD


def needs_closure(optimizer: Any) -> bool:
    """Whether the step of an optimizer needs a closure that computes the loss, as that of `LBFGS`."""
    from ox.optim import LBFGS

    return isinstance(optimizer, LBFGS) or needs_metric(optimizer)


class Update:
    """Updates the weights from the gradients: gradient scaler, clipping, optimizer, scheduler, weight averaging.

    Args:
        model: the model with the gradients.
        optimizer, scheduler: one, or a tuple, list or dict of them. Each scheduler is stepped once per update; one that
            needs a metric once per epoch. The scheduler may be None.
        device: the device of the model: "cpu" or "cuda".

    Attributes:
        closure: whether the optimizer needs a closure in each call.

    Raises:
        RecipeError: a closure together with fp16 or with other optimizers.
    """

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, options: TrainConfig, device: str) -> None:
        self.model, self.options, self.device = model, options, device
        self.optimizers, schedulers = as_list(optimizer), as_list(scheduler)
        self.each_epoch = [one for one in schedulers if needs_metric(one)]
        self.each_step = [one for one in schedulers if not any(one is other for other in self.each_epoch)]
        self.schedulers = schedulers
        self.closure = any(map(needs_closure, self.optimizers))
        if self.closure and (options.amp == "fp16" or len(self.optimizers) > 1):
            name = next(type(one).__name__ for one in self.optimizers if needs_closure(one))
            raise RecipeError(
                f"{name} evaluates the loss several times per step",
                expected="one optimizer, and amp=None or amp='bf16'",
                got="amp='fp16'" if options.amp == "fp16" else f"{len(self.optimizers)} optimizers",
                hint="step(model, batch, optimizers) in the recipe file, which calls them itself",
            )
        self.apply = self.compiled(apply)
        self.scaler = self._make_scaler()
        self.averaged_model = self._make_averaged_model()

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """With the option `compile` the function compiled, so that a resumed run has the same bits; else itself."""
        if not self.options.compile:
            return function
        from ox.compiler.compiled import Compiled

        return Compiled(function, dynamic=True, repeatable=True)

    def _make_scaler(self) -> Any:
        if self.options.amp != "fp16":
            return None
        from ox.amp import GradScaler

        return GradScaler(self.device)

    def _make_averaged_model(self) -> Any:
        if self.options.ema is None:
            return None
        from ox.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        return AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(self.options.ema))

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass: `ox.autocast` with the type of the option `amp`, if it is set."""
        if self.options.amp is None:
            return nullcontext()
        from ox.amp import autocast
        from ox.dtypes import bfloat16, float16

        return autocast(self.device, dtype=bfloat16 if self.options.amp == "bf16" else float16)

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def backward(self, loss: Any) -> None:
        """Adds the gradients of a loss to the existing ones."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def clip(self) -> None:
        clip(self.model, self.options.clip)

    def __call__(self, closure: Callable[[], float] | None = None) -> None:
        """One update, with the existing gradients or with those that `closure` computes. The closure returns the
        loss."""
        if closure is not None:
            self.optimizers[0].step(closure)
        else:
            self.apply(self.model, self.optimizers, self.scaler, self.options.clip)
        self.after_step()

    def after_step(self) -> None:
        """After a step: updates the schedulers and the averaged weights."""
        for scheduler in self.each_step:
            scheduler.step()
        if self.averaged_model is not None:
            self.averaged_model.update_parameters(self.model)

    def after_epoch(self, figure: Callable[[str], float]) -> None:
        """After an epoch: steps the schedulers that need a metric. `figure(mode)` returns it for "min" or "max"."""
        for scheduler in self.each_epoch:
            scheduler.step(figure(getattr(scheduler, "mode", "min")))

    @property
    def evaluation_model(self) -> Any:
        """The model to evaluate: with the averaged weights, if there are any."""
        return self.model if self.averaged_model is None else self.averaged_model.module

    def _scheduled_settings(self, steps: int) -> list[list[dict[str, Any]]] | None:
        """The settings of each optimizer's groups after `steps` steps of the schedulers; None without such
        schedulers."""
        if not self.each_step:
            return None
        for _ in range(steps):
            for scheduler in self.each_step:
                scheduler.step()
        return [
            [{name: group[name] for name in SCHEDULED if name in group} for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]

    def state_dict(self) -> dict[str, Any]:
        ema = None
        if self.averaged_model is not None:
            ema = {
                "model": self.averaged_model.module.state_dict(),
                "count": int(self.averaged_model.n_averaged.item()),
            }
        return {
            "optimizer": _states(self.optimizers),
            "scheduler": _states(self.schedulers),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "ema": ema,
        }

    def load_state_dict(self, state: dict[str, Any], replay: int | None = None) -> None:
        """Restores a `state_dict`. With `replay`, schedulers are not restored but stepped `replay` times from the
        start."""
        rates = None if replay is None else self._scheduled_settings(replay)
        for name, own in (("optimizer", self.optimizers), ("scheduler", self.schedulers)):
            kept = state[name] if isinstance(state[name], list) else [] if state[name] is None else [state[name]]
            if len(kept) != len(own):
                raise LoadError(f"the checkpoint is of {len(kept)} {name}s", expected=str(len(own)))
            for one, part in zip(own, kept, strict=True):
                if rates is None or not any(one is each for each in self.each_step):
                    one.load_state_dict(part)
        for optimizer, groups in zip(self.optimizers, rates or [], strict=False):
            for group, settings in zip(optimizer.param_groups, groups, strict=True):
                group.update(settings)
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        if self.averaged_model is not None:
            self.averaged_model.module.load_state_dict(state["ema"]["model"])
            self.averaged_model.n_averaged.copy_(state["ema"]["count"])


def clip(model: Any, norm: float | None) -> None:
    """Limits the norm of all gradients of a model, if there is a limit."""
    if norm is not None:
        from ox.nn.utils import clip_grad_norm_

        clip_grad_norm_(model.parameters(), norm)


def apply(model: Any, optimizers: list[Any], scaler: Any, norm: float | None) -> None:
    """Unscales the gradients, clips them, and steps the optimizers."""
    if scaler is not None:
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
    clip(model, norm)
    for optimizer in optimizers:
        optimizer.step() if scaler is None else scaler.step(optimizer)
    if scaler is not None:
        scaler.update()


def _states(own: list[Any]) -> Any:
    """The states of all objects: a list for several, one state for one, None for none."""
    states = [_state(one) for one in own]
    return states if len(states) > 1 else states[0] if states else None


def _state(one: Any) -> Any:
    """The state of an optimizer or scheduler. One that is sharded comes together on rank 0, which writes it."""
    if hasattr(one, "consolidate_state_dict"):
        one.consolidate_state_dict(to=0)
        return one.state_dict() if one.rank == 0 else None
    return one.state_dict()
