"""The key file: written whole or not at all, read whole or not at all."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rows import rows

from ox.errors import ArgumentError, WriteError
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of

KEYS = [
    Key("al", digest_of(b"1"), ("mlp*", 'q"uo\\te\n'), ("infer", "manage"), 100.0, 5, datetime(2030, 1, 1, tzinfo=UTC)),
    Key("bob.b@x-y_z", digest_of(b"2")),
]  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS)
    assert keyfile.read(path) == KEYS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    keyfile.write(path, KEYS[:1])
    assert keyfile.read(path) == KEYS[:1] and stat.S_IMODE(path.stat().st_mode) == 0o640
    keyfile.write(path, [])
    assert keyfile.read(path) == [] and os.listdir(tmp_path) == ["keys.toml"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    path, link, further = tmp_path / "keys.toml", tmp_path / "folder" / "link.toml", tmp_path / "further.toml"
    link.parent.mkdir()
    keyfile.write(path, KEYS)
    link.symlink_to("../keys.toml")
    further.symlink_to("folder/link.toml")
    keyfile.write(further, KEYS[1:])  # the other key must not stay valid where a server reads
    assert keyfile.read(path) == keyfile.read(link) == KEYS[1:]
    assert further.is_symlink() and link.is_symlink() and not path.is_symlink()
    assert os.listdir(link.parent) == ["link.toml"]
    path.unlink()
    keyfile.write(link, KEYS)  # a link to nothing yet
    assert keyfile.read(path) == KEYS and link.is_symlink()


def test_a_file_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS)
    owner, given = path.stat(), []

    def give(_: str, user: int, group: int) -> None:
        given.append((user, group))
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", give)
    keyfile.write(path, KEYS[:1])
    assert given == [(owner.st_uid, owner.st_gid)] and keyfile.read(path) == KEYS[:1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_the_file_back(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS)
    try:
        os.chown(path, 12345, 12346)
    except OSError as error:  # root of a user namespace has few users to give files to
        pytest.skip(f"this root cannot give files away: {error}")
    keyfile.write(path, KEYS[:1])
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


@rows(
    ("text", "message"),
    [
        (b"[keys.a", "not TOML"),
        (b"\xff", "not TOML"),
        (b"a = " + b"[" * 100_000, "not TOML"),
        (b"[key.a]", "unknown entries"),
        (b"keys = 5", "unknown entries"),
        (b'[keys.a]\nhash = "x"', "no hash"),
        (b"#" * (8 << 20) + b"#", "too large"),
        (
            b'[keys.a]\nhash = "sha256:%s"\n[keys.b]\nhash = "sha256:%s"' % (b"0" * 64, b"0" * 64),
            "two keys have the same hash",
        ),
    ],
)
def test_damaged_files(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_bytes(text)
    with pytest.raises(ArgumentError, match=message) as caught:
        keyfile.read(path)
    assert caught.value.where == str(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"cannot be read(.|\n)*ox keys new"):
        keyfile.read(tmp_path / "nope.toml")
    with pytest.raises(WriteError, match="cannot be written"):
        keyfile.write(tmp_path / "nope" / "keys.toml", KEYS)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.toml"
    keyfile.write(path, KEYS)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space left"):
        keyfile.write(path, [])
    assert keyfile.read(path) == KEYS and os.listdir(tmp_path) == ["keys.toml"]
