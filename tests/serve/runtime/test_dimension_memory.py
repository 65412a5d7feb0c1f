"""Sizes that vary: what a few runs tell of the memory they need, and what is refused by the shape alone."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from onnx import TensorProto
from rows import rows

from ox.clock import Clock
from ox.errors import ArgumentError, LoadError, ServeError
from ox.graph.contract import TensorInfo
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.config.request_limits import parse_dims
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.v2.shared_memory import Regions
from ox.serve.repository.model import Model
from ox.serve.runtime import dimension_memory
from ox.serve.runtime.dimension_memory import MIB, dimension_limits, varying
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.session import Engine

pytestmark = pytest.mark.usefixtures("usual_arena")

F, INT = TensorProto.FLOAT, TensorProto.INT64
CAP = 1024 * MIB


@pytest.fixture(scope="module")
def attention(build: Any) -> Path:
    nodes = [
        ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "t"], ["m"], {}),
        ("Softmax", ["m"], ["p"], {}),
        ("MatMul", ["p", "x"], ["y"], {}),
    ]
    return build("attention", nodes, {"x": (F, ["batch", "tokens", 1])}, {"y": (F, None)})  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wide(build: Any) -> Path:
    """Memory grows with `n` alone, by so little that a few runs show nothing."""
    return build("wide", [("Relu", ["x"], ["y"], {})], {"x": (F, ["batch", "n"])}, {"y": (F, ["batch", "n"])})  # type: ignore[no-any-return]


def shape(model: Model, *sizes: int) -> Any:
    (codec,) = model.signature.inputs.values()
    return codec.shape({"datatype": "FP32", "shape": list(sizes)})


def test_attention_is_bounded_by_its_square(attention: Path) -> None:
    """A size whose square is twice the memory or more is refused, one that fits is not."""
    options, control = ModelConfig("cpu", 1, instances=1, threads=1), LoadControl(clock=ManualClock())
    model = Model(attention, options, RequestLimits(memory=CAP), control=control)
    ((_, most, _),) = model.signature.inputs["x"].limits.axes
    fits = int((CAP / 4) ** 0.5)  # one matrix of tokens by tokens
    assert 0.7 * fits < most < 8 * fits
    assert shape(model, 1, int(0.7 * fits), 1)
    with pytest.raises(ServeError, match=r"dimension 1 \(tokens\) of input 'x' is 2000000") as caught:
        shape(model, 1, 2_000_000, 1)
    assert caught.value.status == 413 and "measured" in str(caught.value.expected)
    assert "--max-dim tokens=SIZE" in str(caught.value.hint)


def measured(path: Path, clock: Clock, max_rows: int = 1) -> tuple[Any, ...]:
    """The limits of input x of a model that is loaded by this clock."""
    options = ModelConfig("cpu", max_rows, instances=1, threads=1)
    model = Model(path, options, RequestLimits(memory=CAP), control=LoadControl(clock=clock))
    return tuple(model.signature.inputs["x"].limits.axes)


def test_a_busy_machine_finds_the_same_limit(attention: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the time of the processor: a machine that is busy with something else only takes longer."""
    clock = ManualClock()
    clock.thread_time = lambda: 0.0
    quiet = measured(attention, clock)
    real = dimension_memory._taken

    def slowly(engine: Engine, feed: Feed) -> int:
        clock.advance(10)
        return real(engine, feed)

    monkeypatch.setattr(dimension_memory, "_taken", slowly)
    assert measured(attention, clock) == quiet


def test_a_slow_processor_tries_fewer_sizes(attention: Path) -> None:
    """A size is not tried if that of half of it leaves too little of the budget."""
    clock, readings = ManualClock(), itertools.count()
    clock.thread_time = lambda: next(readings) * dimension_memory.BUDGET_S / 4
    assert measured(attention, clock) == ()


def test_most_of_the_time_of_a_load_is_left(attention: Path) -> None:
    """Nothing is tried any more once half of it is over."""
    model = Model(attention, ModelConfig("cpu", 1, instances=1, threads=1), RequestLimits(memory=CAP))
    model.engine.loading.limit_s = 2 * (model.engine.loading.seconds - 1e-6)
    assert dimension_limits(model.engine, model.proof.row, {}) == {}


