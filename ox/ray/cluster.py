"""The connection to a Ray cluster."""

from __future__ import annotations

import os
import socket
from time import monotonic

import ray

from ox.errors import DistributedError

TIMEOUT = 10.0  # seconds in which a cluster must answer; Ray itself would wait for minutes
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # how a client of gRPC begins
SETTINGS = 4  # the type of the first frame of a server
CLIENT = "ray://"
TOKEN = "with a token: RAY_AUTH_MODE=token, and the cluster's ~/.ray/auth_token here; also compare the versions of Ray"


def connect(address: str, timeout: float = TIMEOUT) -> None:
    """Connects to the cluster at an address as `ray.init` takes it; does nothing if this process is connected.

    Args:
        address: ``HOST:PORT`` of the head node, ``ray://HOST:PORT``, ``auto`` for the cluster that runs on this
            machine, or ``local`` for a new one in this machine's memory.
        timeout: seconds in which something must answer at the address.

    Raises:
        DistributedError: nobody listens at the address, something that is not Ray, no cluster runs here, or the cluster
            refuses: Ray sends its token (https://docs.ray.io/en/latest/ray-security/token-auth.html) to an address that
            is named only if RAY_AUTH_MODE is "token".
    """
    if ray.is_initialized():
        return
    if address not in ("local", "auto"):
        _check(address, timeout)
    try:
        ray.init(address=address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        got = str(error).partition("\n")[0]
        if address not in ("local", "auto"):  # somebody answers there
            raise DistributedError(f"the Ray cluster at {address} refuses the connection", where="", got=got,
                                   hint=TOKEN) from error  # fmt: skip
        raise DistributedError(f"there is no Ray cluster at {address}", where="", got=got,
                               hint="ray start --head starts one; --ray local needs none") from error  # fmt: skip


def _check(address: str, timeout: float) -> None:
    """Raises DistributedError unless a server of gRPC answers at ``HOST:PORT`` within `timeout` seconds."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise DistributedError("this is not the address of a Ray cluster", where="", got=repr(address),
                               expected="HOST:PORT, ray://HOST:PORT, auto or local")  # fmt: skip
    until = monotonic() + timeout
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":  # what answers is seen after a handshake that Ray makes itself
                return
            connection.sendall(HTTP2)
            connection.settimeout(max(0.1, until - monotonic()))
            answer = connection.recv(9)
    except OSError as error:
        raise DistributedError(
            f"nobody answers at {address} (time limit {timeout:g} s)", where="", got=str(error),
            hint="the address that ray start --head has printed; on the head node: --ray auto",
        ) from error  # fmt: skip
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise DistributedError(f"what listens at {address} is not Ray", where="", expected="the port of ray start "
                               "--head, 6379 unless it was changed")  # fmt: skip
