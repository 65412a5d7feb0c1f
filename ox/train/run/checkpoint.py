"""Checkpoints: one safetensors file with the complete state of a run, written atomically.

A file contains a dict, written by `ox.save`: tensors by name, the rest as JSON in the header. Reading executes no code.

`last` is always written before `best`, and `best` is a hard link to the same file. So whenever a process is killed,
`last` is complete; if `best` is older than it should be, `repair` links it to `last`.

The checkpoint before `last` is ``last-1``, the one before that ``last-2``. A run resumes from these if `last` is
damaged.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ox.errors import LoadError, TrainError
from ox.serialization import files
from ox.temporary_files import remove_abandoned
from ox.train.run import disk_errors
from ox.train.run.run import Run
from ox.train.run.snapshot import size

FORMAT = 3  # format 1 had no averaged weights and no gradient scaler, format 2 no checksum
READABLE_FORMATS = (1, 2, 3)
KEEP = 2
LAST = "last"
PARTS = ("model", "optimizer", "scheduler", "random", "loader", "progress")


def save(run: Run, state: dict[str, Any], *, best: bool = False, keep: int = KEEP) -> None:
    """Writes `state` as the last checkpoint, and if `best` is True as the best one too.

    Args:
        keep: the number of checkpoints to keep, this one included, besides the best.

    Raises:
        TrainError: it cannot be written, with the missing space. The earlier checkpoint remains.
    """
    try:
        files.write_whole(run.last, files.writer({"format": FORMAT, **state}), lambda: _rotate(run.last, keep))
        if best:
            _link(run.last, run.best)
    except OSError as error:
        gone = any(isinstance(each, FileNotFoundError) for each in (error, error.__cause__))
        if gone or not run.folder.is_dir():  # the folder may be in the middle of its removal
            raise TrainError(
                f"the run's folder is gone: {run.folder}", hint="train it anew: nothing of it is left"
            ) from error
        again = f"make room, then {run.resume_command}; the checkpoint before this one is whole"
        raise disk_errors.write_error(
            "the checkpoint could not be written", run.last, error, size(state), again
        ) from error


def _rotate(last: Path, keep: int) -> None:
    """Renames ``last-N`` to ``last-(N+1)`` and `last` to ``last-1``; removes those beyond `keep`."""
    for path in reversed(previous(last)):
        number = _number(path) + 1
        if number < keep:
            os.replace(path, _numbered(last, number))
        else:
            path.unlink()
    if keep > 1 and last.is_file():
        try:
            os.link(last, _numbered(last, 1))
        except OSError:  # a file system without hard links
            os.replace(last, _numbered(last, 1))


def previous(last: Path) -> list[Path]:
    """The checkpoints before `last`, the newest first."""
    found = [path for path in last.parent.glob(f"{last.stem}-*{last.suffix}") if _number(path) > 0]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _numbered(last: Path, number: int) -> Path:
    return last.with_name(f"{last.stem}-{number}{last.suffix}")


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        LoadError: it is missing, damaged, of a newer format, or no checkpoint of a run.
    """
    if not path.is_file():
        again = Run(path.parent.parent, {}).resume_command
        raise LoadError(f"there is no checkpoint {path}", hint=f"the run was stopped before its first one: {again}")
    state = files.load(path)
    if isinstance(state, dict) and state.get("format") == FORMAT and not files.has_checksum(path):
        raise LoadError(f"{path} is damaged", expected="a checksum", got="none", hint="an earlier checkpoint")
    if (
        not isinstance(state, dict)
        or state.get("format") not in READABLE_FORMATS
        or not all(part in state for part in PARTS)
    ):
        raise LoadError(
            f"{path} is not a checkpoint of a run",
            expected=f"format {FORMAT} or older with {', '.join(PARTS)}",
            got=f"format {state.get('format')} with {', '.join(map(str, state))}" if isinstance(state, dict) else None,
        )
    return state


