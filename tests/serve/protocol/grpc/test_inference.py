"""ModelInfer over both transports: tensors both ways, and every way in which a request can be wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from rows import rows

from ox.graph.contract import DTYPES, from_bytes, to_bytes
from ox.serve import RequestLimits, Server
from ox.serve.protocol.grpc.inference import MAX_SEQUENCE_TEMPLATES, Inference
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.wire import split_message

Code = grpc.StatusCode
Request = message("inference.ModelInferRequest")

ARRAYS: dict[str, Any] = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([[0, 65535]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-32768, 32767]], np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1]], np.int64),
    "FP16": np.array([[0.5, -65504]], np.float16),
    "FP32": np.array([[np.inf, 1e-38]], np.float32),
    "FP64": np.array([[np.nan, 1e308]], np.float64),
    "BYTES": np.array([["zwölf", ""]], object),
}
FIELDS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def described(name: str, array: Any, **more: Any) -> dict[str, Any]:
    return {"name": name.lower(), "datatype": name, "shape": list(array.shape), **more}


def whole(**changes: Any) -> Any:
    """A request to echo with every input as raw bytes, but for `changes`: its other fields."""
    fields: dict[str, Any] = {
        "model_name": "echo",
        "inputs": [described(name, array) for name, array in ARRAYS.items()],
        "raw_input_contents": [to_bytes(array) for array in ARRAYS.values()],
    }
    return Request(**(fields | changes))


def outputs(answer: Any) -> dict[str, Any]:
    raw = dict(zip([output.name for output in answer.outputs], answer.raw_output_contents, strict=True))
    return {
        output.name: from_bytes(raw[output.name], output.datatype, tuple(output.shape)) for output in answer.outputs
    }


def test_every_datatype(wire: Any) -> None:
    answer = wire.call("ModelInfer", whole(id="a").SerializeToString())
    assert (answer.model_name, answer.model_version, answer.id) == ("echo", "1", "a")
    got = outputs(answer)
    assert [output.datatype for output in answer.outputs] == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert got[f"{name.lower()}_out"].dtype == DTYPES[name]
        assert to_bytes(got[f"{name.lower()}_out"]) == to_bytes(array), name


def test_bfloat16(wire: Any) -> None:
    array = np.array([[1.5, -3e38]], ml_dtypes.bfloat16)
    fields = {"model_name": "brain", "inputs": [described("BF16", array)], "raw_input_contents": [to_bytes(array)]}
    assert to_bytes(outputs(wire.call("ModelInfer", **fields))["bf16_out"]) == to_bytes(array)
    fields["inputs"] = [described("BF16", array, contents={})]
    code, said = wire.refused("ModelInfer", **(fields | {"raw_input_contents": []}))
    assert code == Code.INVALID_ARGUMENT and "input 'bf16' is BF16, which only raw_input_contents can carry" in said


@rows("name", FIELDS)
def test_elements_one_by_one(wire: Any, name: str) -> None:
    """One input written out, the others as raw bytes; some servers' clients send nothing else."""
    values = [item.encode() if name == "BYTES" else item for item in ARRAYS[name].ravel().tolist()]
    inputs = [
        described(each, array, **({"contents": {FIELDS[name]: values}} if each == name else {}))
        for each, array in ARRAYS.items()
    ]
    raw = [to_bytes(array) for each, array in ARRAYS.items() if each != name]
    body = whole(inputs=inputs, raw_input_contents=raw, outputs=[{"name": f"{name.lower()}_out"}]).SerializeToString()
    got = outputs(wire.call("ModelInfer", body))
    assert to_bytes(got[f"{name.lower()}_out"]) == to_bytes(ARRAYS[name])


def test_the_same_twice_and_others_between(wire: Any, ones: Any, expected: Any) -> None:
    """What is remembered of a request's head does not leak into others."""
    for count, identifier in [(1, ""), (1, "second"), (3, ""), (1, "third"), (3, "x" * 200)]:
        answer = wire.call("ModelInfer", ones(rows=count, id=identifier).SerializeToString())
        assert answer.id == identifier
        np.testing.assert_allclose(outputs(answer)["y"], expected(count), rtol=1e-4, atol=1e-4)


