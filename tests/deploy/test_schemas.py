"""The projects' own schemas refuse what their servers refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import rows

VENDORED = json.loads(Path(__file__).with_name("vendored").joinpath("custom_resources.json").read_text())["$defs"]


@rows("kind", sorted(VENDORED))
def test_a_misspelled_field(check: Callable[[str, Any], list[str]], kind: str) -> None:
    api = VENDORED[kind]["properties"]["apiVersion"]["const"]
    errors = check(kind, {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, "spec": {"replica": 1}})
    assert any(error.startswith("$.spec: ") and "'replica' was unexpected" in error for error in errors)


def test_a_value_of_another_type(check: Callable[[str, Any], list[str]]) -> None:
    head = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "x"}}
    assert any(
        "ttlSecondsAfterFinished" in e for e in check("RayJob", {**head, "spec": {"ttlSecondsAfterFinished": "1"}})
    )
