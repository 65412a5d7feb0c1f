"""Steps of an executable: each reads arrays from slots and puts arrays into slots."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ox.core.mode import Watch
from ox.dtypes import DType
from ox.engines.native.calls import Array, KernelCall, TensorCall
from ox.engines.native.recorder import Recorder
from ox.engines.watched import Origin, common_origin
from ox.errors import OxError
from ox.kernels import address
from ox.kernels.generated import Launch

Slots = list[Array]


class Step(Protocol):
    """One piece of work. `shown` is what a watch sees of it; None where nothing is computed."""

    @property
    def shown(self) -> Shown | None: ...

    def __call__(self, slots: Slots) -> None: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What a watch sees of a step: an operator or a generated kernel, with the slots that it reads and writes."""

    op: Any
    origin: Origin
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def run(self, step: Step, slots: Slots, watch: Watch) -> None:
        """Let the watch run the step."""

        def ran(*_: Any) -> tuple[Array, ...]:
            step(slots)
            return tuple(slots[i] for i in self.writes)

        watch(ran, self.op, [slots[i] for i in self.reads], self.attributes, None, self.origin)


def shown_call(
    call: KernelCall | TensorCall, reads: tuple[int, ...], writes: tuple[int, ...], planned: bool = False
) -> Shown:
    """What is seen of a node's own kernel."""
    return Shown(call.op, common_origin([call.node], planned), reads, writes, dict(call.node.attributes))


class NodeStep:
    """A node through its own kernel."""

    __slots__ = ("call", "over", "reads", "shown", "writes")

    def __init__(
        self, call: KernelCall | TensorCall, reads: tuple[int, ...], writes: tuple[int, ...], over: tuple[int, ...]
    ) -> None:
        """
        Args:
            reads, writes: slots of the inputs and outputs.
            over: slots that nothing reads any more.
        """
        self.call, self.reads, self.writes, self.over = call, reads, writes, over
        self.shown = shown_call(call, reads, writes)

    def __call__(self, slots: Slots) -> None:
        for slot, result in zip(self.writes, self.call.results([slots[i] for i in self.reads]), strict=False):
            slots[slot] = result
        for slot in self.over:
            slots[slot] = None


