"""Shared memory that does not exist, is none, ends too early, is cut short or taken away while it is used."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.errors import ServeError
from ox.serve.protocol.v2 import shared_memory
from ox.serve.protocol.v2.shared_memory import OFFSET, REGION, SIZE, Regions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where shared memory lies in these tests."""
    inside = tmp_path / "shm"
    inside.mkdir()
    monkeypatch.setattr(shared_memory, "FOLDER", str(inside))
    (inside / "frames").write_bytes(bytes(range(100)))
    return inside


@pytest.fixture
def regions(folder: Path) -> Regions:
    made = Regions(3, 1000)
    made.register("r", "/frames", 10, 50)
    return made


def window(regions: Regions, **parameters: Any) -> shared_memory.RegionSlice:
    return regions.slice({REGION: "r", SIZE: 8, **parameters}, "input 'x'")


def refused(status: int, match: str) -> Any:
    """An error of that status, whose one line fits."""

    class Refused:
        def __enter__(self) -> None:
            self.caught = pytest.raises(ServeError)
            self.info = self.caught.__enter__()

        def __exit__(self, *what: Any) -> bool:
            done = bool(self.caught.__exit__(*what))
            assert self.info.value.status == status and match in self.info.value.one_line(), self.info.value.one_line()
            return done

    return Refused()


def test_read_and_write(regions: Regions, folder: Path) -> None:
    assert window(regions).read().tolist() == list(range(10, 18))
    place = window(regions, **{OFFSET: 42})
    assert place.read().tolist() == list(range(52, 60))
    place.write(b"ab", "y")
    assert (folder / "frames").read_bytes()[50:56] == bytes([50, 51]) + b"ab" + bytes([54, 55])
    assert place.parameters(2) == {REGION: "r", SIZE: 2, OFFSET: 42}
    assert window(regions).parameters(8) == {REGION: "r", SIZE: 8}


def test_what_is_read_no_longer_changes(regions: Regions, folder: Path) -> None:
    data = window(regions).read()
    (folder / "frames").write_bytes(bytes(100))
    assert data.tolist() == list(range(10, 18))


@pytest.mark.parametrize(
    "key",
    ["", "/", "//frames", "../frames", "/../frames", "a/b", "/a/b", ".", "..", "/..", "frames\0", "x" * 256, "ü" * 200,
     5, None, ["frames"]],
)  # fmt: skip
def test_keys_that_are_none(regions: Regions, key: Any) -> None:
    with refused(400, "invalid key of shared memory"):
        regions.register("new", key, 0, 1)


def test_objects_that_are_no_shared_memory(regions: Regions, folder: Path) -> None:
    (folder.parent / "secret").write_bytes(bytes(100))
    (folder / "link").symlink_to("../secret")
    (folder / "near").symlink_to("frames")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for name in ("link", "near", "folder"):
        with refused(400, "cannot be opened"):
            regions.register("new", name, 0, 1)
    with refused(400, "not a shared memory object"):
        regions.register("new", "pipe", 0, 1)
    with refused(404, "there is no shared memory '/nothing'"):
        regions.register("new", "/nothing", 0, 1)
    with refused(400, "cannot be opened"):
        regions.register("new", "\ud800", 0, 1)
    assert set(regions.status()) == {"r"}


