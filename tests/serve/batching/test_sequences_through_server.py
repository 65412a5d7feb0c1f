"""Sequences as Triton's clients meet them: states, controls, order, errors, batches of different sequences."""

from __future__ import annotations

import asyncio
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from onnx import TensorProto
from waiting import wait_until

from ox.errors import LoadError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.tolerance import compare

http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")

Build = Callable[..., Path]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT32
FEATURES, HIDDEN = 3, 5
START = "control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }"
TENSORS = """
    max_batch_size: 8
    input { name: "INPUT" data_type: TYPE_INT32 dims: [1] }
    output { name: "OUTPUT" data_type: TYPE_INT32 dims: [1] }
"""
STATE = "state { input_name: 'sum' output_name: 'sum_out' data_type: TYPE_INT32 dims: [1] }"
IDLE = "max_sequence_idle_microseconds: 60000000"
OLDEST = "oldest { max_candidate_sequences: 64 }"


def accumulating(*more: str, tensors: str = TENSORS) -> str:
    """The configuration of the accumulator."""
    return f"{tensors} sequence_batching {{ {START} {STATE} {' '.join(more)} }}"


def folder_of(build: Build, root: Path, name: str, config: str | None, *model: Any, **more: Any) -> Path:
    """A repository of one model; `config` is its config.pbtxt."""
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    build("model", *model, folder=root / name / "1", **more)
    if config is not None:
        (root / name / "config.pbtxt").write_text(config)
    return root


def accumulator(build: Build, root: Path, config: str | None = None, batch: Any = "batch", name: str = "sums") -> Path:
    """Adds INPUT to what it was before; a start forgets that. An INPUT of 1000 and more fails."""
    nodes = [
        ("Sub", ["one", "START"], ["go_on"], {}),
        ("Mul", ["go_on", "sum"], ["before"], {}),
        ("Add", ["INPUT", "before"], ["OUTPUT"], {}),
        ("Gather", ["table", "INPUT"], ["checked"], {}),
        ("Squeeze", ["checked", "last"], ["zero"], {}),
        ("Add", ["OUTPUT", "zero"], ["sum_out"], {}),
    ]
    inputs = {each: (INT, [batch, 1]) for each in ("INPUT", "START", "sum")}
    outputs = {each: (INT, [batch, 1]) for each in ("OUTPUT", "sum_out")}
    weights = {"one": np.array([[1]], np.int32), "table": np.zeros((1000, 1), np.int32), "last": np.array([2])}
    config = accumulating(IDLE, OLDEST) if config is None else config
    return folder_of(build, root, name, config, nodes, inputs, outputs, weights)


def controls(build: Build, root: Path, config: str, identifier: int = TensorProto.UINT64) -> Path:
    """Gives its controls back: START of INT32, END of FP32, READY of BOOL, the id of any type."""
    kinds = {"START": INT, "END": FLOAT, "READY": TensorProto.BOOL, "CORRID": identifier}
    nodes: list[Any] = [("Identity", [kind], [f"{kind}_out"], {}) for kind in kinds]
    nodes.append(("Identity", ["x"], ["y"], {}))
    inputs = {kind: (dtype, ["batch", 1]) for kind, dtype in kinds.items()} | {"x": (FLOAT, ["batch", 2])}
    outputs = {f"{kind}_out": (dtype, ["batch", 1]) for kind, dtype in kinds.items()} | {"y": (FLOAT, ["batch", 2])}
    return folder_of(build, root, "controls", config, nodes, inputs, outputs)


def lstm(build: Build, root: Path, config: str | None) -> dict[str, Any]:
    """One step of an LSTM, [batch, FEATURES] to [batch, HIDDEN]; gives its weights."""
    random = np.random.default_rng(11)
    weights = {
        "W": random.standard_normal((1, 4 * HIDDEN, FEATURES)).astype(np.float32),
        "R": random.standard_normal((1, 4 * HIDDEN, HIDDEN)).astype(np.float32),
        "B": random.standard_normal((1, 8 * HIDDEN)).astype(np.float32),
    }
    nodes = [
        *(("Unsqueeze", [name, "zero"], [f"{name}_1"], {}) for name in ("x", "h", "c")),
        ("LSTM", ["x_1", "W", "R", "B", "", "h_1", "c_1"], ["", "h_2", "c_2"], {"hidden_size": HIDDEN}),
        *(("Squeeze", [f"{name}_2", "zero"], [f"{name}_out"], {}) for name in ("h", "c")),
        ("Identity", ["h_out"], ["y"], {}),
    ]
    inputs = {"x": (FLOAT, ["batch", FEATURES]), "h": (FLOAT, ["batch", HIDDEN]), "c": (FLOAT, ["batch", HIDDEN])}
    outputs = {name: (FLOAT, ["batch", HIDDEN]) for name in ("y", "h_out", "c_out")}
    folder_of(build, root, "lstm", config, nodes, inputs, outputs, {**weights, "zero": np.array([0])})
    return weights


