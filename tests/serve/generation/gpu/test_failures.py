"""A GPU that fails while it writes texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cuda_session import CudaSession
from generation_client import Client, prompts

from ox.serve.generation.decoder_memory import GpuMemory

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("CUDA failure 719: unspecified launch failure", "cuda:0 has failed, and takes no more work"),
        ("CUDA failure 2: out of memory", "the GPU has no memory left"),
        (
            "CUDA failure 400: invalid resource handle",
            "the stream of cuda:0 that this model runs on has",
        ),
    ],
)
@pytest.mark.parametrize("captures", [False, True])
def test_a_gpu_that_fails_ends_texts_with_503(
    client_on: Callable[..., Client], words: str, says: str, captures: bool
) -> None:
    client = client_on("cuda", 4, {"enable_cuda_graph": captures})
    CudaSession.broken = f"{words} ; GPU=0 ; hostname=secret ; file=/x.cc ; line=7"
    error = client.ask([1, 2, 3], 3).error
    assert error is not None and error.status == 503 and error.what.startswith(says) and "secret" not in str(error)
    CudaSession.broken = ""
    assert client.ask([1, 2, 3], 3).error is None


def test_a_copy_on_a_gpu_that_fails_ends_texts_with_503(
    client_on: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    client = client_on("cuda", 4, {})
    monkeypatch.setattr(GpuMemory, "read_blocks", fail)
    error = client.ask(list(range(1, 65)), 3).error
    assert error is not None and error.status == 503 and error.what.startswith("cuda:0 has failed")


def test_a_gpu_that_fails_in_all_it_does_leaves_no_text_unanswered(
    client_on: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")

    client = client_on("cuda", 8)
    step, failing = client.engine._run.step, []

    def lose(*arguments: Any) -> Any:
        if len(client.engine._scheduler.texts) == 4 and not failing:
            failing.append(True)
            for name in ("move", "read_blocks", "zeros"):
                monkeypatch.setattr(GpuMemory, name, fail)
        return fail() if failing else step(*arguments)

    monkeypatch.setattr(client.engine._run, "step", lose)
    answers = [client.send(prompt, 20, ignore_eos=True) for prompt in prompts(4)]
    errors = [answer.wait().error for answer in answers]
    assert [error is not None and error.what.startswith("cuda:0 has failed") for error in errors] == [True] * 4
    later = client.ask([1, 2, 3], 3).error
    assert later is not None and later.what.startswith("cuda:0 has failed")
