"""Process groups: who belongs to one, its collectives' numbers and checks, and its errors in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.distributed.monitor import Monitor
from ox.distributed.work import HELPER, SLOW, Work
from ox.errors import DistributedError
from ox.where import line_at, users_place

Place = tuple[str, int] | None  # file and line of the user's call, which another thread may have to name
RECORD = 120  # bytes in which a rank says what it does


class ProcessGroup:
    """Ranks that work together. `torch.distributed.ProcessGroup`; made by `init_process_group` and `new_group`.

    Args:
        engine: moves the bytes.
        ranks: the global ranks, in the order of their ranks here.
        timeout: seconds that any wait takes at most.
        name: what errors call it.
    """

    def __init__(self, engine: Any, ranks: Sequence[int], timeout: float, name: str) -> None:
        self.engine, self.ranks, self.timeout, self.name = engine, tuple(ranks), timeout, name
        self._control = engine.control() if hasattr(engine, "control") else None
        self.monitor = Monitor(self._control) if self._control is not None and len(ranks) > 1 else None
        self.threads = bool(getattr(engine, "threads", False))
        self.failure: str | None = None  # what failed first; nothing more can be done in this group then
        self._count = 0

    def rank(self) -> int:
        """This process's rank in the group."""
        return int(self.engine.rank)

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
        self, text: str, begin: Callable[[], Any], finish: Callable[[], None] | None = None, async_op: bool = False
    ) -> Work | None:
        """Begin a collective that all ranks call `text`, and wait for it unless `async_op`."""
        place = users_place(2)
        self.refuse(text, place)
        self._count += 1
        try:
            check = Check(self, text, place) if self.monitor is not None else None
            work = Work(self, text, begin(), place, self._count, check, finish)
        except DistributedError:
            raise
        except Exception as error:
            raise self.broken(text, place, error) from error
        if async_op:
            HELPER.take(work)
            return work
        work.wait()
        return None

    def message(self, text: str, begin: Callable[[], Any], finish: Callable[[], None] | None, peer: int | None) -> Work:
        """A message between two ranks, on its way; `begin` starts it."""
        place = users_place(2)
        self.refuse(text, place)
        try:
            return Work(self, text, begin(), place, 0, None, finish, peer)
        except Exception as error:
            raise self.broken(text, place, error) from error

    def close(self) -> None:
        """Give back what the engine holds. All ranks of the group do so together."""
        for engine in (self._control, self.engine):
            if engine is not None:
                engine.close()

    # -- errors --------------------------------------------------------------------------------------------------

    def names(self, ranks: Sequence[int]) -> str:
        """``rank 1`` or ``ranks 1, 3``, by the numbers that they have in the program."""
        numbers = sorted(self.ranks[rank] for rank in ranks)
        return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"

    def closed(self, text: str, place: Place) -> DistributedError:
        """The error of everything that comes after a failure."""
        return DistributedError(
            f"{text}: {self.name} is closed, for an earlier operation failed",
            where=_at(f"rank {self.ranks[self.engine.rank]} of {self.name}", place), got=self.failure,
            hint="end this rank, or destroy_process_group() on all ranks; ox launch --max-restarts starts them again",
        )  # fmt: skip

    def refuse(self, text: str, place: Place) -> None:
        """Raise the error of a closed group, if this is one."""
        if self.failure is not None:
            raise self.closed(text, place)

    def _fail(self, text: str, place: Place) -> None:
        """Close the group, unless it is; the first failure is what counts."""
        if self.failure is None:
            line = line_at(place)
            self.failure = f"{text}, at {line}" if line else text

    def late(self, text: str, place: Place, number: int, peer: int | None, waited: float) -> DistributedError:
        """The error of a wait that was too long, in a collective or for the message of a peer."""
        if self.failure is not None:
            return self.closed(text, place)
        self._fail(text, place)
        here = _at(f"rank {self.ranks[self.engine.rank]} of {self.name}", place)
        if self.monitor is None:
            return DistributedError(f"{text}: no result after {waited:.1f} s", where=here, hint=SAME_ORDER)
        gone = self.monitor.gone(number, peer)
        said = {f"rank {self.ranks[rank]}": str(note) for rank, note in sorted(self.monitor.heard.items())}
        if gone:
            ended = "has" if len(gone) == 1 else "have"
            return DistributedError(
                f"{text}: {self.names(gone)} {ended} ended and will not come", where=here, extra=said,
                hint="the output of the rank that ended says why; every rank must do the same operations, with as many "
                "batches or with model.join() around the loop",
            )  # fmt: skip
        missing = self.monitor.missing(number) if number else []
        gave_up = [] if missing else self.monitor.failed()
        if gave_up and waited < SLOW:  # this rank came when the others had gone
            what = f"{text}: {self.names(gave_up)} gave up before, in an operation that failed there"
        elif missing:
            what = f"{text}: {self.names(missing)} did not arrive within {waited:.1f} s"
        else:
            what = f"{text}: no result after {waited:.1f} s"
        return DistributedError(
            what, where=here, extra=said, expected=f"all of {self.size()} ranks in operation {number}"
            if number else None, hint=SAME_ORDER + "; init_process_group(timeout=...) for more patience",
        )  # fmt: skip

    def broken(self, text: str, place: Place, error: Exception) -> DistributedError:
        """The error for what the engine itself refused."""
        self._fail(text, place)
        return DistributedError(f"{text} failed: {error}", where=_at(f"rank {self.ranks[self.engine.rank]}", place))


SAME_ORDER = "every rank must do the same operations in the same order"


class Check:
    """Beside a collective: all ranks show each other what they are doing, and an error names who does otherwise."""

    def __init__(self, group: ProcessGroup, text: str, place: Place) -> None:
        self._group, self._text, self._place = group, text, place
        record = text.encode()[:RECORD].ljust(RECORD)
        self._mine = np.frombuffer(record, np.uint8)
        self._all = np.empty((group.size(), RECORD), np.uint8)
        self._request = group._control.all_gather(self._all, self._mine)  # type: ignore[union-attr]

    def test(self) -> bool:
        return bool(self._request.test())

    def compare(self) -> None:
        """Raise a DistributedError if a rank is in another operation, or brings another shape or type."""
        if not (self._all != self._mine).any():
            return
        group = self._group
        group._fail(self._text, self._place)
        texts = [row.tobytes().decode(errors="replace").strip() for row in self._all]
        others = [rank for rank, text in enumerate(texts) if text != texts[group.rank()]]
        raise DistributedError(
            f"{group.names(others)} and rank {group.ranks[group.rank()]} are in different operations",
            where=_at(f"rank {group.ranks[group.rank()]} of {group.name}", self._place),
            extra={f"rank {group.ranks[rank]}": text for rank, text in enumerate(texts)},
            hint=SAME_ORDER + ", with equal shapes and types",
        )


def _at(here: str, place: Place) -> str:
    line = line_at(place)
    return f"{here}, {line}" if line else here
