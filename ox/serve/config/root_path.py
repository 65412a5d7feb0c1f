"""The path under which a reverse proxy publishes the server (`ox serve --root-path`)."""

from __future__ import annotations

import re

from ox.errors import ArgumentError

SEGMENT = re.compile(r"[A-Za-z0-9._~@:+,=!$*-]+")


def check_root_path(text: str) -> str:
    """A root path without a slash at its end; "" for none.

    Raises:
        ArgumentError: it is not an absolute path of plain segments.
    """
    if text in ("", "/"):
        return ""
    segments = text.removesuffix("/").split("/")
    plain = all(SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments[1:])
    if segments[0] or not plain:
        raise ArgumentError(
            "not a root path",
            where="--root-path",
            expected="a slash, then segments of letters, digits and -._~@:+,=!$*, without . and ..",
            got=repr(text[:200]),
            hint="/models, for a proxy that publishes the server at https://example.org/models",
        )
    return "/".join(segments)
