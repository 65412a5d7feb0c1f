"""Process groups: their ranks, the numbering and checking of their collectives, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.call_site import line_at, users_place
from ox.clock import Clock
from ox.core.mode import MODE, cannot_record
from ox.devices.gpu import device_checks
from ox.distributed.monitor import Monitor
from ox.distributed.rendezvous import place_of
from ox.distributed.stream_work import StreamWork
from ox.distributed.work import PROGRESS_THREAD, SLOW, Work
from ox.errors import DistributedError, RecordError

Place = tuple[str, int] | None  # file and line of the user's call, kept because another thread may raise the error
RECORD = 120  # bytes of the description of an operation, for the comparison between ranks


class ProcessGroup:
    """A group of ranks. `torch.distributed.ProcessGroup`; created by `init_process_group` and `new_group`.

    Args:
        backend: the communication library: `MPIBackend` or `NCCLBackend`.
        ranks: the global ranks, in the order of their ranks here.
        timeout: the longest wait of any operation, in seconds.
        name: for errors.
        clock: by which operations wait.
    """

    started = 0  # collectives of all groups of this process

    def __init__(self, backend: Any, ranks: Sequence[int], timeout: float, name: str, clock: Clock) -> None:
        self.backend, self.ranks, self.timeout, self.name, self.clock = backend, tuple(ranks), timeout, name, clock
        self._control = backend.control() if hasattr(backend, "control") else None
        self.monitor = Monitor(self._control, clock) if self._control is not None and len(ranks) > 1 else None
        self.threads = bool(getattr(backend, "threads", False))
        # without a thread that watches, the host waits itself
        self.on_stream = self.threads and bool(getattr(backend, "on_stream", False))
        self.failure: str | None = None  # the first failed operation; the group is closed after it
        self.told = False  # whether `ox.devices.gpu.device_checks` knows of the failure
        self._count = 0
        self.failed_calls = 0  # collectives that raised before they began

    def rank(self) -> int:
        """This process's rank in the group."""
        return int(self.backend.rank)

    def size(self) -> int:
        return len(self.ranks)

    @property
    def is_broken(self) -> bool:
        """Whether an operation has failed: the ranks no longer agree on what comes next."""
        return self.failure is not None

    @property
    def group_name(self) -> str:
        return self.name

    def start(
        self,
        text: str,
        begin: Callable[[], Any],
        finish: Callable[[], None] | None = None,
        async_op: bool = False,
        on_host: bool = False,
        outputs: Sequence[Any] = (),
    ) -> Work | None:
        """Starts a collective and waits for it, unless `async_op`. `text` describes it and must be equal on all
        ranks. With `on_host`, this process waits, not only the current stream of a GPU. `outputs` are the tensors that
        it writes."""
        place = users_place()
        _refuse_compiled(text)
        self.check_open(text, place)
        self._count += 1
        ProcessGroup.started += 1
        try:
            check = Check(self, text, place) if self.monitor is not None else None
            work = self._begin(text, begin, place, self._count, check, finish, None, outputs)
        except DistributedError:
            raise
        except Exception as error:
            raise self._begin_error(text, place, error) from error
        if async_op:
            if not self.on_stream:
                PROGRESS_THREAD.add(work)
            return work
        work.wait(self.timeout if on_host else None)
        return None

    def _begin(
        self, text: str, begin: Callable[[], Any], place: Place, number: int, check: Check | None,
        finish: Callable[[], None] | None, peer: int | None, outputs: Sequence[Any],
    ) -> Work:  # fmt: skip
        if not self.on_stream:
            return Work(self, text, begin(), place, number, check, finish, peer, outputs)
        work = StreamWork(self, text, None, place, number, check, None, peer, outputs)
        PROGRESS_THREAD.add(work)
        work.begin(begin, finish)
        return work

    def _begin_error(self, text: str, place: Place, error: Exception) -> DistributedError:
        """The error of a call of the backend; that of the thread, which has aborted the call."""
        if self.failure is not None:
            device_checks.raise_told()
        return self.backend_error(text, place, error)

    def message(
        self,
        text: str,
        begin: Callable[[], Any],
        finish: Callable[[], None] | None,
        peer: int | None,
        outputs: Sequence[Any] = (),
    ) -> Work:
        """Starts a message between two ranks; `begin` calls the backend."""
        _refuse_compiled(text)
        place = users_place()
        self.check_open(text, place)
        try:
            return self._begin(text, begin, place, 0, None, finish, peer, outputs)
        except Exception as error:
            raise self._begin_error(text, place, error) from error

    def close(self) -> None:
        """Frees the communicators. All ranks of the group call it together, after their last operation."""
        PROGRESS_THREAD.wait_for(self)
        if self.monitor is not None:
            self.monitor.receive()  # or MPI warns of messages that nobody took
        for backend in (self._control, self.backend):
            if backend is not None:
                backend.close()

    # -- errors --------------------------------------------------------------------------------------------------

    def names(self, ranks: Sequence[int]) -> str:
        """``rank 1`` or ``ranks 1, 3``, as global ranks."""
        numbers = sorted(self.ranks[rank] for rank in ranks)
        return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"

    def closed_error(self, text: str, place: Place) -> DistributedError:
        """The error of every operation after a failure."""
        return DistributedError(
            f"{text}: {self.name} is closed, for an earlier operation failed",
            where=_with_line(f"rank {self.ranks[self.backend.rank]} of {self.name}", place), got=self.failure,
            hint="end this rank, or destroy_process_group() on all ranks; ox launch --max-restarts starts them again",
        )  # fmt: skip

    def check_open(self, text: str, place: Place) -> None:
        """Raises `closed_error` if an operation of the group has failed."""
        if self.failure is not None:
            if self.on_stream:
                device_checks.raise_told()  # what nobody knows of yet
            raise self.closed_error(text, place)

    def _fail(self, text: str, place: Place) -> None:
        """Closes the group. Only the first failure is stored."""
        if self.failure is None:
            line = line_at(place)
            self.failure = f"{text}, at {line}" if line else text
            if hasattr(self.backend, "abort"):
                self.backend.abort()

    def timeout_error(self, text: str, place: Place, number: int, peer: int | None, waited: float) -> DistributedError:
        """The error of a wait that timed out, in a collective or for the message of a peer."""
        if self.failure is not None:
            return self.closed_error(text, place)
        self._fail(text, place)
        here = _with_line(f"rank {self.ranks[self.backend.rank]} of {self.name}", place)
        if self.monitor is None:
            return DistributedError(f"{text}: no result after {waited:.1f} s", where=here, hint=SAME_ORDER)
        gone = self.monitor.ended(number, peer)
        said = {f"rank {self.ranks[rank]}": str(note) for rank, note in sorted(self.monitor.notes.items())}
        if gone:
            ended = "has" if len(gone) == 1 else "have"
            return DistributedError(
                f"{text}: {self.names(gone)} {ended} ended and will not come", where=here, extra=said,
                hint="the output of the rank that ended says why; every rank must do the same operations, with as many "
                "batches or with model.join() around the loop",
            )  # fmt: skip
        missing = self.monitor.missing(number) if number else []
        for name, where in ((f"rank {self.ranks[rank]}", place_of(self.ranks[rank])) for rank in missing):
            if where:
                said[name] = f"{where}; {said[name]}" if name in said else where
        gave_up = [] if missing else self.monitor.failed()
        if gave_up and waited < SLOW:  # this rank arrived after the others had given up
            what = f"{text}: {self.names(gave_up)} gave up before, in an operation that failed there"
        elif missing:
            what = f"{text}: {self.names(missing)} did not arrive within {waited:.1f} s"
        else:
            what = f"{text}: no result after {waited:.1f} s"
        return DistributedError(
            what, where=here, extra=said, expected=f"all of {self.size()} ranks in operation {number}"
            if number else None, hint=SAME_ORDER + "; init_process_group(timeout=...) for more patience",
        )  # fmt: skip

    def backend_error(self, text: str, place: Place, error: Exception) -> DistributedError:
        """The error for an exception of the backend."""
        self._fail(text, place)
        return DistributedError(
            f"{text} failed: {error}", where=_with_line(f"rank {self.ranks[self.backend.rank]}", place)
        )


