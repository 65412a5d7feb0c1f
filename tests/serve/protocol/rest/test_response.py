"""Replies that are put together from what is remembered are the same as those that are written anew."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rows import rows

from ox.errors import ServeError
from ox.graph.contract import DTYPES, TensorInfo, from_bytes, to_bytes
from ox.serve.protocol.rest.response import MAX_CACHED_FORMS, ResponseWriter
from ox.serve.protocol.v2.request import NO_PARAMETERS, Request, RequestedOutput

INFOS = [
    TensorInfo("a", "FP32", ("batch", 2), None, ("cat", "dog")),
    TensorInfo("b", "INT64", ("batch",)),
    TensorInfo("c", "BYTES", ("batch",)),
]
ARRAYS = [np.array([[0.5, -1], [2, 1e-7]], np.float32), np.array([1, 2**62]), np.array(['["\\u0000"]', "ü"], object)]
WRITER = ResponseWriter("m", "1", INFOS, 1 << 20)


def request(
    outputs: list[RequestedOutput], identifier: str | None = None, form: Any = None, parameters: Any = NO_PARAMETERS
) -> Request:
    return Request(identifier, {}, 2, (), outputs, parameters, form)


WANTED = [
    [RequestedOutput(0, True)],
    [RequestedOutput(0, False)],
    [RequestedOutput(0, True), RequestedOutput(1, True)],
    [RequestedOutput(1, False), RequestedOutput(0, False)],
    [RequestedOutput(1, False), RequestedOutput(0, True)],
    [RequestedOutput(0, True), RequestedOutput(1, False)],
    [RequestedOutput(2, False), RequestedOutput(0, False)],
    [RequestedOutput(2, True), RequestedOutput(0, True), RequestedOutput(1, False)],
    [RequestedOutput(0, False, 1), RequestedOutput(1, False)],
    [],
]


@rows("outputs", WANTED)
@rows("identifier", [None, "", "77", 'quo"te', "ü\0"])
def test_the_same_with_and_without(outputs: list[RequestedOutput], identifier: str | None) -> None:
    anew = WRITER.write(request(outputs, identifier), ARRAYS)
    form: Any = {}
    for other in ("first", identifier, identifier):
        again = WRITER.write(request(outputs, other, form), ARRAYS)
    assert again == anew
    body, length = anew
    head = json.loads(body[:length])
    assert head.get("id") == identifier and head["model_name"] == "m" and head["model_version"] == "1"
    at = length or len(body)
    for wanted, output in zip(outputs, head["outputs"], strict=True):
        info, array = INFOS[wanted.position], ARRAYS[wanted.position]
        assert output["name"] == info.name
        if wanted.classes:
            assert (output["datatype"], output["data"]) == ("BYTES", ["0.500000:0:cat", "2.000000:0:cat"])
            continue
        assert (output["datatype"], output["shape"]) == (info.dtype, list(array.shape))
        if wanted.binary:
            size = output["parameters"]["binary_data_size"]
            got = from_bytes(body[at : at + size], info.dtype, array.shape)
            at += size
        else:
            got = np.array(output["data"], array.dtype).reshape(array.shape)
        assert (got == array).all()
    assert at == len(body)


def test_other_shapes_and_other_numbers() -> None:
    form: Any = {}
    for count in (1, 2, 1, 3, 2, 1):
        array = np.full((count, 2), count, np.float32)
        body, length = WRITER.write(request([RequestedOutput(0, True)], None, form), [array])
        output = json.loads(body[:length])["outputs"][0]
        assert output["shape"] == [count, 2] and output["parameters"] == {"binary_data_size": 8 * count}
        assert body[length:] == array.tobytes()
    assert len(form) == 3
    for count in range(1, 3 * MAX_CACHED_FORMS):
        WRITER.write(request([RequestedOutput(0, True)], None, form), [np.zeros((count, 2), np.float32)])
    assert len(form) == MAX_CACHED_FORMS


@rows("dtype", sorted(set(DTYPES) - {"BYTES"}))
@rows("binary", [True, False])
def test_every_type(dtype: str, binary: bool) -> None:
    array = np.array([0, 1, 1]).astype(DTYPES[dtype])
    form: Any = {}
    for _ in range(2):
        if dtype == "BF16" and not binary:
            with pytest.raises(ServeError, match="BF16, which JSON cannot carry"):
                ResponseWriter("m", "1", [TensorInfo("y", dtype, (3,))], 1000).write(
                    request([RequestedOutput(0, False)], None, form), [array]
                )
            continue
        writer = ResponseWriter("m", "1", [TensorInfo("y", dtype, (3,))], 1000)
        body, length = writer.write(request([RequestedOutput(0, binary)], None, form), [array])
        if binary:
            assert body[length:] == to_bytes(array)
        else:
            data = json.loads(body)["outputs"][0]["data"]
            assert data == ([False, True, True] if dtype == "BOOL" else [0, 1, 1])


def test_arrays_that_are_not_in_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(6, 2)[::2]
    for binary in (True, False):
        form: Any = {}
        for _ in range(2):
            body, length = WRITER.write(request([RequestedOutput(0, binary)], None, form), [array])
            got = np.frombuffer(body[length:], np.float32) if binary else json.loads(body)["outputs"][0]["data"]
            assert list(got) == [0, 1, 4, 5, 8, 9]


def test_nan_comes_later() -> None:
    form: Any = {}
    WRITER.write(request([RequestedOutput(0, False)], None, form), [ARRAYS[0]])
    bad = ARRAYS[0].copy()
    bad[1, 1] = np.nan
    with pytest.raises(ServeError, match="'a' holds NaN") as caught:
        WRITER.write(request([RequestedOutput(0, False)], None, form), [bad])
    assert caught.value.status == 500
    WRITER.write(request([RequestedOutput(0, False)], "null", form), [ARRAYS[0]])


def test_bfloat16_is_classified() -> None:
    info = TensorInfo("y", "BF16", ("batch", 3))
    array = np.array([[1, 3, 2]], ml_dtypes.bfloat16)
    body, _ = ResponseWriter("m", "1", [info], 1000).write(request([RequestedOutput(0, False, 2)]), [array])
    assert json.loads(body)["outputs"][0]["data"] == ["3.000000:1", "2.000000:2"]


@pytest.mark.parametrize("binary", [True, False])
def test_too_large_also_when_remembered(binary: bool) -> None:
    form: Any = {}
    small, large = np.zeros((1, 2), np.float32), np.full((1, 2), 1.2345678e-20, np.float32)
    writer = ResponseWriter("m", "1", INFOS, len(WRITER.write(request([RequestedOutput(0, binary)]), [small])[0]) + 5)
    writer.write(request([RequestedOutput(0, binary)], None, form), [small])
    if not binary:
        with pytest.raises(ServeError, match="too large"):
            writer.write(request([RequestedOutput(0, binary)], None, form), [large])
    with pytest.raises(ServeError, match="too large"):
        writer.write(request([RequestedOutput(0, binary)], "x" * 100, form), [small])
    with pytest.raises(ServeError, match="too large"):
        writer.write(request([RequestedOutput(0, binary)], None, form), [np.zeros((100, 2), np.float32)])


def test_sequences_are_not_mixed_up() -> None:
    form: Any = {}
    assert "parameters" not in json.loads(WRITER.write(request([RequestedOutput(0, False)], None, form), ARRAYS)[0])
    for number in (1, 2, 2):
        body, _ = WRITER.write(request([RequestedOutput(0, False)], None, form, {"sequence_id": number}), ARRAYS)
        assert json.loads(body)["parameters"]["sequence_id"] == number
    assert "parameters" not in json.loads(WRITER.write(request([RequestedOutput(0, False)], None, form), ARRAYS)[0])
