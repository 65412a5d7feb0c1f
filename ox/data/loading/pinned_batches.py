"""Batches in pinned memory, or already on their way to a GPU, made in a thread while the step before computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from ox.core.operator import make_tensor
from ox.data.batch_map import map_tensors
from ox.data.loading.progress import Progress
from ox.devices import cuda
from ox.devices.gpu.pinned_memory import HostCopy, is_pinned


def pin_batch(batch: Any) -> Any:
    """Its tensors of the host in pinned memory, and other objects that can pin themselves."""
    return map_tensors(
        lambda x: x if x.is_cuda else x.pin_memory(),
        batch,
        lambda other: other.pin_memory() if hasattr(other, "pin_memory") else other,
    )


class PinnedIterator:
    """The batches of another iterator. A thread asks for them one ahead, and pins them.

    Args:
        batches: what makes the batches, with a progress that counts those that the thread has asked for.
        ahead: that progress.
        given: the loader's, which counts those that were returned here.
        device: a GPU on which the batches shall lie; None: they stay on the host.
    """

    def __init__(self, batches: Any, ahead: Progress, given: Progress, device: str | None) -> None:
        self._batches, self._ahead, self._given = batches, ahead, given
        # In the thread, "cuda" would be the first one, which would get memory for the program's state.
        current = f"cuda:{cuda.ordinal(device or 'cuda')}"
        self._device = None if device is None else current
        self._stream = cuda.current_stream(current)
        self._thread = ThreadPoolExecutor(1, "ox-pin-memory", cuda.use, (current,))
        self._next = self._thread.submit(self._take)

    def __iter__(self) -> PinnedIterator:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def _take(self) -> tuple[Any, list[HostCopy], Progress]:
        """In the thread: a batch, its copies to the device, and the progress after it."""
        batch, copies, device = pin_batch(next(self._batches)), list[HostCopy](), self._device
        if device is not None:
            with self._stream:
                batch = map_tensors(lambda x: _start_copy(x, device, copies), batch)
        return batch, copies, self._ahead.copy()

    def __next__(self) -> Any:
        if not self._given.running:
            raise StopIteration
        try:
            batch, copies, progress = self._next.result()
        except StopIteration:
            self._given.running = False
            self._thread.shutdown()
            raise
        finally:
            if self._given.running:
                self._next = self._thread.submit(self._take)
        for copy in copies:
            copy.join()
        given = self._given
        given.done, given.done_ahead = progress.done, progress.done_ahead
        given.streams, given.next_worker = progress.streams, progress.next_worker
        return batch

    def wait(self) -> None:
        """Wait until the thread has the batch that it has asked for: then it asks for none before `next`."""
        wait([self._next])

    def streams(self) -> list[dict[str, Any]] | None:
        return self._given.streams


def _start_copy(x: Any, device: str, copies: list[HostCopy]) -> Any:
    """`x` on the device, whose values are there after `join` of the copy that is added to `copies`."""
    if not is_pinned(x.array) or not x.array.flags.c_contiguous:
        return x.to(device)
    copies.append(HostCopy(x.array, device))
    return make_tensor(copies[-1].array)
