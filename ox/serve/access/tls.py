"""TLS: certificates that are read again when their files change, and what is agreed on in the handshake."""

from __future__ import annotations

import ssl
from pathlib import Path
from time import monotonic

from ox.errors import ArgumentError
from ox.serve.access.watched import Watched


def context(cert: Path, key: Path, client_ca: Path | None = None, protocols: tuple[str, ...] = ("http/1.1",)) -> (
    ssl.SSLContext
):  # fmt: skip
    """What a listener needs to speak TLS 1.2 or newer.

    Args:
        cert, key: PEM files; a connection that begins after they changed gets the new ones.
        client_ca: PEM file of the authorities whose client certificates are asked for; None asks for none.
        protocols: what ALPN offers, best first.

    Raises:
        ArgumentError: a file cannot be read, or the key does not belong to the certificate.
    """

    def read() -> ssl.SSLContext:
        return _context(cert, key, client_ca, protocols)

    paths = [cert, key] if client_ca is None else [cert, key, client_ca]
    watched = Watched("certificates", paths, read)
    first = watched.get(monotonic())

    def choose(tls: ssl.SSLObject, name: str, original: ssl.SSLContext) -> None:  # called in every handshake
        latest = watched.get(monotonic())
        if latest is not original:
            tls.context = latest

    first.sni_callback = choose
    return first


def _context(cert: Path, key: Path, client_ca: Path | None, protocols: tuple[str, ...]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    made.set_alpn_protocols(list(protocols))
    try:
        # Without a word of ours OpenSSL would ask the terminal for the password of a key that has one.
        made.load_cert_chain(cert, key, password=_no_password)
        if client_ca is not None:
            made.load_verify_locations(client_ca)
            made.verify_mode = ssl.CERT_REQUIRED
    except FileNotFoundError:
        missing = next((path for path in (cert, key, client_ca) if path is not None and not path.exists()), cert)
        raise ArgumentError("a file for TLS is not there", where=str(missing)) from None
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        text = str(error) or type(error).__name__
        expected = "a certificate and its private key in PEM files, the key without a password"
        raise ArgumentError("TLS cannot be set up", where=f"{cert}, {key}", expected=expected, got=text) from None
    return made


def _no_password() -> str:
    raise ValueError("the key has a password")
