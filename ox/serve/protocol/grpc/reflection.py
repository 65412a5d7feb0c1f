"""Server reflection: tools such as grpcurl read services and message types from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox.errors import OxError
from ox.serve.protocol.grpc.proto import FILES, POOL, SERVICES, message
from ox.serve.protocol.grpc.wire import parse
from ox.serve.transport.grpc.rpc import Method, Rpc, StatusCode, error_status

VERSIONS = ("v1", "v1alpha")


class Reflection:
    """Serves the file descriptors of the server's messages, in both versions of the protocol."""

    def __init__(self) -> None:
        self._files = {file.name: file for file in FILES}

    def methods(self) -> list[Method]:
        return [
            Method(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo".encode(),
                True,
                self._handler(version),
            )
            for version in VERSIONS
        ]

    def _handler(self, version: str) -> Callable[[bytes, Rpc], None]:
        package = f"grpc.reflection.{version}"
        request, response = (message(f"{package}.ServerReflection{end}") for end in ("Request", "Response"))

        def handle(body: bytes, rpc: Rpc) -> None:
            rpc.on_half_close = rpc.finish
            try:
                question = parse(request, body)
            except OxError as error:
                rpc.fail(*error_status(error))
                return
            answer = response(valid_host=question.host, original_request=question, **self._answer(question))
            rpc.send(answer.SerializeToString())

        return handle

    def _answer(self, question: Any) -> dict[str, Any]:
        match question.WhichOneof("message_request"):
            case "list_services":
                return {"list_services_response": {"service": [{"name": name} for name in sorted(SERVICES)]}}
            case "file_by_filename":
                return self._file(question.file_by_filename)
            case "file_containing_symbol":
                try:
                    return self._file(_file_of(question.file_containing_symbol))
                except KeyError:
                    return _not_found(f"there is no {question.file_containing_symbol[:200]}")
            case "file_containing_extension" | "all_extension_numbers_of_type":
                return _not_found("there are no extensions")
        return {"error_response": {"error_code": StatusCode.INVALID_ARGUMENT, "error_message": "the request is empty"}}

    def _file(self, name: str) -> dict[str, Any]:
        if name not in self._files:
            return _not_found(f"there is no file {name[:200]}")
        file = self._files[name]
        needed = [file, *(self._files[other] for other in file.dependency)]  # none of them has further dependencies
        return {"file_descriptor_response": {"file_descriptor_proto": [each.SerializeToString() for each in needed]}}


def _file_of(symbol: str) -> str:
    """The name of the file that declares a symbol. Raises KeyError."""
    try:
        return str(POOL.FindFileContainingSymbol(symbol).name)
    except KeyError:  # some versions do not find methods
        return str(POOL.FindMethodByName(symbol).containing_service.file.name)


def _not_found(text: str) -> dict[str, Any]:
    return {"error_response": {"error_code": StatusCode.NOT_FOUND, "error_message": text}}
