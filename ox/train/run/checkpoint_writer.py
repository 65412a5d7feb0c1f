"""Saving checkpoints during training: to the run folder in a background thread, or only in memory."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ox.errors import ArgumentError, LoadError
from ox.serialization import files
from ox.train.run import checkpoint
from ox.train.run.run import Run
from ox.train.run.snapshot import Snapshot


class CheckpointWriter:
    """The base class. It keeps the best weights in memory, for training without a run folder. A context manager."""

    run: Run | None = None

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._best: dict[str, Any] | None = None

    def save(self, state: dict[str, Any], *, best: bool = False, wait: bool = True) -> bool:
        """Saves a state.

        Args:
            state: as `Trainer.state_dict` returns it; it may change after this call.
            best: also save it as the best.
            wait: wait if the previous checkpoint is still being written; False: skip this one then.

        Returns:
            whether it was saved.

        Raises:
            TrainError: the previous checkpoint could not be written.
        """
        if best:
            self._best = self._snapshot.take({"model": state["model"], "ema": state["ema"]})
        return True

    def best(self) -> dict[str, Any]:
        """The best state; waits until it is written."""
        assert self._best is not None, "no epoch is over"
        return self._best

    def wait(self) -> None:
        """Waits until all checkpoints are written.

        Raises:
            TrainError: one could not be written.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class NoCheckpoints(CheckpointWriter):
    """Saves nothing: used on all ranks but rank 0."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def save(self, state: dict[str, Any], *, best: bool = False, wait: bool = True) -> bool:
        return True


class Checkpoints(CheckpointWriter):
    """Writes checkpoints in a thread: training waits only until the state is copied. They are written one at a time and
    atomically, ``last`` before ``best`` (`checkpoint.save`).

        with train.Checkpoints("mine") as checkpoints:
            ...
            checkpoints.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    Args:
        run: the run; or, for your own training loop, a folder. The files are ``checkpoints/last.safetensors`` and
            ``best.safetensors`` in it.
        keep: how many of the newest to keep besides the best: ``last-1.safetensors`` is the one before ``last``.
    """

    run: Run

    def __init__(self, run: Run | str | os.PathLike[str], keep: int = checkpoint.KEEP) -> None:
        super().__init__()
        if type(keep) is not int or keep < 1:
            raise ArgumentError("keep must be a whole number of at least 1", got=repr(keep))
        self.keep = keep
        self.run = run if isinstance(run, Run) else Run(Path(run), {})
        self.run.last.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(run, Run):
            checkpoint.remove_temporary_files(self.run)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def last(self) -> dict[str, Any] | None:
        """The last saved state, also of an earlier process; None if there is none. If it is damaged, the newest one
        before it, with a warning.

        Raises:
            LoadError: all are damaged.
        """
        self.wait()
        first: LoadError | None = None
        for path in (self.run.last, *checkpoint.previous(self.run.last)):
            try:
                state: dict[str, Any] | None = files.load(path) if path.is_file() else None
            except LoadError as error:
                first = first or error
                continue
            if first is not None:
                warnings.warn(f"{first.what}: resuming from {path.name}", stacklevel=2)
            if state is not None:
                return state
        if first is not None:
            raise first
        return None

    def save(self, state: dict[str, Any], *, best: bool = False, wait: bool = True) -> bool:
        if not wait and self._thread is not None and self._thread.is_alive():
            return False
        self.wait()
        copy = self._snapshot.take(state)
        self._thread = threading.Thread(target=self._write, args=(copy, best), name="ox checkpoint")
        self._thread.start()
        return True

    def _write(self, state: dict[str, Any], best: bool) -> None:
        try:
            checkpoint.save(self.run, state, best=best, keep=self.keep)
        except BaseException as error:
            self._error = error  # `wait` raises it

    def best(self) -> dict[str, Any]:
        self.wait()
        return files.load(self.run.best)  # type: ignore[no-any-return]

    def wait(self) -> None:
        self._join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
        else:
            self._join()  # the exception in the context is the one to report
