"""Runs that wait for memory for their results: only as long as somebody wants them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.contract import TensorInfo
from ox.serve.batching.result_size import ResultSize

MIB = 1 << 20


def of_mib(size: int) -> ResultSize:
    """Results of so many MiB a row."""
    return ResultSize([TensorInfo("y", "FP32", ("batch", size * MIB // 4))])


def test_a_late_request_waits_no_longer_for_memory(workshop: Any) -> None:
    """It was answered; another model's run, for which there is room, goes on."""

    async def body() -> None:
        memory = workshop.memory(10 * MIB)
        kept = memory.track([np.zeros(6 * MIB, np.uint8)])
        large = workshop.batcher(memory=memory, result_size=of_mib(8))
        small = workshop.batcher(memory=memory, result_size=of_mib(2))
        late, quick = workshop.Note(parameters={"timeout": 300_000}), workshop.Note()
        large.submit(late)
        await workshop.until(lambda: memory.waiting_since is not None)
        small.submit(quick)
        await workshop.until(lambda: len(memory._waiters) == 2)
        workshop.clock.advance(0.3)
        await late.settled()
        assert late.error is not None and late.error.status == 504
        await quick.settled()
        assert quick.error is None and memory.waiting_since is None and workshop.batches == [1]
        await workshop.finished(large, small)
        assert memory.used == 6 * MIB
        del kept

    workshop.run(body)


def test_a_request_whose_client_left_waits_no_longer_for_memory(workshop: Any) -> None:
    async def body() -> None:
        memory = workshop.memory(14 * MIB)
        kept = memory.track([np.zeros(6 * MIB, np.uint8)])
        batcher = workshop.batcher(memory=memory, result_size=of_mib(4))
        gone, other = workshop.Note(rows=2), workshop.Note()
        batcher.submit(gone)
        await workshop.until(lambda: memory.waiting_since is not None)
        batcher.submit(other)
        gone.abandon()
        await other.settled()
        assert other.error is None and workshop.batches == [1]
        assert batcher.stats.gone == 1 and gone.answers == 0 and memory.waiting_since is None
        del kept

    workshop.run(body)


def test_a_run_counts_its_outputs_and_their_copies(workshop: Any) -> None:
    """What a run makes is ONNX Runtime's until it has been copied: both are there at once, and both count."""

    async def body() -> None:
        memory = workshop.memory(24 * MIB)
        while_running: list[int] = []

        def outputs(x: Any, _: Any) -> Any:
            while_running.append(memory.used)
            return np.zeros((len(x), MIB), np.float32)[:]  # a view: copied, as ONNX Runtime's outputs are

        batcher = workshop.batcher(outputs, memory=memory, result_size=of_mib(4))
        notes = [workshop.Note() for _ in range(6)]
        for note in notes:
            batcher.submit(note)
        for note in notes:
            await note.settled()
            assert note.error is None
        assert max(workshop.batches) <= 3 and memory.peak <= 24 * MIB
        # beside later runs lies what earlier ones have not given back yet
        assert while_running[0] == 8 * MIB * workshop.batches[0]

    workshop.run(body)


def test_a_batcher_that_is_aborted_waits_no_longer_for_memory(workshop: Any) -> None:
    async def body() -> None:
        memory = workshop.memory(10 * MIB)
        kept = memory.track([np.zeros(6 * MIB, np.uint8)])
        batchers = [workshop.batcher(memory=memory, result_size=of_mib(8)) for _ in range(2)]
        for batcher in batchers:
            batcher.submit(workshop.Note())
        await workshop.until(lambda: len(memory._waiters) == 2)
        for batcher in batchers:
            batcher.abort()
        await workshop.finished(*batchers)
        assert workshop.batches == [] and memory.waiting_since is None and memory.used == 6 * MIB
        del kept

    workshop.run(body)


def test_small_results_after_a_large_one_wait_no_longer(workshop: Any) -> None:
    """Whoever asks for a large result once does not make all others wait as if theirs were large."""

    async def body() -> None:
        memory = workshop.memory(10 * MIB)
        sizes = ResultSize([TensorInfo("y", "FP32", ("batch", "length"))])
        sizes.learn({"x": np.zeros(1, np.float32)}, 1, [np.zeros(8 * MIB, np.uint8)])
        batcher = workshop.batcher(memory=memory, result_size=sizes)
        for _ in range(40):
            note = workshop.Note()
            batcher.submit(note)
            await note.settled()
        # one of the first may have waited for the memory of the one before, which was answered but not yet over
        waited = memory.wait_count
        kept = memory.track([np.zeros(10 * MIB, np.uint8)])
        note = workshop.Note()
        batcher.submit(note)
        await note.settled()
        assert note.error is None and memory.wait_count == waited
        del kept

    workshop.run(body)


def test_strings_wait_for_memory(workshop: Any) -> None:
    """An array of strings holds more than its pointers."""

    class Unread(workshop.Note):  # type: ignore[misc,name-defined]
        __slots__ = ("kept",)

        def done(self) -> None:
            super().done()
            self.kept = self.outputs

    async def body() -> None:
        memory = workshop.memory(14 * MIB)
        sizes = ResultSize([TensorInfo("y", "BYTES", ("batch", 1))])
        batcher = workshop.batcher(
            lambda x, _: np.array([["a" * 4 * MIB] for _ in x], object), memory=memory, result_size=sizes
        )
        notes = [Unread() for _ in range(3)]
        for note in notes[:2]:
            batcher.submit(note)
            await note.settled()
        batcher.submit(notes[2])
        await workshop.until(lambda: memory.waiting_since is not None)
        assert 8 * MIB < memory.used < 9 * MIB and not notes[2].answers
        notes[0].kept = ()
        await notes[2].settled()
        assert notes[2].error is None and memory.peak < 14 * MIB

    workshop.run(body)


def test_no_memory_for_a_copy_gives_back_what_was_promised(workshop: Any) -> None:
    class Full(np.ndarray[Any, Any]):
        def copy(self, order: Any = "C") -> Any:
            raise MemoryError

    async def body() -> None:
        memory = workshop.memory(10 * MIB)
        made = np.zeros((2, 2 * MIB // 4), np.float32)
        batcher = workshop.batcher(lambda x, _: made[:1].view(Full), memory=memory, result_size=of_mib(2))
        note = workshop.Note()
        batcher.submit(note)
        await note.settled()
        assert note.error is not None
        await workshop.finished(batcher)
        assert memory.used == 0

    workshop.run(body)
