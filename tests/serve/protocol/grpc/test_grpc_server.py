"""Which ports speak gRPC, with which transport."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ox.errors import ArgumentError, ServeError
from ox.installation import install_command
from ox.serve import Server


def live(wire: Any) -> bool:
    try:
        return bool(wire.call("ServerLive").live)
    finally:
        wire.channel.close()


def test_one_port_for_everything(mlp: Path, dial: Callable[[str], Any], connect: Any) -> None:
    with Server([mlp]) as server:
        assert server.grpc_port == server.port
        assert live(dial(f"127.0.0.1:{server.port}"))
        with connect(server) as client:
            assert client.ask("GET", "/v2/health/live")[0] == 200


def test_a_port_for_grpc_alone(mlp: Path, dial: Callable[[str], Any]) -> None:
    with Server([mlp], grpc_port=0) as server:
        assert server.grpc_port not in (None, server.port)
        assert live(dial(f"127.0.0.1:{server.grpc_port}")) and live(dial(f"127.0.0.1:{server.port}"))


def test_the_greeting_names_a_port_of_its_own(mlp: Path) -> None:
    with Server([mlp], grpc_port=0) as server:
        assert f" · V2 protocol · gRPC on port {server.grpc_port} · metrics " in server.greeting()[-1]
    with Server([mlp]) as server:
        assert " · V2 protocol · metrics " in server.greeting()[-1]


def test_without_grpc(mlp: Path, dial: Callable[[str], Any]) -> None:
    with Server([mlp], grpc="off") as server:
        assert server.grpc_port is None
        with pytest.raises(grpc.RpcError):
            live(dial(f"127.0.0.1:{server.port}"))


def test_grpcio_leaves_the_http_port_alone(mlp: Path, dial: Callable[[str], Any]) -> None:
    with Server([mlp], grpc="grpcio", grpc_port=0) as server:
        assert live(dial(f"127.0.0.1:{server.grpc_port}"))
        with pytest.raises(grpc.RpcError):
            live(dial(f"127.0.0.1:{server.port}"))


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_a_port_that_is_taken(mlp: Path, transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=rf"port {port} is in use|cannot listen on 127.0.0.1, port {port}"):
            Server([mlp], grpc=transport, grpc_port=port).__enter__()


def test_a_transport_that_nobody_knows(mlp: Path) -> None:
    with pytest.raises(ArgumentError, match="own, grpcio or off"):
        Server([mlp], grpc="carrier pigeon")


def test_without_grpcio_installed(mlp: Path) -> None:
    """Our own framing needs nothing; the other one says what it needs."""
    code = f"""
import sys
sys.modules["grpc"] = None
from ox.errors import OxError
from ox.serve import Server
with Server([{str(mlp)!r}], grpc_port=0):
    pass
try:
    Server([{str(mlp)!r}], grpc="grpcio", grpc_port=0).__enter__()
except OxError as error:
    print(error.one_line())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == f"grpcio is not installed; try {install_command('grpc')}, or --grpc own\n", done.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    import datetime
    from ipaddress import ip_address

    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ox")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_tls(mlp: Path, transport: str, certificate: tuple[Path, Path], dial: Callable[[str], Any], ones: Any) -> None:
    cert, key = certificate
    with Server([mlp], grpc=transport, grpc_port=0, tls_cert=cert, tls_key=key) as server:
        ports = {server.grpc_port, server.port} if transport == "own" else {server.grpc_port}
        for port in ports:  # own framing is chosen in the handshake where HTTP is spoken, too
            wire = dial(f"127.0.0.1:{port}")
            wire.channel.close()
            wire.channel = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(cert.read_bytes()))
            assert wire.call("ModelInfer", ones().SerializeToString()).model_name == "mlp"
            wire.channel.close()


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_client_certificates(
    mlp: Path, transport: str, certificate: tuple[Path, Path], dial: Callable[[str], Any], ones: Any
) -> None:
    cert, key = certificate
    body = ones().SerializeToString()
    with Server([mlp], grpc=transport, grpc_port=0, tls_cert=cert, tls_key=key, tls_client_ca=cert) as server:
        for own in ((), (key.read_bytes(), cert.read_bytes())):
            wire = dial(f"127.0.0.1:{server.grpc_port}")
            wire.channel.close()
            credentials = grpc.ssl_channel_credentials(cert.read_bytes(), *own)
            wire.channel = grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials)
            if own:
                assert wire.call("ModelInfer", body).model_name == "mlp"
            else:
                assert wire.refused("ModelInfer", body)[0] == grpc.StatusCode.UNAVAILABLE
            wire.channel.close()
