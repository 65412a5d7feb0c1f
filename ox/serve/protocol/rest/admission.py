"""Access control for HTTP requests, by method and target, before the body is read."""

from __future__ import annotations

from ox.errors import ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.access.permission import Permission
from ox.serve.protocol.rest.routes import ROUTES
from ox.serve.protocol.rest.target import path_segments
from ox.serve.transport.http.cors import Cors

MAX_CACHED = 4096


def permission_of(method: bytes, target: bytes) -> Permission | None:
    """The permission that a request needs; None for public paths.

    Raises:
        ServeError: the target is not a URL.
    """
    return ROUTES.permission(method.decode("latin-1"), path_segments(target))


class Admission:
    """Checks HTTP requests with a guard.

    Args:
        guard: keys, permissions and rates.
        cors: recognises preflight requests of browsers, which carry no key; None if they are requests as others.
    """

    def __init__(self, guard: Guard, cors: Cors | None = None) -> None:
        self._guard, self._cors = guard, cors
        self._permissions: dict[tuple[bytes, bytes], Permission | None] = {}

    def __call__(self, method: bytes, target: bytes, headers: dict[bytes, bytes], peer: str) -> None:
        """Raises ServeError (400, 401, 403, 429) for requests without permission."""
        if self._cors is not None and self._cors.is_preflight(method, headers):
            return
        known = self._permissions
        what = method, target
        if what in known:
            need = known[what]
        else:
            need = permission_of(method, target)
            if len(known) >= MAX_CACHED:  # a client invents targets
                known.clear()
            known[what] = need
        if need is None:
            return
        credential = credential_of(headers)
        if credential is None and need.action == "manage" and b"origin" in headers:
            # Any web page can make a browser send such a request (CSRF), but without a key.
            raise ServeError("a web page may not manage the server without a key", status=403)
        self._guard.check(credential, need.action, need.model, peer)
