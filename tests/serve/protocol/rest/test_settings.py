"""Log and trace settings that come over HTTP change what a running server logs and traces."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from span_memory import span_memory
from waiting import wait_until

from ox.serve import ModelConfig, Server
from ox.serve.telemetry.logs import LOGGER

BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [1] * 64}]}).encode()


def change(client: Any, path: str, **settings: Any) -> Any:
    status, _, reply = client.ask("POST", f"/v2/{path}", json.dumps(settings).encode())
    assert status == 200, reply
    return json.loads(reply)


def test_traces(mlp: Any, connect: Any) -> None:
    spans, memory = span_memory()

    def traced(client: Any, count: int) -> int:
        memory.clear()
        for _ in range(count):
            assert client.ask("POST", "/v2/models/mlp/infer", BODY)[0] == 200
        return sum(span.name == "infer mlp" for span in memory.get_finished_spans())

    with Server([mlp], options=ModelConfig(instances=1), manage=True) as server, connect(server) as client:
        server.service.telemetry.trace(spans)
        assert json.loads(client.ask("GET", "/v2/trace/setting")[2])["trace_level"] == ["TIMESTAMPS"]
        assert traced(client, 3) == 3
        assert change(client, "trace/setting", trace_level=["OFF"])["trace_level"] == ["OFF"]
        assert traced(client, 3) == 0
        change(client, "models/mlp/trace/setting", trace_level="TIMESTAMPS", trace_rate=2, trace_count="2")
        assert traced(client, 10) == 2
        change(client, "models/mlp/trace/setting", trace_rate=1, trace_count=-1)
        server.service.repository.changed[-1]()  # another model came: the settings stay
        assert traced(client, 3) == 3
        change(client, "models/mlp/trace/setting")
        assert traced(client, 3) == 0


def test_logs(mlp: Any, connect: Any, capfd: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def wait_for(line: str) -> None:
        wait_until(lambda: printed.extend(capfd.readouterr().err.splitlines()) or any(line in each for each in printed))

    with Server([mlp], options=ModelConfig(instances=1), manage=True, log="text") as server, connect(server) as client:
        changes = [{}, {"log_info": False}, {"log_info": True, "log_format": "json"}, {"log_verbose_level": 1}]
        for step, settings in enumerate(changes):
            after = change(client, "logging", **settings)
            assert {**after, **settings} == after
            LOGGER.info("info %d", len(settings))
            LOGGER.log(logging.DEBUG, "debug")
            LOGGER.critical("step %d", step)  # the lines before it are written, too
            wait_for(f"step {step}")
    lines = [line for line in printed if "info " in line or "debug" in line]
    text, first, second, debug = lines
    assert text.endswith("info 0")
    assert [json.loads(line)["message"] for line in (first, second, debug)] == ["info 2", "info 1", "debug"]
