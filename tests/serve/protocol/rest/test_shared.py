"""Tensors in shared memory and as raw bytes that are wrong: an error for whoever sent it, nothing for anybody else."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

FLOATS = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
ROW = np.array([0.5, -1, 2, 0], np.float32).tobytes()
REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"


@pytest.fixture
def region(manager: Any, shared: Callable[[bytes], str]) -> Any:
    """A region of 32 bytes, the first 16 of them a row, and its file."""
    key = shared(ROW + bytes(16))
    body = json.dumps({"key": key, "byte_size": 32}).encode()
    assert manager.ask("POST", "/v2/systemsharedmemory/region/r/register", body)[0] == 200
    yield f"/dev/shm{key}"
    assert manager.ask("POST", "/v2/systemsharedmemory/unregister")[0] == 200


def ask(
    manager: Any, tensor: Any, output: Any = None, blob: bytes = b"", model: str = "scores"
) -> tuple[int, str, Any]:
    """Status, error and document."""
    asked = {} if output is None else {"outputs": [{"name": "y", "parameters": output}]}
    text = json.dumps({"inputs": tensor if isinstance(tensor, list) else [tensor], **asked}).encode()
    headers = {"inference-header-content-length": str(len(text))} if blob else {}
    status, _, reply = manager.ask("POST", f"/v2/models/{model}/infer", text + blob, headers)
    document = json.loads(reply)
    return status, document.get("error", ""), document


def place(size: Any = 16, **more: Any) -> dict[str, Any]:
    return {REGION: "r", SIZE: size, **more}


WRONG: list[tuple[Any, Any, int, str]] = [
    (place() | {REGION: "none"}, None, 404, "there is no shared memory region 'none'; expected 'r'"),
    (place(15), None, 400, "input 'x' has 15 bytes in shared memory; expected 16 for FP32 of shape [1, 4]"),
    (place(33), None, 400, "input 'x' is beyond the end of shared memory region 'r'"),
    (place(16, **{OFFSET: 17}), None, 400, "expected at most 32 bytes; got offset 17 and byte_size 16"),
    (place(16, **{OFFSET: -1}), None, 400, "input 'x' has a wrong shared_memory_offset"),
    ({REGION: "r"}, None, 400, "input 'x' has a wrong shared_memory_byte_size"),
    ({SIZE: 16}, None, 400, "input 'x' has a wrong shared_memory_region"),
    (place(binary_data_size=16), None, 400, "both as binary and in shared memory"),
    (place(), place(15), 400, "output 'y' is too small; expected shared_memory_byte_size of at least 16"),
    (place(), place(33), 400, "output 'y' is beyond the end"),
    (place(), {REGION: "none", SIZE: 16}, 404, "there is no shared memory region 'none'"),
    (place(), {SIZE: 16}, 400, "output 'y' has a wrong shared_memory_region"),
    (place(), place(classification=1), 400, "as classification and in shared memory"),
    (place(), {"classification": -1}, 400, "wrong classification"),
    (place(), {"binary_data": 1}, 400, "binary_data is not true or false"),
]  # fmt: skip


@rows(("tensor", "output", "status", "words"), WRONG)
def test_wrong_places(manager: Any, region: str, tensor: Any, output: Any, status: int, words: str) -> None:
    got, error, _ = ask(manager, FLOATS | {"parameters": tensor}, output)
    assert got == status and words in error, error
    assert ask(manager, FLOATS | {"parameters": place()}, place(16, **{OFFSET: 16}))[0] == 200


def test_data_twice(manager: Any, region: str) -> None:
    got, error, _ = ask(manager, FLOATS | {"parameters": place(), "data": [1, 2, 3, 4]})
    assert got == 400 and "is in shared memory and has data as well" in error
    got, error, _ = ask(manager, FLOATS | {"parameters": {"binary_data_size": 16}, "data": [1, 2, 3, 4]}, blob=ROW)
    assert got == 400 and "announced as binary and has data as well" in error


def test_cut_short_while_the_server_runs(manager: Any, region: str) -> None:
    os.truncate(region, 20)
    assert ask(manager, FLOATS | {"parameters": place()})[2]["outputs"][0]["data"] == [0.5, -1, 2, 0]
    for tensor, output in ((place(16, **{OFFSET: 8}), None), (place(), place(16, **{OFFSET: 16}))):
        got, error, _ = ask(manager, FLOATS | {"parameters": tensor}, output)
        assert got == 400 and "smaller than when it was registered; try registering it again" in error
    os.unlink(region)
    assert ask(manager, FLOATS | {"parameters": place()})[0] == 200
    open(region, "wb").close()  # for who takes it away at the end


def strings(*words: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(word)) + word for word in words)


TEXTS = [
    (strings(b"a", b"b"), 200, ""),
    (strings(b"a"), 400, "5 bytes; 2 strings have 8 at least"),
    (strings(b"a long one"), 400, "1 strings; the shape has 2"),
    (strings(b"a", b"b", b"c"), 400, "more than the 2 strings"),
    (strings(b"a") + struct.pack("<I", 2**32 - 1) + b"b", 400, "string 1 announces 4294967295 bytes, 1 are left"),
    (strings(b"long") + b"\1\0", 400, "string 1 has no whole length"),
    (strings(b"a", b"\xff"), 400, "input 'text' has a string that is not UTF-8"),
]  # fmt: skip


@rows(("data", "status", "words"), TEXTS)
@rows("memory", [False, True])
def test_strings_that_overrun(manager: Any, shared: Any, memory: bool, data: bytes, status: int, words: str) -> None:
    parameters: dict[str, Any] = {"binary_data_size": len(data)}
    if memory:
        parameters = {REGION: "text", SIZE: len(data)}
        body = json.dumps({"key": shared(data), "byte_size": len(data)}).encode()
        assert manager.ask("POST", "/v2/systemsharedmemory/region/text/register", body)[0] == 200
    tensors = [
        {"name": "text", "shape": [1, 2], "datatype": "BYTES", "parameters": parameters},
        {"name": "flags", "shape": [1, 3], "datatype": "BOOL", "data": [True] * 3},
        {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, 1, 1, 1]},
    ]
    got, error, document = ask(manager, tensors, blob=b"" if memory else data, model="mixed")
    manager.ask("POST", "/v2/systemsharedmemory/region/text/unregister")
    assert got == status and words in error, error
    if status == 200:
        assert document["outputs"][1]["data"] == ["a", "b"]


def test_truths_in_shared_memory(manager: Any, shared: Any) -> None:
    for content, status in ((b"\1\0\1", 200), (b"\1\2\1", 400)):
        body = json.dumps({"key": shared(content), "byte_size": 3}).encode()
        assert manager.ask("POST", "/v2/systemsharedmemory/region/flags/register", body)[0] == 200
        tensors = [
            {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
            {"name": "flags", "shape": [1, 3], "datatype": "BOOL", "parameters": {REGION: "flags", SIZE: 3}},
            {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, 1, 1, 1]},
        ]
        got, _, document = ask(manager, tensors, model="mixed")
        assert got == status
        if status == 200:
            assert document["outputs"][2]["data"] == [False, True, False]
        manager.ask("POST", "/v2/systemsharedmemory/region/flags/unregister")
