"""Functions of Python's modules that are others while a recording runs: no method of a number hears of their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from types import ModuleType
from typing import Any


def replacing(
    module: ModuleType, functions: Mapping[str, Callable[..., Any]]
) -> Callable[[], AbstractContextManager[None]]:
    """What makes a context, within which these names of `module` are `functions`. They are Python's own again behind
    it, also where several threads record."""
    plain = {name: vars(module)[name] for name in functions}
    lock, users = Lock(), 0

    @contextmanager
    def replaced() -> Iterator[None]:
        nonlocal users
        with lock:
            users += 1
            vars(module).update(functions)
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    vars(module).update(plain)

    return replaced
