"""Reading config.pbtxt, a model's configuration in Triton's form, and the same as the JSON of a load call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ox.errors import LoadError, ServeError

MAX_BYTES = 1 << 20  # bytes
UNKNOWN = re.compile(r'(\d+):(\d+) : Message type "[\w.]+" has no field named "(\w+)"')
MAX_UNKNOWN = 100
SCALAR = re.compile(r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s{}<>\[\],;#"']+)""")
GAP = re.compile(r"(?:\s|#[^\n]*)*")


def from_text(path: Path) -> tuple[Any, list[str]]:
    """The file as a ModelConfig, and the names of the fields that such a message does not have.

    Raises:
        LoadError: it cannot be read, or not be understood; names the line.
    """
    from google.protobuf import text_format

    from ox.serve.protocol.grpc.proto import message

    text = read_text(path)
    unknown: list[str] = []
    while True:
        try:
            return text_format.Parse(text, message("inference.ModelConfig")()), unknown
        except (text_format.ParseError, RecursionError) as error:
            found = UNKNOWN.match(str(error))
            if found is None or len(unknown) == MAX_UNKNOWN:
                raise _malformed(path, error) from None
            unknown.append(found[3])
            text = _without(text, _at(text, int(found[1]), int(found[2])) + len(found[3]) - 1)


def from_json(text: Any) -> Any:
    """The `config` of a load call as a ModelConfig.

    Raises:
        ServeError: it is none.
    """
    from google.protobuf import json_format

    from ox.serve.protocol.grpc.proto import message

    expected = 'JSON such as {"max_batch_size": 8}'
    if not isinstance(text, str):
        raise ServeError("the parameter 'config' is not a string", expected=expected)
    try:
        return json_format.Parse(text, message("inference.ModelConfig")(), max_recursion_depth=20)
    except (json_format.ParseError, RecursionError, UnicodeError) as error:
        got = str(error).partition("  Available")[0].replace("\n", " ")[:300]
        raise ServeError("the parameter 'config' is no model configuration", expected=expected, got=got) from None


def read_text(path: Path) -> str:
    """A small text file.

    Raises:
        LoadError: it cannot be read, is too large, or no text.
    """
    try:
        if not path.is_file():
            raise LoadError(f"{path} cannot be read", expected="a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise LoadError(f"{path} is too large", expected=f"at most {MAX_BYTES >> 20} MiB")
        return data.decode()
    except OSError as error:
        raise LoadError(f"{path} cannot be read", got=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is not text", got=str(error)) from error


def _malformed(path: Path, error: Any) -> LoadError:
    line = getattr(error, "GetLine", lambda: None)()
    got = re.sub(r"^\d+:\d+ : ", "", str(error)).splitlines() or [""]
    where = None if line is None else f"line {line}"
    return LoadError(f"{path} is not a model configuration", where=where, got=got[0][:300])


def _at(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + column


def _without(text: str, after: int) -> str:
    """The text without the field whose name ends before `after`; its lines keep their numbers."""
    begin = after
    while begin and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
        begin -= 1
    end = _gap(text, after)
    if text[end : end + 1] == ":":
        end = _gap(text, end + 1)
    end = _value(text, end)
    end = _gap(text, end)
    if text[end : end + 1] in (",", ";"):
        end += 1
    return text[:begin] + "\n" * text.count("\n", begin, end) + text[end:]


def _value(text: str, at: int) -> int:
    """Where the value that begins at `at` ends: a scalar, neighbouring strings, or something in brackets."""
    depth = 0
    while at < len(text):
        if text[at] in "{[<":
            depth, at = depth + 1, at + 1
        elif text[at] in "}]>":
            depth, at = depth - 1, at + 1
        elif (scalar := SCALAR.match(text, at)) is not None:
            at = scalar.end()
        else:  # a separator inside brackets
            at += 1
        following = _gap(text, at)
        if depth <= 0 and text[following : following + 1] not in ("'", '"'):
            return at
        at = following
    return at


def _gap(text: str, at: int) -> int:
    found = GAP.match(text, at)
    return at if found is None else found.end()
