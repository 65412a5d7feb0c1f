"""The messages of the gRPC services, by their full names: `message("inference.ModelConfig")`.

What is loaded is the compiled form of the .proto files beside this one (`make proto`), in a pool of its own: a client
library in the same process brings files of the same names, and generated code would refuse other versions of
protobuf than the one that wrote it.
"""

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
for _file in FILES:  # each after those that it imports
    POOL.AddSerializedFile(_file.SerializeToString())
SERVICES = {f"{file.package}.{service.name}" for file in FILES for service in file.service}


@cache
def message(name: str) -> Any:
    """The class of a message. Raises KeyError for a name that none of the files has."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))
