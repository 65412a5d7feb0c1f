"""The root path: an absolute path of plain segments, or an error."""

from __future__ import annotations

import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.serve.config.server_config import ServerConfig


@rows(
    ("text", "path"),
    [
        ("", ""), ("/", ""), ("/models", "/models"), ("/models/", "/models"), ("/a/b.c/~d_e-f", "/a/b.c/~d_e-f"),
        ("/user/me@example.org/proxy/8000", "/user/me@example.org/proxy/8000"),
    ],
)  # fmt: skip
def test_root_paths(text: str, path: str) -> None:
    assert ServerConfig(root_path=text).root_path == path


WRONG = ["models", "models/", "./a", "/..", "/a/../b", "/a/.", "/a/./b", "//", "//a", "/a//b", "/a//", "/a?b", "/a#b",
         "/a b", "/a%2f..", "/a\\b", "/a\n", "/ä", "/<a>", '/"', "https://example.org/a", "?", " /a"]  # fmt: skip


@rows("text", WRONG)
def test_what_is_not_a_root_path(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"not a root path(.|\n)*--root-path(.|\n)*/models, for a proxy"):
        ServerConfig(root_path=text)
