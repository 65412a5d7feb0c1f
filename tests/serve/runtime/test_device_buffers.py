"""Instances on a GPU: buffers, pinned memory, streams and CUDA graphs."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CUDA, CudaSession
from onnx import TensorProto
from serving_gpu import ServingGpu, close

from ox.clock import SYSTEM
from ox.devices.gpu.staged_buffer import StagedBuffer
from ox.errors import LoadError, ServeError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.batching.admission import Budget
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.configuration import configuration
from ox.serve.repository.model import Model
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime import device_buffers, session
from ox.serve.runtime.capture_gate import CaptureGate
from ox.serve.runtime.device_buffers import DeviceInstance
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
from ox.serve.telemetry.snapshot import of_model

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


def rows(*counts: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal((count, 64)).astype(np.float32)} for count in counts]


def load(mlp: Path, device: str = "cuda", **options: Any) -> Model:
    return Model(mlp, ModelConfig(device, max_rows=8, **options), RequestLimits())


@pytest.mark.parametrize("counts", [(1,), (3,), (2, 3), (8,), (9,)])
def test_the_results_are_those_of_the_cpu(mlp: Path, counts: tuple[int, ...]) -> None:
    instance = load(mlp).engine.instance(0, 8)
    assert isinstance(instance, DeviceInstance)
    plain = Engine(read(mlp), "cpu", 1, 1).instance(0)
    for _ in range(2):
        assert close(instance(rows(*counts))[0], plain(rows(*counts))[0])


@pytest.mark.parametrize("captures", [False, True])
def test_a_copy_for_each_tensor_and_one_wait_for_a_batch(mlp: Path, cuda: ServingGpu, captures: bool) -> None:
    instance = load(mlp, cuda={"enable_cuda_graph": captures}).engine.instance(0, 8)
    instance(rows(2, 1))  # makes the buffers
    copies = {"to device": 1, "bytes to device": 4 * 64 * 4, "to host": 1, "bytes to host": 4 * 10 * 4}
    with cuda.doing({**copies, "waits": 1}):
        instance(rows(2, 2))
    assert CudaSession.made[-1].waited[-1] is False  # the session's own wait is left out


def test_the_host_side_is_pinned_memory(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    instance, sizes = load(mlp).engine.instance(0, 8), []
    allocate = cupy.cuda.alloc_pinned_memory

    def count(size: int) -> Any:
        sizes.append(size)
        return allocate(size)

    monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", count)
    instance(rows(3))
    instance(rows(4))
    assert sizes == [4 * 64 * 4, 4 * 10 * 4]  # of one bucket


def test_buffers_belong_to_the_stream_that_uses_them(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's pool keeps memory apart by stream: what another one still writes is not given out."""
    import cupy

    streams: list[int] = []

    class Noted(StagedBuffer):
        def __init__(self, *shape_and_dtype: Any) -> None:
            streams.append(cupy.cuda.get_current_stream().ptr)
            super().__init__(*shape_and_dtype)

    monkeypatch.setattr(device_buffers, "StagedBuffer", Noted)
    load(mlp).engine.instance(0, 8)(rows(3))
    assert set(streams) == {int(CudaSession.made[-1].options["user_compute_stream"])}


def test_each_instance_has_a_session_and_a_stream(mlp: Path) -> None:
    model = load(mlp, instances=3, cuda={"use_tf32": False, "gpu_mem_limit": "1GiB"})
    streams = {made.options["user_compute_stream"] for made in CudaSession.made}
    assert len(streams) == len(CudaSession.made) == model.instances == 3
    for made in CudaSession.made:
        assert made.options["use_tf32"] == "0" and made.options["gpu_mem_limit"] == str(1 << 30)
        assert made.options["do_copy_in_default_stream"] == "1"
    assert load(mlp).instances == 1


