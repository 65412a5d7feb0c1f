"""The iterators of a loader: `InProcessIterator` makes batches itself, `WorkerIterator` gets them from workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ox.data.loading import fetch, serialize
from ox.data.loading.pinned_batches import pin_batch
from ox.data.loading.progress import Progress
from ox.data.loading.worker_pool import Pool, Worker, worker_error
from ox.errors import ArgumentError, WorkerError

if TYPE_CHECKING:
    from ox.data.loading.loader import DataLoader


def tasks(loader: DataLoader, progress: Progress) -> Iterator[tuple[int, Any]]:
    """The remaining batches of the epoch: number and indices. Their order is drawn now."""
    given, beyond = progress.done, set(progress.done_ahead)
    numbered = enumerate(iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler))
    return ((number, indices) for number, indices in numbered if number >= given and number not in beyond)


class _EpochIterator:
    """The base of both iterators."""

    def __init__(self, loader: DataLoader, progress: Progress) -> None:
        self._loader, self._progress = loader, progress

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def _finish_epoch(self) -> StopIteration:
        self._progress.running = False
        return StopIteration()


class InProcessIterator(_EpochIterator):
    """Makes batches in this process, each on request."""

    def __init__(self, loader: DataLoader, progress: Progress) -> None:
        super().__init__(loader, progress)
        self._status = [0, fetch.IDLE]
        self._stream = None
        if loader.streams:
            size, drop = loader.batch_size, loader.drop_last
            self._stream = fetch.StreamFetcher(loader.dataset, loader.collate_fn, size, drop, self._status)
            at: dict[str, Any] = progress.streams[0] if progress.streams else {"state": None, "ended": False}
            self._stream.start(progress.done, at["state"], at["ended"])
        else:
            self._tasks = tasks(loader, progress)
            self._fetch = fetch.Fetcher(
                loader.dataset, loader.collate_fn, loader.batch_sampler is not None, self._status
            )

    def __next__(self) -> Any:
        progress, indices = self._progress, None
        try:
            if self._stream is not None:
                number = progress.done
                made = self._stream(number)
            else:
                number, indices = next(self._tasks)
                made = self._fetch(number, indices)
        except StopIteration:
            raise self._finish_epoch() from None
        except Exception as error:
            if self._status[fetch.SAMPLE] != fetch.IDLE:
                where = fetch.describe(self._status[fetch.BATCH], self._status[fetch.SAMPLE], indices)
                error.add_note(f"in {where}")
            raise
        finally:
            self._status[fetch.SAMPLE] = fetch.IDLE
        progress.add(number)
        return pin_batch(made) if self._loader.pins else made

    def streams(self) -> list[dict[str, Any]] | None:
        """The position of the stream; None for a dataset with indices. No batches are made ahead."""
        if self._stream is None:
            return None
        return [{"given": self._progress.done, "ended": self._stream.ended, "state": self._stream.state()}]


class WorkerIterator(_EpochIterator):
    """Gets batches from workers; each worker makes `prefetch_factor` batches ahead."""

    def __init__(self, loader: DataLoader, progress: Progress, pool: Pool) -> None:
        super().__init__(loader, progress)
        self._pool, self._prefetch = pool, loader.prefetch_factor or 2
        self._persistent = loader.persistent_workers
        self._in_order, self._count = loader.in_order, pool.count
        if loader.streams:
            if progress.streams is None:
                progress.streams = [{"given": 0, "ended": False, "state": None} for _ in pool.workers]
            self._active = deque(w for w in pool.workers if not progress.streams[w.number]["ended"])
            numbers = [worker.number for worker in self._active]
            if progress.next_worker in numbers:
                self._active.rotate(-numbers.index(progress.next_worker))
        pool.begin(progress.seed, progress.version, progress.streams)
        self._epoch = pool.epoch
        self._outstanding = {worker.number: 0 for worker in pool.workers}  # requests of this epoch without a response
        self._tasks: Iterator[tuple[int, Any]] | None = None
        if loader.streams:
            assert progress.streams is not None
            self._next = [stream["given"] for stream in progress.streams]
            for _ in range(self._prefetch):
                for worker in self._active:
                    self._request_from_stream(worker)
        else:
            self._tasks = tasks(loader, progress)
            self._expected: deque[int] = deque()  # the numbers of the requested batches, in order
            for _ in range(self._prefetch * self._count):
                self._request_batch()

    def __next__(self) -> Any:
        if self._epoch != self._pool.epoch:
            raise ArgumentError(
                "this epoch has ended: its workers work on a later one",
                hint="one iter(loader) at a time, or persistent_workers=False",
            )
        if not self._progress.running:
            raise StopIteration
        if not self._pool.open:
            raise WorkerError("the workers of this epoch are gone", hint="iter(loader) starts new ones")
        return self._next_sampled() if self._tasks is not None else self._next_streamed()

    def _request_batch(self) -> None:
        assert self._tasks is not None
        task = next(self._tasks, None)
        if task is None:
            return
        number, indices = task
        workers = self._pool.workers
        if self._in_order:
            worker = workers[number % self._count]
        else:
            worker = min(workers, key=lambda w: self._outstanding[w.number])
        self._outstanding[worker.number] += 1
        self._expected.append(number)
        self._pool.request(worker, number, indices)

    def _next_sampled(self) -> Any:
        if not self._expected:
            self._end()
        workers = self._pool.workers
        if self._in_order:
            busy = [workers[self._expected[0] % self._count]]
        else:
            busy = [w for w in workers if self._outstanding[w.number]]
        worker, message, blob, bases = self._pool.receive(busy)
        self._outstanding[worker.number] -= 1
        self._expected.remove(message["batch"])
        if "error" not in message:  # a failed batch is made again when the epoch is resumed
            self._progress.add(message["batch"])
        self._request_batch()
        return self._unpack(worker, message, blob, bases)

    def _request_from_stream(self, worker: Worker) -> None:
        self._pool.request(worker, self._next[worker.number], None)
        self._next[worker.number] += 1
        self._outstanding[worker.number] += 1

    def _next_streamed(self) -> Any:
        progress = self._progress
        assert progress.streams is not None
        while self._active:
            waited = [self._active[0]] if self._in_order else list(self._active)
            worker, message, blob, bases = self._pool.receive(waited)
            self._outstanding[worker.number] -= 1
            stream = progress.streams[worker.number]
            if message.get("ended"):
                stream["ended"] = True
                self._active.remove(worker)
                self._set_next_worker()
                continue
            get = serialize.reader(blob, bases)
            if "error" not in message:
                stream["given"] = message["batch"] + 1
                stream["state"] = serialize.unpack(message["state"], get) if "state" in message else None
                progress.done += 1
            self._active.remove(worker)
            if message.get("last"):
                stream["ended"] = True
            else:
                self._active.append(worker)
                self._request_from_stream(worker)
            self._set_next_worker()
            return self._unpack(worker, message, blob, bases)
        self._end()
        return None

    def _set_next_worker(self) -> None:
        self._progress.next_worker = self._active[0].number if self._active else 0

    def _unpack(self, worker: Worker, message: dict[str, Any], blob: bytearray, bases: dict[int, Any]) -> Any:
        if "error" in message:
            raise worker_error(message["error"], worker, self._count)
        return serialize.unpack(message["data"], serialize.reader(blob, bases))

    def _end(self) -> None:
        if not self._persistent:
            self._pool.close()
        raise self._finish_epoch()

    def streams(self) -> list[dict[str, Any]] | None:
        return self._progress.streams