def test_a_large_tensor_wherever_it_lies(wire: Any, expected: Any, ones: Any) -> None:
    """Raw bytes may stand before everything else in the message, at any offset."""
    request = ones(rows=400, id="large")
    raw = Request(raw_input_contents=request.raw_input_contents)
    del request.raw_input_contents[:]
    for body in (
        raw.SerializeToString() + request.SerializeToString(),
        request.SerializeToString() + raw.SerializeToString(),
    ):
        np.testing.assert_allclose(outputs(wire.call("ModelInfer", body))["y"], expected(400), rtol=1e-4, atol=1e-4)


def test_outputs_in_the_order_that_is_asked_for(wire: Any) -> None:
    names = ["int64_out", "bytes_out", "fp32_out"]
    answer = wire.call("ModelInfer", whole(outputs=[{"name": name} for name in names]).SerializeToString())
    assert [output.name for output in answer.outputs] == names
    assert outputs(answer)["bytes_out"].tolist() == [["zwölf", ""]]


def test_a_sequence_comes_back(wire: Any, ones: Any) -> None:
    parameters = {
        "sequence_id": {"uint64_param": 2**64 - 1},
        "sequence_start": {"bool_param": True},
        "priority": {"uint64_param": 1},
        "timeout": {"int64_param": 10_000_000},
        "mine": {"double_param": 0.5},
    }
    answer = wire.call("ModelInfer", ones(parameters=parameters).SerializeToString())
    assert answer.parameters["sequence_id"].uint64_param == 2**64 - 1
    assert answer.parameters["sequence_start"].bool_param and not answer.parameters["sequence_end"].bool_param


def test_sequences_do_not_push_out_what_is_remembered_of_others(mlp: Path, ones: Any) -> None:
    server = Server([mlp])
    inference = Inference(server.service, RequestLimits(), None)
    rpc = SimpleNamespace(metadata={}, peer="")

    def read(request: Any) -> Any:
        body = request.SerializeToString()
        return inference.read(body, split_message(body), rpc, 0.0)

    first = read(ones())
    for number in range(2 * MAX_SEQUENCE_TEMPLATES):
        asked = ones(parameters={"sequence_id": {"int64_param": number}, "sequence_start": {"bool_param": True}})
        request = read(asked)
        assert request.parameters == {"sequence_id": number, "sequence_start": True}
        assert read(asked).writer_state is request.writer_state
    assert read(ones()).writer_state is first.writer_state
    assert len(inference._templates) == 1 and len(inference._sequence_templates) <= MAX_SEQUENCE_TEMPLATES


def test_classification(wire: Any) -> None:
    wanted = [{"name": "fp32_out", "parameters": {"classification": {"int64_param": 2}}}, {"name": "int8_out"}]
    answer = wire.call("ModelInfer", whole(outputs=wanted).SerializeToString())
    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == ("BYTES", [1, 2])
    got = outputs(answer)
    assert got["fp32_out"].tolist() == [["inf:0:cat", "0.000000:1:dog"]]
    assert to_bytes(got["int8_out"]) == to_bytes(ARRAYS["INT8"])


def x(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 64]} | changes


