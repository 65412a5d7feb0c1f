"""Origins of web pages: what browsers send is accepted, anything else is an error that says what to write."""

from __future__ import annotations

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.config.origins import check_origins
from ox.serve.config.server_config import ServerConfig


@rows(
    ("text", "origin"),
    [
        ("*", "*"),
        ("https://example.org", "https://example.org"),
        ("HTTPS://Example.ORG", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://example.org:80", "http://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://127.0.0.1:03000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
        ("http://[2001:DB8:0:0:1::]", "http://[2001:db8:0:0:1::]"),
        ("http://[::ffff:1.2.3.4]", "http://[::ffff:102:304]"),
        ("https://example.org.", "https://example.org."),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ("tauri://localhost", "tauri://localhost"),
    ],
)
def test_origins(text: str, origin: str) -> None:
    assert check_origins(text) == check_origins([text, text]) == ServerConfig(allow_origin=[text]).allow_origin
    assert check_origins(text) == (origin,)


@rows(
    ("text", "hint"),
    [
        ("", "https://example.org"),
        ("/", "https://example.org"),
        ("example.org", "https://example.org"),
        ("localhost:3000", "https://localhost:3000"),
        ("null", r"only \* allows them"),
        ("https://example.org/", "https://example.org, without a path"),
        ("https://example.org/a", "https://example.org, without a path"),
        ("https://example.org?a", "https://example.org, without a path"),
        ("https://user@example.org", "https://example.org, without a path"),
        ("https://*.example.org", "no patterns"),
        ("https://a.org,https://b.org", "an option of its own"),
        ("https://a.org https://b.org", "an option of its own"),
        ("https://bücher.example", "xn--"),
        ("https://example.org:0", "not an origin"),
        ("https://example.org:65536", "not an origin"),
        ("https://example.org:x", "not an origin"),
        ("https://", "not an origin"),
        ("file://", r"only \* allows them"),
        ("data://a", r"only \* allows them"),
        ("ftp://example.org", "https://example.org$"),
        ("WSS://example.org:443", "https://example.org:443$"),
        ("http://127.1", "four decimal numbers"),
        ("http://127.0.0.01", "not an origin"),
        ("http://a.0x7f", "not an origin"),
        ("http://256.0.0.1", "not an origin"),
        ("http://127.0.0.1.", "not an origin"),
        ("http://[::1%25a]", "not an origin"),
        ("https://a..b", "not an origin"),
        ("https://[::1", "not an origin"),
        ("https://[1.2.3.4]", "not an origin"),
        ("https://a\r\nx: y", "not an origin"),
        ("https://a\n", "not an origin"),
    ],
)
def test_what_is_not_an_origin(text: str, hint: str) -> None:
    for call in (lambda: check_origins([text]), lambda: ServerConfig(allow_origin=[text])):
        with pytest.raises(ArgumentError, match=hint):
            call()
