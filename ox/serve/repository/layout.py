"""Which models lie on disk, and in which state: found by looking at names and stamps, without opening a file.

A folder holds `<name>/<version>/model.onnx`, as Triton's repositories do, or `<name>.onnx`, which is version 1. What a
symbolic link leads to must lie in the folder, too. A layout with a name takes a folder that is one model as well:
`<version>/model.onnx` in it. A folder with model.onnx (or onnx/model.onnx) and a tokenizer or generation settings
beside it is a model that takes or gives text, whose only version is the folder itself; it may also be what a layout is
given.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from ox.errors import ArgumentError, LoadError
from ox.graph.reader.model_file import holds, others
from ox.serve.text.model_file import has_text

MODEL, CONFIG, SETTINGS = "model.onnx", "config.pbtxt", "ox.toml"
BESIDE = (".data", "_data")  # what is added to a file's name for its external data
NUMBER = re.compile(r"[1-9][0-9]{0,17}")
MOST_FILES = 10_000  # of one version, or of a repository

Stamp = tuple[tuple[str, int, int, int], ...]  # of files: name, inode, size, time of the last change


@dataclass(frozen=True)
class Version:
    """One version: its folder or, where models lie bare, its file. `root` is what no link may lead out of."""

    path: Path
    stamp: Stamp
    root: Path | None = None


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: its folder or file, and its versions. `problem` is why they cannot be listed; `renamed`, whether
    its name is another than that of its folder or file."""

    name: str
    path: Path
    versions: Mapping[int, Version] = field(default_factory=dict)
    config: Version | None = None
    problem: LoadError | None = None
    renamed: bool = False

    @property
    def stamps(self) -> tuple[object, ...]:
        """Equal as long as nothing has changed."""
        config = self.config and self.config.stamp
        return (sorted((number, version.stamp) for number, version in self.versions.items()), config, str(self.problem))

    @property
    def newest_ns(self) -> int:
        """When the youngest file was written."""
        stamps = [version.stamp for version in (*self.versions.values(), *([self.config] if self.config else []))]
        return max((entry[3] for stamp in stamps for entry in stamp), default=0)

    def absence(self) -> LoadError:
        """The message if there is no version."""
        if not os.path.isdir(self.path):
            return LoadError(f"there is no file {self.path}", hint=others(self.path))
        if NUMBER.fullmatch(self.path.name):
            above = self.path.parent
            return LoadError(f"{above} is one model, not a folder of models", hint=f"ox serve {above} --name NAME")
        try:
            names = sorted(path.name for path in self.path.iterdir())
            number = next(filter(NUMBER.fullmatch, names), None)
            if number is not None:
                names = sorted(path.name for path in (self.path / number).iterdir())
        except OSError as error:  # since it was looked at
            return _unreadable(self.path, error)
        return LoadError(
            f"{self.path} contains no version of the model",
            expected=str(self.path / (number or "1") / MODEL),
            got=", ".join(names)[:200] or "an empty folder",
            hint=f"mkdir {self.path / '1'}, and {MODEL} into it" if number is None else None,
        )


@dataclass(frozen=True)
class Scan:
    """All models, and the stamps of the folders' settings files."""

    models: Mapping[str, ModelFiles]
    settings: Mapping[Path, Stamp]