def region(size: int) -> dict[str, Any]:
    return {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": size}}


BAD = Code.INVALID_ARGUMENT
WRONG: dict[str, tuple[dict[str, Any], Any, str]] = {
    "no model": ({"model_name": "nope"}, Code.NOT_FOUND, "there is no model 'nope'"),
    "no version": ({"model_version": "9"}, Code.NOT_FOUND, "has no version '9'"),
    "no inputs": ({"inputs": [], "raw_input_contents": []}, BAD, "input 'x' is missing"),
    "another name": ({"inputs": [x(name="X")]}, BAD, "there is no input 'X'"),
    "twice": ({"inputs": [x(), x()]}, BAD, "input 'x' appears twice"),
    "shape": ({"inputs": [x(shape=[2, 63])]}, BAD, "input 'x' has shape [2, 63]; expected [batch, 64]"),
    "rank": ({"inputs": [x(shape=[1] * 40)]}, BAD, "another rank"),
    "negative": ({"inputs": [x(shape=[-1, 64])]}, BAD, "shape [-1, 64]"),
    "a row for none": ({"inputs": [x(shape=[0, 64])]}, BAD, "256 bytes; FP32 of shape [0, 64] has 0"),
    "huge": ({"inputs": [x(shape=[2**62, 64])]}, BAD, "has shape"),
    "datatype": ({"inputs": [x(datatype="FP64")]}, BAD, "input 'x' has datatype 'FP64'; expected FP32"),
    "too few bytes": ({"raw_input_contents": [bytes(255)]}, BAD, "255 bytes; FP32 of shape [1, 64] has 256"),
    "too many bytes": ({"raw_input_contents": [bytes(257)]}, BAD, "257 bytes"),
    "no data": ({"raw_input_contents": []}, BAD, "input 'x' has no data"),
    "more data": (
        {"raw_input_contents": [bytes(256)] * 2},
        BAD,
        "raw_input_contents holds 2 tensors; expected 1, for 'x'",
    ),
    "contents and raw": (
        {"inputs": [x(contents={"fp32_contents": [0.0] * 64})]},
        BAD,
        "raw_input_contents holds 1 tensors; expected 0",
    ),
    "few elements": (
        {"inputs": [x(contents={"fp32_contents": [0.0] * 63})], "raw_input_contents": []},
        BAD,
        "63 elements",
    ),
    "wrong list": (
        {"inputs": [x(contents={"int_contents": [0] * 64})], "raw_input_contents": []},
        BAD,
        "in the wrong list; expected fp32_contents; got int_contents",
    ),
    "no output": ({"outputs": [{"name": "z"}]}, BAD, "there is no output 'z'; expected 'y'"),
    "output twice": ({"outputs": [{"name": "y"}, {"name": "y"}]}, BAD, "2 outputs are requested"),
    "many rows": (
        {"inputs": [x(shape=[5000, 64], datatype="FP32")], "raw_input_contents": [bytes(256)]},
        Code.RESOURCE_EXHAUSTED,
        "5000 samples in one request",
    ),
    "timeout": ({"parameters": {"timeout": {"string_param": "1"}}}, BAD, "the parameter 'timeout' is wrong"),
    "priority": ({"parameters": {"priority": {"int64_param": -1}}}, BAD, "the parameter 'priority' is wrong"),
    "many parameters": (
        {"parameters": {str(n): {"bool_param": True} for n in range(65)}},
        BAD,
        "65 parameters; expected at most 64",
    ),
    "classification": (
        {"outputs": [{"name": "y", "parameters": {"classification": {"string_param": "3"}}}]},
        BAD,
        "output 'y' has a wrong classification",
    ),
    "no region in": (
        {"inputs": [x(parameters=region(256))]},
        Code.NOT_FOUND,
        "there is no shared memory region 'r'",
    ),
    "no region out": (
        {"outputs": [{"name": "y", "parameters": region(40)}]},
        Code.NOT_FOUND,
        "there is no shared memory region 'r'",
    ),
}


@rows("name", WRONG)
def test_what_is_wrong_is_said(wire: Any, ones: Any, name: str) -> None:
    changes, code, text = WRONG[name]
    body = ones(**changes).SerializeToString()
    for _ in range(2):  # nothing of it is remembered
        got, said = wire.refused("ModelInfer", body)
        assert got == code and text in said
    assert wire.call("ModelInfer", ones().SerializeToString()).model_name == "mlp"


@rows("changes", [
    {"parameters": {"mine": {}, "timeout": {}}}, {"inputs": [x(parameters={"binary_data_size": {}})]},
    {"inputs": [x(parameters={"shared_memory_region": {}})]},
    {"outputs": [{"name": "y", "parameters": {"classification": {}}}]},
])  # fmt: skip
def test_a_parameter_without_a_value_is_absent(wire: Any, ones: Any, expected: Any, changes: Any) -> None:
    answer = wire.call("ModelInfer", ones(**changes).SerializeToString())
    np.testing.assert_allclose(outputs(answer)["y"], expected(1), rtol=1e-4, atol=1e-4)


BAD_ELEMENTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "int8": ("INT8", {"int_contents": [128, 0]}, "the data of input 'int8' is not all INT8"),
    "uint16": ("UINT16", {"uint_contents": [65536, 0]}, "the data of input 'uint16' is not all UINT16"),
    "utf-8": ("BYTES", {"bytes_contents": [b"\xff", b""]}, "the data of input 'bytes' is not all UTF-8"),
    "fp16": ("FP16", {"fp32_contents": [0.0, 0.0]}, "input 'fp16' is FP16, which only raw_input_contents can carry"),
}


