"""Which addresses are those of proxies."""

from __future__ import annotations

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.config.server_config import ServerConfig
from ox.serve.config.trusted_proxies import TrustedProxies
from ox_cli.main import main


@rows(
    ("texts", "proxies", "others"),
    [
        ([], [], ["127.0.0.1", "::1", ""]),
        (["127.0.0.1"], ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "::1", "", "localhost"]),
        (["10.0.0.0/8, ::1"], ["10.1.2.3", "::1"], ["11.0.0.1", "::2", ""]),
        (["10.0.0.0/8", "2001:db8::/32"], ["10.1.2.3", "2001:db8::9"], ["2001:db9::", "0.0.0.0"]),
        (["fe80::/64"], ["fe80::1%eth0"], ["fe81::1%eth0"]),
        (["unix"], [""], ["127.0.0.1"]),
        (["*"], ["", "127.0.0.1", "2001:db8::9"], []),
    ],
)
def test_addresses(texts: list[str], proxies: list[str], others: list[str]) -> None:
    trusted = TrustedProxies(ServerConfig(forwarded_allow_ips=texts).forwarded_allow_ips)
    assert all(address in trusted for address in proxies) and not any(address in trusted for address in others)


@rows(
    "text",
    ["", "127.0.0.1,", "localhost", "10.0.0.1/8", "127.0.0", "1.2.3.4:80", "[::1]", "**", "300.1.1.1", "::1/129"],
)
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"not the address of a proxy(.|\n)*--forwarded-allow-ips"):
        ServerConfig(forwarded_allow_ips=text)


def test_the_option_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them count: a wrong one in front is named."""
    assert main(["serve", "model.onnx", "--forwarded-allow-ips=nowhere", "--forwarded-allow-ips=::1"]) == 1
    assert "'nowhere' does not appear" in capsys.readouterr().err
