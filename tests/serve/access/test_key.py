"""What a key may do, and which tables are no key."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.access.key import Key, digest_of, new_secret

DIGEST = digest_of(b"secret")
HASH = f"sha256:{DIGEST.hex()}"


@rows(
    ("models", "action", "model", "may"),
    [
        (("mlp*",), "infer", "mlp", True),
        (("mlp*",), "infer", "mlp2", True),
        (("mlp*",), "infer", "cnn", False),
        (("mlp*",), "infer", "xmlp", False),
        (("mlp",), "infer", "mlp\n", False),
        (("mlp", "cnn"), "infer", "cnn", True),
        (("mlp?",), "infer", "mlp", False),
        (("MLP",), "infer", "mlp", False),
        (("mlp",), "manage", "mlp", False),
        (("mlp",), "read", "", True),
        (("mlp",), "read", "*", False),
        (("?", "[*]"), "read", "*", False),
        (("*",), "read", "*", True),
        (("*",), "infer", "line\nbreak", True),
        (("*",), "metrics", "*", False),
    ],
)
def test_may(models: tuple[str, ...], action: str, model: str, may: bool) -> None:
    assert Key("a", DIGEST, models).may(action, model) is may


def test_from_table() -> None:
    table = {"hash": HASH, "models": ["a*"], "actions": ["infer"], "rate": 5, "burst": 7.5, "expires": date(2030, 1, 2)}
    key = Key.from_table("alice", table)
    assert key == Key("alice", DIGEST, ("a*",), ("infer",), 5, 7.5, datetime(2030, 1, 2, tzinfo=UTC))
    assert key.expired(datetime(2030, 1, 2, tzinfo=UTC).timestamp()) and not key.expired(0)
    assert not Key.from_table("b", {"hash": HASH}).expired(1e12)


WRONG: list[tuple[str, Any, str]] = [
    ("a", 5, "not a table"),
    ("a", {}, "no hash"),
    ("a", {"hash": "sha256:abc"}, "no hash"),
    ("a", {"hash": "md5:" + "0" * 64}, "no hash"),
    ("a", {"hash": HASH + "\n"}, "no hash"),
    ("a b", {"hash": HASH}, "invalid name"),
    ("", {"hash": HASH}, "invalid name"),
    ("x" * 65, {"hash": HASH}, "invalid name"),
    ("a", {"hash": HASH, "expiers": 1}, "unknown fields"),
    ("a", {"hash": HASH, "models": "mlp"}, "'models' is not a list"),
    ("a", {"hash": HASH, "models": []}, "'models' is not a list"),
    ("a", {"hash": HASH, "models": [1]}, "'models' is not a list"),
    ("a", {"hash": HASH, "models": [""]}, "'models' is not a list"),
    ("a", {"hash": HASH, "actions": ["infer", "fly"]}, "'actions' has an unknown action"),
    ("a", {"hash": HASH, "actions": []}, "'actions' has an unknown action"),
    ("a", {"hash": HASH, "rate": 0}, "'rate' is out of range"),
    ("a", {"hash": HASH, "rate": -1.0}, "'rate' is out of range"),
    ("a", {"hash": HASH, "rate": float("nan")}, "'rate' is out of range"),
    ("a", {"hash": HASH, "rate": float("inf")}, "'rate' is out of range"),
    ("a", {"hash": HASH, "rate": True}, "'rate' is out of range"),
    ("a", {"hash": HASH, "rate": 1, "burst": 0.5}, "'burst' is out of range"),
    ("a", {"hash": HASH, "burst": 5}, "'burst' needs 'rate'"),
    ("a", {"hash": HASH, "expires": "2030-01-01"}, "'expires' is not a date"),
    ("a", {"hash": HASH, "expires": time(1)}, "'expires' is not a date"),
    ("a", {"hash": HASH, "expires": datetime(2030, 1, 1)}, "without a time zone"),
]


@rows(("name", "table", "message"), WRONG)
def test_wrong_tables(name: str, table: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Key.from_table(name, table)


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100 and all(secret.startswith("ox_") and len(secret) == 46 for secret in made)