SAME_ORDER = "every rank must do the same operations in the same order"


class Check:
    """Compares the descriptions of a collective on all ranks, while it runs. An error names ranks that differ."""

    def __init__(self, group: ProcessGroup, text: str, place: Place) -> None:
        self._group, self._text, self._place = group, text, place
        failed = f"[after {group.failed_calls} failed calls] " if group.failed_calls else ""
        record = (failed + text).encode()[:RECORD].ljust(RECORD)
        self._mine = np.frombuffer(record, np.uint8)
        self._all = np.empty((group.size(), RECORD), np.uint8)
        self._request = group._control.all_gather(self._all, self._mine)  # type: ignore[union-attr]

    def test(self) -> bool:
        return bool(self._request.test())

    def compare(self) -> None:
        """Raises a DistributedError if a rank is in another operation, or has another shape or type."""
        if not (self._all != self._mine).any():
            return
        group = self._group
        group._fail(self._text, self._place)
        texts = [row.tobytes().decode(errors="replace").strip() for row in self._all]
        others = [rank for rank, text in enumerate(texts) if text != texts[group.rank()]]
        raise DistributedError(
            f"{group.names(others)} and rank {group.ranks[group.rank()]} are in different operations",
            where=_with_line(f"rank {group.ranks[group.rank()]} of {group.name}", self._place),
            extra={f"rank {group.ranks[rank]}": text for rank, text in enumerate(texts)},
            hint=SAME_ORDER + ", with equal shapes and types, also after an error that one of them caught",
        )


def _with_line(here: str, place: Place) -> str:
    line = line_at(place)
    return f"{here}, {line}" if line else here


def _refuse_compiled(text: str) -> None:
    """A recording of `ox.compile` is over when other processes take part; one for a file has the local values."""
    recording = MODE.get().recording
    if recording is not None and recording.guarded:
        cannot_record(RecordError(f"{text} works with other processes, of which a graph does not know"))
