"""The JSON of requests."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve.protocol.v2.document import parameters_of


@rows(
    ("owner", "parameters"),
    [({}, {}), ({"parameters": None}, {}), ({"parameters": {"timeout": None}}, {}),
     ({"parameters": {"a": 0, "b": None, "c": False}}, {"a": 0, "c": False}), ("a tensor", {})],
)  # fmt: skip
def test_what_is_null_is_absent(owner: Any, parameters: dict[str, Any]) -> None:
    assert parameters_of(owner) == parameters


def test_other_parameters_are_refused() -> None:
    with pytest.raises(ServeError, match="is not an object"):
        parameters_of({"parameters": [None]})
