"""GradScaler: a loss multiplied by a large number, so that small gradients do not vanish in float16; the number finds
itself by the steps that overflow. `torch.amp.GradScaler`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.amp import device_step, recorded_step, unscaling
from ox.amp.autocasting import known_device
from ox.core import operator
from ox.core.mode import MODE, cannot_record
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.devices import cpu, cuda
from ox.devices.gpu import multi_tensor as cuda_tensors
from ox.devices.gpu.skip_flag import skipping_where
from ox.dtypes import float32
from ox.errors import ArgumentError, RecordError, TrainError

if TYPE_CHECKING:
    from ox.core.tensor import TensorBase

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"
MIN_SCALE = 2.0**-16  # a gradient that overflows float16 at this scale is beyond 4e9
SKIPS = 20  # so many steps skipped in a row at a scale below that end a run


class _Stage:
    """How far an optimizer is in this iteration, and whether its gradients hold an infinity or NaN."""

    def __init__(self) -> None:
        self.stage = READY
        # a bool, in a recording a tensor, on a GPU a float32 array that is 1 or 0; None: not looked for, or there were
        # no gradients
        self.found: Any = None


class GradScaler:
    """``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. `torch.amp.GradScaler`.

    A step whose gradients hold an infinity or NaN is skipped, and `update` takes the scale back; after
    `growth_interval` good ones in a row it grows. With gradients on a GPU the scale and all that decides about it stay
    there: no call waits, but `get_scale`, `state_dict`, and `step` of an optimizer that cannot skip on the device.

    Args:
        device: "cuda" or "cpu"; with "cuda" and no GPU it warns and is disabled, as PyTorch's is.
        init_scale: the first scale.
        growth_factor: by which it grows; above 1.
        backoff_factor: by which it shrinks; below 1.
        growth_interval: good steps in a row before it grows.
        enabled: False makes everything pass through.

    Raises:
        RecordError: used inside a recording.
        ArgumentError: factors out of range, or a wrong order of calls (`unscale_` or `step` twice before `update`,
            either before `scale`).
        TrainError: the scale collapsed: it is below 2**-16 and the last 20 steps or more were all skipped, which no
            number of smaller scales would mend. On a GPU the next call that waits for it raises this.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = known_device(device), enabled
        if enabled and self._device == "cuda" and not cuda.available():
            warnings.warn("GradScaler is enabled, but CUDA is not available. Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled and growth_factor <= 1:
            raise ArgumentError("growth_factor is above 1", got=str(growth_factor))
        if self._enabled and backoff_factor >= 1:
            raise ArgumentError("backoff_factor is below 1", got=str(backoff_factor))
        # numbers as tensors, which a compiled step takes in and changes
        self._scale_tensor = operator.make_tensor(np.asarray(init_scale, np.float32))
        self._tracker_tensor, self._skipped_tensor = (operator.make_tensor(np.asarray(0, np.int64)) for _ in range(2))
        self._growth_factor, self._backoff_factor, self._growth_interval = (
            growth_factor,
            backoff_factor,
            growth_interval,
        )
        self._begun = False  # whether `scale` was called
        self._stages: dict[int, _Stage] = {}

    @property
    def _scale(self) -> np.float32:
        return np.float32(cpu(self._scale_tensor.array))

    @_scale.setter
    def _scale(self, value: Any) -> None:
        self._scale_tensor.array[...] = value

    @property
    def _growth_tracker(self) -> int:
        return int(cpu(self._tracker_tensor.array))

    @_growth_tracker.setter
    def _growth_tracker(self, value: int) -> None:
        self._tracker_tensor.array[...] = value

    @property
    def _skipped(self) -> int:
        """Steps in a row."""
        return int(cpu(self._skipped_tensor.array))

    @_skipped.setter
    def _skipped(self, value: int) -> None:
        self._skipped_tensor.array[...] = value

    # -- an iteration ------------------------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A tensor, or a list, tuple or other iterable of them, times the scale, each in its own type; but a float16 or
        bfloat16 loss of no dimensions in float32, as in PyTorch.

        Raises:
            ArgumentError: something else.
        """
        if not self._enabled:
            return outputs
        if is_tensor(outputs):
            recording = self._recording()
            self._begun = True
            return self._scaled(outputs) if recording is None else recorded_step.scaled(self._scale_tensor, outputs)
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
            several = map(self.scale, outputs)
            return type(outputs)(several) if isinstance(outputs, (list, tuple)) else several
        raise ArgumentError("scale takes tensors", got=type(outputs).__name__)

    def _scaled(self, x: TensorBase) -> TensorBase:
        if cuda_tensors.is_on_device(x.array):
            self._move(x)
            scale = cuda_tensors.beside(self._scale_tensor.array, x.array)
            return recorded_step.scaled(operator.make_tensor(scale), x)
        # float16 has no 65536: the product is made in float32 and rounded once
        if x.array.dtype.itemsize > 2:
            return x * float(self._scale)
        scaled = cast(x, float32) * float(self._scale)
        return scaled if not x.array.ndim else cast(scaled, x.array.dtype)

    def _move(self, x: TensorBase) -> None:
        """Keep the numbers on the GPU on which a tensor is, from now on."""
        for tensor in (self._scale_tensor, self._tracker_tensor, self._skipped_tensor):
            if not cuda_tensors.is_on_device(tensor.array):
                tensor.array = cuda.to_device(tensor.array, str(x.device))

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place; before they are clipped or looked
        at. `step` does it where it was not done.

        Raises:
            ArgumentError: a second time since `update`, after `step`, or before `scale`.
            DTypeError: float16 gradients: the parameters of a model under autocast stay float32.
        """
        if not self._enabled:
            return
        self._check_begun("unscale_")
        stage = self._stages.setdefault(id(optimizer), _Stage())
        if stage.stage == UNSCALED:
            raise ArgumentError(
                "unscale_() has already been called on this optimizer since the last update()",
                hint="once an optimizer and iteration, then step() and update()",
            )  # fmt: skip
        if stage.stage == STEPPED:
            raise ArgumentError("unscale_() is being called after step()")
        recorded = self._recording() is not None
        stage.found = (
            recorded_step.unscaled(self._scale_tensor, optimizer) if recorded else unscaling.unscaled(self, optimizer)
        )
        stage.stage = UNSCALED

    def _factor(self) -> float:
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.float32(1.0 / np.float64(self._scale)))

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` and what it returns, on unscaled gradients; None, and no step, where these
        hold an infinity or NaN.

        Raises:
            ArgumentError: a closure; a second time since `update`; before `scale`; or an optimizer without gradients.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ArgumentError("GradScaler takes no closure", hint="enabled=False, or bfloat16")
        self._check_begun("step")
        stage = self._stages.setdefault(id(optimizer), _Stage())
        if stage.stage == STEPPED:
            raise ArgumentError("step() has already been called since the last update()")
        if stage.stage == READY:
            self.unscale_(optimizer)
        if stage.found is None:
            raise ArgumentError(
                "the optimizer's parameters have no gradients",
                hint="scaler.scale(loss).backward() before it; was it given this model's parameters?",
            )  # fmt: skip
        if self._recording() is not None and is_tensor(stage.found):
            made = recorded_step.step(stage.found, optimizer, args, kwargs)
        elif cuda_tensors.is_on_device(stage.found) and _skips_on_device(optimizer):
            with skipping_where(stage.found):
                made = optimizer.step(*args, **kwargs)
        else:
            made = None if stage.found else optimizer.step(*args, **kwargs)
        stage.stage = STEPPED
        return made

    def update(self, new_scale: Any = None) -> None:
        """End the iteration: the scale shrinks if a step was skipped, grows after enough that were not, or becomes
        `new_scale` (a number or a tensor of one element).

        Raises:
            ArgumentError: no step was taken or skipped since the last one, and no `new_scale` is given.
            TrainError: the scale collapsed.
        """
        if not self._enabled:
            return
        self._check_begun("update")
        if new_scale is not None:
            if self._recording() is not None:
                cannot_record(RecordError("a new scale is set inside", hint="scaler.update() without a number"))
            self._scale = np.float32(_one_number(new_scale))
            self._stages.clear()
            return
        found = [stage.found for stage in self._stages.values() if stage.found is not None]
        if not found:
            raise ArgumentError("update() without a step since the last one", hint="scaler.step(optimizer) first")
        self._stages.clear()
        recording = self._recording()
        if recording is not None and all(map(is_tensor, found)):
            recorded_step.update(self, found)
            recording.on_host_call(self._check_skips)
            return
        if cuda_tensors.is_on_device(self._scale_tensor.array):
            device_step.update(self, found, SKIPS, MIN_SCALE)
            return
        if any(found):
            self._scale = np.float32(float(self._scale) * self._backoff_factor)
            self._growth_tracker = 0
            self._skipped += 1
            self._refuse_collapse()
            return
        self._skipped = 0
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            with np.errstate(over="ignore"):
                grown = np.float32(float(self._scale) * self._growth_factor)
            self._scale = grown if np.isfinite(grown) else self._scale
            self._growth_tracker = 0

    def _recording(self) -> Any:
        """The recording of `ox.compile` that this iteration is part of, if any. Raises RecordError in another one."""
        recording = MODE.get().recording
        if recording is None:
            return None
        if not recording.guarded:
            raise RecordError(
                "GradScaler looks at values of gradients, which a recording does not have",
                hint="bfloat16, which needs no scale, or a fixed factor: (loss * 1024).backward()",
            )
        recording.depends_on(self, ("_enabled", "_growth_factor", "_backoff_factor", "_growth_interval"))
        return recording

    def _note_read(self, what: str) -> None:
        """A number is read that a compiled step holds as a tensor: `ox.compile` cannot record that."""
        recording = MODE.get().recording
        if self._enabled and recording is not None and recording.guarded:
            cannot_record(RecordError(f"GradScaler.{what} gives a number", hint="outside of the step"))

    def _check_skips(self) -> None:
        if cuda_tensors.is_on_device(self._scale_tensor.array):
            device_step.check(self, SKIPS, MIN_SCALE)
        elif self._skipped:
            self._refuse_collapse()

    def _refuse_collapse(self) -> None:
        if self._skipped >= SKIPS and self._scale < MIN_SCALE:
            raise TrainError(
                f"the loss scale has collapsed: the last {self._skipped} steps were all skipped",
                got=f"an infinity or NaN among the gradients each time, at last at a scale of {float(self._scale):.3g}",
                expected="finite gradients at some scale above 2**-16",
                hint="look at the loss: if it is NaN without autocast too, a smaller learning rate, or "
                "ox.autograd.detect_anomaly() to find where; else bfloat16, which needs no scale, or float32 for the "
                'operator that overflows: ox.autocast(..., policy={"MatMul": "float32"})',
            )

    def _check_begun(self, name: str) -> None:
        if not self._begun:
            raise ArgumentError(f"{name}() before scale()", hint="scaler.scale(loss).backward()")

    # -- state ------------------------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale; 1 when disabled."""
        self._note_read("get_scale()")
        return float(self._scale) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        """Good steps in a row since the scale last changed."""
        self._note_read("_get_growth_tracker()")
        return self._growth_tracker if self._enabled else 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, after `update`; PyTorch's keys. Empty when disabled."""
        self._note_read("state_dict()")
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; nothing when disabled.

        Raises:
            ArgumentError: the state of a disabled one, or one that lacks a key.
        """
        if not self._enabled:
            return
        missing = [key for key in self.state_dict() if key not in state_dict]
        if missing:
            raise ArgumentError(
                "the state of a GradScaler is empty" if not state_dict else "the state of a GradScaler lacks a key",
                got="the state of a disabled one" if not state_dict else f"no {missing[0]}",
            )  # fmt: skip
        self._scale = np.float32(state_dict["scale"])
        self._growth_factor = float(state_dict["growth_factor"])
        self._backoff_factor = float(state_dict["backoff_factor"])
        self._growth_interval = int(state_dict["growth_interval"])
        self._growth_tracker = int(state_dict["_growth_tracker"])
        self._skipped = 0


def _skips_on_device(optimizer: Any) -> bool:
    ask = getattr(optimizer, "_skips_on_device", None)  # an optimizer of another library has none
    return ask is not None and bool(ask())


def _one_number(value: Any) -> float:
    if is_tensor(value):
        if value.array.size != 1 or value.requires_grad:
            raise ArgumentError("a new scale is a number, or a tensor of one element without a gradient")
        return float(value.item())
    return float(value)
