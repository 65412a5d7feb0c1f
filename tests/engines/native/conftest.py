"""The compiled kernels, or a skip where this machine cannot compile them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ox.devices import compiled, machine
from ox.kernels import Library, reason


@pytest.fixture
def library() -> Iterator[Library]:
    """The library of this process; its number of threads is set back."""
    found = compiled.library()
    if found is None:
        pytest.skip(f"no compiled kernels: {reason()}")
    yield found
    found.set_threads(machine.threads())
