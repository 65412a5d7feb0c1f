"""One thread's way into a session: puts the rows of several requests together and runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.graph.contract import Array

Feed = dict[str, Array]
ControlledRun = Callable[[Feed, Any], list[Array]]


class Instance:
    """Runs batches, one at a time.

    Args:
        run: the session's; its second argument is a control or None.
        control: makes what can end a run from another thread: ONNX Runtime's RunOptions.
        now: the time.

    `usual` is the control of runs that have none of their own: it stops runs during the load.
    """

    usual: Any = None
    graph_bytes = 0  # of a GPU, that captured runs have taken

    def __init__(self, run: ControlledRun, control: Callable[[], Any], now: Callable[[], float]) -> None:
        self._run, self.control, self.now = run, control, now
        self.gathered_at = 0.0

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        first = feeds[0]
        if len(feeds) > 1:
            first = {name: np.concatenate([feed[name] for feed in feeds]) for name in first}
        self.gathered_at = self.now()
        return self._run(first, control or self.usual)

    def prepare(self, row: Feed) -> None:
        """Does ahead of requests what the first batches would have to.

        Args:
            row: a request of one row that the model takes.
        """
        self((row,))
