"""What is found on disk, and what is not looked at."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import ArgumentError, LoadError
from ox.serve.repository.layout import Layout, ModelFiles, stamp_of


def scan(folder: Path) -> dict[str, ModelFiles]:
    return dict(Layout([folder]).scan().models)


def put(path: Path, text: str = "a model") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_both_layouts(tmp_path: Path) -> None:
    for name in ("a/1/model.onnx", "a/12/model.onnx", "a/config.pbtxt", "b.onnx", "ox.toml"):
        put(tmp_path / name)
    for name in (
        "notes.txt",
        ".hidden.onnx",
        ".git/1/model.onnx",
        "runs/log.txt",
        "a/007/model.onnx",
        "a/v2/model.onnx",
    ):
        put(tmp_path / name)
    (tmp_path / "a" / "3").mkdir()  # somebody is about to fill it
    found = Layout([tmp_path]).scan()
    assert {name: sorted(model.versions) for name, model in found.models.items()} == {"a": [1, 12], "b": [1]}
    config = found.models["a"].config
    assert config is not None and config.path.name == "config.pbtxt" and found.models["b"].config is None
    assert list(found.settings) == [tmp_path / "ox.toml"]


def test_files_that_are_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.onnx")
    found = Layout([path]).scan().models
    assert found["a"].versions[1].path == path
    path.unlink()
    found = Layout([path]).scan().models
    assert not found["a"].versions and "there is no file" in found["a"].absence().what
    with pytest.raises(ArgumentError, match="same name"):
        Layout([path, tmp_path / "b" / "a.onnx"])


def test_two_of_one_name(tmp_path: Path) -> None:
    put(tmp_path / "a.onnx")
    put(tmp_path / "a" / "1" / "model.onnx")
    assert "two models with the same name" in str(scan(tmp_path)["a"].problem)


@pytest.mark.parametrize("held", ["model.onnx", "config.pbtxt"])
def test_a_model_without_versions(tmp_path: Path, held: str) -> None:
    put(tmp_path / "a" / held)
    error = scan(tmp_path)["a"].absence()
    assert error.expected == str(tmp_path / "a" / "1" / "model.onnx") and error.got == held
    assert error.hint is not None and "mkdir" in error.hint


def test_a_version_without_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "2").mkdir(parents=True)
    error = scan(tmp_path)["a"].absence()
    assert (error.expected, error.got) == (str(tmp_path / "a" / "2" / "model.onnx"), "an empty folder")
    assert error.hint is None  # the folder is there


def test_one_model_in_place_of_a_folder_of_models(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1" / "model.onnx")
    error = next(iter(scan(tmp_path / "a").values())).absence()
    assert error.what == f"{tmp_path / 'a'} is one model, not a folder of models"
    assert error.hint == f"ox serve {tmp_path / 'a'} --name NAME"


@pytest.mark.parametrize("change", ["content", "rename", "beside", "deep", "touch"])
def test_a_stamp_tells_changes(tmp_path: Path, change: str) -> None:
    path = put(tmp_path / "a" / "1" / "model.onnx")
    put(tmp_path / "a" / "1" / "deep" / "weights.bin")
    version = scan(tmp_path)["a"].versions[1]
    put(tmp_path / "a" / "1" / ".half")
    assert stamp_of(version) == version.stamp
    if change == "content":
        path.write_text("another one")
    elif change == "rename":  # of the same size and time
        other = put(tmp_path / "other")
        status = path.stat()
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(other, path)
    elif change == "beside":
        put(path.with_name("weights.bin"))
    elif change == "deep":
        put(path.parent / "deep" / "weights.bin", "others")
    else:
        os.utime(path, ns=(0, 0))
    assert stamp_of(version) != version.stamp
    assert scan(tmp_path)["a"].stamps != {1: version.stamp}


def test_the_data_of_a_bare_file_belongs_to_it(tmp_path: Path) -> None:
    put(tmp_path / "a.onnx")
    version = scan(tmp_path)["a"].versions[1]
    put(tmp_path / "b.onnx")
    assert stamp_of(version) == version.stamp
    put(tmp_path / "a.onnx.data")
    assert stamp_of(version) != version.stamp


@rows("where", ["a.onnx", "a", "a/1", "a/1/model.onnx", "a/1/weights.bin", "a/config.pbtxt"])
def test_links_stay_inside(tmp_path: Path, where: str) -> None:
    outside = tmp_path / "outside"
    put(outside / "1" / "model.onnx")
    put(outside / "model.onnx")
    folder = tmp_path / "models"
    put(folder / "a" / "1" / "model.onnx") if "/" in where else folder.mkdir()
    link = folder / where
    target = outside if where in ("a", "a/1") else outside / "model.onnx"
    if link.is_dir():
        link.rename(tmp_path / "aside")
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    found = scan(folder)["a"]
    assert "leads out of the repository" in str(found.problem) and not found.versions
    link.unlink()
    inside = put(folder / "kept" / "inside")
    (folder / "kept" / "1").mkdir()
    put(folder / "kept" / "1" / "model.onnx")
    link.symlink_to(inside.parent if where == "a" else inside.parent / "1" if where == "a/1" else inside)
    assert scan(folder)["a"].problem is None


def test_links_that_lead_nowhere_or_round(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").symlink_to(tmp_path / "nothing")
    (tmp_path / "b.onnx").symlink_to(tmp_path / "b.onnx")
    put(tmp_path / "c" / "1" / "model.onnx")
    (tmp_path / "c" / "1" / "round").symlink_to(tmp_path / "c")
    found = scan(tmp_path)
    assert not found["a"].versions and not found["b"].versions
    assert list(found["c"].versions) == [1]


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    """Python before 3.13 says RuntimeError to them."""
    for name in ("a", "b", "c"):
        put(tmp_path / name / "1" / "model.onnx")
    (tmp_path / "a" / "1" / "x").symlink_to("y")
    (tmp_path / "a" / "1" / "y").symlink_to("x")
    (tmp_path / "b" / "config.pbtxt").symlink_to("config.pbtxt")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "ox.toml").symlink_to("ox.toml")
    found = scan(tmp_path)
    assert "a/1/" in str(found["a"].problem) and "symbolic links" in str(found["b"].problem)
    assert found["c"].versions and found["c"].problem is None


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
def test_a_file_system_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """What it holds is not taken for gone."""
    layout = Layout([put(tmp_path / "a.onnx"), put(tmp_path / "b.onnx")])
    real, gone = Path.stat, {"a.onnx"}

    def stat(path: Path, **more: Any) -> Any:
        if path.name in gone:
            raise OSError(code, os.strerror(code))
        return real(path, **more)

    monkeypatch.setattr(Path, "stat", stat)
    found = layout.scan().models
    assert os.strerror(code) in str(found["a"].problem) and found["b"].versions
    gone.add("ox.toml")
    with pytest.raises(LoadError, match=os.strerror(code)):
        layout.scan()


def test_names_that_are_no_names(tmp_path: Path) -> None:
    for name in ("a\nb.onnx", "a\x1b[31m.onnx", "caf\udce9.onnx"):
        try:
            put(tmp_path / name)
        except (OSError, UnicodeError):  # a file system that takes no such names
            continue
    put(tmp_path / "ein Modell é.onnx")
    assert list(scan(tmp_path)) == ["ein Modell é"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1" / "model.onnx")
    put(tmp_path / "b.onnx")
    for closed in (tmp_path / "a" / "1", tmp_path / "a"):
        closed.chmod(0)
        found = scan(tmp_path)
        assert "cannot be read" in str(found["a"].problem) and found["b"].versions
        closed.chmod(0o700)
    tmp_path.chmod(0)
    try:
        with pytest.raises(LoadError, match="cannot be listed"):
            Layout([tmp_path]).scan()
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a" / "1" / "model.onnx")
    put(tmp_path / "b.onnx")
    real = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "1":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = scan(tmp_path)
    assert "Permission denied" in str(found["a"].problem) and found["b"].versions


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.serve.repository.layout.MOST_FILES", 3)
    for number in range(4):
        put(tmp_path / "a" / "1" / f"{number}.bin")
    assert "too many files" in str(scan(tmp_path)["a"].problem)
    for number in range(4):
        put(tmp_path / f"{number}.onnx")
    with pytest.raises(LoadError, match="too much"):
        scan(tmp_path)
