"""Answers written by hand: the same messages as protobuf would write, bounded in size and in what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox.errors import ServeError
from ox.serve import Server
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.request_template import RequestTemplate
from ox.serve.protocol.grpc.response import MAX_CACHED_FORMS, ResponseWriter, stream_error, stream_response
from ox.serve.protocol.grpc.wire import split_message

Answer, InStream = message("inference.ModelInferResponse"), message("inference.ModelStreamInferResponse")


@pytest.fixture
def plan(grpc_server: Server, ones: Any) -> RequestTemplate:
    model = next(model for model in grpc_server.models if model.name == "mlp")
    return RequestTemplate(model, ones(), grpc_server.service.regions)


@pytest.fixture
def request_of(plan: RequestTemplate, ones: Any) -> Any:
    body = ones(id="ä").SerializeToString()
    return plan.read(body, split_message(body))


def test_an_answer(request_of: Any) -> None:
    for rows in (1, 300, 1):
        y = np.arange(10 * rows, dtype=np.float32).reshape(rows, 10)
        answer = Answer.FromString(ResponseWriter(1 << 20).write(request_of, [y]))
        output = {"name": "y", "datatype": "FP32", "shape": [rows, 10]}
        assert answer == Answer(
            model_name="mlp", model_version="1", id="ä", outputs=[output], raw_output_contents=[y.tobytes()]
        )


def test_an_answer_that_is_too_large(request_of: Any) -> None:
    assert ResponseWriter(40).write(request_of, [np.zeros((1, 10), np.float32)])
    with pytest.raises(ServeError, match="the response is too large") as caught:
        ResponseWriter(119).write(request_of, [np.zeros((3, 10), np.float32)])
    assert caught.value.status == 413 and caught.value.expected == "at most 119 bytes (--limit reply)"


def test_shapes_without_end_are_not_all_kept(request_of: Any, plan: RequestTemplate) -> None:
    writer = ResponseWriter(1 << 20)
    for rows in range(1, 2 * MAX_CACHED_FORMS):
        y = np.zeros((rows, 10), np.float32)
        assert list(Answer.FromString(writer.write(request_of, [y])).outputs[0].shape) == [rows, 10]
    assert len(plan.response_forms) == MAX_CACHED_FORMS


def test_answers_of_a_stream() -> None:
    inner = Answer(model_name="m" * 200, id="7")
    got = InStream.FromString(stream_response(inner.SerializeToString()))
    assert got == InStream(infer_response=inner)
    for identifier in ("", "zwölf"):
        got = InStream.FromString(stream_error("what went wröng" * 20, identifier))
        assert got == InStream(error_message="what went wröng" * 20, infer_response=Answer(id=identifier))
