"""What a server is told at its start: what contradicts itself, or would do nothing, is said instead of ignored."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.config.server_config import ServerConfig

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"grpc": "off", "grpc_port": 8001}, "gRPC, which is off"),
    ({"grpc": "off", "grpc_port": 0}, "gRPC, which is off"),
    ({"port": 8000, "grpc_port": 8000}, r"are the same(.|\n)*shares that port"),
    ({"port": 8000, "grpc_port": 8000, "grpc": "grpcio"}, r"are the same(.|\n)*another --grpc-port"),
    ({"access_log": True, "log": "json", "log_level": "warning"}, "access log needs log level info"),
    ({"access_log": True, "log_level": "off"}, "access log needs log level info"),
    ({"log_level": "debug"}, "a log level needs a log"),
    ({"port": None}, "nothing to listen on"),
    ({"host": ""}, r"no host(.|\n)*0\.0\.0\.0"),
    ({"host": " "}, r"no host(.|\n)*0\.0\.0\.0"),
    ({"host": "[]"}, r"no host(.|\n)*0\.0\.0\.0"),
    ({"port": None, "uds": "s", "grpc": "grpcio"}, "a separate port"),
]


@rows(("settings", "message"), WRONG)
def test_what_would_do_nothing(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ServerConfig(**settings)


@rows(
    "settings",
    [
        {"grpc": "off"},
        {"port": 0, "grpc_port": 0},
        {"port": 8000, "grpc_port": 8001},
        {"access_log": True},
        {"access_log": True, "log_level": "debug"},
        {"log": "text", "log_level": "error"},
        {"port": None, "uds": "s"},
        {"port": None, "uds": "s", "grpc": "grpcio", "grpc_port": 0},
        {"port": 8000, "uds": "s"},
    ],
)
def test_what_makes_sense(settings: dict[str, Any]) -> None:
    assert ServerConfig(**settings)


@pytest.mark.parametrize(
    ("given", "host"), [("[::]", "::"), ("[::1]", "::1"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1"), ("a", "a")]
)
def test_an_ipv6_address_may_stand_in_brackets(given: str, host: str) -> None:
    assert ServerConfig(host=given).host == host
