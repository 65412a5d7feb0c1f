"""The parts of a request's target. The router and the guard at its door read it with this one function, or a path that
they understood differently would be a way past the guard."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from ox.errors import ServeError


def parts_of(target: bytes) -> list[str]:
    """The names between the slashes of the path, percent-decoded; [""] for the root.

    Raises:
        ServeError: it is not a URL.
    """
    try:
        path = unquote(urlsplit(target.decode("latin-1")).path)
    except ValueError as problem:  # a whole URL with an address that is none
        raise ServeError("the target of the request is not a URL", got=str(problem)) from None
    return path.strip("/").split("/")