class CopiedStep:
    """A node through its own kernel, whose results are put into the planned memory."""

    __slots__ = ("call", "reads", "shown", "writes")

    def __init__(self, call: KernelCall, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        self.call, self.reads, self.writes = call, reads, writes
        self.shown = shown_call(call, reads, writes, planned=True)

    def __call__(self, slots: Slots) -> None:
        for slot, result in zip(self.writes, self.call.results([slots[i] for i in self.reads]), strict=False):
            np.copyto(slots[slot], result, casting="no")


class CopyStep:
    """A copy of an array that is about to be overwritten."""

    __slots__ = ("source", "target")
    shown = None

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target

    def __call__(self, slots: Slots) -> None:
        slots[self.target] = slots[self.source].copy()


class WriteStep:
    """The next value of a state, over the old one."""

    __slots__ = ("source", "state")
    shown = None

    def __init__(self, source: int, state: int) -> None:
        self.source, self.state = source, state

    def __call__(self, slots: Slots) -> None:
        if slots[self.source] is not slots[self.state]:
            np.copyto(slots[self.state], slots[self.source], casting="no")


class LaunchStep:
    """A generated kernel over the tensors of its table."""

    __slots__ = (
        "blocks", "checked", "copies", "finish", "fresh", "kernel", "lines", "over", "partials", "plan", "plan_address",
        "shown", "table", "table_address",
    )  # fmt: skip

    def __init__(
        self,
        kernel: Launch,
        finish: Launch | None,
        table: list[int],
        plan: list[tuple[int, int]],
        lines: int,
        checked: list[tuple[int, int, int]],
        fresh: list[tuple[int, int, tuple[int, ...], DType]],
        partials: Array,
        over: tuple[int, ...],
        shown: Shown,
    ) -> None:
        """
        Args:
            finish: a second kernel, for each line of the table.
            table: addresses and sizes, of which some are put in at each call.
            plan: for each block the number of its line, and its first element.
            lines: how many the table has.
            checked: what is read: place in the table, slot, and the bytes that it must have.
            fresh: what is made for the caller: place in the table, slot, shape and type.
            partials: memory that the kernel uses; the table has its address.
            over: slots that nothing reads any more.
        """
        self.partials, self.shown = partials, shown
        self.copies: list[Array] = []  # of inputs, alive until the next ones
        self.finish, self.lines = finish, lines
        self.kernel, self.checked, self.fresh, self.over = kernel, checked, fresh, over
        self.table = (ctypes.c_int64 * len(table))(*table)
        self.plan = np.array(plan, np.int64)
        self.blocks = len(plan)
        self.table_address, self.plan_address = ctypes.addressof(self.table), address(self.plan)

    def __call__(self, slots: Slots) -> None:
        table, copies = self.table, None
        for place, slot, size in self.checked:
            array = slots[slot]
            if not _is_dense(array, size):
                array = _dense(array, size)
                copies = [copies, array]  # alive until the kernel has read it
            table[place] = address(array)
        for place, slot, shape, dtype in self.fresh:
            slots[slot] = array = np.empty(shape, dtype)
            table[place] = address(array)
        self.kernel(self.blocks, self.table_address, self.plan_address)
        if self.finish is not None:
            self.finish(self.lines, self.table_address, self.plan_address)
        for slot in self.over:
            slots[slot] = None


def _is_dense(array: Array, size: int) -> bool:
    """Whether a kernel can go over the memory of an array in order."""
    flags = array.flags
    return bool(array.nbytes == size and flags.c_contiguous and flags.aligned)


def _dense(array: Array, size: int) -> Array:
    """A copy in the order of the axes."""
    if array.nbytes != size:
        raise OxError(
            "a kernel gave another size than in the recorded call", expected=f"{size} bytes", got=str(array.nbytes)
        )
    return np.array(array, order="C")


class RecordedStep:
    """A compiled kernel on arrays that stay the same, as the calls that it makes."""

    __slots__ = ("arrays", "call", "calls", "kept", "shown")

    def __init__(self, call: KernelCall, recorder: Recorder, arrays: list[Array | None], shown: Shown) -> None:
        self.call, self.shown = call, shown
        self.set(recorder, arrays)

    def set(self, recorder: Recorder, arrays: list[Array | None]) -> None:
        """Other calls, on other arrays."""
        self.calls, self.kept, self.arrays = recorder.calls, recorder, arrays

    def __call__(self, slots: Slots) -> None:
        try:
            for function, arguments in self.calls:
                function(*arguments)
        except Exception as error:
            raise self.call.explained(self.arrays, error) from (None if isinstance(error, OxError) else error)


class Binding(Protocol):
    """What is done when a call brings other arrays than the one before it."""

    def bind(self, slots: Slots) -> None: ...


class ViewBinding:
    """A view of an input."""

    def __init__(self, call: KernelCall, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        self.call, self.reads, self.writes = call, reads, writes
        self.shown = shown_call(call, reads, writes, planned=True)

    def bind(self, slots: Slots) -> None:
        for slot, result in zip(self.writes, self.call.results([slots[i] for i in self.reads]), strict=False):
            slots[slot] = result


class RecordedBinding:
    """The calls of a recorded kernel that reads an input."""

    def __init__(
        self, step: RecordedStep, record: Callable[[list[Array | None]], Recorder], reads: tuple[int, ...]
    ) -> None:
        self.step, self.record, self.reads = step, record, reads

    def bind(self, slots: Slots) -> None:
        arrays = [slots[i] for i in self.reads]
        self.step.set(self.record(arrays), arrays)


class LaunchBinding:
    """The addresses of inputs in the table of a launch."""

    def __init__(self, step: LaunchStep, places: list[tuple[int, int, int]]) -> None:
        """
        Args:
            places: place in the table, slot, and the bytes that it must have.
        """
        self.step, self.places = step, places

    def bind(self, slots: Slots) -> None:
        copies = []
        for place, slot, size in self.places:
            array = slots[slot]
            if not _is_dense(array, size):
                array = _dense(array, size)
                copies.append(array)
            self.step.table[place] = address(array)
        self.step.copies = copies
