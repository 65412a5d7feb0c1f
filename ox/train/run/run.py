"""Run folders: creating, finding and locking them.

runs/digits-0007/
  config.toml      what ran: recipe, options, seed, versions, git commit, threads
  recipe.py        a copy of the recipe file
  data.json        the split, the encoding and fingerprints of the data
  metrics.jsonl    one line per logged step and per epoch
  events...        the same for TensorBoard
  checkpoints/     best.safetensors, last.safetensors: the complete state
  result.json      the result; only a finished run has one
  curves.png       loss and metrics over the epochs
"""

from __future__ import annotations

import errno
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

from ox import temporary_files
from ox.core.random_stream import checked
from ox.errors import LoadError, RecipeError, TrainError
from ox.file_lock import lock_file
from ox.random import stream_version
from ox.serialization.files import write_whole
from ox.train.recipe.from_onnx import FILE, BaseModel
from ox.train.recipe.manifest import Manifest
from ox.train.recipe.recipe import Recipe, read
from ox.train.run import config
from ox.train.run.train_config import TrainConfig

DATA = "data.json"
FILES = ("config.toml", "recipe.py", DATA, "base.onnx", "metrics.jsonl", "events.out.tfevents.*", ".training")
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()  # the checksum in the config of a run without a recipe file


class Run:
    """A run folder."""

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
    def random_stream(self) -> int:
        """The version of its random numbers (`ox.random.stream_version`); runs that do not name it have version 1."""
        return checked(self.config.get("run", {}).get("random_stream", 1))

    @property
    def options(self) -> TrainConfig:
        return TrainConfig(**self.config["options"])

    @property
    def result(self) -> dict[str, Any] | None:
        """The result; None if the run has not finished."""
        try:
            return dict(json.loads((self.folder / "result.json").read_text()))
        except (OSError, ValueError):
            return None

    @property
    def resume_command(self) -> str:
        """What resumes it: a command line, or of a run without a recipe file a call in its script."""
        if (self.folder / "recipe.py").is_file():
            return f"ox train --resume {shlex.quote(str(self.folder))}"
        return f"fit({str(self.folder)!r}, resume=True)" if self.config else "run the script again"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the run for this process; the system removes the lock when the process ends.

        Raises:
            TrainError: another process is training it; names the process and its machine.
        """
        note = self.folder / ".training"
        with open(self.folder / "config.toml", "rb") as file:
            if lock_file(file.fileno()) is False:
                raise TrainError(
                    f"another process is training {self.folder}",
                    got=_read_text(note),
                    hint="wait for it, or stop it with Ctrl-C there",
                )
            with suppress(OSError):  # information for other processes; a full disk is reported elsewhere
                note.write_text(f"process {os.getpid()} on {platform.node()}, since {now()}")
            try:
                yield
            finally:
                note.unlink(missing_ok=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Writes the result: the run is finished."""
        write_text(self.folder / "result.json", json.dumps(result, indent=2) + "\n")

    def restart(self, options: TrainConfig) -> None:
        """Writes changed options, and removes the result: the run is not finished."""
        (self.folder / "result.json").unlink(missing_ok=True)
        if options.to_table() != self.options.to_table():
            self.config["options"] = options.to_table()
            write_text(self.folder / "config.toml", config.dump(self.config))

    def remove(self) -> None:
        """Removes the files of a run without a step, and the folder if it is empty then."""
        shutil.rmtree(self.last.parent, ignore_errors=True)
        for pattern in FILES:
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def recipe(self) -> Recipe:
        """The recipe of the run, from the copy in its folder.

        Raises:
            RecipeError: the copy is missing or no longer a recipe.
        """
        noted = self.config["recipe"]
        if not (self.folder / "recipe.py").is_file() and noted["sha256"] == EMPTY_SHA256:
            raise RecipeError(
                f"{self.folder} was trained by a script, not from a recipe file",
                hint=f"{noted['source']} with fit({str(self.folder)!r}, resume=True); ox.load reads the checkpoints",
            )
        # modules that the recipe file imports are searched in its original folder
        base = BaseModel.from_table(self.config["from"], self.folder) if "from" in self.config else None
        needed = ("model", "data") if base is None else ("data",)
        with stream_version(self.random_stream):
            recipe = read(self.folder / "recipe.py", noted["name"], [Path(noted["source"]).parent], needed)
        recipe = replace(recipe, base=base)
        if "data" not in self.config:  # of an older version, where data() drew from the state that model() left
            return replace(recipe, data_seed=self.options.seed, data_after_model=base is None)
        manifest = self.manifest()
        if manifest is None:
            return replace(recipe, data_seed=self.config["data"]["seed"])
        return recipe.with_data_of(manifest)

    def manifest(self) -> Manifest | None:
        """The description of the data; None for a run of an older version, and while its first process starts.

        Raises:
            LoadError: it is missing or damaged.
        """
        path = self.folder / DATA
        expected = self.config.get("data", {}).get("sha256")
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            if expected is None:
                return None
            raise LoadError(f"there is no {path}, with the split of the run", hint=self._redraw) from error
        except (OSError, UnicodeDecodeError) as error:
            raise LoadError(f"{path} cannot be read", got=str(error), hint=self._redraw) from error
        if expected is not None and hashlib.sha256(text.encode()).hexdigest() != expected:
            raise LoadError(
                f"{path} is damaged, or of another run", expected=f"the checksum {expected[:12]}", hint=self._redraw
            )
        return Manifest.from_text(text, str(path))

    @property
    def _redraw(self) -> str:
        config_file = self.folder / "config.toml"
        return f"restore the file; without it and its line sha256 in {config_file}, data() splits again by its seed"


