"""Models with a length on a GPU: buffers and CUDA graphs of each batch size and length that requests are padded to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CudaSession
from onnx import TensorProto
from serving_gpu import ServingGpu, close

from ox.clock import SYSTEM
from ox.errors import LoadError, OutOfMemoryError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.batching.admission import Budget
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.model import Model
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime import device_buffers
from ox.serve.runtime.device_buffers import DeviceInstance, graph_shapes
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
from ox.serve.tuning import gpu_trial

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
GRAPHS = {"enable_cuda_graph": True}


@pytest.fixture(scope="module")
def embed(build: Any) -> Path:
    """A vector for each token, and their mean under a mask."""
    table = np.random.default_rng(0).standard_normal((11, 4)).astype(np.float32)
    nodes: list[Any] = [
        ("Gather", ["table", "ids"], ["each"], {}),
        ("Unsqueeze", ["mask", "last"], ["m"], {}),
        ("Mul", ["each", "m"], ["kept"], {}),
        ("ReduceSum", ["kept", "axis"], ["sum"], {"keepdims": 0}),
        ("ReduceSum", ["mask", "axis"], ["count"], {"keepdims": 1}),
        ("Div", ["sum", "count"], ["mean"], {}),
    ]
    inputs = {"ids": (INT, ["batch", "tokens"]), "mask": (FLOAT, ["batch", "tokens"])}
    outputs = {"each": (FLOAT, ["batch", "tokens", 4]), "mean": (FLOAT, ["batch", 4])}
    weights = {"table": table, "axis": np.array([1], np.int64), "last": np.array([2], np.int64)}
    return build("embed", nodes, inputs, outputs, weights)  # type: ignore[no-any-return]


def load(path: Path, **options: Any) -> Model:
    settings: dict[str, Any] = {"max_rows": 4, "pad": {"tokens": 0}, "mask": "mask", **options}
    return Model(path, ModelConfig("cuda", **settings), RequestLimits())


def feed(rows: int, tokens: int) -> dict[str, Any]:
    random = np.random.default_rng(tokens)
    return {"ids": random.integers(0, 11, (rows, tokens)), "mask": np.ones((rows, tokens), np.float32)}


def bound(model: Model) -> DeviceInstance:
    instance = model.batcher._instances[0]
    assert isinstance(instance, DeviceInstance)
    return instance


def test_the_results_are_those_of_the_cpu(embed: Path) -> None:
    model, plain = load(embed), Engine(read(embed), "cpu", 1, 1).instance(0)
    instance, padding = bound(model), model.padding
    assert padding is not None
    for shapes in ([(1, 3)], [(2, 3), (1, 8)], [(3, 20)], [(4, 9)], [(1, 3)], [(5, 8)]):
        feeds = [feed(*shape) for shape in shapes]
        parts = padding.scatter(instance((padding.gather(feeds),)), feeds)
        for each, part in zip(feeds, parts, strict=True):
            for got, expected in zip(part, plain((each,)), strict=True):
                assert close(got, expected)


def test_a_copy_for_each_tensor_and_one_wait(embed: Path, cuda: ServingGpu) -> None:
    model = load(embed, max_dims={"tokens": 40}, cuda=GRAPHS)
    instance = bound(model)
    assert model.padding is not None
    batch = model.padding.gather([feed(2, 9), feed(1, 13)])
    # 4 rows of 16 numbers of int64 and float32
    copied = {"bytes to device": 4 * 16 * 12, "bytes to host": 4 * (16 + 1) * 4 * 4}
    with cuda.doing({"to device": 2, "to host": 2, "waits": 1, **copied}):
        instance((batch,))


def test_all_shapes_lie_in_the_memory_of_the_largest(embed: Path) -> None:
    instance = bound(load(embed, max_dims={"tokens": 40}, cuda=GRAPHS))
    addresses = [
        {buffer.address for buffer in (*each.inputs.values(), *each.outputs)} for each in instance._buckets.values()
    ]
    assert len(addresses) == 15 and all(each == addresses[0] for each in addresses)
    assert [staged.host.size for staged in instance._staged] == [160, 160, 640, 16]


def test_graphs_of_all_sizes_and_lengths_are_captured_at_load(embed: Path, connect: Any, infer: Any) -> None:
    options = ModelConfig("cuda", max_rows=4, pad={"tokens": 0}, mask="mask", max_dims={"tokens": 40}, cuda=GRAPHS)
    with Server([embed], options=options) as server, connect(server) as client:
        line = server.models[0].describe()
        assert "15 CUDA graphs (batch sizes 1, 2, 4; tokens 8, 16, 24, 32, 40)" in line
        made = CudaSession.made[0]
        before, count = set(made.graphs), len(made.graphs)
        for tokens in (1, 8, 9, 31, 40, 33):
            entries = [
                {"name": name, "shape": [1, tokens], "datatype": kind, "data": [1] * tokens}
                for name, kind in (("ids", "INT64"), ("mask", "FP32"))
            ]
            assert client.ask("POST", "/v2/models/embed/infer", json.dumps({"inputs": entries}).encode())[0] == 200
        assert len(made.graphs) == count + 6 and set(made.graphs) == before and "-1" not in made.graphs[count:]


def test_lengths_without_a_graph_run_as_they_are(embed: Path) -> None:
    instance = bound(load(embed, max_dims={"tokens": 20}, cuda=GRAPHS))
    graphs = CudaSession.made[0].graphs
    count = len(graphs)
    plain = Engine(read(embed), "cpu", 1, 1).instance(0)
    for rows, tokens in ((1, 3), (1, 24), (5, 8)):  # not a whole bucket, above the last, more samples
        for got, expected in zip(instance((feed(rows, tokens),)), plain((feed(rows, tokens),)), strict=True):
            assert close(got, expected)
    assert len(graphs) == count
    assert {shape[1] for shape in graph_shapes(4, instance._padding)} == {(("tokens", n),) for n in (8, 16, 20)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no limit of tokens"),
        (
            {"max_dims": {"tokens": 40}, "max_graphs": 14},
            "15 CUDA graphs (batch sizes 1, 2, 4; tokens 8, 16, 24, 32, 40)",
        ),
        ({"max_dims": {"tokens": 40}, "max_rows": 1}, "max_rows is 1"),
        ({"max_dims": {"tokens": 40}, "pad": {}, "mask": None}, "ids INT64 [batch, tokens]"),
    ],
)
def test_what_is_not_captured(embed: Path, options: Any, text: str) -> None:
    with pytest.raises(LoadError, match="embed cannot be captured as CUDA graphs") as caught:
        load(embed, cuda=GRAPHS, **{"max_rows": 4, **options})
    assert text in f"{caught.value.got}" or text in f"{caught.value.expected}"


def test_padding_that_changes_results_has_no_graphs(build: Any) -> None:
    """The mean over all tokens."""
    ends = (FLOAT, ["batch", "tokens"])
    nodes = [("ReduceMean", ["x", "axis"], ["y"], {"keepdims": 1})]
    path = build("mean", nodes, {"x": ends}, {"y": (FLOAT, ["batch", 1])}, {"axis": np.array([1], np.int64)})
    assert load(path, mask=None).padding is None
    with pytest.raises(LoadError, match="mean cannot be captured as CUDA graphs") as caught:
        load(path, mask=None, cuda=GRAPHS, max_dims={"tokens": 40})
    assert "differs from it alone" in str(caught.value.got)


def test_no_memory_for_buffers(embed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch runs without; where it is to be captured, the model is refused."""

    def fail(*_: Any) -> None:
        raise OutOfMemoryError("cuda:0 has no memory for 1 GiB more")

    instance = bound(load(embed))
    expected = instance((feed(2, 8),))
    instance._staged, instance._buckets = [], {}
    monkeypatch.setattr(device_buffers, "StagedBuffer", fail)
    assert all(close(*pair) for pair in zip(instance((feed(2, 8),)), expected, strict=True))


