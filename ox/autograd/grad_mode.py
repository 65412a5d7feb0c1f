"""Switching gradients off and on, as context managers and decorators; context-local."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import Token
from functools import wraps
from typing import Any

from ox.core.mode import MODE, Mode, with_changes


class Switch:
    """``with switch():``, ``@switch()`` or, without arguments, ``@switch``; a generator is switched while it runs."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._tokens: list[Token[Mode]] = []

    def changes(self) -> dict[str, Any]:
        """What to change, asked for at each entry."""
        return self._changes

    def __enter__(self) -> None:
        self._tokens.append(MODE.set(with_changes(MODE.get(), self.changes())))

    def __exit__(self, *error: object) -> None:
        MODE.reset(self._tokens.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):

            @wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                running = function(*args, **kwargs)
                step, value = running.send, None
                while True:
                    with Switch(**self.changes()):
                        try:
                            given = step(value)
                        except StopIteration as end:
                            return end.value
                    try:
                        step, value = running.send, (yield given)
                    except GeneratorExit:
                        running.close()
                        raise
                    except BaseException as error:
                        step, value = running.throw, error

            return generator

        @wraps(function)
        def switched(*args: Any, **kwargs: Any) -> Any:
            with Switch(**self.changes()):
                return function(*args, **kwargs)

        return switched


class no_grad(Switch):
    """Nothing is remembered for backward. `torch.no_grad`."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self) -> None:
        super().__init__(grad=False)


class enable_grad(Switch):
    """Remember again, inside `no_grad`. `torch.enable_grad`."""

    def __init__(self) -> None:
        super().__init__(grad=True, inference=False)


class inference_mode(Switch):
    """`no_grad`, and no tensor can be made to require a gradient meanwhile. `torch.inference_mode`."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(grad=not mode, inference=mode)


class set_grad_enabled(Switch):
    """`enable_grad` or `no_grad`, by a flag: at once, and until the end of a `with`. `torch.set_grad_enabled`."""

    def __init__(self, mode: bool) -> None:
        super().__init__(grad=mode)
        super().__enter__()

    def __enter__(self) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.__exit__()
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether operators are remembered for backward here. `torch.is_grad_enabled`."""
    return MODE.get().grad


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on here. `torch.is_inference_mode_enabled`."""
    return MODE.get().inference
