"""Tokens per minute: reserved, settled, and made to wait."""

from __future__ import annotations

import pytest

from ox.errors import ArgumentError, ServeError
from ox.serve.access.bucket import Bucket
from ox.serve.access.client import Client
from ox.serve.access.key import Key


def test_tokens() -> None:
    now = 100.0
    client = Client("alice", None, Bucket(10.0, 600.0, now))
    assert client.reserve(500, now) == 500
    client.settle(500, 300)  # 300 are left
    assert client.reserve(300, now) == 300
    with pytest.raises(ServeError, match="token rate limit exceeded") as caught:
        client.reserve(50, now)
    assert caught.value.expected == "at most 600 tokens a minute" and caught.value.status == 429
    assert caught.value.retry_after == pytest.approx(5)
    now += 5
    assert client.reserve(50, now) == 50
    client.settle(50, 450)  # more than was reserved: later ones wait
    with pytest.raises(ServeError) as caught:
        client.reserve(1, now)
    assert caught.value.retry_after == pytest.approx(40.1)
    now += 1000
    assert client.reserve(10_000, now) == 600  # more than a whole minute's takes these


def test_without_a_limit() -> None:
    client = Client("::1")
    assert client.reserve(10**9, 5.0) == 0 and client.may("infer", "any")
    client.settle(0, 10**9)


def test_the_field_of_a_key() -> None:
    table = {"hash": "sha256:" + "0" * 64, "tokens_per_minute": 1000}
    assert Key.from_table("a", table).tokens_per_minute == 1000
    for wrong in (0, -5, "many", True, float("inf")):
        with pytest.raises(ArgumentError, match="'tokens_per_minute' is out of range"):
            Key.from_table("a", {**table, "tokens_per_minute": wrong})
