"""The .proto files against their compiled form, and against the clients' numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ox.serve.protocol.grpc.proto import COMPILED, FILES, POOL, message


def test_the_compiled_form_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="the compiler is not installed")
    folder = COMPILED.parent
    names = [path.name for path in sorted(folder.glob("*.proto"))]
    made = tmp_path / "made.desc"
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={made}"]
    subprocess.run([*command, *names], check=True, timeout=300)
    assert FileDescriptorSet.FromString(made.read_bytes()).file == FILES, "make proto"


def fields(owner: Any) -> dict[str, Any]:
    """Everything of a message that shows on the wire or in JSON."""
    return {
        **{
            field.name: (field.number, field.label, field.type, field.type_name.rpartition(".")[2],
                         field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None)
            for field in owner.field
        },
        **{inner.name: fields(inner) for inner in owner.nested_type},
        **{kind.name: {value.name: value.number for value in kind.value} for kind in owner.enum_type},
    }  # fmt: skip


def shape(file: Any) -> dict[str, Any]:
    copy = FileDescriptorProto.FromString(file.SerializeToString())
    methods = {
        each.name: [
            (call.name, call.input_type, call.output_type, call.client_streaming, call.server_streaming)
            for call in sorted(each.method, key=lambda call: call.name)
        ]
        for each in copy.service
    }
    enums = {kind.name: {value.name: value.number for value in kind.value} for kind in copy.enum_type}
    return {"package": copy.package, **methods, **enums, **{each.name: fields(each) for each in copy.message_type}}


def theirs(module: str) -> Any:
    descriptor = pytest.importorskip(module, exc_type=ImportError).DESCRIPTOR
    return FileDescriptorProto.FromString(descriptor.serialized_pb)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("inference.proto", "tritonclient.grpc.service_pb2"),
        ("model_config.proto", "tritonclient.grpc.model_config_pb2"),
        ("health.proto", "grpc_health.v1.health_pb2"),
        ("reflection_v1alpha.proto", "grpc_reflection.v1alpha.reflection_pb2"),
    ],
)
def test_the_numbers_are_the_clients(name: str, module: str) -> None:
    ours, their = shape(next(file for file in FILES if file.name == name)), shape(theirs(module))
    assert ours.keys() == their.keys()
    for each in ours:
        assert ours[each] == their[each], each


def test_both_reflections_are_one() -> None:
    old, new = (next(file for file in FILES if file.name == f"reflection_{v}.proto") for v in ("v1alpha", "v1"))
    renamed = text_format.MessageToString(old).replace("v1alpha", "v1")
    assert renamed == text_format.MessageToString(new)


def test_messages_are_in_a_pool_of_their_own() -> None:
    pytest.importorskip("tritonclient.grpc", exc_type=ImportError)
    config = text_format.Parse(
        'name: "m" input { dims: [-1, 3] data_type: TYPE_FP32 }', message("inference.ModelConfig")()
    )
    assert (config.name, list(config.input[0].dims)) == ("m", [-1, 3])
    assert config.DESCRIPTOR.file.pool is POOL
    with pytest.raises(KeyError):
        message("inference.Nothing")