def test_the_longest_is_tried_last_with_few_rows_and_memory_goes_back(
    embed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes, before, real = list[Any](), list[Any](), CudaSession.run_with_iobinding

    def run(session: CudaSession, binding: Any, options: Any) -> None:
        real(session, binding, options)
        shapes.append(tuple(binding.real.get_outputs()[0].shape()[:2]))

    monkeypatch.setattr(CudaSession, "run_with_iobinding", run)
    monkeypatch.setattr(gpu_trial, "free_pools", lambda numbers: before.append(shapes.copy()))
    bound(load(embed, max_dims={"tokens": 16}))
    ((*short, first, last),) = before
    assert set(short) == {(1, 8), (4, 8)} and (first, last) == ((1, 16), (2, 16))  # as many tokens as 4 of 8
    assert CudaSession.made[0].shrunk == ["gpu:0"]
    before.clear()
    bound(load(embed, max_dims={"tokens": 4096}))
    assert before[0][-1] == (1, 4096) and before[0].count(before[0][-1]) == 1


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_lengths_without_room_have_no_buffers(embed: Path, caplog: pytest.LogCaptureFixture, limit: int) -> None:
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), GpuBudget(limit))
    cuda = {"gpu_mem_limit": "1MiB"}
    for most, why in ((10**12, "this machine has no memory for"), (None, "no limit of tokens")):
        caplog.clear()
        options = ModelConfig(
            "cuda", max_rows=4, pad={"tokens": 0}, mask="mask", max_dims={"tokens": most} if most else {}, cuda=cuda
        )
        model = Model(embed, options, RequestLimits(), budget=budget)
        without = bool(most or limit)
        assert isinstance(model.batcher._instances[0], DeviceInstance) is not without
        assert (why in caplog.text) is without
