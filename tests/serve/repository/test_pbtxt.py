"""config.pbtxt as text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import LoadError, ServeError
from ox.serve.repository.pbtxt import from_json, from_text


def read(folder: Path, text: str) -> tuple[Any, list[str]]:
    path = folder / "config.pbtxt"
    path.write_text(text)
    return from_text(path)


def test_a_configuration(tmp_path: Path) -> None:
    config, unknown = read(tmp_path, 'name: "m"  # a comment\nmax_batch_size: 8\ninstance_group [ { count: 2 } ]')
    assert config.name == "m" and config.max_batch_size == 8 and config.instance_group[0].count == 2 and unknown == []
    assert read(tmp_path, "")[0].name == ""


UNKNOWN = [
    ("new: 3", ["new"]),
    ("new: -inf;", ["new"]),
    ('new: "a\\"b" "c" \'d\'', ["new"]),
    ('new { a: "}" # }\n b: [1, 2] c <d: 1> }', ["new"]),
    ("new: [ {a: 1}, {b: 2} ]", ["new"]),
    ("new: {}\nother: TYPE", ["new", "other"]),
    ("instance_group { count: 3 new: 3 , kind: KIND_CPU }", ["new"]),
]


@rows(("text", "names"), UNKNOWN, ids=[text for text, _ in UNKNOWN])
def test_unknown_fields_are_named(tmp_path: Path, text: str, names: list[str]) -> None:
    config, unknown = read(tmp_path, f"max_batch_size: 4\n{text}\nname: 'm'")
    assert unknown == names and config.name == "m" and config.max_batch_size == 4
    if "instance_group" in text:
        assert config.instance_group[0].count == 3 and config.instance_group[0].kind == 2


WRONG = [
    "name: 3",
    'name "m" {',
    "max_batch_size: 'a'",
    "input [ { data_type: TYPE_FP31 } ]",
    "input {",
    "}",
    "[a.b]: 3",
]


@rows("text", WRONG)
def test_a_malformed_one_names_the_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(LoadError, match="not a model configuration") as caught:
        read(tmp_path, f"new {{\n a: 1 }}\n{text}")
    assert "config.pbtxt" in caught.value.what
    assert caught.value.where == "line 3" and not str(caught.value.got)[0].isdigit()


def test_too_deep_and_too_much(tmp_path: Path) -> None:
    for text in ("input {" * 5000, "".join(f"new{number}: 1\n" for number in range(200))):
        with pytest.raises(LoadError, match="not a model configuration"):
            read(tmp_path, text)
    with pytest.raises(LoadError, match="too large"):
        read(tmp_path, "#" * ((1 << 20) + 1))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.pbtxt")
    with pytest.raises(LoadError, match="cannot be read"):
        from_text(tmp_path / "config.pbtxt")


def test_json() -> None:
    assert from_json('{"max_batch_size": 8}').max_batch_size == from_json('{"maxBatchSize": 8}').max_batch_size == 8
    for text in ('{"new": 3}', "[1]", "{", '{"input": ' * 5000, "", 3, b"{}", None):
        with pytest.raises(ServeError, match="parameter 'config'") as caught:
            from_json(text)
        assert len(str(caught.value)) < 1000
