"""What all tests share: tests that need a GPU are skipped, with the reason, where there is none."""

from __future__ import annotations

import os
from functools import cache

import pytest

from ox.errors import DeviceError

# Unbuffered, `print` writes word by word, and the words of several ranks mix within a line.
os.environ.pop("PYTHONUNBUFFERED", None)


@cache
def no_gpu() -> str | None:
    """Why no test can run on a GPU here; None where it can."""
    from ox.devices import cuda

    try:
        cuda.cupy()
    except DeviceError as error:
        return error.one_line()
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
