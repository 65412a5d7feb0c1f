"""Checkpoints: one safetensors file that holds everything needed to go on, written whole or not at all.

A file is a dict under `ox.save`: the tensors by name, the rest as JSON in the header. Nothing in it is executed.

`last` is always written before `best`, and `best` is that same file under a second name. So whatever moment a process
is killed at, `last` is whole, and when `best` is behind it, it is `last` that it should be: `mend` makes it so.

The one before `last` is ``last-1``, the one before that ``last-2``: a run goes on from these when `last` is damaged.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ox import files
from ox.errors import LoadError, TrainError
from ox.temporary import remove_abandoned
from ox.train import disk
from ox.train.run import Run
from ox.train.snapshot import size

FORMAT = 3  # 1 had no averages and no gradient scaler; the runs that wrote it needed none. 2 had no checksum
READ = (1, 2, 3)
KEEP = 2
LAST = "last"
PARTS = ("model", "optimizer", "scheduler", "random", "loader", "progress")


def save(run: Run, state: dict[str, Any], *, best: bool = False, keep: int = KEEP) -> None:
    """Write `state` as the last checkpoint, and as the best one too if it is.

    Args:
        keep: how many are there then, this one among them, besides the best.

    Raises:
        TrainError: the disk refuses, and how much was missing; the earlier checkpoint is still there.
    """
    try:
        files.write_whole(run.last, files.writer({"format": FORMAT, **state}), lambda: _push_back(run.last, keep))
        if best:
            _name_too(run.last, run.best)
    except OSError as error:
        gone = any(isinstance(each, FileNotFoundError) for each in (error, error.__cause__))
        if gone or not run.folder.is_dir():  # the folder may be going just now
            raise TrainError(
                f"the run's folder is gone: {run.folder}", hint="train it anew: nothing of it is left"
            ) from error
        again = f"make room, then ox train --resume {run.folder}; the checkpoint before this one is whole"
        raise disk.refused("the checkpoint could not be written", run.last, error, size(state), again) from error


def _push_back(last: Path, keep: int) -> None:
    """Number those before `last` one higher, and `last` 1; those beyond `keep` go."""
    for path in reversed(earlier(last)):
        number = _number(path) + 1
        if number < keep:
            os.replace(path, _earlier(last, number))
        else:
            path.unlink()
    if keep > 1 and last.is_file():
        try:
            os.link(last, _earlier(last, 1))
        except OSError:  # a disk without links
            os.replace(last, _earlier(last, 1))


def earlier(last: Path) -> list[Path]:
    """The checkpoints before `last` that were kept, the newest first."""
    found = [path for path in last.parent.glob(f"{last.stem}-*{last.suffix}") if _number(path) > 0]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _earlier(last: Path, number: int) -> Path:
    return last.with_name(f"{last.stem}-{number}{last.suffix}")


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        LoadError: it is missing, damaged, of a newer format, or no checkpoint of a run.
    """
    if not path.is_file():
        again = f"ox train --resume {path.parent.parent}"
        raise LoadError(f"there is no checkpoint {path}", hint=f"the run was stopped before its first one: {again}")
    state = files.load(path)
    if isinstance(state, dict) and state.get("format") == FORMAT and not files.has_checksum(path):
        raise LoadError(f"{path} is damaged", expected="a checksum", got="none", hint="an earlier checkpoint")
    if not isinstance(state, dict) or state.get("format") not in READ or not all(part in state for part in PARTS):
        raise LoadError(
            f"{path} is not a checkpoint of a run",
            expected=f"format {FORMAT} or older with {', '.join(PARTS)}",
            got=f"format {state.get('format')} with {', '.join(map(str, state))}" if isinstance(state, dict) else None,
        )
    return state


@dataclass
class Found:
    """The checkpoint to go on from.

    Attributes:
        path: where it is: `last`, unless that is damaged.
        state: what it holds.
        damaged: those that cannot be read.
        lost: the epoch of the best weights, where these are gone.
    """

    path: Path
    state: dict[str, Any]
    damaged: list[Path] = field(default_factory=list)
    lost: int | None = None

    def notes(self) -> list[str]:
        """What has to be said."""
        step, lines = self.state["progress"]["step"], list[str]()
        if self.damaged or self.path.stem != LAST:
            wrong = (
                f"damaged: {' and '.join(path.name for path in self.damaged)}" if self.damaged else "the best is gone"
            )
            lines.append(f"{wrong}; on from {self.path.name}, step {step:,}")
        if self.lost is not None:
            what = f"the best weights, of epoch {self.lost}, are gone"
            lines.append(f"{what}; the best is chosen among the epochs to come")
        return lines


def newest(run: Run) -> Found | None:
    """The newest checkpoint that is whole, and whose best weights are there if possible; None before the first.

    Raises:
        LoadError: none is whole, or the best one is damaged: that is not left to the end of the run.
    """
    paths = [path for path in (run.last, *earlier(run.last), run.best) if path.is_file()]
    if not paths:
        return None
    best, damaged, spare = _Best(run.best), dict[Path, LoadError](), list[Found]()
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
            return Found(path, state, list(damaged))
        spare.append(Found(path, state, list(damaged), needed["epoch"]))
    if not spare:
        raise next(iter(damaged.values()))
    if run.best in damaged and not any(run.best.samefile(path) for path in damaged if path != run.best):
        raise LoadError(
            f"{run.best} is damaged", expected=f"the best weights of the run, of epoch {spare[0].lost}",
            got=damaged[run.best].got, hint=f"rm {run.best}, and resume chooses the best among the epochs to come",
        ) from damaged[run.best]  # fmt: skip
    # the best was the newest: the epoch that made it comes again
    return spare[0]


class _Best:
    """What is in the best checkpoint, read once and only if it is asked for."""

    error: LoadError | None = None

    def __init__(self, path: Path) -> None:
        self._path, self._known, self._step = path, False, None

    def step(self, other: Path, state: dict[str, Any]) -> int | None:
        """The step that it was written at, None if it is missing or damaged; `other` with its state is read already."""
        if not self._known and self._path.is_file():
            try:
                state = state if self._path.samefile(other) else load(self._path)
                self._step = state["progress"]["step"]
            except LoadError as error:
                self.error = error
        self._known = True
        return self._step


def mend(run: Run, found: Found) -> None:
    """Finish what a killed process began and put right what a disk has damaged: `last` is what was found, it has its
    second name if it is the best, and files that were never whole are removed."""
    progress = found.state["progress"]
    if found.path != run.last:
        _name_too(found.path, run.last)
    for path in found.damaged:
        if path != run.last:
            path.unlink(missing_ok=True)
    if progress["best"] is not None and progress["best"]["step"] == progress["step"]:
        _name_too(run.last, run.best)
    elif found.lost is not None:
        run.best.unlink(missing_ok=True)


def tidy(run: Run) -> None:
    """Remove what killed processes left under temporary names."""
    remove_abandoned(run.folder)
    remove_abandoned(run.last.parent)
    for leftover in run.last.parent.glob(".tmp??????"):  # of safetensors' own writer, which versions before used
        leftover.unlink(missing_ok=True)


def _name_too(existing: Path, name: Path) -> None:
    """Give a file a second name, in place of what had it: a hard link where the disk knows them, else a copy."""

    def link(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)

    files.write_whole(name, link)
