"""What happens between the backward pass and the next step: unscale, clip, update, average."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ox.train.options import Options


class Update:
    """Turns gradients into new weights as the options say: gradient scaler, clipping, optimizer, scheduler, averages.

    Args:
        model: whose gradients they are.
        optimizer, scheduler: stepped once an update; the scheduler may be None.
        device: where the model is: "cpu" or "cuda".
    """

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, options: Options, device: str) -> None:
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.options, self.device = options, device
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

    def backward(self, loss: Any) -> None:
        """Add the gradients of a loss to those that are there."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def __call__(self) -> None:
        """One update with the gradients that are there."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.options.clip is not None:
            from ox.nn.utils import clip_grad_norm_

            clip_grad_norm_(self.model.parameters(), self.options.clip)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.averages is not None:
            self.averages.update_parameters(self.model)

    @property
    def evaluated(self) -> Any:
        """The model whose weights count: the averages where they are kept."""
        return self.model if self.averages is None else self.averages.module

    def state_dict(self) -> dict[str, Any]:
        ema = None
        if self.averages is not None:
            ema = {"model": self.averages.module.state_dict(), "count": int(self.averages.n_averaged.item())}
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "ema": ema,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        if self.averages is not None:
            self.averages.module.load_state_dict(state["ema"]["model"])
            self.averages.n_averaged.copy_(state["ema"]["count"])
