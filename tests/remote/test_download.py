"""Copies of what hostile, broken and changing stores hold: complete, or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.exceptions import FSTimeoutError
from rows import rows

import ox
from ox import remote
from ox.errors import ArgumentError, LoadError
from ox.remote import download
from ox.remote.address import parse


class Memory:
    """A store with the methods of an fsspec file system."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.fetched = files, 0
        self.before_fetch: Callable[[str], None] = lambda target: None

    def info(self, path: str) -> dict[str, Any]:
        if path in self.files:
            return {"type": "file", "size": len(self.files[path]), "etag": hash(self.files[path])}
        if any(name.startswith(f"{path}/") for name in self.files):
            return {"type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        return {name: self.info(name) for name in self.files}

    def get_file(self, path: str, target: str) -> None:
        self.fetched += 1
        self.before_fetch(target)
        Path(target).write_bytes(self.files[path])


@pytest.fixture
def store(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory({"b/m/1/model.onnx": b"one", "b/m/2/model.onnx": b"two"})
    monkeypatch.setattr(download, "open_address", lambda address: (memory, address.path))
    return memory


def left(cache: Path) -> list[str]:
    return [entry.name for entry in cache.iterdir()] if cache.exists() else []


@pytest.mark.parametrize(
    "name",
    [
        "b/m/../../evil", "b/m/./x", "b/m/a\\..\\b", "b/m/a\nb", "b/m/" + "x" * 256, "/etc/evil", "b/other/x",
        "b/m//etc/evil", "b/m/1//evil", "b/m//", "b/m/1//", "b/m/C:\\evil",
    ],
    ids=ascii,
)  # fmt: skip
def test_names_that_lead_elsewhere(store: Memory, cache: Path, name: str) -> None:
    store.files[name] = b"evil"
    with pytest.raises(LoadError, match="name cannot be one here"):
        remote.local_copy("s3://b/m")
    assert not store.fetched and not left(cache)


def test_an_object_that_stands_for_a_folder(store: Memory) -> None:
    store.files |= {"b/m/": b"", "b/m/1/": b""}
    folder = remote.local_copy("s3://b/m")
    assert sorted(path.name for path in folder.rglob("*")) == ["1", "2", "model.onnx", "model.onnx"]


def test_names_that_are_one_on_this_disk(store: Memory, cache: Path) -> None:
    """Upper and lower case on a disk that does not tell them apart: one would silently replace the other."""
    store.files = {"b/m/Model.onnx": b"one", "b/m/model.onnx": b"two"}
    store.before_fetch = lambda target: Path(target).with_name("model.onnx").touch()
    with pytest.raises(LoadError, match="two files whose names are one here"):
        remote.local_copy("s3://b/m")
    assert not left(cache)


def test_a_file_where_a_folder_is(store: Memory, cache: Path) -> None:
    store.files = {"b/m/1": b"a file", "b/m/1/model.onnx": b"in it"}
    with pytest.raises(LoadError, match="cannot be kept here"):
        remote.local_copy("s3://b/m")
    assert not left(cache)


def test_too_many_files(store: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MOST_FILES", 1)
    with pytest.raises(LoadError, match="is not a model"):
        remote.local_copy("s3://b/m")


def test_only_hidden_files(store: Memory) -> None:
    store.files = {"b/m/.git/config": b"x", "b/m/.cache": b"y"}
    with pytest.raises(LoadError, match="is not a model"):
        remote.local_copy("s3://b/m")


def test_a_change_meanwhile(store: Memory, cache: Path) -> None:
    def change(target: str) -> None:
        store.files["b/m/1/model.onnx"] = b"ONE"

    store.before_fetch = change
    with pytest.raises(LoadError, match="changed while it was downloaded"):
        remote.local_copy("s3://b/m")
    assert not left(cache)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk(store: Memory, cache: Path, number: int) -> None:
    def fail(target: str) -> None:
        raise OSError(number, os.strerror(number), target)

    store.before_fetch = fail
    with pytest.raises(LoadError, match="cannot be kept here") as caught:
        remote.local_copy("s3://b/m")
    assert os.strerror(number) in str(caught.value) and "OX_CACHE" in str(caught.value) and not left(cache)


def test_an_error_of_a_library(store: Memory, cache: Path) -> None:
    def fail(target: str) -> None:
        raise RuntimeError("the first line\nthe second")

    store.before_fetch = fail
    with pytest.raises(LoadError, match="s3://b/m cannot be read") as caught:
        remote.local_copy("s3://b/m")
    assert caught.value.got == "RuntimeError: the first line" and not left(cache)


def test_a_store_that_stops_sending(store: Memory, cache: Path) -> None:
    def fail(target: str) -> None:
        raise FSTimeoutError  # without a text, as the clients of S3 and GCS raise it

    store.before_fetch = fail
    with pytest.raises(LoadError, match="does not answer, or has stopped in the middle") as caught:
        remote.local_copy("s3://b/m")
    assert caught.value.got == "FSTimeoutError" and caught.value.hint and not left(cache)


def test_a_damaged_copy_is_replaced(store: Memory) -> None:
    folder = remote.local_copy("s3://b/m")
    (folder / "1" / "model.onnx").write_bytes(b"o")
    assert remote.local_copy("s3://b/m") == folder and (folder / "1" / "model.onnx").read_bytes() == b"one"
    assert store.fetched == 4


def test_another_process_is_faster(store: Memory) -> None:
    first: list[Path] = []

    def meanwhile(target: str) -> None:
        store.before_fetch = lambda target: None
        first.append(remote.local_copy("s3://b/m"))

    store.before_fetch = meanwhile
    assert remote.local_copy("s3://b/m") == first[0] and (first[0] / "2" / "model.onnx").read_bytes() == b"two"


def test_a_cache_of_somebody_else(store: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(LoadError, match="belongs to another user"):
        remote.local_copy("s3://b/m")
    assert not store.fetched


def test_load_takes_addresses(store: Memory, model: bytes) -> None:
    store.files["b/negative.onnx"] = model
    module = ox.export.load("s3://b/negative.onnx")
    assert module(ox.tensor([[1.0, -2.0]])).tolist() == [[-1.0, 2.0]]


@pytest.mark.parametrize("text", ["s3://b", "S3://b/m", "mlflow:models:/m/1", "gs://b/a b", "hf://o/m@v1/x.onnx"])
def test_addresses(text: str) -> None:
    assert remote.is_address(text) and str(parse(text)).lower() == text.lower()


@rows("path", ["model.onnx", "a/b", "/s3/x", "mlflow", "C:", "./s3:x", Path("s3://b")])
def test_paths(path: Any) -> None:
    assert not remote.is_address(path) and remote.local_copies([path]) == [path]


@rows(
    "text",
    ["ftp://a/b", "https://a/model.onnx", "file:///etc/passwd", "s3://", "s3:///a", "gs://b/../c", "s3://b/a::file:///etc",
     "hf://a\n", "s3://b/a\\b", "mlflow:"],
)  # fmt: skip
def test_what_is_no_address_of_a_model(text: str) -> None:
    with pytest.raises(ArgumentError):
        remote.local_copy(text)
