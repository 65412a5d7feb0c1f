"""Loads of sequences: each has its id, its start and its end, and none is left open."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ox.bench import Plan, Result, run
from ox.bench.sequences import PARAMETERS, http_step
from ox.errors import ArgumentError, ServeError

if TYPE_CHECKING:
    from ox.serve import Server

Load = Callable[..., Result]
RIGHT = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}
SEQUENCE = '[models.sums.sequence]\nstate = {before = "after"}\nidle_s = 60\nmax_sequences = 4\n'


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Adds what it is sent, for at most four sequences at a time."""
    from ox.serve import Server

    root = tmp_path_factory.mktemp("sequences")
    (root / "sums" / "1").mkdir(parents=True)
    names = "x", "before", "y", "after"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in names]
    nodes = [helper.make_node("Add", ["x", "before"], ["after"]), helper.make_node("Mul", ["after", "one"], ["y"])]
    weights = [numpy_helper.from_array(np.float32(1), "one")]
    graph = helper.make_graph(nodes, "sums", infos[:2], infos[2:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, root / "sums" / "1" / "model.onnx")
    (root / "ox.toml").write_text(SEQUENCE)
    with Server([root], port=0, watch=False) as server:
        yield server


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("options", [{}, {"binary": False}, {"rates": (100.0,), "concurrency": (3,)}], ids=repr)
def test_our_own_server(here: Load, sums: Server, scheme: str, options: dict[str, Any]) -> None:
    """A second load finds room, as the first has ended its sequences."""
    for _ in range(2):
        (step,) = here(f"{scheme}://127.0.0.1:{sums.port}", model="sums", sequence=5, **options).steps
        assert step.answered and not step.failures.counts and not step.failed_early.counts


def test_several_processes(sums: Server) -> None:
    plan = Plan(concurrency=(4,), seconds=0.2, warmup=0.0, processes=2, sequence=3)
    result = run(sums.url, plan, model="sums")
    assert result.good and not result.steps[0].failed


@pytest.mark.parametrize("options", [{}, {"rates": (200.0,), "concurrency": (3,)}], ids=["closed", "open"])
def test_each_sequence_is_whole(here: Load, raw: Any, make_reply: Any, options: dict[str, Any]) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply(RIGHT))

    with raw(behave) as server:
        (step,) = here(server.url, binary=False, sequence=4, **options).steps
        found = defaultdict(list)
        for body in server.bodies:
            parameters = json.loads(body)["parameters"]
            found[parameters["sequence_id"]].append((parameters["sequence_start"], parameters["sequence_end"]))
        assert step.answered <= server.asked
    whole = [(True, False), (False, False), (False, False), (False, True)]
    assert [*found.values()][:8] == [[(True, True)]] * 8  # the reference responses
    assert len(found) > 8 and all(steps == whole for steps in [*found.values()][8:])


def test_after_a_failure_another_sequence_begins(here: Load, raw: Any, make_reply: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make_reply({"error": "full"}, 503) if number % 3 == 1 else make_reply(RIGHT))

    with raw(behave) as server:
        (step,) = here(server.url, binary=False, sequence=3, concurrency=(1,)).steps
        starts = [json.loads(body)["parameters"]["sequence_start"] for body in server.bodies[8:]]
    assert set(step.failures.counts) == {"HTTP 503"}
    assert starts[:9] == [True, False, True, False, False, True, False, False, True]


def test_a_step_has_as_many_bytes() -> None:
    body = json.dumps({"parameters": PARAMETERS}, separators=(",", ":")).encode()
    for first, last in ((True, True), (True, False), (False, True), (False, False)):
        step = http_step(body, 1234567890123, first, last)
        wanted = {"sequence_id": 1234567890123, "sequence_start": first, "sequence_end": last}
        assert len(step) == len(body) and json.loads(step)["parameters"] == wanted


def test_what_cannot_be_measured(here: Load, server: Server, sums: Server) -> None:
    for options in ({"check": True}, {"text": True}):
        with pytest.raises(ArgumentError, match="and sequences at once"):
            here(sums.url, sequence=2, **options)
    with pytest.raises(ServeError, match=r"refuses the first request(.|\n)*--sequence 20"):
        here(sums.url, model="sums")  # it takes sequences only