def create(
    recipe: Recipe, options: TrainConfig, root: str | os.PathLike[str] = "runs", processes: int | None = None
) -> Run:
    """Creates the next folder ``<root>/<recipe>-0001``, ``-0002``, ... with its config and a copy of the recipe file.

    Args:
        processes: that will train it, where another process than these creates it; default: those of this group.

    Raises:
        TrainError: the folder cannot be made.
    """
    root = Path(root)
    with _explain_write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        numbers = [path.name[len(recipe.name) + 1 :] for path in root.glob(f"{recipe.name}-*")]
        number = 1 + max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=0)
        while True:
            try:
                return _create_atomically(root / f"{recipe.name}-{number:04d}", recipe, options, processes)
            except FileExistsError:  # another process has created the same number at the same time
                number += 1


def create_at(folder: str | os.PathLike[str], recipe: Recipe, options: TrainConfig) -> Run:
    """Creates a run in this folder.

    Raises:
        TrainError: it cannot be created, or is not empty.
    """
    folder = Path(folder)
    with _explain_write_errors(folder):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            return _create_atomically(folder, recipe, options)
        temporary_files.remove_abandoned(folder)
        # an empty folder checkpoints may be left of a killed process
        if names := sorted(path.name for path in folder.iterdir() if path.name != "checkpoints" or any(path.iterdir())):
            raise TrainError(
                f"{folder} is no run, and not empty", got=", ".join(names[:6]) + ", ..." * (len(names) > 6),
                hint="a folder of its own for the run",
            )  # fmt: skip
        return _write_files(folder, recipe, options)


def _create_atomically(folder: Path, recipe: Recipe, options: TrainConfig, processes: int | None = None) -> Run:
    """Creates a run folder under a temporary name and renames it. If the process is killed, the next run that is
    created removes the temporary folder.

    Raises:
        FileExistsError: there is a folder of this name that is not empty.
    """
    with temporary_files.folder(".ox-run-", folder.parent) as place:
        (place / folder.name).mkdir()
        run = _write_files(place / folder.name, recipe, options, processes)
        try:
            os.rename(run.folder, folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(error.errno, error.strerror, str(folder)) from error
            raise
        return Run(folder, run.config)


def _write_files(folder: Path, recipe: Recipe, options: TrainConfig, processes: int | None = None) -> Run:
    run = Run(folder, config.describe(recipe, options, folder.name, processes))
    try:
        run.last.parent.mkdir(exist_ok=True)
        if recipe.base is not None:
            recipe.base.copy_to(folder)
        if recipe.text:
            write_text(folder / "recipe.py", recipe.text)
        if recipe.manifest is not None:
            write_text(folder / DATA, recipe.manifest.to_text())
        write_text(folder / "config.toml", config.dump(run.config))
    except BaseException:
        run.remove()
        raise
    return run


@contextmanager
def _explain_write_errors(folder: Path) -> Iterator[None]:
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
    """The run in a folder; a name such as ``digits-0007`` is also searched in runs/.

    Raises:
        LoadError: there is no run in it.
    """
    folder = Path(folder)
    if not folder.is_dir() and len(folder.parts) == 1 and ("runs" / folder).is_dir():
        folder = "runs" / folder
    if not (folder / "config.toml").is_file():
        problem = "no such folder" if not folder.is_dir() else "a folder without config.toml"
        if folder.is_dir() and _never_started(folder):
            raise LoadError(
                f"{folder} is not a run", got=f"{problem}: its process was killed while it made it, before any step",
                hint=f"rm -r {shlex.quote(str(folder))}, and train again",
            )  # fmt: skip
        runs = ", ".join(str(run.folder) for run in runs_in(folder.parent if folder.name else folder)[-3:])
        raise LoadError(f"{folder} is not a run", got=problem, hint=runs or "ox train digits makes one")
    return Run(folder, config.parse(folder / "config.toml"))


def _never_started(folder: Path) -> bool:
    """Whether a folder contains only files that older versions wrote before config.toml."""
    names = {path.name for path in folder.iterdir() if not temporary_files.ANY.fullmatch(path.name)}
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
    """The runs in a folder, sorted by name; other folders are skipped.

    Args:
        damaged: the errors of runs whose config cannot be read are appended to it.
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
    """Writes a text file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)
