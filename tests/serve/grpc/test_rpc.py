"""Which code of gRPC stands for which error."""

from __future__ import annotations

import grpc
import pytest

from ox.errors import LoadError, ServeError
from ox.serve.grpc.rpc import CODES, Code, code_of, failure


def test_the_codes_are_grpcs() -> None:
    assert {code.name: code.value[0] for code in grpc.StatusCode} == {code.name: code.value for code in Code}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID_ARGUMENT),
        (401, Code.UNAUTHENTICATED),
        (403, Code.PERMISSION_DENIED),
        (404, Code.NOT_FOUND),
        (409, Code.ALREADY_EXISTS),
        (413, Code.RESOURCE_EXHAUSTED),
        (429, Code.RESOURCE_EXHAUSTED),
        (499, Code.CANCELLED),
        (501, Code.UNIMPLEMENTED),
        (503, Code.UNAVAILABLE),
        (504, Code.DEADLINE_EXCEEDED),
        (500, Code.INTERNAL),
        (418, Code.INTERNAL),
    ],
)
def test_an_error_by_its_status(status: int, code: Code) -> None:
    assert code_of(ServeError("x", status=status)) == code


def test_other_errors_are_ours() -> None:
    assert failure(LoadError("it broke", got="x")) == (Code.INTERNAL, "it broke; got x")
    assert Code.OK not in CODES.values()
