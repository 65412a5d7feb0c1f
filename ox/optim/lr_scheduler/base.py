"""What all schedulers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any

from ox.core.mode import MODE, while_recording
from ox.errors import ArgumentError, DTypeError
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer


class LRScheduler:
    """The base: `torch.optim.lr_scheduler.LRScheduler`. Call `step()` after `optimizer.step()`.

    A subclass gives `get_lr`: one rate for each group at `last_epoch`. A scheduler sets `group["lr"]`, and with it the
    tensor that a captured step reads.

    Args:
        last_epoch: -1 starts; another number goes on after that epoch, with groups that hold their `initial_lr`.
    """

    _recorded_as_call = True  # `ox.compile` does not look into it: its step is called again after each run of a graph
    _starting = False  # the step that the constructor takes
    _get_lr_called_within_step = False  # what a `get_lr` may ask
    _step_count = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _outside_of_recordings(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked(optimizer)
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    "last_epoch needs groups with 'initial_lr'", hint="load the optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self._initial_step()

    def _initial_step(self) -> None:
        """The first step, which the constructor takes."""
        self._step_count = 0
        self._starting = True
        try:
            self.step()
        finally:
            del self._starting

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        raise ArgumentError(f"{type(self).__name__} has no get_lr")

    def step(self, epoch: int | None = None) -> None:
        """Move on by one (or to `epoch`) and set the rates. A jump computes them by `_get_closed_form_lr`, where a
        subclass has one: `get_lr` may go on from the rates as they are."""
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        """A step that is not counted."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            self._set(self.get_lr() if closed is None else closed())
        finally:
            del self._get_lr_called_within_step

    def _set(self, rates: Sequence[float]) -> None:
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise self._missing_group_values("base_lrs", len(rates))
        for group, lr in zip(groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = self._rates()

    def _bases(self) -> list[float | None]:
        """The first rate of each group; None for a group that `Optimizer.add_param_group` added later."""
        later = len(self.optimizer.param_groups) - len(self.base_lrs)
        if later < 0:
            raise self._missing_group_values("base_lrs", len(self.base_lrs))
        return [*self.base_lrs, *[None] * later]

    def _values(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The elements of several lists of this scheduler, group by group. Raises ArgumentError for a list of another
        length than the groups."""
        lists = [getattr(self, name) for name in names]
        for name, values in zip(names, lists, strict=True):
            if len(values) != len(self.optimizer.param_groups):
                raise self._missing_group_values(name, len(values))
        return zip(*lists, strict=True)

    def _missing_group_values(self, name: str, count: int) -> ArgumentError:
        return ArgumentError(
            f"{type(self).__name__} needs one value of {name} for each parameter group",
            expected=f"{len(self.optimizer.param_groups)}, as the optimizer has groups",
            got=str(count),
            hint=f"scheduler.{name}.append(...) after optimizer.add_param_group(...), or a new scheduler",
        )

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The rates that the last step set."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Numbers and lists of numbers: everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict()`. The rates themselves are in the optimizer's state."""
        self.__dict__.update(state_dict)


_recordings: list[Any] = []  # one entry for each that runs
_recordings_lock = Lock()


@contextmanager
def reads_are_told() -> Iterator[None]:
    """A recording inside hears of every attribute of a scheduler that is read. Not outside, where it would make
    steps slower."""

    def told(self: Any, name: str) -> Any:
        recording = MODE.get().recording
        if recording is not None and name not in ("step", "optimizer") and not name.startswith("__"):
            recording.on_schedule(name)
        return object.__getattribute__(self, name)

    with _recordings_lock:  # another thread may record, too
        _recordings.append(told)
        LRScheduler.__getattribute__ = told  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _recordings_lock:
            _recordings.pop()
            if not _recordings:
                del LRScheduler.__getattribute__


while_recording.append(reads_are_told)


def _outside_of_recordings(step: Callable[..., None]) -> Callable[..., None]:
    """A scheduler's step computes with Python numbers: a recording notes the call, which has no arguments."""

    @wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> None:
        recording = MODE.get().recording
        if recording is None or args or kwargs:
            step(self, *args, **kwargs)
        else:
            recording.on_host_call(lambda: step(self))

    return stepped


LRScheduler.step = _outside_of_recordings(LRScheduler.step)  # type: ignore[method-assign]


def checked(optimizer: Any) -> Any:
    """The optimizer. Raises DTypeError (a TypeError) for what is none."""
    if not isinstance(optimizer, Optimizer):
        raise DTypeError("the first argument of a scheduler must be an optimizer", got=type(optimizer).__name__)
    return optimizer


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value a group, from one for all or a list. Raises ArgumentError for a list of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(f"{name} has another length than the groups", expected=str(count), got=str(len(value)))
    return list(value)


def check_entries(by: str, groups: Sequence[Group], names: Sequence[str]) -> None:
    """Raises ArgumentError for a group, added after the scheduler was made, that lacks an entry of these names."""
    for i, group in enumerate(groups):
        if not group.keys() >= set(names):
            raise ArgumentError(
                f"{by} has no settings for parameter group {i}, which was added later",
                expected=", ".join(names),
                got=", ".join(name for name in names if name in group) or "none of them",
                hint="these entries in the group that optimizer.add_param_group(...) takes, or a new scheduler",
            )


def set_momentum(group: Group, value: float, by: str) -> None:
    """Set what plays momentum's part. Raises ArgumentError for an optimizer that has none."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    elif "momentum" in group:
        group["momentum"] = value
    else:
        raise ArgumentError(f"{by} cycles a momentum, and this optimizer has none", hint="cycle_momentum=False")
