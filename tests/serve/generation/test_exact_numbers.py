"""Numbers in schemas that become others, or end the process."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve.generation.exact_numbers import with_exact_numbers

INT64, SAFE = 2**63, 2**53
RANGE = {"type": "integer", "minimum": 0, "maximum": INT64 - 1}


@rows("schema", [
    True, {"const": SAFE}, {"enum": [-SAFE, 1e18, 0.1, 5e-324, True, None, "a"]}, {"const": INT64 - 1024}, RANGE,
    RANGE | {"maximum": 2**64 - 1}, {"minimum": -INT64, "maximum": 1e300},
    {"default": SAFE + 1, "examples": [SAFE + 1]},
])  # fmt: skip
def test_exact(schema: Any) -> None:
    assert with_exact_numbers(schema, True) is schema


@rows(("keyword", "value", "got"), [
    ("const", SAFE + 1, SAFE + 1), ("const", -SAFE - 1, -SAFE - 1), ("const", 2**64 - 1, 2**64 - 1),
    ("const", 1e19, 1e19),
    ("const", -INT64, -INT64), ("enum", [1, {"a": [10**400]}], 10**400), ("minimum", SAFE + 1, SAFE + 1),
    ("minimum", INT64, INT64), ("maximum", -INT64, -INT64), ("maximum", 512 - INT64, 512 - INT64),
    ("exclusiveMaximum", -9.3e18, -9.3e18), ("exclusiveMinimum", -SAFE - 1, -SAFE - 1),
])  # fmt: skip
def test_inexact(keyword: str, value: Any, got: float) -> None:
    schema = {"items": {"type": "integer", keyword: value}}
    with pytest.raises(ServeError) as caught:
        with_exact_numbers(schema, True, "tools[0]")
    assert f"this '{keyword}' of JSON schema is not supported; in tools[0] #/items" in caught.value.one_line()
    assert caught.value.got == repr(got)[:100]
    assert with_exact_numbers(schema, False) == {"items": {"type": "integer"}}