@rows("name", BAD_ELEMENTS)
def test_elements_that_do_not_fit(wire: Any, name: str) -> None:
    kind, contents, text = BAD_ELEMENTS[name]
    inputs = [
        described(each, array, **({"contents": contents} if each == kind else {})) for each, array in ARRAYS.items()
    ]
    raw = [to_bytes(array) for each, array in ARRAYS.items() if each != kind]
    code, said = wire.refused("ModelInfer", whole(inputs=inputs, raw_input_contents=raw).SerializeToString())
    assert code == Code.INVALID_ARGUMENT and text in said


@rows(
    ("name", "raw", "text"),
    [
        ("BOOL", b"\x02\x00", "neither 0 nor 1"),
        ("BYTES", b"\x02\x00\x00\x00hi\xff\xff\xff\xffoops", "string 1 announces 4294967295 bytes, 4 are left"),
        ("BYTES", b"\x04\x00\x00\x00hiho", "1 strings; the shape has 2"),
        ("BYTES", b"\x02\x00\x00\x00hi", "6 bytes; 2 strings have 8 at least"),
        ("BYTES", b"\x01\x00\x00\x00\xff\x00\x00\x00\x00", "utf-8"),
    ],
)
def test_bytes_that_do_not_fit(wire: Any, name: str, raw: bytes, text: str) -> None:
    data = [raw if each == name else to_bytes(array) for each, array in ARRAYS.items()]
    code, said = wire.refused("ModelInfer", whole(raw_input_contents=data).SerializeToString())
    assert code == Code.INVALID_ARGUMENT and text in said


@pytest.mark.parametrize("raw", [True, False])
def test_rows_and_strings_are_counted_by_the_shape(wire: Any, raw: bool) -> None:
    """The elements are no UTF-8: who looked at them first would say so."""
    asked: dict[str, Any] = {"name": "bytes", "datatype": "BYTES", "shape": [5000, 2]}
    elements = {"raw_input_contents": [b"\x01\x00\x00\x00\xff" * 10_000]}
    if not raw:
        asked["contents"], elements = {"bytes_contents": [b"\xff"] * 10_000}, {}
    code, said = wire.refused("ModelInfer", whole(inputs=[asked], **elements).SerializeToString())
    assert code == Code.RESOURCE_EXHAUSTED and "5000 samples in one request" in said


@rows(
    "body",
    [
        b"\xff",
        b"\x0a\x03mlp\x2a\x05abc",
        b"\x0a\x01\xff",
        b"\x0a\x03mlp\x2a\x03\x0a\x05x",
        b"\x0a\x03mlp\x0b",
        b"\x0a\x03mlp\x08" + b"\xff" * 11,
    ],
)
def test_what_is_no_protobuf(wire: Any, body: bytes) -> None:
    code, said = wire.refused("ModelInfer", body)
    assert code == Code.INVALID_ARGUMENT and said.startswith("the message is not a valid ModelInferRequest")


def test_much_beside_the_tensors(wire: Any, ones: Any) -> None:
    inputs = [x(contents={"fp32_contents": [0.0] * 64 * 300}, shape=[300, 64])]
    code, said = wire.refused("ModelInfer", ones(inputs=inputs, raw_input_contents=[]).SerializeToString())
    assert code == Code.RESOURCE_EXHAUSTED and "raw_input_contents" in said
    code, said = wire.refused("ModelInfer", b"\x2a\x00" * 5000)
    assert code == Code.RESOURCE_EXHAUSTED and "too many parts" in said
