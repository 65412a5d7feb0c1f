"""The list of extensions is true: each that is listed works, each of Triton's that is not is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ox.serve.service import EXTENSIONS

TRITON = {
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
    "model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
    "statistics", "trace", "logging",
}  # fmt: skip
ROW = [0.5, -1, 2, 0]
INFER = "/v2/models/scores/infer"


class Asker:
    """A client that asks for JSON."""

    def __init__(self, client: Any, shared: Callable[[bytes], str]) -> None:
        self.client, self.shared = client, shared

    def ask(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        body = b"" if document is None else json.dumps(document).encode()
        status, _, reply = self.client.ask(method, f"/v2/{path}", body)
        return status, json.loads(reply) if reply else None

    def infer(self, tensor: Any = None, output: Any = None, **more: Any) -> Any:
        """The answer to a request with one row."""
        entry = {"name": "x", "shape": [1, 4], "datatype": "FP32", **({"data": ROW} if tensor is None else tensor)}
        outputs = {} if output is None else {"outputs": [{"name": "y", "parameters": output}]}
        status, reply = self.ask("POST", "models/scores/infer", {"inputs": [entry], **outputs, **more})
        assert status == 200, reply
        return reply


def classification(server: Asker) -> None:
    assert server.infer(output={"classification": 1})["outputs"][0]["data"] == ["2.000000:2:<owl>"]


def sequence(server: Asker) -> None:
    reply = server.infer(parameters={"sequence_id": 9, "sequence_end": True})
    assert reply["parameters"] == {"sequence_id": 9, "sequence_start": False, "sequence_end": True}


def parameters(server: Asker) -> None:
    assert server.infer(parameters={"mine": 1, "yours": "x"})["outputs"][0]["data"] == ROW


def schedule_policy(server: Asker) -> None:
    assert server.infer(parameters={"priority": 1, "timeout": 10_000_000})["outputs"][0]["data"] == ROW
    entry = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}
    status, reply = server.ask("POST", "models/scores/infer", {"inputs": [entry], "parameters": {"timeout": 1}})
    assert status == 504 and "error" in reply  # a microsecond is over before it is read


def model_configuration(server: Asker) -> None:
    status, config = server.ask("GET", "models/scores/config")
    assert status == 200 and config["name"] == "scores" and config["output"][0]["name"] == "y"


def model_repository(server: Asker) -> None:
    assert server.ask("POST", "repository/models/scores/unload") == (200, None)
    assert server.ask("GET", "models/scores/ready")[0] in (400, 404)
    assert server.ask("POST", "repository/models/scores/load", {}) == (200, None)
    assert server.ask("POST", "repository/index", {"ready": None}) == server.ask("POST", "repository/index", {})
    status, index = server.ask("POST", "repository/index", {"ready": True})
    assert status == 200 and "scores" in {entry["name"] for entry in index}


def model_repository_unload_dependents(server: Asker) -> None:
    parameters = {"parameters": {"unload_dependents": True}}
    assert server.ask("POST", "repository/models/scores/unload", parameters) == (200, None)
    assert server.ask("POST", "repository/models/scores/load") == (200, None)


def statistics(server: Asker) -> None:
    before = server.ask("GET", "models/scores/stats")[1]["model_stats"][0]["inference_count"]
    server.infer()
    assert server.ask("GET", "models/scores/stats")[1]["model_stats"][0]["inference_count"] == before + 1


def binary_tensor_data(server: Asker) -> None:
    entry = {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    data = np.array(ROW, np.float32).tobytes()
    headers = {"inference-header-content-length": str(len(text))}
    status, _, reply = server.client.ask("POST", INFER, text + data, headers)
    assert status == 200 and reply.endswith(data)


def system_shared_memory(server: Asker) -> None:
    key = server.shared(np.array(ROW, np.float32).tobytes() + bytes(16))
    assert server.ask("POST", "systemsharedmemory/region/r/register", {"key": key, "byte_size": 32}) == (200, None)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
    reply = server.infer({"parameters": place}, place | {"shared_memory_offset": 16})
    assert "data" not in reply["outputs"][0] and reply["outputs"][0]["shape"] == [1, 4]
    again = server.infer({"parameters": place | {"shared_memory_offset": 16}})
    assert again["outputs"][0]["data"] == ROW
    assert server.ask("POST", "systemsharedmemory/region/r/unregister") == (200, None)


def trace(server: Asker) -> None:
    status, settings = server.ask("GET", "models/scores/trace/setting")
    assert status == 200 and settings["trace_level"] == ["OFF"]  # this server was not started with --trace
    assert server.ask("POST", "trace/setting", {"trace_level": ["TIMESTAMPS"]})[0] == 409


def logging(server: Asker) -> None:
    status, settings = server.ask("POST", "logging", {"log_info": False})
    assert status == 200 and settings["log_info"] is False
    assert server.ask("POST", "logging", {"log_info": True})[1]["log_info"] is True


def cuda_shared_memory(server: Asker) -> None:
    request = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 16}
    assert server.ask("POST", "cudasharedmemory/region/r/register", request)[0] == 501


CHECKS = {
    "model_repository(unload_dependents)": model_repository_unload_dependents,
    **{
        check.__name__: check
        for check in (
            classification, sequence, parameters, schedule_policy, model_configuration, model_repository, statistics,
            binary_tensor_data, system_shared_memory, trace, logging,
        )
    },
}  # fmt: skip
REFUSED = {"cuda_shared_memory": cuda_shared_memory}


def test_the_list(manager: Any) -> None:
    listed = json.loads(manager.ask("GET", "/v2")[2])["extensions"]
    assert listed == EXTENSIONS == sorted(set(listed), key=listed.index)
    assert set(listed) == CHECKS.keys()
    assert TRITON - set(listed) == REFUSED.keys()


@pytest.mark.parametrize("extension", CHECKS)
def test_what_is_listed_works(manager: Any, shared: Any, extension: str) -> None:
    CHECKS[extension](Asker(manager, shared))


@pytest.mark.parametrize("extension", REFUSED)
def test_what_is_not_listed_is_refused(manager: Any, shared: Any, extension: str) -> None:
    REFUSED[extension](Asker(manager, shared))
