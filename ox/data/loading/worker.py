"""The code of a worker process: it makes the batches that the loader requests, in shared memory."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ox.call_site import is_ox, line_at, users_line
from ox.core.mode import MODE, Mode
from ox.core.random_stream import NEWEST
from ox.data.loading import collate, fetch, serialize, worker_seeds
from ox.data.loading.channel import Channel, ChannelClosed
from ox.data.loading.shared_memory import Arena, Segment
from ox.devices.executors import EXECUTORS
from ox.random import stream_version, torch_compatible

_FOLDER = Path(__file__).parent
# sent to the whole process group: by Ctrl-C, by schedulers, by a terminal that is closed
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)


@dataclass(frozen=True)
class WorkerInfo:
    """A worker: its number, the number of workers, its seed and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; None outside of workers. `torch.utils.data.get_worker_info`."""
    return _info


@dataclass
class Job:
    """The settings of the workers of a loader."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    stream: bool
    batch_size: int | None
    drop_last: bool
    worker_init_fn: Callable[[int], Any] | None
    keep: int  # the most free segments to keep
    torch_compatible: bool = False  # `ox.random.torch_compatible`; a spawned process does not inherit it
    stream_version: int = NEWEST  # `ox.random.stream_version` of its random numbers


def main(line: socket.socket, number: int, count: int, seed: int, job: Job) -> None:
    """Runs a worker until the loader closes its end of the connection. Does not return."""
    try:
        _isolate_from_parent(line)
        torch_compatible(job.torch_compatible)
        stream_version(job.stream_version)
        _Worker(Channel(line), number, count, seed, job).run()
    except ChannelClosed:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        # do not run exit handlers of the parent, such as those of MPI or of a test runner
        with suppress(Exception):
            _flush()
        os._exit(0)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _isolate_from_parent(line: socket.socket) -> None:
    """Removes what a fork inherits from the parent: signal handlers, thread pools, executors."""
    with suppress(ValueError):  # not the main thread
        signal.set_wakeup_fd(-1)
        for each in SIGNALS:  # sent to the whole process group; the parent handles them
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the pool blocked them until this point
    threading.Thread(target=_exit_with_loader, args=(line.dup(),), daemon=True).start()
    gc.freeze()  # the collector would touch, and so copy, all memory pages of the parent
    MODE.set(Mode(executor=EXECUTORS["numpy"]))  # ONNX Runtime would start a thread pool in each worker
    _limit_blas_threads()


def _exit_with_loader(line: socket.socket) -> None:
    poll = select.poll()
    poll.register(line, 0)  # only hanging up, which is always segments
    poll.poll()
    os._exit(0)


def _limit_blas_threads() -> None:
    """One BLAS thread per worker: the workers already use all cores."""
    with suppress(Exception):
        library = ctypes.CDLL(str(import_module("numpy._core._multiarray_umath").__file__))
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(1)
                return


