"""Requests whose path begins with the server's root path.

A proxy may remove the prefix under which it publishes the server, or leave it: both are understood, as by ASGI
frameworks. The prefix is removed when a head is parsed, so that access control and routes see the same path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

ENDS = (b"", b"/", b"?", b"#")


def without_root(target: bytes, root: bytes) -> bytes:
    """A request's target without the root path, percent-encoded or not; unchanged if it does not begin with that.

    Args:
        target: a path with an optional query, or a whole URL.
        root: such as ``/models``.
    """
    begin = 0
    if target[:1] != b"/":
        host = target.find(b"://") + 3
        begin = target.find(b"/", host) if host > 2 else -1
        if begin < 0:
            return target
    end = begin + len(root)
    path = target[begin:end]
    if path != root and b"%" in target:
        segments = re.match(rb"(?:/[^/?#]*){%d}" % root.count(b"/"), target[begin:])
        quoted = b"" if segments is None else segments[0]
        path, end = unquote_to_bytes(quoted), begin + len(quoted)
    if path != root or target[end : end + 1] not in ENDS:
        return target
    rest = target[end:]
    return target[:begin] + (rest if rest[:1] == b"/" else b"/" + rest)
