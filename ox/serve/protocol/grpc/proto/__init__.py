"""The message classes of the gRPC services by full name: `message("inference.ModelConfig")`.

Imports protobuf only: no package of ox.
"""

# It loads the compiled .proto files of this folder (`make proto`) into a separate descriptor pool: a client library in
# the same process may register files of the same names, and generated code requires the protobuf version that wrote it.

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

COMPILED = Path(__file__).with_name("services.desc")
POOL = DescriptorPool()
FILES = FileDescriptorSet.FromString(COMPILED.read_bytes()).file
for _file in FILES:  # in the order of their imports
    POOL.AddSerializedFile(_file.SerializeToString())
SERVICES = {f"{file.package}.{service.name}" for file in FILES for service in file.service}


@cache
def message(name: str) -> Any:
    """The class of a message. Raises KeyError for an unknown name."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))
