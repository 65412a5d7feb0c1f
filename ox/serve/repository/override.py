"""What a load call brings along: a configuration, and files instead of those on disk."""

from __future__ import annotations

import base64
import binascii
import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ox import temporary_files
from ox.errors import ServeError
from ox.serve.repository.layout import Layout, ModelFiles
from ox.serve.repository.pbtxt import from_json

PART = re.compile(r"(?!\.)[\w. -]{1,100}")
MAX_FILES = 100
EXPECTED = "file:1/model.onnx"


@dataclass(frozen=True)
class Override:
    """`config` is a ModelConfig; `files` are contents by path, `<version>/<file>`."""

    config: Any | None
    files: Mapping[str, bytes]

    def __bool__(self) -> bool:
        return self.config is not None or bool(self.files)


def override(parameters: Mapping[str, Any]) -> Override:
    """The parameters of a load call; false where there are none.

    Raises:
        ServeError: a parameter is unknown, or not what it should be.
    """
    config, files = None, {}
    for name, value in parameters.items():
        if name == "config":
            config = from_json(value)
        elif name.startswith("file:"):
            path = name.removeprefix("file:")
            version, *parts = path.split("/")
            if not re.fullmatch(r"[1-9][0-9]{0,17}", version) or not parts or not all(map(PART.fullmatch, parts)):
                what = f"the parameter '{name[:100]}' names no file of a version"
                raise ServeError(what, expected=EXPECTED, hint="a name without '..', inside a version's folder")
            files[path] = _content(name, value)
        else:
            what = f"there is no parameter '{name[:100]}' of a load call"
            raise ServeError(what, expected=f"config, {EXPECTED}")
    if len(files) > MAX_FILES:
        raise ServeError("a load call brings too many files", expected=f"at most {MAX_FILES}", got=str(len(files)))
    return Override(config, files)


def _content(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):  # gRPC
        return value
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except binascii.Error:
        pass
    raise ServeError(f"the parameter '{name[:100]}' is not base64", got=type(value).__name__)


def write(name: str, files: Mapping[str, bytes]) -> tuple[ModelFiles, Path]:
    """The files as a model in a new folder that only this user can look into, and that folder: it is the caller's.

    Raises:
        ServeError: the disk is full (507), or a path is a file and a folder at once (400).
    """
    try:
        folder = temporary_files.new_folder("ox-serve-")
    except OSError as error:  # tempfile tries to write before it names a folder
        what = f"the files of '{name}' cannot be kept"
        raise ServeError(what, status=507, got="no folder for temporary files can be written to") from error
    try:
        for path, content in files.items():
            target = folder / "model" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        found = Layout([folder]).scan().models["model"]
    except OSError as error:
        temporary_files.remove_folder(folder)
        status = 507 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 400
        got = error.strerror or str(error)
        raise ServeError(f"the files of '{name}' cannot be kept", status=status, got=got) from error
    return replace(found, name=name), folder
