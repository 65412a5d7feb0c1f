"""Cross-origin resource sharing: which web pages of other origins may read responses (the Fetch standard, 3.2).

A browser sends a preflight request, OPTIONS without a key, before it lets such a page send a key, JSON or tensors. The
header lines of all responses are prepared here; a response costs one look-up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ox.errors import ServeError
from ox.serve.config.origins import ANY_ORIGIN

MAX_AGE_S = 600  # how long a browser may remember the answer to a preflight request
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"  # of any path: a page may also read a 405
# The others that responses have are readable anyway (the CORS-safelisted response headers).
EXPOSED = b"inference-header-content-length, x-request-id, retry-after, www-authenticate, allow, ox-warning"
NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*").fullmatch
PREFLIGHT = (
    b"access-control-allow-methods: %s\r\naccess-control-max-age: %d\r\n"
    b"vary: access-control-request-method, access-control-request-headers\r\n" % (METHODS, MAX_AGE_S)
)


class Cors:
    """The header lines for responses to pages of other origins.

    Args:
        origins: those whose pages may read responses, see `ox.serve.config.origins`.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        allowed = list(origins)
        self._lines: dict[bytes | None, bytes] = {}
        if ANY_ORIGIN in allowed:
            self._other = _lines(ANY_ORIGIN)
        else:
            vary = b"vary: origin\r\n"  # a shared cache must not give one origin's response to another
            self._other = vary
            self._lines = {origin.encode(): _lines(origin) + vary for origin in allowed}
        self._all = ANY_ORIGIN in allowed

    def headers(self, request: Mapping[bytes, bytes]) -> bytes:
        """The header lines of a response to a request with these headers."""
        return self._lines.get(request.get(b"origin"), self._other)

    def is_preflight(self, method: bytes, request: Mapping[bytes, bytes]) -> bool:
        """Whether a browser asks if a page may send a request. It carries no key."""
        return method == b"OPTIONS" and b"origin" in request and b"access-control-request-method" in request

    def preflight(self, request: Mapping[bytes, bytes]) -> bytes:
        """The header lines of the answer to a preflight request, beside those of `headers`.

        Raises:
            ServeError: the server does not allow the origin (403).
        """
        if not self._all and request[b"origin"] not in self._lines:
            raise ServeError(
                "pages of this origin may not use the server", status=403, hint="ox serve --allow-origin ORIGIN"
            )
        names = request.get(b"access-control-request-headers", b"")
        # "*" would not include authorization, so that the names are repeated
        return PREFLIGHT + (b"access-control-allow-headers: %s\r\n" % names if NAMES(names) else b"")


def _lines(origin: str) -> bytes:
    return b"access-control-allow-origin: %s\r\naccess-control-expose-headers: %s\r\n" % (origin.encode(), EXPOSED)
