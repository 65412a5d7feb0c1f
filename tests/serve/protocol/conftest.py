"""Servers without a GPU, also where there is one, except in tests for GPUs; generation engines that are held."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ox import errors
from ox.serve import service
from ox.serve.generation.engine import GenerationEngine
from ox.serve.protocol.v2 import cuda_region


@pytest.fixture(autouse=True)
def without_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise errors.DeviceError("CuPy finds no CUDA device", got="0 devices")

    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(cuda_region, "cupy", missing)
        monkeypatch.setattr(service, "extensions", lambda: service.EXTENSIONS)


@pytest.fixture
def hold_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[int]]:
    """From the fourth step on, generation engines wait until a method of a class has been called. Gives their steps."""

    def hold(owner: type, method: str) -> list[int]:
        steps: list[int] = []
        go, step, real = threading.Event(), GenerationEngine._step, getattr(owner, method)

        def held(self: GenerationEngine) -> bool:
            steps.append(len(steps))
            assert len(steps) <= 3 or go.wait(120)
            return step(self)

        def told(*arguments: Any, **named: Any) -> Any:
            value = real(*arguments, **named)
            go.set()
            return value

        monkeypatch.setattr(GenerationEngine, "_step", held)
        monkeypatch.setattr(owner, method, told)
        return steps

    return hold


@pytest.fixture
def fail_eighth_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts have an error instead of their eighth token."""
    submit = GenerationEngine.submit

    def failing(self: Any, request: Any, on_event: Any, on_error: Any, loop: Any = None) -> Any:
        seen = []

        def event(each: Any) -> None:
            seen.append(each)
            if len(seen) == 8:
                on_error(errors.ServeError("the text was not complete in time", status=504))
            elif len(seen) < 8:
                on_event(each)

        return submit(self, request, event, on_error, loop)

    monkeypatch.setattr(GenerationEngine, "submit", failing)
