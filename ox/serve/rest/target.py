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
    text = target.decode("latin-1")
    if text.startswith("/"):  # `//v2/x` names no host: a proxy in front sees a path, too
        path = text.partition("?")[0].partition("#")[0]
    else:
        try:
            path = urlsplit(text).path
        except ValueError as problem:  # a whole URL with an address that is none
            raise ServeError("the target of the request is not a URL", got=str(problem)) from None
    return [unquote(part) for part in path.removeprefix("/").removesuffix("/").split("/")]
