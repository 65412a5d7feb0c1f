"""What a call over HTTP needs of its key, told from its method and its target before its body is read."""

from __future__ import annotations

from ox.errors import ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.rest.target import parts_of

ALL = "*"
MOST_KNOWN = 4096
# Say nothing that the open source does not: the page holds no data, which is asked for by other calls. The documents
# are not among them, for they name the models and show golden samples.
OPEN = ([""], ["favicon.ico"], ["v2", "health", "live"], ["v2", "health", "ready"])
Need = tuple[str, str] | None


def need_of(method: bytes, target: bytes) -> Need:
    """The action and the model that a key must be good for, None for none; what nobody knows here is about all models.

    Raises:
        ServeError: the target is not a URL.
    """
    reads = method != b"POST"  # no call has another method than GET and POST
    parts = parts_of(target)
    if reads and parts in OPEN:
        return None
    match parts:
        case ["v2"]:
            return "read", ""
        case ["metrics"]:
            return "metrics", ALL
        case ["v2", "models", "stats"]:
            return "read", ALL
        case ["v2", "models", name, "infer" | "generate" | "generate_stream"] | [
            "v2",
            "models",
            name,
            "versions",
            _,
            "infer" | "generate" | "generate_stream",
        ]:
            return "infer", name
        case ["v2", "models", name, *_, "trace", "setting"]:
            return ("read" if reads else "manage"), name
        case ["v2", "models", name, *_] | ["v2", "ox", "models", name, *_]:
            return "read", name
        case ["v2", "repository", "models", name, *_]:
            return "manage", name
        case ["v2", "systemsharedmemory" | "cudasharedmemory" | "trace" | "logging", *_]:
            return ("read" if reads else "manage"), ALL
    return "read", ALL  # the index and whatever is about no model, or is not there


class Admission:
    """Asks a guard about calls over HTTP."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._known: dict[tuple[bytes, bytes], Need] = {}

    def __call__(self, method: bytes, target: bytes, headers: dict[bytes, bytes], peer: str) -> None:
        """Raises ServeError (400, 401, 403, 429) for what may not go ahead."""
        known = self._known
        what = method, target
        if what in known:
            need = known[what]
        else:
            need = need_of(method, target)
            if len(known) >= MOST_KNOWN:  # somebody makes targets up
                known.clear()
            known[what] = need
        if need is None:
            return
        credential = credential_of(headers)
        if credential is None and need[0] == "manage" and b"origin" in headers:
            # Any page on the web can make its reader's browser send this. It cannot make it send a key.
            raise ServeError("a web page may not manage the server without a key", status=403)
        self._guard.check(credential, *need, peer)
