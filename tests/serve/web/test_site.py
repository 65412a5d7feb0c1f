"""The paths beside the protocol's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.graph.contract import Contract, Sample
from ox.serve import ModelConfig, Server


@pytest.fixture(scope="module")
def golden(build: Any) -> Path:
    """y = x + x, with two golden samples."""
    rows = [np.array([[value, -value]], np.float32) for value in (0.25, 3.0)]
    samples = tuple(Sample({"x": row}, {"y": row + row}) for row in rows)
    kind = (TensorProto.FLOAT, ["batch", 2])
    path: Path = build(
        "twice", [("Add", ["x", "x"], ["y"], {})], {"x": kind}, {"y": kind}, contract=Contract(samples=samples)
    )
    return path


def test_a_golden_sample_can_be_sent_as_it_is(golden: Path, connect: Any) -> None:
    path = "/v2/ox/models/twice/versions/1/samples"
    with Server([golden], options=ModelConfig(device="cpu", instances=1)) as server, connect(server) as client:
        for number in (0, 1):
            status, headers, body = client.ask("GET", f"{path}/{number}")
            assert status == 200 and headers["content-type"] == "application/json"
            status, _, answer = client.ask("POST", "/v2/models/twice/infer", body)
            assert status == 200
            assert json.loads(answer)["outputs"] == json.loads(body)["expected"]
        for wrong in ("2", "-1", "x", "", "99999999999", "%C2%B2"):
            assert client.ask("GET", f"{path}/{wrong}")[0] == 404, wrong
        assert client.ask("GET", "/v2/ox/models/nobody/versions/1/samples/0")[0] == 404
        assert client.ask("GET", "/v2/ox/models/twice/versions/2/samples/0")[0] == 404
        figures = json.loads(client.ask("GET", "/v2/ox/figures")[2])
        assert figures["models"]["twice"]["1"]["info"]["samples"] == "2"


def test_figures_are_the_snapshot(client: Any, infer: Any) -> None:
    def answered() -> int:
        status, headers, body = client.ask("GET", "/v2/ox/figures")
        assert status == 200 and headers["cache-control"] == "no-store"
        figures = json.loads(body)
        assert set(figures["models"]) == {"mlp", "mixed"} and figures["workers"] == 1
        times = figures["models"]["mlp"]["1"]["times"]
        assert all(len(entry["counts"]) == len(figures["bounds"]["seconds"]) + 1 for entry in times.values())
        return int(sum(times["request"]["counts"]))

    before = answered()
    infer(client, "mlp", x=np.ones((1, 64), np.float32))
    assert answered() == before + 1


@pytest.mark.parametrize("target", ["/metrics", "/v2/ox/figures", "/"])
def test_only_to_be_read(client: Any, target: str) -> None:
    assert client.ask("POST", target, b"{}")[0] in (403, 405)  # nobody without a key may change anything


@pytest.mark.parametrize("target", ["/v2/ox", "/v2/ox/models", "/v2/ox/models/mlp/versions/1/samples", "/page.js"])
def test_nothing_else_is_there(client: Any, target: str) -> None:
    assert client.ask("GET", target)[0] == 404


def test_a_failure_of_ours_is_answered(client: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(server.service, "figures", broken)
    for target in ("/metrics", "/v2/ox/figures"):
        status, _, body = client.ask("GET", target)
        assert status == 500 and b"secret" not in body