def test_a_stream_is_destroyed_after_its_session(mlp: Path, cuda: ServingGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's destructor uses the stream: many models are loaded and dropped, while others go on."""
    import cupy

    loads, destroyed = 5 if cuda.is_real else 50, list[str]()  # a step of make gpu loads one 50 times

    class Stream(cupy.cuda.Stream):
        def __del__(self) -> None:
            destroyed.append("stream")

    monkeypatch.setattr(session.cuda_devices, "stream", lambda device: Stream(non_blocking=True))
    other = load(mlp).engine.instance(0, 8)
    expected = other(rows(3))[0]
    for _ in range(loads):
        engine = Engine(read(mlp), "cuda", 1, 1)
        engine.instance(1, 8)(rows(3))
        for made in CudaSession.made[-2:]:
            weakref.finalize(made._sess, destroyed.append, "session")
        CudaSession.made.clear()
        del engine, made
    assert destroyed == ["session", "stream"] * 2 * loads
    assert np.array_equal(other(rows(3))[0], expected)


def test_a_session_that_the_garbage_collector_ends_does_not_end_a_capture(
    mlp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, seen = list[bool](), list[int]()
    other = Engine(read(mlp), "cuda", 1, 1)
    instance = other.instance(0, 4)
    instance(rows(3))
    weakref.finalize(CudaSession.made[-1]._sess, lambda: ended.append(session.GATE._capturing))
    CudaSession.made.clear()
    other.me = other  # type: ignore[attr-defined]
    run = DeviceInstance._run_bucket

    def collecting(*args: Any) -> Any:
        gc.collect()
        seen.append(len(ended))
        return run(*args)

    model = load(mlp, cuda={"enable_cuda_graph": True})
    monkeypatch.setattr(DeviceInstance, "_run_bucket", collecting)
    captured = model.engine.instance(0, 4)
    del other, instance
    captured.prepare(rows(1)[0])
    assert seen[0] == 0 and ended == [False]


@pytest.mark.parametrize(
    ("device", "instances", "numbers"),
    [
        ("cuda:1", None, [1]),
        ("cuda:1", 2, [1, 1]),
        ("cuda:0,cuda:1", None, [0, 1]),
        ("auto:1,auto:1,auto:0", 4, [1, 1, 0, 1]),
    ],
)
def test_the_gpus_of_instances(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, device: str, instances: int | None, numbers: list[int]
) -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU is not enough")
    warmed: list[int] = []
    monkeypatch.setattr(DeviceInstance, "_bind", note(warmed, DeviceInstance._bind))
    model = load(mlp, device, instances=instances)
    assert model.engine.place == device.replace("auto", "cuda") and model.instances == len(numbers)
    assert set(warmed) == set(numbers) and len(warmed) >= len(numbers)
    assert [int(made.options["device_id"]) for made in CudaSession.made] == numbers
    plain = Engine(read(mlp), "cpu", 1, 1).instance(0)
    for index, number in enumerate(numbers):
        instance = model.engine.instance(index, 8)
        assert isinstance(instance, DeviceInstance)
        assert close(instance(rows(2, 3))[0], plain(rows(2, 3))[0])
        assert instance._stream.device_id == number
        assert instance._stream.ptr == int(CudaSession.made[index].options["user_compute_stream"])
        buffers = [buffer for bucket in instance._buckets.values() for buffer in bucket.outputs]
        assert {buffer.device.device.id for buffer in buffers} == {number}
    groups = {group["gpus"][0]: group["count"] for group in configuration(model, None)["instance_group"]}
    assert groups == Counter(numbers)
    assert of_model(model)["info"]["device"] == model.engine.place
    assert cupy.cuda.runtime.getDevice() == 0


def note(numbers: list[int], bind: Any) -> Any:
    def noting(instance: DeviceInstance, size: int) -> Any:
        numbers.append(instance._stream.device_id)
        return bind(instance, size)

    return noting


def test_a_graph_for_each_bucket_of_each_instance(mlp: Path) -> None:
    engine = load(mlp, cuda={"enable_cuda_graph": True}).engine
    one, two = engine.instance(0, 8), engine.instance(0, 8)
    graphs = CudaSession.made[0].graphs
    graphs.clear()
    used = []
    for instance in (one, two):
        instance.prepare(rows(1)[0])
        graphs.clear()
        for count in (1, 3, 4, 1):
            instance(rows(count))
        used.append(graphs[:])
    first, second = used
    assert first[1] == first[2] and first[0] == first[3] != first[1]  # addresses of a bucket stay the same
    assert not set(first) & set(second)  # other addresses
    assert "-1" not in first + second
    plain = load(mlp).engine.instance(0, 8)
    plain(rows(1))
    assert set(CudaSession.made[-1].graphs) == {"-1"}


def test_graphs_are_captured_at_load_in_the_thread_that_replays_them(
    mlp: Path, connect: Any, infer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured: list[tuple[str, int]] = []
    capturing = CaptureGate.capturing

    @contextmanager
    def noting(gate: CaptureGate) -> Iterator[None]:
        with capturing(gate):
            yield
        captured.append((CudaSession.made[0].graphs[-1], threading.get_ident()))

    monkeypatch.setattr(CaptureGate, "capturing", noting)
    options = ModelConfig("cuda", max_rows=8, cuda={"enable_cuda_graph": True})
    with Server([mlp], options=options) as server, connect(server) as client:
        made = CudaSession.made[0]
        before = len(captured)
        first = len(made.graphs)
        for count in (1, 2, 3, 5, 8) * 2:
            infer(client, "mlp", x=rows(count)[0]["x"])
        assert len(captured) == before and len(made.graphs) == first + 10
        replayed = set(made.graphs[first:])
        assert len(replayed) == 4 and replayed <= {graph for graph, _ in captured}
        assert [len(made.threads[graph]) for graph in replayed] == [1] * 4
        assert len(set.union(*(made.threads[graph] for graph in replayed))) == 1


def test_the_largest_batch_runs_before_the_first_capture(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the thread of the graphs: what the arena grows by is no memory of a graph."""
    events = list[tuple[str, int, int]]()
    run, capturing = CudaSession.run, CaptureGate.capturing

    def noting(made: CudaSession, names: Any, feed: Any, options: Any = None) -> Any:
        events.append(("run", len(feed["x"]), threading.get_ident()))
        return run(made, names, feed, options)

    def noting_capture(gate: CaptureGate) -> Any:
        events.append(("capture", 0, threading.get_ident()))
        return capturing(gate)

    instance = load(mlp, cuda={"enable_cuda_graph": True}).engine.instance(0, 8)
    monkeypatch.setattr(CudaSession, "run", noting)
    monkeypatch.setattr(CaptureGate, "capturing", noting_capture)
    instance.prepare(rows(1)[0])
    thread = events[-1][2]
    assert thread != threading.get_ident()
    assert events == [("run", 8, thread), *[("capture", 0, thread)] * 4]


@pytest.mark.parametrize("failures", [1, 2])
def test_a_capture_that_fails_is_tried_once_more(mlp: Path, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = load(mlp, cuda={"enable_cuda_graph": True}).engine.instance(0, 4)
    assert isinstance(instance, DeviceInstance)
    capturing, entered = CaptureGate.capturing, list[int]()
    monkeypatch.setattr(CaptureGate, "capturing", lambda gate: (entered.append(1), capturing(gate))[1])
    CudaSession.failures = failures
    if failures == 2:
        with pytest.raises(LoadError, match=r"(?s)a batch of 4 cannot be captured.*CUDA failure 700"):
            instance.prepare(rows(1)[0])
    else:
        instance.prepare(rows(1)[0])
        assert instance._captured == {(rows, ()) for rows in (1, 2, 4)} and len(entered) == 4


def test_no_memory_for_a_capture(mlp: Path) -> None:
    instance = load(mlp, cuda={"enable_cuda_graph": True}).engine.instance(0, 4)
    assert isinstance(instance, DeviceInstance)
    CudaSession.failures, CudaSession.failure = 2, "CUDA failure 2: out of memory ; GPU=0"
    with pytest.raises(
        LoadError, match="a batch of 4 cannot be captured as a CUDA graph: the GPU has no memory"
    ) as caught:
        instance.prepare(rows(1)[0])
    assert "are free, CuPy's pool in this process holds" in str(caught.value.got)
    assert "a smaller max_rows" in str(caught.value.hint)


def test_what_uses_a_gpu_waits_for_a_capture(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(mlp).engine
    instance, entered = engine.instance(0, 8), list[str]()

    class Noted(CaptureGate):
        def using(self) -> Any:
            entered.append("using")
            return super().using()

        def loading(self) -> Any:
            entered.append("loading")
            return super().loading()

    for module in (session, device_buffers):
        monkeypatch.setattr(module, "GATE", Noted())
    instance(rows(3))
    engine.run(rows(3)[0])  # without buffers
    assert entered == ["using", "using"]
    engine._make_session(0)  # a stream, and the session
    assert entered[2:] == ["using", "loading"]


def test_graphs_need_sizes_that_are_fixed(build: Any) -> None:
    ends = (TensorProto.FLOAT, ["batch", "tokens"])
    path = build("open", [("Relu", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    with pytest.raises(LoadError, match="cannot be captured as CUDA graphs"):
        load(path, cuda={"enable_cuda_graph": True})


def test_graphs_are_claimed(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 1 MiB; the session holds those of one and of 8 samples that were compared, too."""
    left = itertools.count(1000, -1)
    monkeypatch.setattr(device_buffers, "outside_pool", lambda _: next(left) << 20)
    options = ModelConfig("cuda", max_rows=8, cuda={"enable_cuda_graph": True, "gpu_mem_limit": "1MiB"})
    before = (1 << 20) + 8 * 4 * (64 + 10)  # the session, and buffers

    def load(mib: int) -> tuple[Model, GpuBudget]:
        gpus = GpuBudget(mib << 20)
        budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), gpus)
        return Model(mlp, options, RequestLimits(), budget=budget), gpus

    model, gpus = load(8)
    assert str(model.graphs).startswith("4 CUDA graphs") and (8 << 20) - gpus.free(0) == before + (6 << 20)
    del model
    gc.collect()
    assert gpus.free(0) == 8 << 20
    with pytest.raises(LoadError, match="cuda:0 has no room for") as caught:
        load(5)
    assert "4 MiB (its CUDA graphs)" in str(caught.value.got)


def test_a_graph_of_one_sample(mlp: Path, connect: Any, infer: Any) -> None:
    options = ModelConfig("cuda", max_rows=1, cuda={"enable_cuda_graph": True})
    with Server([mlp], options=options) as server, connect(server) as client:
        graphs = CudaSession.made[0].graphs
        first = len(graphs)
        for count in (1, 1, 3):
            infer(client, "mlp", x=np.repeat(rows(1)[0]["x"], count, 0))
        assert len(set(graphs[first:])) == 1 and len(graphs) == first + 2  # more samples run without buffers
        assert graphs[-1] != "-1"


def test_a_run_with_buffers_that_fails_is_run_without(mlp: Path) -> None:
    instance = load(mlp).engine.instance(0, 8)
    expected = instance(rows(3))[0]
    CudaSession.failures = 1
    assert close(instance(rows(3))[0], expected)
    control = instance.control()
    control.terminate = True
    with pytest.raises(Exception, match="terminate"):
        instance(rows(3), control)


def test_a_gpu_that_is_lost_while_a_batch_waits(mlp: Path) -> None:
    class Stream:
        """Of a GPU that has failed, as CuPy tells."""

        device_id = 1

        def __init__(self, real: Any) -> None:
            self.ptr = real.ptr

        def synchronize(self) -> None:
            raise RuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    instance = load(mlp).engine.instance(0, 8)
    assert isinstance(instance, DeviceInstance)
    instance(rows(3))
    instance._stream = Stream(instance._stream)
    with pytest.raises(ServeError, match="cuda:1 has failed, and takes no more work of this server") as caught:
        instance(rows(3))
    assert caught.value.status == 503


def test_a_gpu_that_is_lost_before_a_capture(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def free(number: int) -> int:
        raise RuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    instance = load(mlp, cuda={"enable_cuda_graph": True}).engine.instance(0, 8)
    monkeypatch.setattr(device_buffers, "outside_pool", free)
    with pytest.raises(ServeError, match="cuda:0 has failed, and takes no more work of this server"):
        instance(rows(3))


def test_a_server(mlp: Path, connect: Any, infer: Any) -> None:
    plain = Engine(read(mlp), "cpu", 1, 1)
    options = ModelConfig("cuda", max_rows=8, cuda={"enable_cuda_graph": "1"})
    with Server([mlp], options=options) as server, connect(server) as client:
        assert server.models[0].describe().split(" · ")[1] == f"cuda ({CUDA})"
        for count in (1, 5, 8, 11):
            (feed,) = rows(count)
            assert np.allclose(infer(client, "mlp", x=feed["x"])["y"], plain.run(feed)[0], rtol=1e-4, atol=1e-4)
        settings = client.ask("GET", "/v2/models/mlp/config")[2]
        assert b'"enable_cuda_graph":{"string_value":"1"}' in settings and b"KIND_GPU" in settings