class Layout:
    """Files and folders that are served.

    Args:
        paths: ONNX files, each served under its stem, and folders of models.
        name: of the only model. The models of a folder with several keep their names.

    Raises:
        ArgumentError: two files have one name, or there is one name for several paths.
    """

    def __init__(self, paths: Sequence[str | Path], name: str | None = None) -> None:
        if name is not None and len(paths) != 1:
            raise ArgumentError("one name for several models", expected="one file or folder with --name",
                                got=f"--name {name}, and {len(paths)} paths")  # fmt: skip
        self._name = name
        self._named: Path | None = None  # the model that has been given the name
        # What was a folder once is not taken for a file when it is gone for a while.
        folders = [path for path in map(Path, paths) if os.path.isdir(path)]
        self.folders, self.files = folders, [path for path in map(Path, paths) if path not in folders]
        stems = [path.stem for path in self.files]
        twice = next((stem for stem in stems if stems.count(stem) > 1), None)
        if twice is not None:
            raise ArgumentError("two models with the same name", got=twice, hint="another file name for one of them")

    @property
    def file_names(self) -> set[str]:
        """The names of the models that are named files."""
        return {self._name or path.stem for path in self.files}

    def scan(self) -> Scan:
        """The models there now. A named file is always listed, even if it does not exist yet.

        Raises:
            LoadError: a folder cannot be listed.
        """
        models: dict[str, ModelFiles] = {}
        for found in self._rename(list(chain(map(_bare, self.files), *map(self._models, self.folders)))):
            first = models.setdefault(found.name, found)
            if first is not found:
                problem = LoadError(
                    f"two models with the same name: '{found.name}'",
                    got=f"{first.path} and {found.path}",
                    hint="another name for one of them",
                )
                models[found.name] = replace(first, problem=problem)
        # after the folders, of which one that cannot be listed is named as such
        beside = dict.fromkeys((*self.folders, *(path.parent for path in self.files)))
        settings = [folder / SETTINGS for folder in beside if _there(folder / SETTINGS)]
        return Scan(models, {path: (_state(str(path)),) for path in settings})

    def _models(self, root: Path) -> Iterator[ModelFiles]:
        """A folder's models, or the one that the folder is."""
        if _has_text(root):
            root = root if root.name else root.resolve()  # "."
            return _model(root, _resolved(root), linked=False)
        if self._name is not None and _is_model(root):
            return _model(root, _resolved(root), linked=False)
        return _folder(root)

    def _rename(self, found: list[ModelFiles]) -> list[ModelFiles]:
        """The same models, the only one under the layout's name.

        Raises:
            LoadError: another one appears beside a model that has the name: it could not keep it after a restart.
        """
        if self._name is None or (self._named is None and len(found) != 1):
            return found
        if len(found) > 1:
            raise LoadError(
                f"{self._name} is the name of one model, but there are several",
                expected=f"{self._named} alone",
                got=", ".join(model.path.name for model in found)[:200],
                hint="a folder for each, or no --name",
            )
        self._named = found[0].path if found else self._named
        return [replace(model, name=self._name, renamed=True) for model in found]


def _has_text(folder: Path) -> bool:
    """Whether a folder is a model with a tokenizer or settings of generation, without versions."""
    try:
        return has_text(folder) and not _numbered(folder)
    except OSError:  # named where it is listed
        return False


def _is_model(folder: Path) -> bool:
    """Whether a folder holds the versions or the configuration of one model. A folder with a number that holds numbers
    itself is a model, not a version."""
    try:
        return (folder / CONFIG).exists() or not all(map(_numbered, _numbered(folder)))
    except OSError:  # named where it is listed
        return False


def _numbered(folder: Path) -> list[Path]:
    """The folders in it whose names are numbers of versions."""
    return [path for name in os.listdir(folder) if NUMBER.fullmatch(name) and (path := folder / name).is_dir()]


def _folder(root: Path) -> Iterator[ModelFiles]:
    try:
        with os.scandir(root) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise LoadError(f"{root} cannot be listed", got=error.strerror or str(error)) from error
    if len(children) > MOST_FILES:
        raise LoadError(f"{root} holds too much", expected=f"at most {MOST_FILES:,} entries", got=f"{len(children):,}")
    real = _resolved(root)
    for child in children:
        if child.name.startswith(".") or not child.name.isprintable():
            continue
        path = root / child.name
        try:
            if child.is_dir():
                yield from _model(path, real, child.is_symlink())
            elif child.name.endswith(".onnx"):
                if child.is_symlink():
                    _inside(path, real)
                yield _bare(path)
        except (LoadError, OSError) as error:
            problem = error if isinstance(error, LoadError) else _unreadable(path, error)
            yield ModelFiles(path.stem if path.suffix == ".onnx" else path.name, path, problem=problem)