class _Worker:
    def __init__(self, channel: Channel, number: int, count: int, seed: int, job: Job) -> None:
        global _info
        self.channel, self.number, self.job = channel, number, job
        self.arena = Arena(job.keep)
        self.epoch, self.seed = 0, seed
        self.reseed: list[Callable[[int], Any]] = []
        page = Segment(0, 64)
        self.status: Any = page.array.view(np.int64).data  # access to a memoryview takes half the time
        self.status[fetch.SAMPLE] = fetch.IDLE
        channel.send({"fds": 1}, fds=[page.fd])
        os.close(page.fd)
        # the error of worker_init_fn, with which every request is answered
        self.init_error: BaseException | None = None
        self.stream_error: BaseException | None = None  # the error of starting the stream
        _info = WorkerInfo(number, count, seed + number, job.dataset)
        collate.allocator.empty = self.arena.empty
        self.fetcher = fetch.Fetcher(job.dataset, job.collate, job.batched, self.status)
        self.streamer = fetch.StreamFetcher(
            job.dataset, job.collate, job.batch_size, job.drop_last, self.status, self._seed_batch
        )

    def run(self) -> None:
        self._run_init_fn()
        while True:
            received = self.channel.receive()
            assert received is not None
            message, blob, _ = received
            self.arena.release(message["free"])
            if "epoch" in message:
                self._start_epoch(message, blob)
            else:
                self._make_batch(message["batch"], serialize.unpack(message["indices"], serialize.reader(blob)))

    def _run_init_fn(self) -> None:
        number = self.seed + self.number
        worker_seeds.seed_all(worker_seeds.mix(number) if self.job.stream_version == 1 else number)
        before = worker_seeds.states()
        try:
            if self.job.worker_init_fn is not None:
                self.job.worker_init_fn(self.number)
        except BaseException as error:
            error.add_note("in worker_init_fn")
            self.init_error = error
        self.reseed = worker_seeds.unchanged_generators(before)

    def _start_epoch(self, message: dict[str, Any], blob: bytearray) -> None:
        global _info
        self.epoch, self.seed = message["epoch"], message["seed"]
        stream_version(message["version"])
        assert _info is not None
        _info = WorkerInfo(self.number, _info.num_workers, self.seed + self.number, self.job.dataset)
        if self.job.stream and self.init_error is None:
            try:
                self._seed_batch(-1)
                self.streamer.start(message["given"], serialize.unpack(message["state"], serialize.reader(blob)))
            except BaseException as error:
                self.stream_error = error
        _flush()

    def _seed_batch(self, batch: int) -> None:
        """Seeds the generators by the number of the batch, so that it does not depend on the batches made before."""
        seed = (
            worker_seeds.mix(self.seed, self.number, batch) if self.job.stream else worker_seeds.mix(self.seed, batch)
        )
        for reseed in self.reseed:
            reseed(seed)

    def _make_batch(self, batch: int, indices: Any) -> None:
        answer: dict[str, Any] = {"epoch": self.epoch, "batch": batch}
        try:
            failed, self.stream_error = self.init_error or self.stream_error, None
            if failed is not None:
                raise failed
            if self.job.stream:
                try:
                    made = self.streamer(batch)
                    state = self.streamer.state()
                except StopIteration:
                    self.status[fetch.SAMPLE] = fetch.IDLE
                    self._send({**answer, "ended": True})
                    return
                if self.streamer.ended:
                    answer["last"] = True
                if state is not None:
                    answer["state"] = serialize.pack(state, self.arena.put, "the stream's state")
            else:
                self._seed_batch(batch)
                made = self.fetcher(batch, indices)
            answer["data"] = serialize.pack(made, self.arena.put)
        # also SystemExit and KeyboardInterrupt: the dataset raised them, since signals are ignored
        except BaseException as error:
            self.arena.discard()
            report = self._error_report(error, batch, indices)
            self.status[fetch.SAMPLE] = fetch.IDLE
            self._send({**answer, **report})
        else:
            del made  # before its segments may be reused
            # before the response: after it, the loader considers this worker idle
            self.status[fetch.SAMPLE] = fetch.IDLE
            segments, data, fds = self.arena.hand_over()
            self._send({**answer, **segments}, data, fds)
            for fd in fds:
                os.close(fd)

    def _send(self, message: dict[str, Any], data: serialize.Blob | None = None, fds: list[int] | None = None) -> None:
        _flush()  # flush first: after the response the loader may end this worker
        self.channel.send(message, data, fds)

    def _error_report(self, error: BaseException, batch: int, indices: Any) -> dict[str, Any]:
        kind = type(error)
        started = self.status[fetch.SAMPLE] != fetch.IDLE
        whole = traceback.TracebackException.from_exception(error)
        below = next((i for i, f in enumerate(whole.stack) if Path(f.filename).parent != _FOLDER), 0)
        whole.stack = traceback.StackSummary.from_list(list(whole.stack)[below:])
        # an error in collation has only frames of ox: then it is the line that requested the batches
        last = next((f for f in reversed(whole.stack) if not is_ox(f.filename)), None)
        return {
            "error": {
                "module": kind.__module__,
                "name": kind.__qualname__,
                "text": str(error),
                "sample": fetch.describe(batch, self.status[fetch.SAMPLE], indices) if started else "before any sample",
                "line": line_at((last.filename, last.lineno or 0)) if last else users_line(),
                "traceback": "".join(whole.format()).rstrip(),
            }
        }
