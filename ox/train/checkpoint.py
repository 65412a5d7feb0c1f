"""Checkpoints: one safetensors file that holds everything needed to go on, written whole or not at all.

A file is a dict under `ox.save`: the tensors by name, the rest as JSON in the header. Nothing in it is executed.

`last` is always written before `best`, and `best` is that same file under a second name. So whatever moment a process
is killed at, `last` is whole, and when `best` is behind it, it is `last` that it should be: `mend` makes it so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ox import files
from ox.errors import LoadError
from ox.temporary import remove_abandoned
from ox.train import disk
from ox.train.run import Run
from ox.train.snapshot import size

FORMAT = 2  # 1 had no averages and no gradient scaler; the runs that wrote it needed none
READ = (1, 2)
PARTS = ("model", "optimizer", "scheduler", "random", "loader", "progress")


def save(run: Run, state: dict[str, Any], *, best: bool = False) -> None:
    """Write `state` as the last checkpoint, and as the best one too if it is.

    Raises:
        TrainError: the disk refuses, and how much was missing; the earlier checkpoint is still there.
    """
    try:
        files.save({"format": FORMAT, **state}, run.last)
        if best:
            _name_too(run.last, run.best)
    except OSError as error:
        again = f"make room, then ox train --resume {run.folder}; the checkpoint before this one is whole"
        raise disk.refused("the checkpoint could not be written", run.last, error, size(state), again) from error


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        LoadError: it is missing, damaged, of a newer format, or no checkpoint of a run.
    """
    if not path.is_file():
        raise LoadError(f"there is no checkpoint {path}", hint="the run stopped before its first one: start it again")
    state = files.load(path)
    if not isinstance(state, dict) or state.get("format") not in READ or not all(part in state for part in PARTS):
        raise LoadError(
            f"{path} is not a checkpoint of a run",
            expected=f"format {FORMAT} or older with {', '.join(PARTS)}",
            got=f"format {state.get('format')} with {', '.join(map(str, state))}" if isinstance(state, dict) else None,
        )
    return state


def mend(run: Run, best: dict[str, Any] | None, step: int) -> None:
    """Finish what a killed process began: name `last` the best if it is, and remove files that were never whole."""
    remove_abandoned(run.folder)
    remove_abandoned(run.last.parent)
    for leftover in run.last.parent.glob(".tmp??????"):  # of safetensors' own writer, which versions before used
        leftover.unlink(missing_ok=True)
    if best is not None and best["step"] == step:
        _name_too(run.last, run.best)


def _name_too(existing: Path, name: Path) -> None:
    """Give a file a second name, in place of what had it: a hard link where the disk knows them, else a copy."""

    def link(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)

    files.write_whole(name, link)
