"""Settings of a server that are fixed at its start."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ox.clock import Clock
from ox.errors import ArgumentError, ServeError
from ox.serve.config.origins import check_origins
from ox.serve.config.root_path import check_root_path
from ox.serve.config.trusted_proxies import check_addresses
from ox.serve.repository.model_name import check_name
from ox.serve.telemetry.logs import FORMS, LEVELS


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Network, access and log settings, and the name of a single model. `ModelConfig` has the settings of models,
    `RequestLimits` those of requests.

    Args:
        host, port: address to listen on; an IPv6 address may be in brackets; port 0: a free port, None: no port.
        uds: path of a Unix domain socket to listen on as well.
        grpc: gRPC implementation: "own" on the same port and on `grpc_port`, "grpcio" on `grpc_port`, or "off".
        grpc_port: separate port for gRPC; None: none, or with grpcio the next one after `port`.
        workers: server processes that share the ports.
        tls_cert, tls_key: PEM files; with them all ports use TLS.
        tls_client_ca: PEM file of certificate authorities; clients must have a certificate of one of them.
        keys: file of API keys; None: no key is needed.
        rate: requests per second of one client address, unless its key has a rate; None: no limit.
        manage: allow management calls without a key.
        name: the name of the only model; None: that of its file or folder.
        watch: watch the model files for added, changed and removed models.
        log: format of the log, "json" or "text"; None: Python's logging configuration applies.
        log_level: lowest log level: debug, info, warning, error or off.
        access_log: log one line per request; as text, if `log` is None.
        allow_origin: origins of web pages that may use the server, such as "https://example.org"; "*" for all.
        root_path: the path under which a reverse proxy publishes the server, such as "/models".
        forwarded_allow_ips: addresses and networks of reverse proxies that report their client's address in
            X-Forwarded-For or Forwarded; "unix" for those at the Unix domain socket, "*" for everybody.
        proxy_protocol: require a PROXY header (version 1 or 2) before each connection's first byte.
        json_nan: allow NaN, Infinity and -Infinity in the JSON of inference, as Triton and Python do.
        strict: refuse requests for texts with unknown parameters, which are else ignored with a warning header.
        trace: send OpenTelemetry traces, configured by the OTEL_* variables.

    Raises:
        ArgumentError: a value is out of range, or two values do not fit each other.
    """

    host: str = "127.0.0.1"
    port: int | None = 0
    uds: str | Path | None = None
    grpc: str = "own"
    grpc_port: int | None = None
    workers: int = 1
    tls_cert: str | Path | None = None
    tls_key: str | Path | None = None
    tls_client_ca: str | Path | None = None
    keys: str | Path | None = None
    rate: float | None = None
    manage: bool = False
    name: str | None = None
    watch: bool = True
    log: str | None = None
    log_level: str = "info"
    access_log: bool = False
    trace: bool = False
    json_nan: bool = False
    allow_origin: Sequence[str] = ()
    root_path: str = ""
    forwarded_allow_ips: Sequence[str] = ()
    proxy_protocol: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("tls_cert", "tls_key", "tls_client_ca", "keys", "uds"):
            if getattr(self, name) is not None:  # as text, which can be sent to a worker
                object.__setattr__(self, name, str(getattr(self, name)))
        object.__setattr__(self, "allow_origin", check_origins(self.allow_origin))
        object.__setattr__(self, "root_path", check_root_path(self.root_path))
        object.__setattr__(self, "forwarded_allow_ips", check_addresses(self.forwarded_allow_ips))
        if self.name is not None:
            _check_model_name(self.name)
        host = self.host.strip()
        if host.startswith("[") and host.endswith("]"):  # as in a URL
            host = host[1:-1]
        if not host:
            expected = "an address or a name; 0.0.0.0 for all of IPv4, :: for everything"
            raise ArgumentError("there is no host to listen on", expected=expected, got=f"--host {self.host!r}")
        object.__setattr__(self, "host", host)
        for name in ("port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ArgumentError(f"the {name} is out of range", expected="0 to 65535", got=str(port))
        if self.grpc not in ("own", "grpcio", "off"):
            raise ArgumentError("unknown gRPC implementation", expected="own, grpcio or off", got=self.grpc)
        if not 1 <= self.workers <= 1024:
            raise ArgumentError("the number of workers is out of range", expected="1 to 1,024", got=str(self.workers))
        if self.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise ArgumentError("several server processes need Linux or macOS, where they share a port",
                                expected="1 worker", got=str(self.workers))  # fmt: skip
        if self.grpc == "off" and self.grpc_port is not None:
            raise ArgumentError("a port for gRPC needs gRPC, which is off", expected="--grpc own or grpcio",
                                got=f"--grpc off --grpc-port {self.grpc_port}")  # fmt: skip
        if self.port is None and self.uds is None:
            raise ArgumentError("there is nothing to listen on", expected="--port, --uds or both")
        if self.proxy_protocol and self.grpc == "grpcio":
            raise ArgumentError("grpcio does not read PROXY headers", expected="--grpc own or off",
                                got="--proxy-protocol --grpc grpcio")  # fmt: skip
        if self.port is None and self.grpc == "grpcio" and self.grpc_port is None:
            raise ArgumentError("grpcio needs a separate port", expected="--grpc-port 8001", got="--uds alone")
        if self.grpc_port and self.grpc_port == self.port:
            hint = "without --grpc-port, gRPC shares that port" if self.grpc == "own" else "another --grpc-port"
            raise ArgumentError("port and grpc_port are the same", expected="two ports", got=str(self.port), hint=hint)
        if self.log not in (None, *FORMS):
            raise ArgumentError("unknown log format", expected=" or ".join(FORMS), got=self.log)
        if self.log_level not in LEVELS:
            raise ArgumentError("unknown log level", expected=", ".join(LEVELS), got=self.log_level)
        if self.access_log and self.log_level not in ("debug", "info"):
            raise ArgumentError("the access log needs log level info or debug",
                                expected="--log-level info or debug", got=self.log_level)  # fmt: skip
        if self.log is None and not self.access_log and self.log_level != "info":
            raise ArgumentError("a log level needs a log", expected="--log json or --log text")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs a certificate and its key", expected="--tls-cert FILE --tls-key FILE")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ArgumentError("client certificates need TLS", expected="--tls-cert FILE --tls-key FILE")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ArgumentError("the rate is out of range", expected="more than 0", got=str(self.rate))

    def tls(self, clock: Clock) -> ssl.SSLContext | None:
        """The TLS context of a listener, which looks at its files by the clock; None for plain text.

        Raises:
            ArgumentError: the files cannot be used.
        """
        if self.tls_cert is None or self.tls_key is None:
            return None
        from ox.serve.access.tls import context

        return context(self.tls_cert, self.tls_key, self.tls_client_ca, h2=self.grpc == "own", clock=clock)

    def exposed(self) -> str | None:
        """A warning if other machines can reach the server and no authentication is set."""
        if self.keys is not None or self.tls_client_ca is not None or _loopback(self.host):
            return None
        if self.port is None and self.grpc_port is None:  # file permissions control who may use the socket
            return None
        what = f"listening on {self.host} without authentication: every client that reaches the port may use all models"
        if self.manage:
            what += ", and load and unload them"
        return f"warning: {what}; --keys FILE requires API keys"


def _check_model_name(name: str) -> None:
    try:
        check_name(name)
    except ServeError as error:
        raise ArgumentError(error.what, expected=error.expected, got=f"--name {error.got}") from None


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