def test_objects_of_others(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", closed)
    with refused(403, "cannot be opened; got Permission denied"):
        regions.register("new", "frames", 0, 1)


@pytest.mark.parametrize(
    ("offset", "size", "words"),
    [(0, 101, "too small"), (100, 1, "too small"), (99, 2, "too small"), (1 << 61, 1 << 61, "too small"),
     (-1, 5, "'offset' is wrong"), (0, -5, "'byte_size' is wrong"), (0, 0, "at least 1"), (0, 1 << 62, "'byte_size'"),
     (True, 5, "'offset'"), (0, 1.5, "'byte_size'"), ("0", 5, "'offset'"), (0, None, "'byte_size'")],
)  # fmt: skip
def test_sizes_of_regions(regions: Regions, offset: Any, size: Any, words: str) -> None:
    with refused(400, words):
        regions.register("new", "frames", offset, size)


@pytest.mark.parametrize("name", ["", "x" * 257, 5])
def test_names_of_regions(regions: Regions, name: Any) -> None:
    with refused(400, "needs a name"):
        regions.register(name, "frames", 0, 1)


def test_taken_and_too_many(regions: Regions) -> None:
    with refused(409, "there is a shared memory region 'r' already"):
        regions.register("r", "frames", 0, 1)
    regions.register("a", "frames", 0, 1)
    regions.register("b", "frames", 0, 1)
    with refused(429, "too many"):
        regions.register("c", "frames", 0, 1)
    regions.unregister("a")
    regions.unregister("never was")
    regions.register("c", "frames", 0, 100)
    assert list(regions.status()) == ["r", "b", "c"]
    assert regions.status("c") == {"c": {"name": "c", "key": "frames", "offset": 0, "byte_size": 100}}
    regions.unregister()
    assert regions.status() == {}
    with refused(404, "no shared memory region 'c'; expected none is registered"):
        regions.status("c")


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [({REGION: "none"}, 404, "no shared memory region 'none'; expected 'r'"), ({REGION: 5}, 400, f"wrong {REGION}"),
     ({REGION: None}, 400, f"wrong {REGION}"), ({SIZE: None}, 400, f"wrong {SIZE}"), ({SIZE: -1}, 400, f"wrong {SIZE}"),
     ({SIZE: True}, 400, f"wrong {SIZE}"), ({SIZE: 1 << 70}, 400, f"wrong {SIZE}"),
     ({OFFSET: -1}, 400, f"wrong {OFFSET}"), ({OFFSET: "1"}, 400, f"wrong {OFFSET}"),
     ({SIZE: 51}, 400, "beyond the end"),
     ({OFFSET: 43}, 400, "at most 50 bytes"),
     ({OFFSET: 1 << 61, SIZE: 1 << 61}, 400, "beyond the end")],
)  # fmt: skip
def test_windows_that_do_not_fit(regions: Regions, parameters: Any, status: int, words: str) -> None:
    with refused(status, words):
        window(regions, **parameters)


def test_cut_short(regions: Regions, folder: Path) -> None:
    """A mapping would now end the process with SIGBUS."""
    place = window(regions)
    os.truncate(folder / "frames", 15)
    with refused(400, "smaller than when it was registered"):
        place.read()
    with refused(400, "smaller than when it was registered"):
        place.write(b"12345678", "y")
    assert (folder / "frames").stat().st_size == 15
    os.truncate(folder / "frames", 100)
    assert place.read().tolist() == [10, 11, 12, 13, 14, 0, 0, 0]


def test_an_output_that_does_not_fit(regions: Regions) -> None:
    with refused(400, "the shared memory for output 'y' is too small"):
        window(regions).write(b"123456789", "y")


def test_a_full_disk(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with refused(507, "No space left"):
        window(regions).write(b"1", "y")


def test_taken_away_while_it_is_used(regions: Regions, folder: Path) -> None:
    place = window(regions)
    file = place.region._file
    regions.unregister("r")
    (folder / "frames").unlink()
    assert place.read()[0] == 10
    place.write(b"ok", "y")
    assert place.read()[:2].tobytes() == b"ok"
    del place
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_refused_regions_leave_no_file_open(regions: Regions) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with refused(400, "too small"):
            regions.register("new", "frames", 0, 1000)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_copies_are_bounded(regions: Regions) -> None:
    regions = Regions(3, 100)
    regions.register("r", "/frames", 0, 100)
    held = [window(regions, **{SIZE: 40}).read().view(np.float32)[:2] for _ in range(2)]  # views keep it alive
    with refused(503, "too much shared memory"):
        window(regions, **{SIZE: 40}).read()
    held.pop()
    assert window(regions, **{SIZE: 40}).read().size == 40
    regions = Regions(3, 99)
    regions.register("r", "/frames", 0, 100)
    with refused(413, "too large"):
        window(regions, **{SIZE: 100}).read()
    assert window(regions, **{SIZE: 0}).read().size == 0
