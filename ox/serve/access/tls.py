"""TLS: certificates that are read again when their files change, and what is agreed on in the handshake."""

from __future__ import annotations

import ssl
from pathlib import Path

from ox.clock import Clock
from ox.errors import ArgumentError
from ox.serve.access.file_watcher import FileWatcher


def context(
    cert: str | Path, key: str | Path, client_ca: str | Path | None = None, h2: bool = False, *, clock: Clock
) -> ssl.SSLContext:
    """What a listener needs to speak TLS 1.2 or newer.

    Args:
        cert, key: PEM files; a connection that begins after they changed gets the new ones.
        client_ca: PEM file of the authorities of client certificates; None requests no client certificates.
        h2: whether clients may choose HTTP/2. Who takes both gets HTTP/1.1, which answers every call.
        clock: by which the files are looked at.

    Raises:
        ArgumentError: a file cannot be read, or the key does not belong to the certificate.
    """
    protocols = ["http/1.1", "h2"] if h2 else ["http/1.1"]
    files = [Path(file) for file in (cert, key, client_ca) if file is not None]

    def read() -> ssl.SSLContext:
        return _context(files, protocols)

    now = clock.now()
    watched = FileWatcher("certificates", files, read, now)
    first = watched.get(now)

    def choose(tls: ssl.SSLObject, name: str, original: ssl.SSLContext) -> None:  # called in every handshake
        latest = watched.get(clock.now())
        if latest is not original:
            tls.context = latest

    first.sni_callback = choose
    return first


def _context(files: list[Path], protocols: list[str]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    made.set_alpn_protocols(protocols)
    try:
        # Without a word of ours OpenSSL would ask the terminal for the password of a key that has one.
        made.load_cert_chain(files[0], files[1], password=_no_password)
        for authorities in files[2:]:
            made.load_verify_locations(authorities)
            made.verify_mode = ssl.CERT_REQUIRED
    except FileNotFoundError:
        missing = next((file for file in files if not file.exists()), files[0])
        raise ArgumentError("a TLS file does not exist", where=str(missing)) from None
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        expected = "certificates and a private key without a password, in PEM files"
        got = str(error) or type(error).__name__
        raise ArgumentError(
            "TLS cannot be set up", where=", ".join(map(str, files)), expected=expected, got=got
        ) from None
    return made


def _no_password() -> str:
    raise ValueError("the key has a password")
