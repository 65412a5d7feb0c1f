"""The GPU of a test of serving: a real one, or the stand-in, which counts what it does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cuda_session
import numpy as np
import onnxruntime
import pytest

from ox.devices.onnxruntime.probe import CUDA, missing_library, preload, runtime_distributions
from ox.tolerance import TABLE, compare


class ServingGpu:
    """What tests ask of it."""

    def __init__(self) -> None:
        self._host_cuda: Any = sys.modules.get("host_cuda")

    @property
    def is_real(self) -> bool:
        return self._host_cuda is None

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have models that are loaded for a GPU run in sessions that note what they are asked. Skips where this ONNX
        Runtime has no CUDA provider; where onnxruntime-gpu is there, all that keeps it from working is a failure."""
        if not self.is_real:
            cuda_session.install(monkeypatch.setattr)
            return
        if CUDA not in onnxruntime.get_available_providers() and "onnxruntime-gpu" not in runtime_distributions():
            pytest.skip("onnxruntime-gpu is not installed, so that ONNX Runtime has no CUDA provider")
        cuda_session.note(monkeypatch.setattr)

    def require(self, provider: str) -> None:
        """Skips where a real GPU has no such provider."""
        if not self.is_real:
            return
        if provider not in onnxruntime.get_available_providers():
            pytest.skip(f"this ONNX Runtime is built without {provider}")
        preload(onnxruntime)
        if library := missing_library(onnxruntime, provider):
            pytest.skip(library)

    @contextmanager
    def doing(self, expected: Mapping[str, int], others: bool = False) -> Iterator[None]:
        """A block that does each thing so often, and nothing else unless `others`. A real GPU does not count."""
        if self.is_real:
            yield
            return
        with self._host_cuda.counting() as done:
            yield
        names = expected if others else done
        assert {name: done[name] for name in names} == {name: expected.get(name, 0) for name in names}

    def tolerance(self, dtype: Any) -> float:
        """How far logarithmic probabilities of two devices may be apart; the stand-in computes on the CPU, too."""
        return 4 * TABLE[np.dtype(dtype)][0] if self.is_real else 0.0

    def wait(self) -> None:
        """For all work on it: streams that do not block are not waited for by CuPy's own copies."""
        import cupy

        cupy.cuda.runtime.deviceSynchronize()


def close(got: Any, expected: Any) -> bool:
    """Whether two arrays are the same within the tolerance of their type."""
    return compare(np.asarray(got), np.asarray(expected)).ok