@pytest.mark.parametrize(
    ("taken", "most"),
    [
        ([(512, 2), (1024, 4), (2048, 16), (4096, 64)], 23170),  # 4 bytes for a pair of tokens
        ([(1024, 0), (2048, 1), (4096, 64)], 13003),  # one that shows something: the steepest growth
        ([(2048, 16), (4096, 31)], None),
        ([(65536, 64)], None),
    ],
)
def test_growth_is_of_comparable_runs(
    wide: Path, taken: list[tuple[int, int]], most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(wide, ModelConfig("cpu", 1, instances=1, threads=1), RequestLimits(memory=CAP))
    monkeypatch.setattr(dimension_memory, "_tries", lambda *_: [(size, mib * MIB) for size, mib in taken])
    assert dimension_limits(model.engine, model.proof.row, {}) == ({} if most is None else {"n": most})


def test_what_shows_nothing_is_not_bounded(wide: Path) -> None:
    model = Model(wide, ModelConfig("cpu", 1, instances=1, threads=1), RequestLimits(memory=CAP))
    assert shape(model, 1, 4_000_000) and not dimension_limits(model.engine, None, {})


def test_what_is_said_counts(attention: Path, wide: Path) -> None:
    options = ModelConfig("cpu", 1, instances=1, threads=1, max_dims={"tokens": 20, "n": 10**6})
    for path, most in ((attention, 20), (wide, 10**6)):
        model = Model(path, options, RequestLimits(memory=CAP))
        rest = [1] if path is attention else []
        assert shape(model, 1, most, *rest)
        with pytest.raises(ServeError) as caught:
            shape(model, 1, most + 1, *rest)
        assert caught.value.expected == f"at most {most} (--max-dim)" and caught.value.status == 413


def test_rows_by_their_name(build: Any) -> None:
    """Also where nothing else varies, which is looked at least."""
    path = build("rows", [("Relu", ["x"], ["y"], {})], {"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})
    for model in (Model(path, ModelConfig("cpu", count, max_dims={"batch": 3}), RequestLimits()) for count in (1, 8)):
        assert shape(model, 3, 4)
        with pytest.raises(ServeError, match=r"dimension 0 \(batch\) of input 'x' is 4") as caught:
            shape(model, 4, 4)
        assert caught.value.status == 413


def test_every_way_in(attention: Path, connect: Any) -> None:
    """Also a frame that is known already, and without reading what comes after the shape."""
    with Server([attention], options=ModelConfig("cpu", max_dims={"tokens": 20})) as server, connect(server) as client:
        for tokens, status in ((20, 200), (20, 200), (21, 413), (20, 200)):
            x = np.ones((1, tokens, 1), np.float32)
            entry: dict[str, Any] = {"name": "x", "shape": [1, tokens, 1], "datatype": "FP32"}
            body = json.dumps({"inputs": [entry | {"data": x.ravel().tolist()}]}).encode()
            assert client.ask("POST", "/v2/models/attention/infer", body)[0] == status
            text = json.dumps({"inputs": [entry | {"parameters": {"binary_data_size": x.nbytes}}]}).encode()
            headers = {"inference-header-content-length": str(len(text))}
            assert client.ask("POST", "/v2/models/attention/infer", text + x.tobytes(), headers)[0] == status
    codec = Codec("m", "1", server.models[0].signature if server.models else _signature(attention), 1, Regions(1, 1))
    with pytest.raises(ServeError, match="is 99"):
        codec.decode(b'{"inputs": [{"name": "x", "shape": [1, 99, 1], "datatype": "FP32", "data": 5}]}')


def _signature(path: Path) -> Any:
    return Model(path, ModelConfig("cpu", 1, max_dims={"tokens": 20}), RequestLimits()).signature


def test_dimensions_that_vary() -> None:
    infos = [
        TensorInfo("nodes", "FP32", ("batch", "words", None, 4)),
        TensorInfo("edges", "INT64", ("edges", 2)),
        TensorInfo("mask", "INT64", ("batch", "words")),
        TensorInfo("pairs", "INT64", ("words", "batch")),
    ]
    assert varying(infos) == ["words", "None", "edges"]
    assert varying([]) == []


def test_dimensions_without_a_name() -> None:
    """They are not the rows, even where these have no name either."""
    assert varying([TensorInfo("x", "FP32", (None, None))]) == ["None"]
    assert varying([TensorInfo("x", "FP32", (None, 3)), TensorInfo("y", "FP32", (None, 3))]) == []


@pytest.mark.parametrize("max_rows", [0, 1, 8])
def test_a_dimension_without_a_name_is_measured(build: Any, max_rows: int) -> None:
    nodes = [
        ("Unsqueeze", ["x", "last"], ["u"], {}),
        ("Unsqueeze", ["x", "middle"], ["v"], {}),
        ("MatMul", ["u", "v"], ["m"], {}),
        ("Softmax", ["m"], ["p"], {}),
        ("ReduceMax", ["p"], ["y"], {"axes": [1, 2], "keepdims": 0}),
    ]
    axes = {"last": np.array([2]), "middle": np.array([1])}
    path = build("unnamed", nodes, {"x": (F, [None, None])}, {"y": (F, [None])}, axes, opset=17)
    ((axis, most, _),) = measured(path, ManualClock(), max_rows)
    fits = int((CAP / 4) ** 0.5)
    assert axis == 1 and 0.7 * fits < most < 8 * fits


@pytest.mark.parametrize("max_rows", [0, 1, 8])
def test_what_is_said_of_none_is_not_said_of_rows(build: Any, max_rows: int) -> None:
    path = build("unnamed", [("Relu", ["x"], ["y"], {})], {"x": (F, [None, None])}, {"y": (F, [None, None])})
    model = Model(path, ModelConfig("cpu", max_rows, max_dims={"None": 5}), RequestLimits())
    assert shape(model, 6, 5)
    with pytest.raises(ServeError, match="dimension 1 of input 'x' is 6") as caught:
        shape(model, 6, 6)
    assert "--max-dim None=SIZE" in str(caught.value.hint)


@pytest.mark.parametrize(("dim", "there"), [("tokens", True), ("token", False), ("None", False)])
def test_a_settings_file_that_limits_no_dimension(tmp_path: Path, attention: Path, dim: str, there: bool) -> None:
    """A name that the model does not have is refused where it is said of this model alone."""
    folder = tmp_path / "attention" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(attention.read_bytes())
    settings = tmp_path / "ox.toml"
    settings.write_text(f"[models.attention]\nmax_dims = {{{dim} = 7}}\n")
    options = ModelConfig("cpu", 1, max_dims={"words": 3})  # of all models that have them
    if there:
        assert len(Server([tmp_path], options=options).models) == 1
        return
    with pytest.raises(LoadError, match=f"max_dims limits '{dim}'") as caught:
        Server([tmp_path], options=options)
    assert "tokens" in str(caught.value.expected)


def test_of_a_settings_file(tmp_path: Path, attention: Path) -> None:
    folder = tmp_path / "attention" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(attention.read_bytes())
    (tmp_path / "ox.toml").write_text("[models.attention]\nmax_dims = {tokens = 7}\n")
    (model,) = Server([tmp_path], options=ModelConfig("cpu", 1)).models
    with pytest.raises(ServeError, match="is 8"):
        shape(model, 1, 8, 1)


@rows("text", ["tokens", "tokens=", "=5", "tokens=many", "tokens=0", "tokens=-1"])
def test_texts_that_limit_nothing(text: str) -> None:
    with pytest.raises(ArgumentError, match="limits no dimension"):
        parse_dims([text])
    assert parse_dims(["tokens=512", "a=b=3"]) == {"tokens": 512, "a=b": 3}


@pytest.mark.parametrize("dims", [{"tokens": 0}, {"tokens": 1.5}, {1: 1}, [1]])
def test_options_that_limit_nothing(dims: Any) -> None:
    with pytest.raises(ArgumentError, match="max_dims"):
        ModelConfig(max_dims=dims)
