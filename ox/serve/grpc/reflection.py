"""Server reflection: tools such as grpcurl ask it which calls there are and how their messages are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox.errors import OxError
from ox.serve.grpc.proto import FILES, POOL, SERVICES, message
from ox.serve.grpc.rpc import Code, Method, Rpc, failure
from ox.serve.grpc.wire import parse

VERSIONS = ("v1", "v1alpha")


class Reflection:
    """Answers from the descriptors of our own messages, in both versions of the protocol."""

    def __init__(self) -> None:
        self._files = {file.name: file for file in FILES}

    def methods(self) -> list[Method]:
        return [
            Method(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo".encode(), True, self._call(version)
            )
            for version in VERSIONS
        ]

    def _call(self, version: str) -> Callable[[bytes, Rpc], None]:
        package = f"grpc.reflection.{version}"
        request, response = (message(f"{package}.ServerReflection{end}") for end in ("Request", "Response"))

        def take(body: bytes, rpc: Rpc) -> None:
            rpc.ended = rpc.finish
            try:
                asked = parse(request, body)
            except OxError as error:
                rpc.fail(*failure(error))
                return
            answer = response(valid_host=asked.host, original_request=asked, **self._answer(asked))
            rpc.send(answer.SerializeToString())

        return take

    def _answer(self, asked: Any) -> dict[str, Any]:
        match asked.WhichOneof("message_request"):
            case "list_services":
                return {"list_services_response": {"service": [{"name": name} for name in sorted(SERVICES)]}}
            case "file_by_filename":
                return self._file(asked.file_by_filename)
            case "file_containing_symbol":
                try:
                    return self._file(_file_of(asked.file_containing_symbol))
                except KeyError:
                    return _missing(f"there is no {asked.file_containing_symbol[:200]}")
            case "file_containing_extension" | "all_extension_numbers_of_type":
                return _missing("there are no extensions")
        return {"error_response": {"error_code": Code.INVALID_ARGUMENT, "error_message": "nothing is asked"}}

    def _file(self, name: str) -> dict[str, Any]:
        if name not in self._files:
            return _missing(f"there is no file {name[:200]}")
        file = self._files[name]
        needed = [file, *(self._files[other] for other in file.dependency)]  # none of them has further ones
        return {"file_descriptor_response": {"file_descriptor_proto": [each.SerializeToString() for each in needed]}}


def _file_of(symbol: str) -> str:
    """The name of the file that declares something. Raises KeyError."""
    try:
        return str(POOL.FindFileContainingSymbol(symbol).name)
    except KeyError:  # which some versions say of every method
        return str(POOL.FindMethodByName(symbol).containing_service.file.name)


def _missing(text: str) -> dict[str, Any]:
    return {"error_response": {"error_code": Code.NOT_FOUND, "error_message": text}}
