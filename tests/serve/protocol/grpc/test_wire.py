"""Taking requests apart by hand: the same as protobuf reads them, whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import rows

from ox.errors import ServeError
from ox.protobuf import varint
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.wire import (
    MAX_FIELDS,
    MessageParts,
    check_field_count,
    layout_of,
    parse,
    split_message,
)

Request = message("inference.ModelInferRequest")

requests = st.builds(
    lambda name, identifier, raws, inputs: Request(
        model_name=name,
        id=identifier,
        raw_input_contents=raws,
        inputs=[{"name": each, "shape": [1, len(each)]} for each in inputs],
    ),
    st.text(max_size=200),
    st.text(max_size=200),
    st.lists(st.binary(max_size=300), max_size=4),
    st.lists(st.text(max_size=150), max_size=3),
)


def whole(body: bytes, parts: MessageParts) -> object:
    """The message that the parts stand for."""
    made = Request.FromString(parts.head)
    made.id = parts.id
    made.raw_input_contents.extend(body[at : at + size] for at, size in parts.raw)
    return made


@given(requests)
def test_the_parts_are_the_message(request: object) -> None:
    body = request.SerializeToString()  # type: ignore[attr-defined]
    parts = split_message(body)
    assert whole(body, parts) == request
    assert not Request.FromString(parts.head).raw_input_contents


@given(requests, st.data())
def test_fields_in_any_order_and_unknown_ones(request: object, data: st.DataObject) -> None:
    unknown = [
        b"\x7a\x03abc",
        b"\xa8\x06\x96\x01",
        b"\xa1\x0612345678",
        b"\xa5\x061234",
        b"\xba\x3e\x81\x01" + bytes(129),
    ]
    body = request.SerializeToString()  # type: ignore[attr-defined]
    more = b"".join(data.draw(st.permutations(unknown)))
    body = (
        Request(raw_input_contents=[b"first"]).SerializeToString()
        + more
        + body
        + Request(id="last").SerializeToString()
    )
    expected = Request.FromString(body)
    expected.DiscardUnknownFields()
    made = whole(body, split_message(body))
    made.DiscardUnknownFields()  # type: ignore[attr-defined]
    assert made == expected


@given(st.binary(max_size=60))
def test_what_protobuf_refuses_is_refused(body: bytes) -> None:
    """Groups, which proto3 does not have, are the one thing that protobuf accepts and we do not."""
    try:
        whole(body, split_message(body))
        read = True
    except Exception as error:
        assert isinstance(error, ServeError) or type(error).__name__ == "DecodeError"
        read = False
    if read:
        Request.FromString(body)


@rows(
    ("body", "got"),
    [
        (b"\x0a\x05abc", "it ends in the middle of a field"),
        (b"\x0a", "it ends in the middle of a field"),
        (b"\x3a\xff\xff\xff\xff\x0f", "it ends in the middle of a field"),
        (b"\x08" + b"\xff" * 11, "a varint that is too long"),
        (b"\x0b\x0c", "a field of wire type 3"),
        (b"\x1a\x01\xff", "an id that is not UTF-8"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, got: str) -> None:
    with pytest.raises(ServeError, match="not a valid ModelInferRequest") as caught:
        split_message(body)
    assert caught.value.got == got and caught.value.status == 400


def test_many_tiny_fields_are_not_read() -> None:
    assert len(split_message(b"\x2a\x00" * MAX_FIELDS).head) == 2 * MAX_FIELDS
    with pytest.raises(ServeError, match="too many parts") as caught:
        split_message(b"\x2a\x00" * (MAX_FIELDS + 1))
    assert caught.value.status == 413


@given(st.binary(max_size=300), st.binary(max_size=300), st.text(max_size=3))
def test_what_begins_alike_and_is_as_long_has_the_same_parts(first: bytes, second: bytes, identifier: str) -> None:
    size = min(len(first), len(second))
    bodies = [
        Request(model_name="m", id=identifier, raw_input_contents=[raw[:size]]).SerializeToString()
        for raw in (first, second)
    ]
    layout = layout_of(bodies[0], split_message(bodies[0]))
    assert (layout is None) == bool(identifier)
    if layout is not None:
        assert bodies[1].startswith(layout.start) and layout.parts == split_message(bodies[1])


@pytest.mark.parametrize("body", [b"\x3a\x01x\x0a\x01m", b"\x3a\x01x\x3a\x01y", b"\x0a\x01m"])
def test_what_does_not_end_in_its_only_tensor_has_no_layout(body: bytes) -> None:
    assert layout_of(body, split_message(body)) is None


def test_a_large_message_of_tiny_fields_is_not_parsed() -> None:
    kind = message("inference.RepositoryModelLoadRequest")
    tiny = b"\x1a\x04\x0a\x02ab" * 20_000
    with pytest.raises(ServeError, match="too many parts") as caught:
        parse(kind, tiny, 1 << 24)
    assert caught.value.status == 413
    with pytest.raises(ServeError, match="the message is too large") as caught:
        parse(kind, tiny)
    assert caught.value.status == 413
    large = kind(model_name="m", parameters={"file:1/model.onnx": {"bytes_param": bytes(100_000)}}).SerializeToString()
    assert parse(kind, large, 1 << 24).model_name == "m"
    with pytest.raises(ServeError, match="not a valid RepositoryModelLoadRequest"):
        parse(kind, large[:-1], 1 << 24)
    with pytest.raises(ServeError, match="not a valid X"):
        check_field_count("X", b"\x0a\x05")


@pytest.mark.parametrize("value", [0, 127, 128, 300, 1 << 32])
def test_varint(value: int) -> None:
    body = b"\x08" + varint(value) + b"\x3a\x01x"
    assert split_message(body).raw == [(len(body) - 1, 1)]
