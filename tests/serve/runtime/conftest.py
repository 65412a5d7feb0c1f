"""What tests of limits on memory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ox.devices.onnxruntime import arena
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.serve.runtime.memory import default_limit


@pytest.fixture
def usual_arena() -> Iterator[None]:
    """For a test that makes an arena with a low limit: sessions that later tests make in this process get one with the
    usual limit. ONNX Runtime knows one arena for all, and keeps it when a test forgets it."""
    yield
    arena._arenas.clear()
    arena.shared_arena(onnxruntime(), default_limit())
