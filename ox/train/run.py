"""The folder of a run, and how it is found again.

runs/digits-0007/
  config.toml      what ran: recipe, options, seed, versions, git commit, threads
  recipe.py        the page as it was
  metrics.jsonl    a line a step and an epoch
  events...        the same for TensorBoard
  checkpoints/     best.safetensors, last.safetensors: everything that is needed to go on
  result.json      how it ended; only a finished run has one
  curves.png       what people look at first
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ox import temporary
from ox.errors import LoadError, RecipeError, TrainError
from ox.files import write_whole
from ox.train import config
from ox.train.base import FILE, Base
from ox.train.options import Options
from ox.train.recipe import Recipe, read

MADE = ("config.toml", "recipe.py", "base.onnx", "metrics.jsonl", "events.out.tfevents.*", ".training")
EMPTY = hashlib.sha256(b"").hexdigest()  # what stands for the page of a run that has none


class Run:
    """One run's folder."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.config = folder, settings

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def last(self) -> Path:
        return self.folder / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        return self.folder / "checkpoints" / "best.safetensors"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        return self.folder / "curves.png"

    @property
    def options(self) -> Options:
        return Options(**self.config["options"])

    @property
    def result(self) -> dict[str, Any] | None:
        """How it ended, or None while it has not."""
        try:
            return dict(json.loads((self.folder / "result.json").read_text()))
        except (OSError, ValueError):
            return None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run for this process; the system lets go when the process ends, however it ends.

        Raises:
            TrainError: another process trains it now; says which, and on what machine.
        """
        note = self.folder / ".training"
        with open(self.folder / "config.toml", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TrainError(
                    f"another process is training {self.folder}",
                    got=_read_text(note),
                    hint="wait for it, or stop it with Ctrl-C there",
                ) from error
            except OSError:  # a network disk without locks: nothing to hold on to
                pass
            with suppress(OSError):  # a word for others: a full disk is told when something needs room
                note.write_text(f"process {os.getpid()} on {platform.node()}, since {now()}")
            try:
                yield
            finally:
                note.unlink(missing_ok=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Note how it ended: from now on the run is finished."""
        write_text(self.folder / "result.json", json.dumps(result, indent=2) + "\n")

    def go_on(self, options: Options) -> None:
        """Note other options, and that the run is not finished."""
        (self.folder / "result.json").unlink(missing_ok=True)
        if options.to_table() != self.options.to_table():
            self.config["options"] = options.to_table()
            write_text(self.folder / "config.toml", config.dump(self.config))

    def remove(self) -> None:
        """Remove what ox has made of a run that never took a step, and the folder, if nothing else is in it."""
        shutil.rmtree(self.last.parent, ignore_errors=True)
        for pattern in MADE:
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def recipe(self) -> Recipe:
        """The recipe as it was when the run began: the copy in the folder.

        Raises:
            RecipeError: the copy is missing or no longer a recipe.
        """
        noted = self.config["recipe"]
        if not (self.folder / "recipe.py").is_file() and noted["sha256"] == EMPTY:
            raise RecipeError(
                f"{self.folder} was trained by a script, not by a recipe's page",
                hint=f"{noted['source']} with fit({str(self.folder)!r}, resume=True); ox.load reads the checkpoints",
            )
        # what the page imported from its own folder is looked for there again
        base = Base.of_table(self.config["from"], self.folder) if "from" in self.config else None
        needed = ("model", "data") if base is None else ("data",)
        recipe = read(self.folder / "recipe.py", noted["name"], [Path(noted["source"]).parent], needed)
        return replace(recipe, base=base)


def create(recipe: Recipe, options: Options, root: str | os.PathLike[str] = "runs") -> Run:
    """Make the next folder ``<root>/<recipe>-0001``, ``-0002``, ... with its config and a copy of the page.

    Raises:
        TrainError: the folder cannot be made.
    """
    root = Path(root)
    with _writing(root):
        root.mkdir(parents=True, exist_ok=True)
        numbers = [path.name[len(recipe.name) + 1 :] for path in root.glob(f"{recipe.name}-*")]
        number = 1 + max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=0)
        while True:
            try:
                return _appear(root / f"{recipe.name}-{number:04d}", recipe, options)
            except FileExistsError:  # another process has taken the same number at the same time
                number += 1


