"""Server reflection, as grpcurl and its like use it, over both transports."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from ox.serve.protocol.grpc.proto import SERVICES, message

VERSIONS = ["v1", "v1alpha"]


def ask(wire: Any, version: str, *questions: dict[str, Any]) -> list[Any]:
    package = f"grpc.reflection.{version}.ServerReflection"
    request, response = message(f"{package}Request"), message(f"{package}Response")
    bodies = [request(host="here", **question).SerializeToString() for question in questions]
    answers = wire.stream(f"/{package}/ServerReflectionInfo")(iter(bodies), timeout=300)
    return [response.FromString(answer) for answer in answers]


@pytest.mark.parametrize("version", VERSIONS)
def test_questions_and_answers(wire: Any, version: str) -> None:
    answers = ask(
        wire,
        version,
        {"list_services": "*"},
        {"file_by_filename": "inference.proto"},
        {"file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"},
        {"file_containing_symbol": "inference.GRPCInferenceService.ModelInfer"},
        {"file_by_filename": "nope.proto"},
        {"file_containing_symbol": "no.Such"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {"file_containing_extension": {"containing_type": "x", "extension_number": 1}},
        {},
    )
    assert [service.name for service in answers[0].list_services_response.service] == sorted(SERVICES)
    for answer in answers[1:4]:
        assert len(answer.file_descriptor_response.file_descriptor_proto) == 2  # the configuration's comes along
    assert [answer.error_response.error_code for answer in answers[4:]] == [5, 5, 5, 5, 3]
    assert answers[4].error_response.error_message == "there is no file nope.proto"
    assert all(answer.valid_host == answer.original_request.host == "here" for answer in answers)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_question(wire: Any, version: str) -> None:
    call = wire.stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")(
        iter([b"\xff"]), timeout=300
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_tool_that_knows_nothing_can_infer(wire: Any, expected: Any) -> None:
    """Everything from the server: its services, the messages of a call, and then the call itself."""
    database = pytest.importorskip("grpc_reflection.v1alpha.proto_reflection_descriptor_database")
    known = database.ProtoReflectionDescriptorDatabase(wire.channel)
    assert set(known.get_services()) == SERVICES
    pool = DescriptorPool(known)
    method = pool.FindServiceByName("inference.GRPCInferenceService").FindMethodByName("ModelInfer")
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    fields = {"name": "x", "datatype": "FP32", "shape": [1, 64], "contents": {"fp32_contents": [1.0] * 64}}
    asked = request(model_name="mlp", inputs=[fields])
    answer = response.FromString(wire.method("ModelInfer")(asked.SerializeToString(), timeout=300))
    y = np.frombuffer(answer.raw_output_contents[0], np.float32)
    np.testing.assert_allclose(y, expected(1).ravel(), rtol=1e-4, atol=1e-4)
    for name in SERVICES:
        assert pool.FindServiceByName(name).methods