def whole_lstm(build: Build, weights: dict[str, Any], x: Any) -> Any:
    """The same LSTM over all steps of one sequence at once: [steps, FEATURES] to [steps, HIDDEN]."""
    import onnxruntime

    path = build(
        "whole",
        [("LSTM", ["x", "W", "R", "B"], ["y"], {"hidden_size": HIDDEN})],
        {"x": (FLOAT, ["steps", 1, FEATURES])},
        {"y": (FLOAT, ["steps", 1, 1, HIDDEN])},
        weights,
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x[:, None]})[0].reshape(len(x), HIDDEN)


CLIENTS: list[Any] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Closes the clients: a socket that the garbage collector finds open is an error of whatever test runs then."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


class Asker:
    """A client of Triton's, over HTTP or gRPC."""

    def __init__(self, server: Server, module: Any = http) -> None:
        self.module, self.server = module, server
        self.client = module.InferenceServerClient(f"127.0.0.1:{server.port}")
        CLIENTS.append(self.client)

    def tensor(self, name: str, array: Any, dtype: str) -> Any:
        made = self.module.InferInput(name, list(array.shape), dtype)
        made.set_data_from_numpy(array)
        return made

    def add(self, value: int, identifier: Any, start: bool = False, end: bool = False, **more: Any) -> int:
        """What the accumulator answers."""
        inputs = [self.tensor("INPUT", np.array([[value]], np.int32), "INT32")]
        options = {"sequence_id": identifier, "sequence_start": start, "sequence_end": end, **more}
        answer = self.client.infer("sums", inputs, **options)
        assert answer.as_numpy("sum_out") is None
        return int(answer.as_numpy("OUTPUT")[0, 0])

    def refused(self, *arguments: Any, **more: Any) -> str:
        with pytest.raises(Exception) as caught:
            self.add(*arguments, **more)
        return str(caught.value)


@pytest.fixture(params=["http", "grpc"])
def module(request: pytest.FixtureRequest) -> Any:
    return http if request.param == "http" else grpc