@dataclass
class ResumePoint:
    """The checkpoint from which a run resumes.

    Attributes:
        path: its file: `last`, unless that is damaged.
        state: its content.
        damaged: checkpoints that cannot be read.
        lost_epoch: the epoch of the best weights, if these are lost.
    """

    path: Path
    state: dict[str, Any]
    damaged: list[Path] = field(default_factory=list)
    lost_epoch: int | None = None

    def notes(self) -> list[str]:
        """Messages for the user."""
        step, lines = self.state["progress"]["step"], list[str]()
        if self.damaged or self.path.stem != LAST:
            names = " and ".join(path.name for path in self.damaged)
            wrong = f"damaged: {names}" if names else "the best checkpoint is missing"
            lines.append(f"{wrong}; resuming from {self.path.name}, step {step:,}")
        if self.lost_epoch is not None:
            what = f"the best weights, of epoch {self.lost_epoch}, are lost"
            lines.append(f"{what}; the best is chosen from the remaining epochs")
        return lines


def newest(run: Run) -> ResumePoint | None:
    """The newest undamaged checkpoint, if possible one whose best weights exist; None before the first.

    Raises:
        LoadError: all are damaged, or the best one is, which would otherwise fail at the end of the run.
    """
    paths = [path for path in (run.last, *previous(run.last), run.best) if path.is_file()]
    if not paths:
        return None
    best, damaged, spare = _Best(run.best), dict[Path, LoadError](), list[ResumePoint]()
    for path in paths:
        try:
            state = load(path)
        except LoadError as error:
            damaged[path] = error
            continue
        needed = state["progress"]["best"]
        whole = needed is None or needed["step"] in (state["progress"]["step"], best.step(path, state))
        if best.error is not None:
            damaged[run.best] = best.error
        if whole:
            return ResumePoint(path, state, list(damaged))
        spare.append(ResumePoint(path, state, list(damaged), needed["epoch"]))
    if not spare:
        raise next(iter(damaged.values()))
    if run.best in damaged and not any(run.best.samefile(path) for path in damaged if path != run.best):
        raise LoadError(
            f"{run.best} is damaged", expected=f"the best weights of the run, of epoch {spare[0].lost_epoch}",
            got=damaged[run.best].got, hint=f"rm {run.best}; then resume chooses the best from the remaining epochs",
        ) from damaged[run.best]  # fmt: skip
    # the lost checkpoint was the newest: its epoch is repeated
    return spare[0]


class _Best:
    """The best checkpoint, read at most once, on demand."""

    error: LoadError | None = None

    def __init__(self, path: Path) -> None:
        self._path, self._known, self._step = path, False, None

    def step(self, other: Path, state: dict[str, Any]) -> int | None:
        """The step of the best checkpoint; None if it is missing or damaged. If it is the file `other`, `state` is
        used."""
        if not self._known and self._path.is_file():
            try:
                state = state if self._path.samefile(other) else load(self._path)
                self._step = state["progress"]["step"]
            except LoadError as error:
                self.error = error
        self._known = True
        return self._step


def repair(run: Run, found: ResumePoint) -> None:
    """Repairs the checkpoints of a killed process or a damaged disk: links `last` to the resume point, and `best` to
    `last` if that is the best; removes damaged files."""
    progress = found.state["progress"]
    if found.path != run.last:
        _link(found.path, run.last)
    for path in found.damaged:
        if path != run.last:
            path.unlink(missing_ok=True)
    if progress["best"] is not None and progress["best"]["step"] == progress["step"]:
        _link(run.last, run.best)
    elif found.lost_epoch is not None:
        run.best.unlink(missing_ok=True)


def remove_temporary_files(run: Run) -> None:
    """Removes temporary files of killed processes."""
    remove_abandoned(run.folder)
    remove_abandoned(run.last.parent)
    for leftover in run.last.parent.glob(".tmp??????"):  # of safetensors' writer, which older versions used
        leftover.unlink(missing_ok=True)


def _link(existing: Path, name: Path) -> None:
    """Links `name` to an existing file, replacing it: a hard link, or a copy on file systems without links."""

    def link(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)

    files.write_whole(name, link)
