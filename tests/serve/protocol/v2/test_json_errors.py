"""Data in JSON that is not of the input's type: which element, where, and what would have been right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rows import rows

from ox.graph.contract import TensorInfo
from ox.serve.protocol.v2.inputs import CODES
from ox.serve.protocol.v2.json_errors import CHUNK, element_error

CASES = [
    ("INT8", [1, 300], "300 as element 1", "-128 to 127"),
    ("UINT8", [-1, 256], "-1 as element 0", "0 to 255"),
    ("INT16", [0, -32769], "-32769 as element 1", "-32768 to 32767"),
    ("UINT16", [0, 65536], "65536 as element 1", "0 to 65535"),
    ("INT32", [1, 2.5], "2.5 as element 1", "whole numbers from -2147483648 to 2147483647"),
    ("UINT32", ["1", 2], "'1' as element 0", "0 to 4294967295"),
    ("INT64", [0, 1 << 63], f"{1 << 63} as element 1", "-9223372036854775808 to 9223372036854775807"),
    ("UINT64", [0, None], "null as element 1", "0 to 18446744073709551615"),
    ("FP16", [0, 65520], "65520 as element 1", "numbers from -65504 to 65504"),
    ("FP32", [1e39, 0], "1e+39 as element 0", "numbers from -3.40282e+38 to 3.40282e+38"),
    ("FP64", [0, {"a": 1}], "an object of 1 as element 1", "numbers from -1.79769e+308 to 1.79769e+308"),
    ("FP32", [0, True], "true as element 1", "not true or false"),
    ("INT8", [0, False], "false as element 1", "not true or false"),
    ("BOOL", [True, 1], "1 as element 1", "true or false"),
    ("BYTES", ["a", 5], "5 as element 1", "strings"),
    ("BF16", [1, 2], "BF16 exists only as binary data", ""),
]


def refused(dtype: str, data: list[Any]) -> str:
    return element_error(TensorInfo("x", dtype, ("n",)), CODES.get(dtype), data).one_line()


@rows(("dtype", "data", "got", "expected"), CASES)
def test_the_first_that_is_wrong(dtype: str, data: list[Any], got: str, expected: str) -> None:
    said = refused(dtype, data)
    assert f"the data of input 'x' is not all {dtype}" in said and got in said and expected in said
    assert "argument" not in said and "format" not in said and "pack" not in said


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_far_behind(place: int) -> None:
    data = [0] * (3 * CHUNK)
    data[place] = 128
    assert f"128 as element {place};" in refused("INT8", [*data, 999]) + ";"


def test_lists_that_nest_too_deep() -> None:
    assert "a list of 1 as element 0" in refused("FP32", [[1.0]])


def test_through_a_server(client: Any) -> None:
    entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 40 + [None] * 24}
    status, _, reply = client.ask("POST", "/v2/models/mlp/infer", json.dumps({"inputs": [entry]}).encode())
    assert status == 400 and "got null as element 40" in json.loads(reply)["error"]
