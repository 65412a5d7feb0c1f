"""The file of API keys: TOML that people may edit, read whole and written whole."""

from __future__ import annotations

import json
import os
import tomllib
from contextlib import suppress
from pathlib import Path

from ox.errors import ArgumentError, WriteError
from ox.serve.access.key import Key
from ox.temporary_files import file_beside

LARGEST = 8 << 20
HEAD = """\
# Keys of `ox serve --keys`. Only hashes of keys stand here: a lost key is replaced, never recovered.
# A server that reads this file follows every change within a second, and keeps what it had if the new text is wrong.
# `ox keys` writes the whole file anew, without comments of yours.
"""


def read(path: Path) -> list[Key]:
    """The keys in a file.

    Raises:
        ArgumentError: it cannot be read, or something in it is wrong; nothing of it counts then.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise ArgumentError("the key file cannot be read", where=str(path), got=error.strerror or str(error),
                            hint=f"ox keys new --name NAME {path}") from None  # fmt: skip
    if len(text) > LARGEST:
        raise ArgumentError("the key file is too large", where=str(path), expected=f"at most {LARGEST} bytes")
    try:
        document = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ArgumentError("the key file is not TOML", where=str(path), got=str(error)) from None
    tables = document.get("keys", {})
    if type(tables) is not dict or set(document) - {"keys"}:
        raise ArgumentError("the key file has unknown entries", where=str(path), expected="tables [keys.NAME]")
    try:
        keys = [Key.from_table(name, table) for name, table in tables.items()]
    except ArgumentError as error:
        error.where = str(path)
        raise
    if len({key.digest for key in keys}) < len(keys):
        raise ArgumentError("two keys have the same hash", where=str(path), hint="one name for each key")
    return keys


def write(path: Path, keys: list[Key]) -> None:
    """Writes all keys atomically: a reader sees the complete old or new file.

    Of a symbolic link it is the file that changes; a file keeps its owner, if the system lets us.

    Raises:
        WriteError: the system does not let us.
    """
    text = "\n".join([HEAD, *map(_table, keys)])
    try:
        place = path.resolve()  # a link that became a file would leave the old keys valid elsewhere
        old = place.stat() if place.exists() else None
        with file_beside(place) as temporary:
            temporary.chmod(0o600)
            with open(temporary, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if old is not None:
                with suppress(PermissionError, AttributeError):  # not ours to give away; no owners on Windows
                    os.chown(temporary, old.st_uid, old.st_gid)
            temporary.chmod(0o600 if old is None else old.st_mode & 0o777)
            os.replace(temporary, place)
    except OSError as error:
        raise WriteError("the key file cannot be written", where=str(path), got=error.strerror or str(error)) from error


def _table(key: Key) -> str:
    lines = [f"[keys.{json.dumps(key.name)}]", f'hash = "sha256:{key.digest.hex()}"']
    lines.append(f"models = {json.dumps(list(key.models))}")
    lines.append(f"actions = {json.dumps(list(key.actions))}")
    rates = ("rate", "burst", "tokens_per_minute")
    lines += [f"{label} = {value!r}" for label in rates if (value := getattr(key, label)) is not None]
    if key.expires is not None:
        lines.append(f"expires = {key.expires.isoformat()}")
    return "\n".join(lines) + "\n"
