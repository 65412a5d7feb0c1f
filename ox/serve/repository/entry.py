"""The state of one model: its versions, which of them run, and why the others do not."""

from __future__ import annotations

from copy import copy

from ox.devices.gpu import nvml
from ox.errors import OxError
from ox.serve.repository.layout import ModelFiles, Stamp, Version
from ox.serve.repository.model import Model
from ox.serve.repository.setup import Running, Setup
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.load_control import LoadControl

READY, LOADING, UNLOADING, UNAVAILABLE = "READY", "LOADING", "UNLOADING", "UNAVAILABLE"
LoadKey = tuple[Stamp, Running]  # what a load would load


def without_frames(error: OxError) -> OxError:
    """The error, which does not hold what its load had made: memory, of a GPU too, would stay taken."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()  # a chain may be a circle
    with GATE.using():
        while left:
            each = left.pop()
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                each.__traceback__ = None
                left += each.__cause__, each.__context__
    return error


def for_clients(error: OxError) -> str:
    """The error in a line, without the other processes on a GPU."""
    if nvml.OTHERS in error.extra:
        error = copy(error)
        error.extra = {label: text for label, text in error.extra.items() if label != nvml.OTHERS}
    return error.one_line()


class Slot:
    """One version. `loaded` is what runs, `failed` what could not be loaded: it is not tried again until it changes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.model: Model | None = None
        self.state, self.reason = UNAVAILABLE, ""
        self.loaded: LoadKey | None = None
        self.failed: LoadKey | None = None
        self.error: OxError | None = None
        self.control: LoadControl | None = None  # of the current load

    @property
    def why(self) -> str:
        """Why it is in its state; of a load that has been going on for a second, what it does."""
        if self.state == LOADING and self.control is not None and self.control.seconds >= 1:
            return self.control.progress()
        return self.reason

    @property
    def known(self) -> bool:
        """Whether it is worth reporting: other versions are on disk but not wanted."""
        return self.state != UNAVAILABLE or bool(self.reason)

    def runs(self, model: Model, wanted: LoadKey | None) -> Model | None:
        """From now on `model` answers; gives the one that did."""
        before, self.model = self.model, model
        self.loaded, self.failed, self.error = wanted, None, None
        self.state, self.reason = READY, ""
        return before

    def fails(self, wanted: LoadKey, error: OxError) -> None:
        """A wanted version could not be loaded; running versions keep running."""
        self.failed, self.error = wanted, without_frames(error)
        self.state, self.reason = UNAVAILABLE, for_clients(error)
        if self.model is not None:
            self.state, self.reason = (
                READY,
                f"the previous version keeps serving, because the new one failed: {self.reason}",
            )

    def leaves(self, reason: str) -> Model | None:
        """Removes and returns the model of the slot."""
        before, self.model, self.loaded, self.failed = self.model, None, None, None
        self.state, self.reason = UNAVAILABLE if before is None else UNLOADING, reason
        return before


class Entry:
    """One model. `error` is why its files cannot be used at all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.setup: Setup | None = None
        self.slots: dict[int, Slot] = {}
        self.error: OxError | None = None

    def slot(self, number: int) -> Slot:
        return self.slots.setdefault(number, Slot(number))

    def running(self) -> list[Slot]:
        """Versions that answer, the newest first."""
        return sorted((slot for slot in self.slots.values() if slot.model is not None), key=lambda slot: -slot.number)

    @property
    def problem(self) -> str:
        return "" if self.error is None else self.error.one_line()

    def due(self, found: ModelFiles) -> list[int]:
        """The versions that should be loaded now, the newest first: chosen ones that do not run as they lie on disk.

        A version that failed makes room for an older one until its files change.
        """
        assert self.setup is not None
        possible = {number for number in found.versions if self._possible(number, found)}
        chosen = sorted(self.setup.choose(possible), reverse=True)
        return [
            number
            for number in chosen
            if self.wanted(found.versions[number]) not in (self.slot(number).loaded, self.slot(number).failed)
        ]

    def retry_failed(self) -> None:
        """What failed is due again, though its files are as they were."""
        for slot in self.slots.values():
            slot.failed = None

    def clear_resolved(self, found: ModelFiles) -> None:
        """What failed and is as it was before again has not failed."""
        for number, version in found.versions.items():
            slot = self.slot(number)
            if slot.model is not None and slot.loaded == self.wanted(version):
                slot.failed, slot.error, slot.reason = None, None, ""

    def forget(self, numbers: set[int]) -> None:
        """Drops what is not among the versions on disk, and neither runs nor drains."""
        for number in set(self.slots) - numbers:
            if self.slots[number].model is None and self.slots[number].state != UNLOADING:
                del self.slots[number]

    def unwanted_slots(self, found: ModelFiles) -> list[Slot]:
        """Running versions that are not wanted. A version stays until its replacement runs."""
        assert self.setup is not None
        chosen = self.setup.choose({number for number in found.versions if self._possible(number, found)})
        asked = self.setup.choose(set(found.versions))
        gone = [slot for slot in self.running() if slot.number not in found.versions]
        if asked and not chosen:
            return gone if len(gone) < len(self.running()) else []
        return [slot for slot in self.running() if slot.number not in chosen]

    def _possible(self, number: int, found: ModelFiles) -> bool:
        slot = self.slot(number)
        return slot.model is not None or slot.failed != self.wanted(found.versions[number])

    def wanted(self, version: Version) -> LoadKey:
        assert self.setup is not None
        return version.stamp, self.setup.running
