"""The memory that the models of a server may take on each GPU, of what other processes leave."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from threading import Lock

from ox.devices.gpu import nvml
from ox.errors import LoadError
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.device_memory import free_bytes

MIB = 1 << 20
SESSIONS, FEWER = "gpu_mem_limit of each session, and weights they share", "a lower gpu_mem_limit, fewer instances"


class InsufficientMemoryError(LoadError):
    """A model needs more memory than there is, or than models may take, of the device where it should be."""


class GpuBudget:
    """What models have claimed before they were loaded. The limit of each claim is enforced by ONNX Runtime
    (`gpu_mem_limit`), or by the cache of texts, so that what runs take later is within it.

    Args:
        limit: bytes of all models on one GPU; 0 for no limit.
        free: what is free on a GPU now, by its number; None if nothing tells.

    Where less is free than the limit when the first model of a GPU comes, that is the limit until the last one goes.
    """

    def __init__(self, limit: int = 0, free: Callable[[int], int | None] = free_bytes) -> None:
        self.limit, self._free = limit, free
        self._there: dict[int, int] = {}  # what was free on a GPU before its first model
        self._lock = Lock()
        self._claims: list[tuple[str, Mapping[int, int]]] = []

    def free(self, number: int) -> int:
        """Bytes of a GPU that no model has claimed."""
        with self._lock:
            self._look({number: 0})
            return self._left(number)

    def _left(self, number: int) -> int:
        there = self._there.get(number, self.limit)
        return max(0, min(self.limit, there) - sum(each.get(number, 0) for _, each in list(self._claims)))

    def claim(
        self, model: str, needs: Mapping[int, int], what: str = SESSIONS, hint: str = FEWER
    ) -> Callable[[], None]:
        """Keeps room for a model, and returns what gives it back.

        Args:
            model: its name and version, for errors.
            needs: bytes by the number of the GPU.
            what, hint: what they are for, and how it could need fewer, for errors.

        Raises:
            InsufficientMemoryError: a GPU has no room for it.
        """
        with self._lock:
            self._look(needs)
            if self._refusal(model, needs, what, hint) is not None:
                with GATE.using():  # memory of GPUs is freed
                    gc.collect()  # models that have been unloaded, which give their claims back without the lock
                self._look(needs)
            error = self._refusal(model, needs, what, hint)
            if error is not None:
                raise error
            claim = (model, needs)
            self._claims.append(claim)
        return lambda: self._claims.remove(claim)

    def _look(self, needs: Mapping[int, int]) -> None:
        """Reads what is free on GPUs without models."""
        claimed = {number for _, bytes_ in list(self._claims) for number in bytes_}
        for number in needs:
            free = None if number in claimed else self._free(number)
            if free is not None:
                self._there[number] = free

    def _refusal(self, model: str, needs: Mapping[int, int], what: str, hint: str) -> InsufficientMemoryError | None:
        for number, bytes_ in needs.items():
            loaded = [(name, each[number]) for name, each in list(self._claims) if number in each]
            there = self._there.get(number, self.limit)
            free = self._left(number)
            if bytes_ > free:
                others = ""
                bound = f"of {self.limit // MIB:,} for all models (--limit gpu_memory)"
                if there < self.limit:
                    bound += f", of which {there // MIB:,} were free"
                    others = nvml.others(number)
                    bound += " beside other processes" if others else ""
                listed = ", ".join(f"{name} {claimed // MIB:,} MiB" for name, claimed in loaded) or "no model"
                return InsufficientMemoryError(
                    f"cuda:{number} has no room for {model}",
                    expected=f"at most {free // MIB:,} MiB, {bound}",
                    got=f"{-(-bytes_ // MIB):,} MiB ({what}); loaded: {listed}",
                    hint=f"{hint}, another GPU, or unload a model",
                    extra={nvml.OTHERS: others} if others else None,
                )
        return None
