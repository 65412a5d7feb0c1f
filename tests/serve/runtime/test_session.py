"""Runs that are ended, and instances with buffers of their own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from waiting import wait_for_work

from ox.devices.machine import Driver, nvidia_driver
from ox.devices.onnxruntime.probe import CUDA, runtime_distributions
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import LoadError, ServeError
from ox.graph.contract import DTYPES, TensorInfo
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime.buffer import bindable
from ox.serve.runtime.device_buffers import DeviceInstance
from ox.serve.runtime.io_binding import BufferedInstance
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
from ox.tolerance import compare

F = TensorProto.FLOAT


@pytest.fixture
def endless(build: Any, loop_body: Any) -> Path:
    """y = x after as many rounds of a loop as `n` says."""
    nodes = [("Loop", ["n", "go", "x"], ["y"], {"body": loop_body})]
    inputs = {"n": (TensorProto.INT64, []), "x": (F, ["batch", 4])}
    return build("endless", nodes, inputs, {"y": (F, ["batch", 4])}, {"go": np.array(True)})  # type: ignore[no-any-return]


def test_a_run_is_ended_from_another_thread(endless: Path, capfd: Any) -> None:
    instance = Engine(read(endless), "cpu", 1, 1).instance(0)
    control, runner = instance.control(), threading.current_thread()

    def stop() -> None:
        wait_for_work(runner)
        control.terminate = True

    thread = threading.Thread(target=stop)
    thread.start()
    x = np.zeros((1, 4), np.float32)
    with pytest.raises(ServeError, match="cannot run") as caught:
        instance([{"n": np.array(1 << 60), "x": x}], control)
    thread.join()
    assert caught.value.status == 500 and capfd.readouterr() == ("", "")  # ONNX Runtime does not log it either
    (y,) = instance([{"n": np.array(3), "x": x + 2}], instance.control())  # the next run is none the worse
    assert (y == 2).all()


@pytest.fixture
def engine(mlp: Path) -> Engine:
    return Engine(read(mlp), "cpu", 1, 1)


def rows(*counts: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(sum(counts))
    return [{"x": random.standard_normal((count, 64)).astype(np.float32)} for count in counts]


@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1), (2, 3, 3), (8,), (1,) * 8, (9,), (4, 5)])
def test_buffers_give_the_same(engine: Engine, counts: tuple[int, ...]) -> None:
    plain, bound = engine.instance(0), engine.instance(0, 8)
    assert isinstance(bound, BufferedInstance)
    feeds = rows(*counts)
    for _ in range(2):
        (expected,), (got,) = plain(feeds), bound(feeds)
        assert got.shape == expected.shape and np.allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_no_error_is_raised_and_caught_inside_of_a_run(engine: Engine) -> None:
    """ONNX Runtime's own Python code does, ten times as slow as the run, if a run option is missing."""
    raised = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "c_exception":
            raised.append(argument)

    for instance in (engine.instance(0), engine.instance(0, 8)):
        for control in (None, instance.control()):
            sys.setprofile(note)
            try:
                instance(rows(2), control)
            finally:
                sys.setprofile(None)
    assert raised == []


def test_answers_are_not_overwritten(engine: Engine) -> None:
    bound = engine.instance(0, 8)
    kept = [(feeds := rows(size), bound(feeds)[0]) for size in (3, 8, 1, 3)]
    for feeds, y in kept:
        assert np.allclose(y, engine.run(feeds[0])[0], rtol=1e-5, atol=1e-5)