def _model(folder: Path, real: Path, linked: bool) -> Iterator[ModelFiles]:
    """A folder's model; none where it has nothing of a model in it."""
    if linked:
        _inside(folder, real)
    with os.scandir(folder) as entries:
        folders = {entry.name: entry.is_dir() for entry in entries}
    numbers = sorted(int(name) for name, inner in folders.items() if inner and NUMBER.fullmatch(name))
    names = set(folders)
    text = not numbers and _has_text(folder)
    if not numbers and not names & {MODEL, CONFIG} and not text:
        return
    config = None
    if CONFIG in names:
        _inside(folder / CONFIG, real)
        config = Version(folder / CONFIG, (_state(str(folder / CONFIG)),))
    versions = {}
    for number in numbers:
        path = folder / str(number)
        stamp = _files(path, real)
        if stamp:  # else the file is being written
            versions[number] = Version(path, stamp, real)
    if text:
        versions[1] = Version(folder, _files(folder, real), real)
    yield ModelFiles(folder.name, folder, versions, config)


def stamp_of(version: Version) -> Stamp | None:
    """The version's current stamp; None if it cannot be read."""
    try:
        return _beside(version.path) if version.root is None else _files(version.path, version.root)
    except (LoadError, OSError):
        return None


def _bare(path: Path) -> ModelFiles:
    try:
        return ModelFiles(path.stem, path, {1: Version(path, _beside(path))} if _there(path) else {})
    except LoadError as problem:
        return ModelFiles(path.stem, path, problem=problem)


def _there(path: Path) -> bool:
    """Whether there is such a file.

    Raises:
        LoadError: the file system fails: this does not count as absence.
    """
    try:
        return path.exists()
    except OSError as error:
        raise _unreadable(path, error) from error


def _beside(path: Path) -> Stamp:
    """A bare file, and its external data under the usual names."""
    others = [f"{path}{suffix}" for suffix in BESIDE]
    return (_state(str(path)), *(_state(other) for other in others if os.path.exists(other)))


def _files(folder: Path, real: Path) -> Stamp:
    """The files of a version, including external data in subfolders; link targets are inside the repository."""
    if folder.is_symlink():
        _inside(folder, real)
    found: list[tuple[str, int, int, int]] = []
    folders = [str(folder)]
    count = 0
    while folders:  # with plain strings, because this is done again and again
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    raise LoadError(f"{folder} holds too many files", expected=f"at most {MOST_FILES:,}")
                if entry.name.startswith("."):  # what is being copied, and what file systems leave behind
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                if entry.is_symlink():
                    _inside(Path(entry.path), real)
                found.append(_state(entry.path))
    return tuple(sorted(found))


def _inside(path: Path, real: Path) -> None:
    target = _resolved(path)
    if not target.is_relative_to(real) and not holds(_resolved(path.parent), target):
        raise LoadError(
            f"{path} leads out of the repository",
            expected=f"something inside {real}",
            got=f"a link to {target}",
            hint="a copy: cp -rL FOLDER COPY, or snapshot_download(local_dir=COPY) of huggingface_hub",
        )


def _resolved(path: Path) -> Path:
    """What links lead to.

    Raises:
        LoadError: they lead round.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 says RuntimeError to a loop
        raise LoadError(f"{path} leads nowhere", got=str(error), hint="a copy instead of the link") from error


def _state(path: str) -> tuple[str, int, int, int]:
    try:
        status = os.stat(path)
    except OSError:  # gone since it was listed, or not ours to look at: either is a state, too
        return path, 0, 0, 0
    return path, status.st_ino, status.st_size if stat.S_ISREG(status.st_mode) else -1, status.st_mtime_ns


def _unreadable(path: Path, error: OSError) -> LoadError:
    return LoadError(f"{path} cannot be read", got=error.strerror or str(error))
