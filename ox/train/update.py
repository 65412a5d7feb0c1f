"""What happens between the backward pass and the next step: unscale, clip, update, average."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ox.errors import LoadError, RecipeError
from ox.train.options import Options

# what schedulers set in a group
SCHEDULED = ("lr", "initial_lr", "max_lr", "min_lr", "momentum", "base_momentum", "max_momentum", "betas")


def several(made: Any) -> list[Any]:
    """The optimizers or schedulers that a page made: one, or a tuple, list or dict of them."""
    if isinstance(made, Mapping):
        return list(made.values())
    return list(made) if isinstance(made, tuple | list) else [] if made is None else [made]


def watches(scheduler: Any) -> bool:
    """Whether its step wants a figure of the validation, as that of `ReduceLROnPlateau`: it is stepped each epoch."""
    first = next(iter(inspect.signature(scheduler.step).parameters.values()), None)
    return first is not None and first.default is first.empty and first.kind is first.POSITIONAL_OR_KEYWORD


def asks_again(optimizer: Any) -> bool:
    """Whether its step asks for the loss more than once, as that of `LBFGS`: it needs a closure."""
    from ox.optim import LBFGS

    return isinstance(optimizer, LBFGS) or watches(optimizer)


class Update:
    """Turns gradients into new weights as the options say: gradient scaler, clipping, optimizer, scheduler, averages.

    Args:
        model: whose gradients they are.
        optimizer, scheduler: one, or a tuple, list or dict of them. Each scheduler is stepped once an update; one that
            watches a figure once an epoch. The scheduler may be None.
        device: where the model is: "cpu" or "cuda".

    Attributes:
        closure: whether the optimizer asks for the loss itself; then a call needs one.

    Raises:
        RecipeError: a closure and fp16, or beside other optimizers.
    """

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, options: Options, device: str) -> None:
        self.model, self.options, self.device = model, options, device
        self.optimizers, schedulers = several(optimizer), several(scheduler)
        self.each_epoch = [one for one in schedulers if watches(one)]
        self.each_step = [one for one in schedulers if not any(one is other for other in self.each_epoch)]
        self.schedulers = schedulers
        self.closure = any(map(asks_again, self.optimizers))
        if self.closure and (options.amp == "fp16" or len(self.optimizers) > 1):
            name = next(type(one).__name__ for one in self.optimizers if asks_again(one))
            raise RecipeError(
                f"{name} asks for the loss more than once a step",
                expected="one optimizer, and amp=None or amp='bf16'",
                got="amp='fp16'" if options.amp == "fp16" else f"{len(self.optimizers)} optimizers",
                hint="step(model, batch, optimizers) on the page, which calls them itself",
            )
        self.scaler = self._scaler()
        self.averages = self._averages()

    def _scaler(self) -> Any:
        if self.options.amp != "fp16":
            return None
        from ox.amp import GradScaler

        return GradScaler(self.device)

    def _averages(self) -> Any:
        if self.options.ema is None:
            return None
        from ox.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        return AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(self.options.ema))

    def casts(self) -> AbstractContextManager[Any]:
        """Where the forward pass of training runs: in the lower precision, if one is wanted."""
        if self.options.amp is None:
            return nullcontext()
        from ox.amp import autocast
        from ox.dtypes import bfloat16, float16

        return autocast(self.device, dtype=bfloat16 if self.options.amp == "bf16" else float16)

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def backward(self, loss: Any) -> None:
        """Add the gradients of a loss to those that are there."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def clip(self) -> None:
        if self.options.clip is not None:
            from ox.nn.utils import clip_grad_norm_

            clip_grad_norm_(self.model.parameters(), self.options.clip)

    def __call__(self, closure: Callable[[], float] | None = None) -> None:
        """One update: with the gradients that are there, or with those that `closure` makes with the loss that it
        returns."""
        if closure is not None:
            self.optimizers[0].step(closure)
        else:
            if self.scaler is not None:
                for optimizer in self.optimizers:
                    self.scaler.unscale_(optimizer)
            self.clip()
            for optimizer in self.optimizers:
                optimizer.step() if self.scaler is None else self.scaler.step(optimizer)
            if self.scaler is not None:
                self.scaler.update()
        self.close()

    def close(self) -> None:
        """After a step: the schedulers and the averages follow."""
        for scheduler in self.each_step:
            scheduler.step()
        if self.averages is not None:
            self.averages.update_parameters(self.model)

    def close_epoch(self, figure: Callable[[str], float]) -> None:
        """After an epoch: the schedulers that watch a figure get it. `figure` gives that for a mode, "min" or "max"."""
        for scheduler in self.each_epoch:
            scheduler.step(figure(getattr(scheduler, "mode", "min")))

    @property
    def evaluated(self) -> Any:
        """The model whose weights count: the averages where they are kept."""
        return self.model if self.averages is None else self.averages.module

    def _replayed(self, steps: int) -> list[list[dict[str, Any]]] | None:
        """What the schedulers have set in each optimizer's groups after so many steps; None without such schedulers."""
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
        if self.averages is not None:
            ema = {"model": self.averages.module.state_dict(), "count": int(self.averages.n_averaged.item())}
        return {
            "optimizer": _states(self.optimizers),
            "scheduler": _states(self.schedulers),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "ema": ema,
        }

    def load_state_dict(self, state: dict[str, Any], replay: int | None = None) -> None:
        """Go on from what `state_dict` gave; with `replay`, the schedulers that follow steps not from their states but
        from their beginning, after so many steps."""
        rates = None if replay is None else self._replayed(replay)
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
        if self.averages is not None:
            self.averages.module.load_state_dict(state["ema"]["model"])
            self.averages.n_averaged.copy_(state["ema"]["count"])


def _states(own: list[Any]) -> Any:
    """Their states: a list of several, one state of one, None of none."""
    states = [one.state_dict() for one in own]
    return states if len(states) > 1 else states[0] if states else None
