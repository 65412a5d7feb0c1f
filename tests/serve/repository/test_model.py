"""A model that is closed: what it accepted is answered, what comes later is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import give_way

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request
from ox.serve.repository.model import Model


class Note(Job):
    """Says when it is done."""

    def __init__(self, rows: int) -> None:
        super().__init__(Request(None, {"x": np.zeros((rows, 4), np.float32)}, rows, (), ()), SYSTEM.now())
        self.settled = False

    def done(self) -> None:
        self.settled = True


@pytest.mark.parametrize(
    "options", [ModelConfig("cpu"), ModelConfig("cpu", max_wait_ms=20, instances=2)], ids=["here", "queue"]
)
def test_closing(make: Any, tmp_path: Path, options: ModelConfig) -> None:
    path = make(tmp_path / "m.onnx", 3)

    async def main() -> list[Note]:
        model = Model(path, options, RequestLimits())
        model.batcher.start(asyncio.get_running_loop())
        notes = [Note(rows) for rows in (1, 2, 3, 40)]
        for note in notes:
            model.submit(note)
        closing = asyncio.ensure_future(model.close())
        await give_way()
        late = Note(1)
        with pytest.raises(ServeError, match="just been unloaded") as caught:
            model.submit(late)
        assert caught.value.status == 503
        await closing
        assert not late.settled
        return notes

    for note in asyncio.run(main()):
        assert note.settled and note.error is None and (note.outputs[0] == 3).all()
        assert note.outputs[0].shape == note.request.feed["x"].shape
