"""Memory for time: run part of a model without keeping what its backward needs, and run it again when backward comes.

The forward runs under hooks that keep only the number of a saved tensor. The first one that backward needs runs
the function again, on the same arguments, random numbers and switches, and keeps what is saved this time; each is let
go with the node that needed it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from ox.amp.autocasting import STATE
from ox.autograd.graph import saved_tensors_hooks
from ox.call_site import users_line
from ox.core.generator import default_generator
from ox.core.gradient import unpack_saved
from ox.core.mode import MODE
from ox.core.tensor import TensorBase, is_tensor
from ox.errors import ArgumentError, GradientError

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]
_early_stop: list[bool | None] = [None]  # set_checkpoint_early_stop


class _Number:
    """Stands for a saved tensor; alive as long as its node needs it."""


class _AllRecomputed(Exception):
    """Everything that backward needs is there."""


class _CheckpointFrame:
    """One checkpointed call."""

    early_stop = True

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, again: Any, keep_random: bool) -> None:
        self.function, self.again, self.mode = function, again, MODE.get()
        self.autocast = STATE.get()
        self.args, self.kwargs = (
            [_pack_argument(a) for a in args],
            {name: _pack_argument(a) for name, a in kwargs.items()},
        )
        self.random = default_generator._snapshot() if keep_random else None
        self.where = users_line()
        self.numbers: list[weakref.ref[_Number]] = []
        self.recomputed: weakref.WeakKeyDictionary[_Number, tuple[TensorBase, int]] = weakref.WeakKeyDictionary()

    def pack(self, tensor: TensorBase) -> Any:
        if MODE.get().recording is not self.mode.recording:
            return tensor, tensor.version  # inside a recorded branch or loop, which runs but once
        number = _Number()
        self.numbers.append(weakref.ref(number))
        return number

    def unpack(self, number: Any) -> TensorBase:
        if type(number) is tuple:
            return unpack_saved(_CALL, number)  # type: ignore[arg-type]
        made = self.recomputed.get(number)
        if made is None or _elsewhere(made[0]):
            self._run_again()
        if number not in self.recomputed:
            raise GradientError(
                "a checkpointed function saved fewer tensors when it ran again than the first time",
                where=self.where,
                hint="it must do the same each time: no counters, no changed attributes, no other random numbers",
            )
        return unpack_saved(_CALL, self.recomputed[number])  # type: ignore[arg-type]

    def _run_again(self) -> None:
        count, recording = 0, MODE.get().recording

        def keep(tensor: TensorBase) -> Any:
            nonlocal count
            if MODE.get().recording is not recording:
                return tensor
            if count >= len(self.numbers):
                raise GradientError(
                    "a checkpointed function saved more tensors when it ran again than the first time",
                    where=self.where,
                    hint="it must do the same each time: no counters, no changed attributes, no other random numbers",
                )
            number = self.numbers[count]()
            count += 1
            if number is not None:
                self.recomputed[number] = tensor, tensor.version
            if count == len(self.numbers) and self.early_stop:
                raise _AllRecomputed
            return tensor

        mode = replace(self.mode, grad=True, inference=False, recording=MODE.get().recording)
        token, autocast = MODE.set(mode), STATE.set(self.autocast)
        try:
            with self._restore_rng_state(), self.again, saved_tensors_hooks(keep, lambda kept: kept):
                self.function(
                    *map(_unpack_argument, self.args), **{name: _unpack_argument(a) for name, a in self.kwargs.items()}
                )
        except _AllRecomputed:
            pass
        finally:
            MODE.reset(token)
            STATE.reset(autocast)

    @contextmanager
    def _restore_rng_state(self) -> Iterator[None]:
        now = default_generator._snapshot()
        if self.random is not None:
            default_generator._restore(self.random)
        try:
            yield
        finally:
            if self.random is not None:
                default_generator._restore(now)


def _elsewhere(tensor: TensorBase) -> bool:
    """Whether the tensor was recorded inside another branch or loop than what is recorded now."""
    return tensor._recorded is not None and not tensor._recorded.active()


_CALL = SimpleNamespace(op=SimpleNamespace(name="checkpoint"))  # the name in the error about a changed argument


class _SavedArgument:
    """An argument that is a tensor, with its version, or what an outer checkpoint made of it."""

    def __init__(self, tensor: TensorBase) -> None:
        watch: Any = MODE.get().observer
        pair = (tensor, tensor.version)
        self.pair = pair if watch is None else watch.pack_saved(pair)


def _pack_argument(argument: Any) -> Any:
    return _SavedArgument(argument) if is_tensor(argument) else argument


def _unpack_argument(argument: Any) -> Any:
    return unpack_saved(_CALL, argument.pair) if isinstance(argument, _SavedArgument) else argument  # type: ignore[arg-type]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which backward computes anew what it needs. `torch.utils.checkpoint.checkpoint`.

    Args:
        use_reentrant: accepted for PyTorch's scripts; both values do the same here.
        context_fn: gives two context managers, one for the forward and one for running it again.
        determinism_check: accepted for PyTorch's scripts; shapes and types are always compared.
        debug: accepted for PyTorch's scripts; `ox.autograd.detect_anomaly` names lines.
        early_stop: end the second run as soon as everything is there.
        preserve_rng_state: the second run draws the random numbers of the first (of the default generator).

    Raises:
        GradientError: the second run saves other tensors than the first, or an argument was written in place.
    """
    if not MODE.get().grad:
        return function(*args, **kwargs)
    forward, again = context_fn() if context_fn is not None else (nullcontext(), nullcontext())
    run = _CheckpointFrame(function, args, kwargs, again, preserve_rng_state)
    run.early_stop = early_stop if _early_stop[0] is None else _early_stop[0]
    with forward, saved_tensors_hooks(run.pack, run.unpack):
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A Sequential (or a list of callables) in `segments` parts, all but the last checkpointed.
    `torch.utils.checkpoint.checkpoint_sequential`.

    Raises:
        ArgumentError: fewer than one segment, or more than there are functions.
    """
    layers = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(layers):
        raise ArgumentError(
            "checkpoint_sequential cannot make so many segments", expected=f"1 to {len(layers)}", got=str(segments)
        )

    def part(some: Sequence[Any]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for layer in some:
                x = layer(x)
            return x

        return run

    size = len(layers) // segments
    bounds = [size * k for k in range(segments)]
    for begin, end in pairwise(bounds):
        input = checkpoint(part(layers[begin:end]), input, use_reentrant=use_reentrant, **kwargs)
    return part(layers[bounds[-1] :])(input)


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether second runs end as soon as everything is there. `torch.utils.checkpoint.set_checkpoint_early_stop`."""
    before, _early_stop[0] = _early_stop[0], enable
    try:
        yield
    finally:
        _early_stop[0] = before


__all__ = ["checkpoint", "checkpoint_sequential", "set_checkpoint_early_stop"]
