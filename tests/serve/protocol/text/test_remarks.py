"""What a response says about parameters that change nothing, and what that costs."""

from __future__ import annotations

import pytest

from ox.serve.protocol.text import fields
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.remarks import MOST


def test_names_like_unknown_ones_are_looked_for_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body has room for a million names, and a comparison takes 0.2 ms."""
    compared: list[str] = []
    monkeypatch.setattr(fields, "nearest", lambda name, names, least: compared.append(name))
    given = Fields({f"unknown_{index}": 1 for index in range(1000)})
    given.finish(("temperature",))
    assert given.remarks.unknown == 1000
    assert len(compared) == MOST