def create_at(folder: str | os.PathLike[str], recipe: Recipe, options: Options) -> Run:
    """Make a run in this very folder.

    Raises:
        TrainError: it cannot be made, or there is something in it.
    """
    folder = Path(folder)
    with _writing(folder):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            return _appear(folder, recipe, options)
        temporary.remove_abandoned(folder)
        # the one thing that is left of a process that was killed here
        if names := sorted(path.name for path in folder.iterdir() if path.name != "checkpoints" or any(path.iterdir())):
            raise TrainError(
                f"{folder} is no run, and not empty", got=", ".join(names[:6]) + ", ..." * (len(names) > 6),
                hint="a folder of its own for the run",
            )  # fmt: skip
        return _make(folder, recipe, options)


def _appear(folder: Path, recipe: Recipe, options: Options) -> Run:
    """A run's folder that appears whole: a process that is killed meanwhile leaves a temporary one, which the next
    that makes a run there removes.

    Raises:
        FileExistsError: there is a folder of this name with something in it.
    """
    with temporary.folder(".ox-run-", folder.parent) as place:
        (place / folder.name).mkdir()
        run = _make(place / folder.name, recipe, options)
        try:
            os.rename(run.folder, folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(error.errno, error.strerror, str(folder)) from error
            raise
        return Run(folder, run.config)


def _make(folder: Path, recipe: Recipe, options: Options) -> Run:
    run = Run(folder, config.describe(recipe, options, folder.name))
    try:
        run.last.parent.mkdir(exist_ok=True)
        if recipe.base is not None:
            recipe.base.keep(folder)
        if recipe.text:
            write_text(folder / "recipe.py", recipe.text)
        write_text(folder / "config.toml", config.dump(run.config))
    except BaseException:
        run.remove()
        raise
    return run


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        file = next((path for path in (folder, *folder.parents) if path.is_file()), None)
        raise TrainError(
            f"no run can be made in {folder}",
            got=f"{type(error).__name__}: {error.strerror or error}" if file is None else f"{file}, which is a file",
            hint="a folder that you may write to, with space left: ox train --out, or fit(folder)",
        ) from error


def find(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder; a bare name such as ``digits-0007`` is looked for in runs/, too.

    Raises:
        LoadError: there is no run in it.
    """
    folder = Path(folder)
    if not folder.is_dir() and len(folder.parts) == 1 and ("runs" / folder).is_dir():
        folder = "runs" / folder
    if not (folder / "config.toml").is_file():
        problem = "no such folder" if not folder.is_dir() else "a folder without config.toml"
        if folder.is_dir() and _never_begun(folder):
            raise LoadError(
                f"{folder} is not a run", got=f"{problem}: its process was killed while it made it, before any step",
                hint=f"rm -r {shlex.quote(str(folder))}, and train again",
            )  # fmt: skip
        runs = ", ".join(str(run.folder) for run in runs_in(folder.parent if folder.name else folder)[-3:])
        raise LoadError(f"{folder} is not a run", got=problem, hint=runs or "ox train digits makes one")
    return Run(folder, config.parse(folder / "config.toml"))


def _never_begun(folder: Path) -> bool:
    """Whether there is nothing in a folder but what earlier versions wrote ahead of config.toml."""
    names = {path.name for path in folder.iterdir() if not temporary.ANY.fullmatch(path.name)}
    numbered = folder.name.rpartition("-")[2]
    made = "checkpoints" in names and not any((folder / "checkpoints").iterdir())
    return names <= {"checkpoints", "recipe.py", FILE} and (made or (not names and numbered.isdigit()))


def newest_run(root: str | os.PathLike[str] = "runs") -> Run:
    """The run that last wrote a best checkpoint.

    Raises:
        LoadError: there is none.
    """
    runs = [run for run in runs_in(Path(root)) if run.best.is_file()]
    if not runs:
        raise LoadError(f"there is no trained run in {root}", hint="ox train digits, or name the run's folder")
    return max(runs, key=lambda run: (run.best.stat().st_mtime_ns, run.name))


def runs_in(root: Path, damaged: list[LoadError] | None = None) -> list[Run]:
    """The runs in a folder, by name; folders that are none are passed over.

    Args:
        damaged: gets the errors of those whose config cannot be read.
    """
    found = []
    for path in sorted(root.glob("*/config.toml")):
        try:
            found.append(Run(path.parent, config.parse(path)))
        except LoadError as error:
            if damaged is not None:
                damaged.append(error)
    return found


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")[:200] or None
    except (OSError, UnicodeDecodeError):
        return None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)
