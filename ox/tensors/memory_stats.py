"""How much memory tensors hold, now and at most."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextvars import Token
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ox.core.constant_sizes import FIXED
from ox.core.device import device as Device
from ox.core.mode import MODE, Mode
from ox.devices import cuda
from ox.tensors.tensor import Tensor


def owner(array: Any) -> Any:
    """The array whose memory this one shows."""
    while isinstance(getattr(array, "base", None), type(array)):
        array = array.base
    return array


def live() -> dict[int, int]:
    """Bytes by memory (each counted once, however many tensors show it) of every tensor on the CPU."""
    found: dict[int, int] = {}
    for x in tensors():
        held = owner(x.array)
        found[id(held)] = int(held.nbytes)
    return found


def tensors() -> list[Tensor]:
    """Every tensor on the CPU that is alive, but for the axes and shapes that operators share."""
    shared = {id(x) for x in FIXED.values()}
    # (type(x) and not isinstance, which would wake proxies of other libraries up)
    every = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    return [x for x in every if id(x) not in shared and isinstance(vars(x).get("array"), np.ndarray)]


def memory_stats(device: Any = "cpu") -> dict[str, int]:
    """Bytes under PyTorch's keys (``allocated_bytes.all.current``, ``.peak``, ...). `torch.cuda.memory_stats`.

    On the CPU: the memory of all tensors that are alive, each memory once, found by a walk over Python's objects. What
    operators need while they run, what ONNX Runtime keeps for later and what a graph saves beside tensors is not in it.
    The peak is that of the `track_memory` that runs, or ran last; without one it is the present number.
    On CUDA: the figures of CuPy's pool.
    """
    place = Device(str(device))
    if place.type == "cuda":
        used = cuda.memory(str(place)) if cuda.available() else None
        now, held = (used.used, used.held) if used else (0, 0)
        return {"allocated_bytes.all.current": now, "reserved_bytes.all.current": held}
    found = live()
    now = sum(found.values())
    track = track_memory.last
    peak = max(now, track.peak) if track is not None else now
    return {
        "allocated_bytes.all.current": now,
        "allocated_bytes.all.peak": peak,
        "allocation.all.current": len(found),
    }


@dataclass
class track_memory:
    """``with ox.track_memory() as memory: ...`` counts the memory of tensors as operators make them and as it is freed:
    `memory.current` and `memory.peak` in bytes, with what was alive at the beginning (`memory.before`).

    It holds for the thread (context) that opened it, and costs some microseconds a call meanwhile.
    """

    before: int = 0
    current: int = 0
    peak: int = 0
    made: int = 0  # bytes made since the beginning
    _token: Token[Mode] | None = field(default=None, repr=False)
    _tracked: dict[int, Any] = field(default_factory=dict, repr=False)

    last = None  # the one that runs, or ran last

    def __enter__(self) -> track_memory:
        self._tracked = {}
        for x in tensors():
            self._track(owner(x.array))
        self.before, self.peak, self.made = self.current, self.current, 0
        mode = MODE.get()
        before = mode.watch

        def watched(
            run: Callable[..., Any],
            op: Any,
            arrays: list[Any],
            attributes: dict[str, Any],
            accelerated: Any,
            origin: Any = None,
        ) -> Any:
            if before is None:
                result = run(op, arrays, attributes, accelerated)
            else:
                result = before(run, op, arrays, attributes, accelerated, origin)
            for array in result if isinstance(result, tuple) else (result,):
                if isinstance(array, np.ndarray):
                    self._track(owner(array))
            self.peak = max(self.peak, self.current)
            return result

        self._token = MODE.set(replace(mode, watch=watched))
        track_memory.last = self  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            MODE.reset(self._token)
            self._token = None

    def _track(self, held: Any) -> None:
        key = id(held)
        if key in self._tracked:
            return
        size = int(held.nbytes)
        self.current += size
        self.made += size
        seen, count = self._tracked, weakref.ref(self)

        def gone(_: Any) -> None:
            seen.pop(key, None)
            tracker = count()
            if tracker is not None:
                tracker.current -= size

        seen[key] = weakref.ref(held, gone)

    def reset_peak(self) -> None:
        """Let the peak begin anew from what is alive now."""
        self.peak = self.current


__all__ = ["memory_stats", "track_memory"]
