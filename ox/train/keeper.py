"""Who keeps checkpoints while training goes on: a run's folder, in the background, or memory."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ox import files
from ox.errors import ArgumentError, LoadError
from ox.ops.explain import place
from ox.train import checkpoint
from ox.train.run import Run
from ox.train.snapshot import Snapshot


class Keeper:
    """Keeps the best weights in memory: what training without a folder needs. A context manager."""

    run: Run | None = None

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._best: dict[str, Any] | None = None

    def save(self, state: dict[str, Any], *, best: bool = False, wait: bool = True) -> bool:
        """Keep a state; `best` ones under a second name.

        Args:
            state: as `Trainer.state_dict` gives it; it may change as soon as this returns.
            wait: for the one before, if it is still being written; else this one is left out.

        Returns:
            whether it is kept.

        Raises:
            TrainError: the one before could not be written.
        """
        if best:
            self._best = self._snapshot.take({"model": state["model"], "ema": state["ema"]})
        return True

    def best(self) -> dict[str, Any]:
        """The best state; waits for what is being written."""
        assert self._best is not None, "no epoch is over"
        return self._best

    def wait(self) -> None:
        """Until everything is kept.

        Raises:
            TrainError: it could not be written.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Bystander(Keeper):
    """Keeps nothing: another rank does."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def save(self, state: dict[str, Any], *, best: bool = False, wait: bool = True) -> bool:
        return True


class Checkpoints(Keeper):
    """Writes checkpoints in a thread: a step waits only until its state is copied. One is written at a time, and each
    as `checkpoint.save` does it: whole or not at all, ``last`` before ``best``.

        with train.Checkpoints("mine") as checkpoints:
            ...
            checkpoints.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    Args:
        run: whose; or a folder for a loop of your own: ``checkpoints/last.safetensors`` and ``best.safetensors`` in it.
        keep: how many of the newest are kept besides the best: ``last-1.safetensors`` is the one before ``last``.
    """

    run: Run

    def __init__(self, run: Run | str | os.PathLike[str], keep: int = checkpoint.KEEP) -> None:
        super().__init__()
        if type(keep) is not int or keep < 1:
            raise ArgumentError("keep must be a whole number of at least 1", where=place(), got=repr(keep))
        self.keep = keep
        self.run = run if isinstance(run, Run) else Run(Path(run), {})
        self.run.last.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(run, Run):
            checkpoint.tidy(self.run)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def last(self) -> dict[str, Any] | None:
        """The state that was saved last, here or by a process before; None if there is none. Where a disk has damaged
        it, that of the newest before it, with a warning.

        Raises:
            LoadError: none is whole.
        """
        self.wait()
        first: LoadError | None = None
        for path in (self.run.last, *checkpoint.earlier(self.run.last)):
            try:
                state: dict[str, Any] | None = files.load(path) if path.is_file() else None
            except LoadError as error:
                first = first or error
                continue
            if first is not None:
                warnings.warn(f"{first.what}: on from {path.name}", stacklevel=2)
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
            self._error = error  # told by `wait`, where somebody listens

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
            self._join()  # what went wrong first is what is told
