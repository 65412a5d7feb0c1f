"""Which code of gRPC stands for which error."""

from __future__ import annotations

import grpc
from rows import rows

from ox.errors import LoadError, ServeError
from ox.serve.transport.grpc.rpc import STATUS_OF_HTTP, StatusCode, error_status, status_of


def test_the_codes_are_grpcs() -> None:
    assert {code.name: code.value[0] for code in grpc.StatusCode} == {code.name: code.value for code in StatusCode}


@rows(
    ("status", "code"),
    [
        (400, StatusCode.INVALID_ARGUMENT),
        (401, StatusCode.UNAUTHENTICATED),
        (403, StatusCode.PERMISSION_DENIED),
        (404, StatusCode.NOT_FOUND),
        (409, StatusCode.ALREADY_EXISTS),
        (413, StatusCode.RESOURCE_EXHAUSTED),
        (429, StatusCode.RESOURCE_EXHAUSTED),
        (499, StatusCode.CANCELLED),
        (501, StatusCode.UNIMPLEMENTED),
        (503, StatusCode.UNAVAILABLE),
        (504, StatusCode.DEADLINE_EXCEEDED),
        (500, StatusCode.INTERNAL),
        (418, StatusCode.INTERNAL),
    ],
)
def test_an_error_by_its_status(status: int, code: StatusCode) -> None:
    assert status_of(ServeError("x", status=status)) == code


def test_other_errors_are_ours() -> None:
    assert error_status(LoadError("it broke", got="x")) == (StatusCode.INTERNAL, "it broke; got x")
    assert StatusCode.OK not in STATUS_OF_HTTP.values()
