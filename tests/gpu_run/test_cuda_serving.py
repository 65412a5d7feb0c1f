"""The server of a run on a GPU, with ONNX Runtime's CPU provider in CUDA's place, on host_cuda."""

from __future__ import annotations

from typing import Any

import cuda_session
import numpy as np
import pytest
from gpu_run import cuda_serving, served_memory, served_tensors, served_texts
from gpu_run.served_client import served
from gpu_run.served_texts import Text, compared

from ox.serve.runtime.session import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.stand_in("on a GPU it is a step of its own")]


@pytest.fixture(autouse=True)
def on_host_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_session.install(monkeypatch.setattr)
    monkeypatch.setenv("GPU_QUICK", "1")
    monkeypatch.setenv("GPU_STAND_IN", "host_cuda")


@pytest.mark.parametrize("name", cuda_serving.PARTS)
def test_a_part(name: str) -> None:
    found = cuda_serving.PARTS[name]()
    assert found.get("largest difference", 0) < 1e-4
    assert found.get("tokens") == found.get("as on the CPU")


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as client:
        run = client.plain["mlp"].run
        monkeypatch.setattr(client.plain["mlp"], "run", lambda feed: [np.nextafter(*run(feed), np.float32(0)) * 1.1])
        client.check("conv", 3, 0)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            client.check("mlp", 3, 0)


def test_a_server_on_the_cpu_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu(*_: Any) -> list[str]:
        return [cuda_session.CPU]

    monkeypatch.setattr(cuda_session.providers, "choose", cpu)
    with pytest.raises(AssertionError, match=r"models run on \{'cpu'\}"), served():
        pass


def test_weights_that_are_not_shared_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_share_weights", lambda *_: None)
    with pytest.raises(AssertionError, match="do not share weights"):
        served_memory.shared_weights()


def test_two_copies_of_weights_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([100 << 20, 92 << 20])
    monkeypatch.setattr(served_memory, "free", lambda: next(left))
    with pytest.raises(AssertionError, match="as much as two copies"):
        served_memory.shared_weights()


def test_lengths_without_buffers_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "bindable_with", lambda *_: False)
    with pytest.raises(AssertionError, match="no buffers of its own"):
        served_tensors.lengths()


@pytest.mark.parametrize("part", [served_tensors.cuda_graphs, served_tensors.lengths])
def test_runs_that_are_not_captured_are_a_failure(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Engine.instance

    def eager(engine: Engine, index: int, bound: int = 0, captures: bool = True, padding: Any = None) -> Any:
        return instance(engine, index, bound, False, padding)

    monkeypatch.setattr(Engine, "instance", eager)
    with pytest.raises(AssertionError, match="has no CUDA graphs for"):
        part()


def test_a_cache_in_float32_that_runs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_texts, "texts", lambda *_: [])
    with pytest.raises(AssertionError, match="was not refused"):
        served_texts.in_float32()


def text(*tokens: int, **likely: float) -> Text:
    made = Text()
    made.tokens = [*tokens]
    made.likely = [{int(name[1:]): value for name, value in likely.items()} for _ in tokens]
    return made


def test_another_text_is_a_failure() -> None:
    """Where it was less likely for the CPU than the tolerance of the type allows."""
    expected = [text(5, 6, 7, _5=-1.0, _6=-1.0, _7=-1.0, _8=-1.03, _9=-2.0)]
    found = compared([text(5, 6, 7)], expected, "float16")
    assert found == {"texts": 1, "tokens": 3, "as on the CPU": 3}
    assert compared([text(5, 8, 1)], expected, "float16")["as on the CPU"] == 1
    for wrong, message in ((9, "token 1 of text 0 is less likely by 1.000"), (4, "less likely by inf")):
        with pytest.raises(AssertionError, match=message):
            compared([text(5, wrong, 7)], expected, "float16")
    with pytest.raises(AssertionError, match="another length"):
        compared([text(5)], expected, "float16")
