"""What runs in a worker: batches are made of what the loader asks for, and laid into shared memory."""

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

from ox.data import collate, fetch, seeds, wire
from ox.data.channel import Channel, ChannelClosed
from ox.data.segments import Arena, Segment
from ox.devices.executors import EXECUTORS
from ox.ops.mode import MODE, Mode
from ox.random import torch_compatible
from ox.where import line_at, users_line

_HERE = Path(__file__).parent
_OX = f"{_HERE.parent}{os.sep}"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker is: its number, how many there are, its seed and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which worker this process is; None outside of workers. `torch.utils.data.get_worker_info`."""
    return _info


@dataclass
class Job:
    """What a worker works with."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    stream: bool
    batch_size: int | None
    drop_last: bool
    worker_init_fn: Callable[[int], Any] | None
    keep: int  # free segments worth keeping
    torch_compatible: bool = False  # `ox.random.torch_compatible`, which a process that is not forked does not inherit


def main(line: socket.socket, number: int, count: int, seed: int, job: Job) -> None:
    """The life of a worker. It ends when the loader's end of the line is closed, and never returns."""
    try:
        _settle_in(line)
        torch_compatible(job.torch_compatible)
        _Worker(Channel(line), number, count, seed, job).run()
    except ChannelClosed:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        # nothing of the parent's: no exit handlers, no finalizers of MPI or of a test runner
        with suppress(Exception):
            _flush()
        os._exit(0)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _settle_in(line: socket.socket) -> None:
    """Make a copy of the parent a worker: its signals, its threads and its pools are not ours."""
    with suppress(ValueError):  # not the main thread
        signal.set_wakeup_fd(-1)
        for each in SIGNALS:  # these reach the whole group: the parent decides
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked by the pool for as long as it took to get here
    threading.Thread(target=_leave_with_the_loader, args=(line.dup(),), daemon=True).start()
    gc.freeze()  # what the parent made is not looked through again, which would copy its pages
    MODE.set(Mode(executor=EXECUTORS["numpy"]))  # a pool of ONNX Runtime would be one more a worker
    _one_blas_thread()


def _leave_with_the_loader(line: socket.socket) -> None:
    poll = select.poll()
    poll.register(line, 0)  # only hanging up, which is always told
    poll.poll()
    os._exit(0)


def _one_blas_thread() -> None:
    """The workers share the cores; threads in each would only be in each other's way."""
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
        self.status: Any = page.array.view(np.int64).data  # a memoryview's entries cost half of an array's
        self.status[fetch.SAMPLE] = fetch.IDLE
        channel.send({"fds": 1}, fds=[page.fd])
        os.close(page.fd)
        self.failed: BaseException | None = None  # worker_init_fn, whose error is the answer to everything
        self.no_stream: BaseException | None = None  # the stream that did not begin
        _info = WorkerInfo(number, count, seed + number, job.dataset)
        collate.memory.empty = self.arena.empty
        self.fetcher = fetch.Fetcher(job.dataset, job.collate, job.batched, self.status)
        self.streamer = fetch.StreamFetcher(
            job.dataset, job.collate, job.batch_size, job.drop_last, self.status, self._before
        )

    def run(self) -> None:
        self._begin()
        while True:
            received = self.channel.receive()
            assert received is not None
            message, blob, _ = received
            self.arena.release(message["free"])
            if "epoch" in message:
                self._start(message, blob)
            else:
                self._make(message["batch"], wire.unpack(message["indices"], wire.reader(blob)))

    def _begin(self) -> None:
        seeds.seed_all(seeds.mix(self.seed + self.number))
        before = seeds.states()
        try:
            if self.job.worker_init_fn is not None:
                self.job.worker_init_fn(self.number)
        except BaseException as error:
            error.add_note("in worker_init_fn")
            self.failed = error
        self.reseed = seeds.untouched_since(before)

    def _start(self, message: dict[str, Any], blob: bytearray) -> None:
        global _info
        self.epoch, self.seed = message["epoch"], message["seed"]
        assert _info is not None
        _info = WorkerInfo(self.number, _info.num_workers, self.seed + self.number, self.job.dataset)
        if self.job.stream and self.failed is None:
            try:
                self._before(-1)
                self.streamer.start(message["given"], wire.unpack(message["state"], wire.reader(blob)))
            except BaseException as error:
                self.no_stream = error
        _flush()

    def _before(self, batch: int) -> None:
        """Seed what the batch draws by its number: it comes out the same whichever batches were made before."""
        seed = seeds.mix(self.seed, self.number, batch) if self.job.stream else seeds.mix(self.seed, batch)
        for reseed in self.reseed:
            reseed(seed)

    def _make(self, batch: int, indices: Any) -> None:
        answer: dict[str, Any] = {"epoch": self.epoch, "batch": batch}
        try:
            failed, self.no_stream = self.failed or self.no_stream, None
            if failed is not None:
                raise failed
            if self.job.stream:
                try:
                    made = self.streamer(batch)
                    state = self.streamer.state()
                except StopIteration:
                    self.status[fetch.SAMPLE] = fetch.IDLE
                    self._answer({**answer, "ended": True})
                    return
                if self.streamer.ended:
                    answer["last"] = True
                if state is not None:
                    answer["state"] = wire.pack(state, self.arena.put, "the stream's state")
            else:
                self._before(batch)
                made = self.fetcher(batch, indices)
            answer["data"] = wire.pack(made, self.arena.put)
        except BaseException as error:  # signals do not come here: an exit, or an interrupt, is the dataset's too
            self.arena.discard()
            report = self._report(error, batch, indices)
            self.status[fetch.SAMPLE] = fetch.IDLE
            self._answer({**answer, **report})
        else:
            del made  # before the segments may come back
            self.status[fetch.SAMPLE] = fetch.IDLE  # before the answer: whoever has it may take this worker for idle
            told, data, fds = self.arena.hand_over()
            self._answer({**answer, **told}, data, fds)
            for fd in fds:
                os.close(fd)

    def _answer(self, message: dict[str, Any], data: wire.Blob | None = None, fds: list[int] | None = None) -> None:
        _flush()  # before it: whoever has the answer may end this worker, and what it printed should be there
        self.channel.send(message, data, fds)

    def _report(self, error: BaseException, batch: int, indices: Any) -> dict[str, Any]:
        kind = type(error)
        started = self.status[fetch.SAMPLE] != fetch.IDLE
        whole = traceback.TracebackException.from_exception(error)
        below = next((i for i, f in enumerate(whole.stack) if Path(f.filename).parent != _HERE), 0)
        whole.stack = traceback.StackSummary.from_list(list(whole.stack)[below:])
        # of collation, whose frames are all ox's, it is the line that asked for the batches
        last = next((f for f in reversed(whole.stack) if not f.filename.startswith(_OX)), None)
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
