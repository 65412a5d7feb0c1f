"""`torch.serialization`: `ox.save` and `ox.load`, and switches of PyTorch's unpickler, which ox does not need.

`ox.load` creates only tensors and plain values from a file; no class can be allowed by its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ox.core.lazy import missing_attribute_error
from ox.core.warn_once import no_effect
from ox.serialization.files import load, save

__all__ = [
    "SourceChangeWarning",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "register_package",
    "safe_globals",
    "save",
]

_STRICT = "ox.load builds tensors and plain values only"


class SourceChangeWarning(Warning):
    """Never given. `torch.serialization.SourceChangeWarning`, for filters of warnings."""


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Nothing. `torch.serialization.add_safe_globals`."""
    no_effect("ox.serialization.add_safe_globals", _STRICT)


def get_safe_globals() -> list[Any]:
    """An empty list. `torch.serialization.get_safe_globals`."""
    return []


def clear_safe_globals() -> None:
    """Nothing. `torch.serialization.clear_safe_globals`."""


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """A block in which nothing differs. `torch.serialization.safe_globals`."""
    no_effect("ox.serialization.safe_globals", _STRICT)
    yield


def default_restore_location(storage: Any, location: str) -> Any:
    """What it is given: `map_location` is a device or a dict. `torch.serialization.default_restore_location`."""
    return storage


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Nothing. `torch.serialization.register_package`."""
    no_effect("ox.serialization.register_package", _STRICT)


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
