"""What PyTorch's classes call through `self`, read from its source: the methods that a subclass can replace."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any


def methods(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """The functions of a class and of the classes of PyTorch above it."""
    for each in cls.__mro__:
        if each.__module__.startswith("torch"):
            for name, member in vars(each).items():
                function = inspect.unwrap(member) if callable(member) else None
                if isinstance(function, FunctionType):
                    yield name, function


def override_points(cls: type) -> set[str]:
    """The names of the methods that the methods of a class call on `self`, or on a module below."""
    found: set[str] = set()
    for _, function in methods(cls):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):  # made at run time
            continue
        found |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "module", "child")
        }
    return {name for name in found if isinstance(inspect.getattr_static(cls, name, None), FunctionType)}


def counted(cls: type, points: set[str], called: set[str]) -> type:
    """A subclass that replaces every point by itself, and notes which were called."""

    def noting(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            called.add(name)
            return getattr(cls, name)(self, *args, **kwargs)

        return method

    return type(cls.__name__, (cls,), {name: noting(name) for name in sorted(points)})
