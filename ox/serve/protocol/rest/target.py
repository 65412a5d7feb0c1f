"""The path segments and the query of a request target. Router and access control use the same function: if they parsed
a path differently, a request could bypass access control."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from ox.errors import ServeError


def path_segments(target: bytes) -> list[str]:
    """The percent-decoded segments of the path; [""] for the root.

    Raises:
        ServeError: the target is not a URL.
    """
    text = target.decode("latin-1")
    if text.startswith("/"):  # `//v2/x` is a path without a host, as proxies read it
        path = text.partition("?")[0].partition("#")[0]
    else:
        try:
            path = urlsplit(text).path
        except ValueError as problem:  # an absolute URL with an invalid address
            raise ServeError("the target of the request is not a URL", got=str(problem)) from None
    return [unquote(part) for part in path.removeprefix("/").removesuffix("/").split("/")]


def query_values(target: bytes) -> dict[str, str]:
    """The parameters after the `?`; of a repeated one, the last value."""
    query = target.partition(b"?")[2].partition(b"#")[0].decode("latin-1")
    return {name: values[-1] for name, values in parse_qs(query).items()}