@pytest.fixture(scope="module")
def sums(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The accumulator, watched closely."""
    root = accumulator(build, tmp_path_factory.mktemp("sums"))
    with Server([root], options=ModelConfig(instances=2), limits=RequestLimits(poll_s=0.05), manage=True) as server:
        yield server


def sequences_of(server: Server) -> Any:
    return server.models[0].sequences


def test_an_accumulator(sums: Server, module: Any) -> None:
    asks = Asker(sums, module)
    assert [asks.add(1, 7, start=True), asks.add(2, 7), asks.add(3, 7)] == [1, 3, 6]
    assert [asks.add(10, "seven", start=True), asks.add(20, "seven", end=True)] == [10, 30]
    assert asks.add(4, 7) == 10
    assert asks.add(5, 7, start=True) == 5  # begins again
    assert asks.add(6, 7, end=True) == 11
    assert asks.add(9, 8, start=True, end=True) == 9
    wait_until(lambda: len(sequences_of(sums)) == 0)
    assert sequences_of(sums).states_size == 0
    answer = asks.client.infer(
        "sums", [asks.tensor("INPUT", np.array([[1]], np.int32), "INT32")], sequence_id=5, sequence_start=True,
        sequence_end=True,
    ).get_response()  # fmt: skip
    said = answer["parameters"] if module is http else answer.parameters
    assert set(said) >= {"sequence_id", "sequence_start", "sequence_end"}


def test_what_is_refused(sums: Server, module: Any) -> None:
    asks = Asker(sums, module)
    start = "to model 'sums' must specify the START flag on the first request of the sequence"
    assert f"inference request for sequence 99 {start}" in asks.refused(1, 99)
    assert f"inference request for sequence name {start}" in asks.refused(1, "name", end=True)
    asks.add(1, 99, start=True, end=True)
    assert start in asks.refused(1, 99)
    assert "non-zero or non-empty correlation ID" in asks.refused(1, 0)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{sums.address}/v1/models/sums:predict", b'{"instances": [[1]]}')
    assert caught.value.code == 400 and b"'sums' has sequences, which KServe's V1" in caught.value.read()
    inputs = [asks.tensor("INPUT", np.zeros((2, 1), np.int32), "INT32")]
    with pytest.raises(Exception, match="must specify batch-size 1"):
        asks.client.infer("sums", inputs, sequence_id=3, sequence_start=True)
    extra = [*inputs, asks.tensor("START", np.zeros((2, 1), np.int32), "INT32")]
    with pytest.raises(Exception, match="there is no input"):
        asks.client.infer("sums", extra, sequence_id=3, sequence_start=True)
    wait_until(lambda: len(sequences_of(sums)) == 0)


def test_a_request_that_fails_changes_nothing(sums: Server, module: Any) -> None:
    asks = Asker(sums, module)
    assert asks.add(1, 5, start=True) == 1
    assert "cannot run" in asks.refused(1000, 5)
    assert asks.add(2, 5) == 3
    assert "cannot run" in asks.refused(1000, 5, end=True)
    assert asks.add(3, 5) == 6
    assert "cannot run" in asks.refused(1000, 5, start=True)  # what was before is over, and nothing has begun
    assert "must specify the START flag" in asks.refused(1, 5)
    wait_until(lambda: len(sequences_of(sums)) == 0)


def test_an_input_that_does_not_fit_the_state(build: Build, tmp_path: Path, module: Any) -> None:
    """Clients do not see states, so the error shows them."""
    nodes = [("Add", ["x", "h"], ["h_out"], {}), ("Identity", ["h_out"], ["y"], {})]
    inputs = {"x": (FLOAT, ["batch", None]), "h": (FLOAT, ["batch", None])}
    outputs = {"y": (FLOAT, ["batch", None]), "h_out": (FLOAT, ["batch", None])}
    state = "state { input_name: 'h' output_name: 'h_out' data_type: TYPE_FP32 dims: [-1] }"
    root = folder_of(
        build, tmp_path, "wide", f"max_batch_size: 8 sequence_batching {{ {state} }}", nodes, inputs, outputs
    )
    with Server([root]) as server:
        asks = Asker(server, module)

        def add(size: int, start: bool = False) -> Any:
            x = asks.tensor("x", np.ones((1, size), np.float32), "FP32")
            return asks.client.infer("wide", [x], sequence_id=1, sequence_start=start).as_numpy("y").tolist()

        assert add(2, start=True) == [[1, 1]]
        with pytest.raises(Exception, match="cannot run on this input") as caught:
            add(3)
        assert str(caught.value.status()) in ("400", "StatusCode.INVALID_ARGUMENT")
        for words in ("state 'h' of [1, 2]", "Attempting to broadcast", "sequence_start"):
            assert words in str(caught.value)
        assert add(2) == [[2, 2]]


def test_what_clients_are_told(sums: Server, module: Any) -> None:
    asks = Asker(sums, http)
    about = asks.client.get_model_metadata("sums")
    assert [entry["name"] for entry in about["inputs"]] == ["INPUT"]
    assert [entry["name"] for entry in about["outputs"]] == ["OUTPUT"]
    config = asks.client.get_model_config("sums")
    assert config["sequence_batching"] == {
        "max_sequence_idle_microseconds": 60_000_000,
        "control_input": [
            {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]}
        ],
        "state": [{"input_name": "sum", "output_name": "sum_out", "data_type": "TYPE_INT32", "dims": [1]}],
        "oldest": {"max_candidate_sequences": 64},
    }
    assert "dynamic_batching" not in config and [entry["name"] for entry in config["input"]] == ["INPUT"]
    told = Asker(sums, grpc).client.get_model_config("sums").config.sequence_batching
    assert told.oldest.max_candidate_sequences == 64 and told.state[0].output_name == "sum_out"


def test_a_stream_keeps_the_order(sums: Server) -> None:
    """Two hundred requests of four sequences, sent without waiting for answers."""
    asks = Asker(sums, grpc)
    answers: queue.Queue[Any] = queue.Queue()
    asks.client.start_stream(lambda result, error: answers.put((result, error)))
    for step in range(50):
        for identifier in range(1, 5):
            asks.client.async_stream_infer(
                "sums",
                [asks.tensor("INPUT", np.array([[identifier]], np.int32), "INT32")],
                request_id=f"{identifier}/{step}",
                sequence_id=identifier,
                sequence_start=step == 0,
                sequence_end=step == 49,
            )
    got = {}
    for _ in range(200):
        result, error = answers.get(timeout=300)
        assert error is None
        got[result.get_response().id] = int(result.as_numpy("OUTPUT")[0, 0])
    asks.client.stop_stream()
    assert got == {f"{i}/{step}": i * (step + 1) for i in range(1, 5) for step in range(50)}


def test_many_sequences_at_once_share_batches(build: Build, tmp_path: Path, module: Any) -> None:
    """Fifty clients, each with a sequence of its own; all of them ask before the first is answered."""
    root = accumulator(build, tmp_path)
    with Server([root], options=ModelConfig(instances=1)) as server:
        held_until_all_ask(server, 50)
        wrong: list[str] = []

        def client(identifier: int) -> None:
            asks, total = Asker(server, module), 0
            for step in range(10):
                total += identifier + step
                got = asks.add(identifier + step, identifier, start=step == 0, end=step == 9)
                if got != total:
                    wrong.append(f"{identifier} {step}: {got}, not {total}")
            asks.client.close()

        threads = [threading.Thread(target=client, args=(identifier,)) for identifier in range(1, 51)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not wrong
        (stats,) = Asker(server).client.get_inference_statistics("sums")["model_stats"]
        assert stats["inference_count"] == 500 and stats["inference_stats"]["success"]["count"] == 500
        assert stats["execution_count"] <= 250  # more than two rows a batch
        assert max(entry["batch_size"] for entry in stats["batch_stats"]) == 8
        wait_until(lambda: len(sequences_of(server)) == 0 == sequences_of(server).waiting)


def held_until_all_ask(server: Server, clients: int) -> None:
    """Has the first run wait for the requests of all, on the instance's own thread: from then on there is a queue."""
    server.models[0]._runs_inline = False
    batcher = server.models[0].batcher
    (instance,) = batcher._instances
    real = instance._run

    def run(feed: Any, control: Any) -> Any:
        wait_until(lambda: batcher.depth >= clients - 8)
        instance._run = real
        return real(feed, control)

    instance._run = run


def test_an_lstm_over_its_steps(build: Build, tmp_path: Path, module: Any) -> None:
    """Interleaved sequences give what the LSTM gives over each whole sequence."""
    config = """
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [3] }
        output [ { name: "y" data_type: TYPE_FP32 dims: [5] }, { name: "c_out" data_type: TYPE_FP32 dims: [5] } ]
        sequence_batching {
          max_sequence_idle_microseconds: 60000000
          state [ { input_name: "h" output_name: "h_out" data_type: TYPE_FP32 dims: [5] },
                  { input_name: "c" output_name: "c_out" data_type: TYPE_FP32 dims: [5]
                    use_same_buffer_for_input_output: true } ]
          direct { }
        }
    """
    weights = lstm(build, tmp_path, config)
    xs = np.random.default_rng(2).standard_normal((3, 12, FEATURES)).astype(np.float32)
    with Server([tmp_path]) as server:
        asks = Asker(server, module)
        assert server.models[0].proof.max_rows == 4
        got = np.zeros((3, 12, HIDDEN), np.float32)
        for step in range(12):
            for each in range(3):
                inputs = [asks.tensor("x", xs[each, step : step + 1], "FP32")]
                options = {"sequence_id": each + 1, "sequence_start": step == 0, "sequence_end": step == 11}
                answer = asks.client.infer("lstm", inputs, **options)
                got[each, step] = answer.as_numpy("y")[0]
                assert answer.as_numpy("c_out").shape == (1, HIDDEN) and answer.as_numpy("h_out") is None
        for each in range(3):
            assert compare(got[each], whole_lstm(build, weights, xs[each])).ok


CONTROLS = """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [2] }
    sequence_batching {
      control_input [
        { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [3, 4] } },
        { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [-0.5, 0.5] } },
        { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } },
        { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: %s } }
      ]
    }
"""


@pytest.mark.parametrize(
    ("dtype", "number", "identifier"),
    [("TYPE_UINT64", TensorProto.UINT64, 2**63 - 1), ("TYPE_INT32", INT, 5), ("TYPE_STRING", TensorProto.STRING, "me")],
)  # fmt: skip
def test_controls(build: Build, tmp_path: Path, module: Any, dtype: str, number: int, identifier: Any) -> None:
    root = controls(build, tmp_path, CONTROLS % dtype, number)
    with Server([root]) as server:
        asks = Asker(server, module)

        def ask(start: bool, end: bool) -> list[Any]:
            inputs = [asks.tensor("x", np.zeros((1, 2), np.float32), "FP32")]
            answer = asks.client.infer(
                "controls", inputs, sequence_id=identifier, sequence_start=start, sequence_end=end
            )
            arrays = [answer.as_numpy(f"{name}_out") for name in ("START", "END", "READY", "CORRID")]
            assert all(array.shape == (1, 1) for array in arrays)
            return [array[0, 0] for array in arrays]

        shown = identifier.encode() if isinstance(identifier, str) else identifier
        assert ask(True, False) == [4, -0.5, True, shown]
        assert ask(False, False) == [3, -0.5, True, shown]
        assert ask(False, True) == [3, 0.5, True, shown]
        assert ask(True, True) == [4, 0.5, True, shown]
        assert [entry["name"] for entry in server.service.model_metadata("controls")["inputs"]] == ["x"]


def test_an_id_that_the_model_cannot_take(build: Build, tmp_path: Path) -> None:
    with Server([controls(build, tmp_path, CONTROLS % "TYPE_INT32", INT)]) as server:
        asks = Asker(server)
        inputs = [asks.tensor("x", np.zeros((1, 2), np.float32), "FP32")]
        for identifier in (2**40, "text"):
            with pytest.raises(Exception, match="does not fit the input 'CORRID'"):
                asks.client.infer("controls", inputs, sequence_id=identifier, sequence_start=True)


def test_what_a_sequence_begins_with(build: Build, tmp_path: Path) -> None:
    """Bytes of a file, beside a size that varies."""
    initial = "initial_state { name: 'ten' data_type: TYPE_INT32 dims: [1] data_file: 'ten' }"
    state = f"state {{ input_name: 'sum' output_name: 'sum_out' data_type: TYPE_INT32 dims: [-1] {initial} }}"
    config = f"{TENSORS} sequence_batching {{ {state} {IDLE} }}"
    nodes = [("Add", ["INPUT", "sum"], ["OUTPUT"], {}), ("Identity", ["OUTPUT"], ["sum_out"], {})]
    inputs, outputs = (
        {name: (INT, ["batch", 1]) for name in names} for names in (("INPUT", "sum"), ("OUTPUT", "sum_out"))
    )
    folder_of(build, tmp_path, "sums", config, nodes, inputs, outputs)
    with pytest.raises(LoadError, match="cannot be read"):
        Server([tmp_path])
    (tmp_path / "sums" / "initial_state").mkdir()
    (tmp_path / "sums" / "initial_state" / "ten").write_bytes(b"\x0a\0\0")
    with pytest.raises(LoadError, match="does not match the file") as caught:
        Server([tmp_path])
    assert "4 bytes" in str(caught.value.expected)
    (tmp_path / "sums" / "initial_state" / "ten").write_bytes(b"\x0a\0\0\0")
    with Server([tmp_path]) as server:
        asks = Asker(server)
        assert [asks.add(1, 7, start=True), asks.add(2, 7), asks.add(5, 7, start=True)] == [11, 13, 15]
        said = asks.client.get_model_config("sums")["sequence_batching"]["state"][0]["initial_state"]
        assert said == [{"name": "ten", "data_type": "TYPE_INT32", "dims": [1], "data_file": "ten"}]


def test_a_state_that_grows(build: Build, tmp_path: Path) -> None:
    """All inputs so far; sequences of different lengths cannot share a batch, and states have a limit."""
    nodes = [("Concat", ["past", "x"], ["all"], {"axis": 1}), ("Identity", ["all"], ["past_out"], {}),
             ("ReduceSum", ["all", "axis"], ["y"], {})]  # fmt: skip
    config = """
        max_batch_size: 4
        sequence_batching { max_sequence_idle_microseconds: 60000000
          state { input_name: "past" output_name: "past_out" data_type: TYPE_FP32 dims: [-1] } }
    """
    inputs = {"past": (FLOAT, ["batch", "past"]), "x": (FLOAT, ["batch", 1])}
    outputs = {"past_out": (FLOAT, ["batch", "all"]), "y": (FLOAT, ["batch", 1])}
    folder_of(build, tmp_path, "grows", config, nodes, inputs, outputs, {"axis": np.array([1])})
    with Server([tmp_path], limits=RequestLimits(states=100)) as server:
        asks = Asker(server)

        def ask(value: float, identifier: int, start: bool = False) -> float:
            inputs = [asks.tensor("x", np.array([[value]], np.float32), "FP32")]
            answer = asks.client.infer("grows", inputs, sequence_id=identifier, sequence_start=start)
            return float(answer.as_numpy("y")[0, 0])

        assert [ask(1, 1, True), ask(2, 1), ask(3, 1), ask(5, 2, True), ask(4, 1)] == [1, 3, 6, 5, 10]
        assert sequences_of(server).states_size == 4 * (5 + 2)
        with urllib.request.urlopen(f"{server.url}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        assert 'ox_sequences{model="grows",version="1"} 2.0' in lines
        assert 'ox_sequence_state_bytes{model="grows",version="1"} 28.0' in lines
        for _ in range(18):
            ask(1, 2)
        with pytest.raises(Exception, match="server is busy") as caught:
            ask(1, 2)
        assert "bytes of states" in str(caught.value)
        assert ask(0, 1, True) == 0  # a shorter one instead
        assert ask(1, 2) == 24


def test_a_state_that_grows_beyond_its_dimension(build: Build, tmp_path: Path) -> None:
    """It is held to the limit of its input's dimension as what clients send; a start begins a shorter one."""
    nodes = [("Concat", ["past", "x"], ["past_out"], {"axis": 1}), ("ReduceSum", ["past_out", "axis"], ["y"], {})]
    inputs = {"past": (FLOAT, ["batch", "past"]), "x": (FLOAT, ["batch", "new"])}
    outputs = {"past_out": (FLOAT, ["batch", "all"]), "y": (FLOAT, ["batch", 1])}
    folder_of(build, tmp_path, "grows", None, nodes, inputs, outputs, {"axis": np.array([1])})
    table = "[models.grows]\nmax_dims = {past = 8, new = 4}\n[models.grows.sequence]\nstate = {past = 'past_out'}\n"
    (tmp_path / "ox.toml").write_text(table + "idle_s = 60\n")
    with Server([tmp_path]) as server:
        asks = Asker(server)

        def ask(identifier: int, start: bool = False) -> float:
            inputs = [asks.tensor("x", np.ones((1, 4), np.float32), "FP32")]
            answer = asks.client.infer("grows", inputs, sequence_id=identifier, sequence_start=start)
            return float(answer.as_numpy("y")[0, 0])

        first = ask(1, True)  # with the initial state, of one element
        assert [first, ask(1), ask(2, True)] == [4, 8, 4]
        for _ in range(2):
            with pytest.raises(Exception, match=r"dimension 1 \(past\) of state 'past' is 9") as caught:
                ask(1)
            assert "at most 8" in str(caught.value) and "413" in str(caught.value.status())  # type: ignore[attr-defined]
        assert [ask(2), ask(1, True), ask(1)] == [8, 4, 8]


def test_sequences_end_when_nobody_asks(build: Build, tmp_path: Path) -> None:
    root = accumulator(build, tmp_path, accumulating("max_sequence_idle_microseconds: 200000", OLDEST))
    clock = ManualClock()
    with Server([root], clock=clock) as server, clock:
        asks = Asker(server)
        for identifier in (1, 2, 3):
            asks.add(1, identifier, start=True)

        async def move(seconds: float) -> None:
            clock.advance(seconds)

        def pass_time(seconds: float) -> None:  # on the loop: no timer is being set meanwhile
            asyncio.run_coroutine_threadsafe(move(seconds), server._loop).result(120)

        pass_time(0.19)
        assert asks.add(1, 3) == 2
        pass_time(0.01)
        wait_until(lambda: len(sequences_of(server)) == 1)  # of the one that went on
        pass_time(0.19)
        wait_until(lambda: len(sequences_of(server)) == 0)
        assert sequences_of(server).states_size == 0
        assert "after 0.2 s without a request" in asks.refused(1, 2)
        assert asks.add(1, 2, start=True) == 1


def test_more_sequences_than_slots_wait(build: Build, tmp_path: Path) -> None:
    root = accumulator(build, tmp_path, accumulating(IDLE, "oldest { max_candidate_sequences: 1 }"))
    with Server([root], options=ModelConfig(instances=2, deadline_ms=20_000)) as server:
        asks = Asker(server)
        assert asks.add(1, 1, start=True) == asks.add(1, 2, start=True) == 1  # a slot of each instance
        assert "took too long" in asks.refused(1, 3, start=True, timeout=50_000)
        assert "must specify the START flag" in asks.refused(1, 3)
        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(Asker(server).add(5, 4, start=True)))
        thread.start()
        wait_until(lambda: sequences_of(server).waiting == 1)
        assert asks.add(1, 2) == 2 and not answers
        assert asks.add(1, 2, end=True) == 3
        thread.join(120)
        assert answers == [5] and asks.add(1, 4) == 6


def test_a_new_version_begins_new_sequences(build: Build, tmp_path: Path) -> None:
    root = accumulator(build, tmp_path)
    with Server([root], limits=RequestLimits(poll_s=0.02), manage=True) as server:
        asks = Asker(server)
        assert asks.add(1, 1, start=True) == 1
        before = server.models[0]
        asks.client.load_model("sums", config='{"max_batch_size": 8, "sequence_batching": {"control_input": [{"name": '
                               '"START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]}],'
                               '"state": [{"input_name": "sum", "output_name": "sum_out"}]}}')  # fmt: skip
        assert server.models[0] is not before
        assert "when its model is loaded again" in asks.refused(1, 1)
        assert asks.add(2, 1, start=True) == 2
        wait_until(lambda: not hasattr(before, "batcher"))  # it is gone
        asks.client.unload_model("sums")
        assert "unloaded" in asks.refused(1, 1)


def test_reloading_under_load(build: Build, tmp_path: Path, module: Any) -> None:
    """No sum is ever wrong: a sequence goes on, or its next request says that it has to begin again."""
    root = accumulator(build, tmp_path)
    with Server([root], options=ModelConfig(instances=2), manage=True) as server:
        done, wrong, restarts, answers = threading.Event(), [], [0], [0]

        def client(identifier: int) -> None:
            asks, total = Asker(server, module), 0
            while not done.is_set():
                try:
                    got = asks.add(identifier, identifier, start=not total)
                except Exception as error:
                    if "START flag" not in str(error) and "has just been unloaded" not in str(error):
                        wrong.append(str(error))
                    restarts[0] += 1
                    total = 0
                else:
                    answers[0] += 1
                    total += identifier
                    if got != total:
                        wrong.append(f"{got}, not {total}")
                        total = got
            asks.client.close()

        threads = [threading.Thread(target=client, args=(identifier,)) for identifier in range(1, 7)]
        for thread in threads:
            thread.start()
        manager, before = Asker(server), server.models[0]
        for rows in (4, 8, 4):
            enough = answers[0] + 30
            wait_until(lambda enough=enough: answers[0] >= enough)
            (tmp_path / "sums" / "config.pbtxt").write_text(
                accumulating(IDLE, OLDEST).replace("max_batch_size: 8", f"max_batch_size: {rows}")
            )
            manager.client.load_model("sums")
        done.set()
        for thread in threads:
            thread.join(120)
        assert not wrong and restarts[0] >= 6
        wait_until(lambda: not hasattr(before, "batcher"))
        manager.client.close()


def test_a_stream_that_is_cut(sums: Server) -> None:
    """Its requests are given up, and the sequence goes on with what had succeeded."""
    asks, other = Asker(sums, grpc), Asker(sums)
    assert other.add(1, 77, start=True) == 1
    asks.client.start_stream(lambda result, error: None)
    for _ in range(100):
        inputs = [asks.tensor("INPUT", np.array([[1]], np.int32), "INT32")]
        asks.client.async_stream_infer("sums", inputs, sequence_id=77)
    asks.client.stop_stream(cancel_requests=True)
    wait_until(lambda: sequences_of(sums).waiting == 0)
    before = other.add(0, 77)
    assert 1 <= before <= 101 and other.add(5, 77, end=True) == before + 5
    wait_until(lambda: len(sequences_of(sums)) == 0)


def test_several_workers_are_refused(build: Build, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="models with sequences cannot be served by several workers") as caught:
        Server([accumulator(build, tmp_path)], workers=2)
    assert "--workers 1" in str(caught.value.expected)


def test_a_model_without_batches(build: Build, tmp_path: Path, module: Any) -> None:
    """max_batch_size 0: the dimensions are the file's own, and each request runs alone."""
    config = accumulating(IDLE, tensors="input { name: 'INPUT' data_type: TYPE_INT32 dims: [1, 1] }").replace(
        "dims: [1] }", "dims: [1, 1] }"
    )
    with Server([accumulator(build, tmp_path, config, batch=1)]) as server:
        asks = Asker(server, module)
        assert [asks.add(1, 7, start=True), asks.add(2, 7), asks.add(3, 7, end=True)] == [1, 3, 6]


def test_an_ox_toml(build: Build, tmp_path: Path) -> None:
    """The same in few words: types and sizes are those of the file."""
    weights = lstm(build, tmp_path, None)
    path = tmp_path / "ox.toml"
    path.write_text("[models.lstm.sequence]\nstate = {h = 'h_out', c = 'c_out'}\nidle_s = 60\nmax_sequences = 5\n")
    x = np.random.default_rng(2).standard_normal((6, FEATURES)).astype(np.float32)
    with Server([tmp_path]) as server:
        asks = Asker(server)
        for step in range(6):
            inputs = [asks.tensor("x", x[step : step + 1], "FP32")]
            answer = asks.client.infer("lstm", inputs, sequence_id="a", sequence_start=step == 0)
            assert compare(answer.as_numpy("y"), whole_lstm(build, weights, x)[step : step + 1]).ok
        assert "in sequences" in server.models[0].describe()


@pytest.mark.parametrize("max_rows", ["", "max_rows = 0"])
def test_states_without_a_batch(build: Build, tmp_path: Path, max_rows: str) -> None:
    """ONNX's LSTM as it is: several steps a request, states of [1, batch, HIDDEN]."""
    random = np.random.default_rng(1)
    sizes = {"W": (1, 4 * HIDDEN, FEATURES), "R": (1, 4 * HIDDEN, HIDDEN), "B": (1, 8 * HIDDEN)}
    weights = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    nodes = [("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y", "h_out", "c_out"], {"hidden_size": HIDDEN})]
    state = (FLOAT, [1, "batch", HIDDEN])
    inputs = {"x": (FLOAT, ["steps", "batch", FEATURES]), "h": state, "c": state}
    outputs = {"y": (FLOAT, ["steps", 1, "batch", HIDDEN]), "h_out": state, "c_out": state}
    folder_of(build, tmp_path, "lstm", None, nodes, inputs, outputs, weights)
    (tmp_path / "ox.toml").write_text(
        f"[models.lstm]\n{max_rows}\n[models.lstm.sequence]\nstate = {{h = 'h_out', c = 'c_out'}}\nidle_s = 60\n"
    )
    x = random.standard_normal((6, 1, FEATURES)).astype(np.float32)
    with Server([tmp_path]) as server:
        asks = Asker(server)
        parts = []
        for part in np.split(x, [1, 3]):
            inputs = [asks.tensor("x", part, "FP32")]
            answer = asks.client.infer("lstm", inputs, sequence_id=1, sequence_start=not parts)
            parts.append(answer.as_numpy("y"))
        got = np.concatenate(parts).reshape(6, HIDDEN)
        assert compare(got, whole_lstm(build, weights, x[:, 0])).ok
        (stats,) = asks.client.get_inference_statistics("lstm")["model_stats"]
        assert stats["inference_count"] == stats["execution_count"] == 3
