"""What may stand among the parameters of a request."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve.protocol.v2.parameters import check, echoed_parameters
from ox.serve.protocol.v2.request import NO_PARAMETERS

GOOD = {
    "sequence_id": 2**64 - 1, "sequence_start": True, "sequence_end": False, "priority": 2**32 - 1,
    "timeout": 2**63 - 1, "mine": 1.5, "yours": "x", "ours": False,
}  # fmt: skip


def test_what_is_kept() -> None:
    assert check({}) is check({"binary_data_output": True}) is NO_PARAMETERS
    assert check({**GOOD, "binary_data_output": True}) == GOOD
    assert check({"sequence_id": "x" * 128}) == {"sequence_id": "x" * 128}


def test_what_is_echoed() -> None:
    assert echoed_parameters(NO_PARAMETERS) == echoed_parameters({"priority": 1}) == {}
    assert echoed_parameters({"sequence_id": 0, "mine": 1}) == {
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
    }
    assert echoed_parameters(GOOD)["sequence_start"] is True


@rows(
    ("name", "value"),
    [("priority", -1), ("priority", 1.0), ("priority", "1"), ("priority", True), ("priority", 2**32), ("timeout", -1),
     ("timeout", 1.5), ("timeout", False), ("timeout", 2**63), ("sequence_id", -1), ("sequence_id", 2**64),
     ("sequence_id", 1.5), ("sequence_id", True), ("sequence_id", "x" * 129), ("sequence_start", 1),
     ("sequence_end", "true"), ("mine", None), ("mine", [1]), ("mine", {}), ("priority", None)],
)  # fmt: skip
def test_what_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ServeError, match=name) as caught:
        check({name: value})
    assert caught.value.status == 400 and len(caught.value.one_line()) < 300


def test_how_many() -> None:
    assert len(check({str(n): n for n in range(64)})) == 64
    with pytest.raises(ServeError, match="65 parameters"):
        check({str(n): n for n in range(65)})