def test_buffers_that_do_not_fit_are_not_the_requests_fault(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may say one size of its outputs and give another."""
    wrong = (TensorInfo("y", "FP32", ("batch", 11)),)
    monkeypatch.setattr(engine, "outputs", wrong)
    (feed,) = rows(2)
    assert engine.instance(0, 8)([feed])[0].shape == (2, 10)


def test_an_ended_run_is_not_repeated(engine: Engine) -> None:
    bound = engine.instance(0, 8)
    control = bound.control()
    control.terminate = True
    with pytest.raises(Exception, match="terminate flag"):
        bound(rows(1), control)


def test_what_can_have_buffers() -> None:
    def one(dtype: str, *dims: Any) -> bool:
        return bindable([TensorInfo("x", dtype, dims)])

    assert one("FP32", "batch", 3) and one("BOOL", None) and one("INT64", "batch", 2, 2)
    assert not one("FP32", "batch", "t") and not one("FP32", 1, 3) and not one("FP32")
    assert not one("BYTES", "batch") and not one("BF16", "batch", 2)


def test_a_server_with_and_without_buffers(
    mlp: Path, connect: Any, infer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ox.serve import Server
    from ox.serve.tuning import measure

    for pays in (True, False):
        monkeypatch.setattr(measure, "_binding_is_faster", lambda *_, pays=pays: pays)
        with Server([mlp], options=ModelConfig(max_rows=4)) as server, connect(server) as client:
            served = server.models[0]
            assert isinstance(served.batcher._inline, BufferedInstance) is pays
            for count in (1, 3, 4, 6):
                (feed,) = rows(count)
                y = infer(client, "mlp", x=feed["x"])["y"]
                assert np.allclose(y, served.engine.run(feed)[0], rtol=1e-4, atol=1e-4)


def on_a_gpu(path: Path, **options: Any) -> Model:
    """The model on a real GPU; skips the test where there is no provider or no device. Where onnxruntime-gpu and a
    device are there, a session on the CPU is a failure."""
    if CUDA not in onnxruntime().get_available_providers() and "onnxruntime-gpu" not in runtime_distributions():
        pytest.skip("this ONNX Runtime has no CUDA provider")
    driver = nvidia_driver()
    if driver is None or not driver.devices:
        pytest.skip("no NVIDIA driver with a device")
    assert Model(path, ModelConfig(device="auto"), RequestLimits()).engine.device == "cuda"
    return Model(path, ModelConfig(device="cuda", **options), RequestLimits())


def test_a_provider_that_does_not_work_is_no_skip(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime-gpu and a device are there, and another ONNX Runtime hides the provider."""
    module = sys.modules[__name__]
    monkeypatch.setattr(onnxruntime(), "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(module, "nvidia_driver", lambda: Driver((13, 0), ("H100",)))
    monkeypatch.setattr(module, "runtime_distributions", lambda: {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"})
    with pytest.raises(AssertionError):
        on_a_gpu(mlp)
    monkeypatch.setattr(module, "runtime_distributions", lambda: {"onnxruntime": "1.32.0"})
    with pytest.raises(pytest.skip.Exception, match="no CUDA provider"):
        on_a_gpu(mlp)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "cuda",
    [
        {"use_tf32": True},
        {"arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "HEURISTIC"},
        {"gpu_mem_limit": "1GiB", "enable_cuda_graph": True},
    ],
)
def test_buffers_on_a_gpu(mlp: Path, cuda: dict[str, Any]) -> None:
    model = on_a_gpu(mlp, cuda=cuda)
    bound, plain = model.engine.instance(0, 8), Engine(read(mlp), "cpu", 1, 1).instance(0)
    assert isinstance(bound, DeviceInstance)
    for counts in ((1,), (3,), (2, 3), (8,), (9,), (3,)):  # the last replays a graph
        feeds = rows(*counts)
        through = np.dtype(np.float16) if model.engine.uses_tf32 else None
        assert compare(bound(feeds)[0], plain(feeds)[0], through).ok


def text_and_halves(build: Any, kind: int) -> Path:
    """`text` as it came, and `half` as another type."""
    nodes = [("Identity", ["text"], ["said"], {}), ("Cast", ["half"], ["number"], {"to": kind})]
    inputs = {"text": (TensorProto.STRING, ["batch"]), "half": (TensorProto.BFLOAT16, ["batch"])}
    outputs = {"said": (TensorProto.STRING, ["batch"]), "number": (kind, ["batch"])}
    return build(f"text_{kind}", nodes, inputs, outputs)  # type: ignore[no-any-return]


def test_text_beside_bfloat16(build: Any) -> None:
    engine = Engine(read(text_and_halves(build, F)), "cpu", 1, 1)
    half = np.array([1.5, -2], DTYPES["BF16"])
    said, number = engine.run({"text": np.array(["a", "ü"], object), "half": half})
    assert said.tolist() == ["a", "ü"] and number.tolist() == [1.5, -2]
    with pytest.raises(LoadError, match="takes text only with outputs of NumPy types"):
        Engine(read(text_and_halves(build, TensorProto.BFLOAT16)), "cpu", 1, 1)
