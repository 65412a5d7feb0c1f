"""URLs that people type."""

from __future__ import annotations

import pytest
from rows import rows

from ox.bench.address import parse
from ox.errors import ArgumentError


@rows(
    ("typed", "url", "grpc", "tls"),
    [
        ("http://localhost", "http://localhost:8000", False, False),
        ("http://127.0.0.1:9/", "http://127.0.0.1:9", False, False),
        ("https://a.b", "https://a.b:443", False, True),
        ("http://a.b/models/", "http://a.b:8000/models", False, False),
        ("https://a.b/x y/%20", "https://a.b:443/x%20y/%20", False, True),
        ("grpc://a", "grpc://a:8001", True, False),
        ("grpcs://[::1]:7", "grpcs://[::1]:7", True, True),
        ("unix:/run/ox.sock", "unix:/run/ox.sock", False, False),
        ("unix:///run/ox.sock", "unix:/run/ox.sock", False, False),
        ("grpc+unix:here.sock", "grpc+unix:here.sock", True, False),
    ],
)
def test_addresses(typed: str, url: str, grpc: bool, tls: bool) -> None:
    address = parse(typed)
    assert (address.url, address.grpc, address.tls) == (url, grpc, tls)
    assert (address.context() is not None) == tls


@rows("typed", [
    "", "localhost:8000", "ftp://a", "http://", "http://a/v2", "http://a/x/v1/", "grpc://a/x", "http://a/x?y=1",
    "http://a#x", "http://a:x", "http://a:99999", "unix:", "unix://",
])  # fmt: skip
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(ArgumentError):
        parse(typed)


@pytest.mark.parametrize("key", ["a\r\nb: c", "é", "\x00"])
def test_keys_that_would_be_headers_of_their_own(key: str) -> None:
    with pytest.raises(ArgumentError):
        parse("http://a", key)
