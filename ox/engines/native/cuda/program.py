"""A task as work of a GPU: generated kernels, and operators through CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.autograd.accumulate_grad import owner
from ox.core.mode import Watch
from ox.core.operator import OPS
from ox.devices import cuda_state
from ox.devices.gpu import device_checks
from ox.devices.gpu import kernels as cuda_kernels
from ox.devices.gpu.cupy_device import cupy
from ox.engines.engine import Engine, Task
from ox.engines.native.calls import TensorCall, call_of
from ox.engines.native.cuda.fusion import Fused, fused
from ox.engines.native.cuda.halves import is_read_on_host, split
from ox.engines.native.kernel_source import GPU_BLOCK
from ox.engines.native.launches import Launch, Work, blocks_of
from ox.engines.native.regions import Single
from ox.engines.watched import EngineKernel, Origin, common_origin
from ox.graph.ir import Value

Array = Any
Values = dict[Value, Array]


class Table:
    """What a launch's kernel reads and writes: addresses and sizes, in device memory."""

    def __init__(self, place: int, length: int, plan: list[tuple[int, int]]) -> None:
        """
        Args:
            place: where it begins among the tables of all launches.
            plan: its blocks (ox/kernels/source/blocks.h).
        """
        self.place, self.length, self.blocks = place, length, len(plan)
        self.plan = cupy().asarray(np.array(plan, np.int64))
        lines = [line for line, _ in plan]
        self.blocks_of_line = [(lines.index(line), lines.count(line)) for line in dict.fromkeys(lines)]


class Program:
    """The work of a task, for inputs of which some lie on the device."""

    def __init__(self, task: Task, on_device: list[bool], host: Engine) -> None:
        """
        Args:
            on_device: of each input whether it lies there.
            host: the engine for what is computed on the CPU.

        Raises:
            LoadError: the graph has an operator that ox does not have.
        """
        graph = task.graph
        self.task = task
        self.halves = halves = split(task, {v for v, there in zip(graph.inputs, on_device, strict=True) if there})
        self.host = host.build(halves.host)
        self.unfused: str | None = None
        self.work, self.kernels = self._kernels(fused(task, halves))
        self.calls = {part.node: call_of(part.node) for part in self.work if isinstance(part, Single)}
        regions = [region for part in self.work if isinstance(part, Launch) for region in part.regions]
        self.in_place = {new: state for region in regions for new, state in region.in_place.items()}
        self.results = [v for v in graph.outputs if v not in task.updates and v in halves.on_device]
        self.written = {
            new: state for new, state in task.updates.items() if state in halves.on_device and new not in self.in_place
        }
        self.brought_back = {  # states of the host that the device computes: `run` leaves them to the caller
            new: state
            for new, state in task.updates.items()
            if new in halves.on_device and state not in halves.on_device
        }
        self.tables: dict[Launch, Table] = {}
        self.table_length = 0
        for part in self.work:
            if isinstance(part, Launch):
                self._lay_out(part)
        self.uploads = self._uploads()
        self.constants = self._device_constants()
        self._over = self._last_reads()

    def _kernels(self, found: Fused) -> tuple[list[Work], dict[str, tuple[Any, Any]]]:
        """The work with its kernels by text; or node by node, where they do not compile."""
        names = found.names
        if not names:
            return found.work, {}
        try:
            loaded = cuda_kernels.load(found.source, [*names.values(), *found.finishing])
        except cuda_kernels.NvrtcError as error:
            self.unfused = str(error)
            return [Single(node) for node in self.halves.nodes], {}
        return found.work, {text: (loaded[name], loaded.get(f"{name}_finish")) for text, name in names.items()}

    def _lay_out(self, launch: Launch) -> None:
        length = sum(len(kernel.line) + (4 if kernel.finish else 1) for kernel in launch.kernels)
        self.tables[launch] = Table(self.table_length, length, blocks_of(launch, GPU_BLOCK))
        self.table_length += length

    def _uploads(self) -> dict[Value, None]:
        """What the host knows at each call and kernels of the device read."""
        known = set(self.halves.handed_on)
        found: dict[Value, None] = {}
        for part in self.work:
            if isinstance(part, Launch):
                found |= dict.fromkeys(v for v in part.reads if v in known)
            else:
                inputs = enumerate(part.node.inputs)
                found |= {v: None for i, v in inputs if v in known and not is_read_on_host(part.node, i)}
        device, constants = self.halves.on_device, self.halves.constants
        return found | {new: None for new in self.written if new not in device and new not in constants}

    def _device_constants(self) -> Values:
        found: Values = {}
        for part in self.work:
            reads = part.reads if isinstance(part, Launch) else [
                v for i, v in enumerate(part.node.inputs) if v is not None and not is_read_on_host(part.node, i)
            ]  # fmt: skip
            for v in reads:
                if v in self.halves.constants and v not in found:
                    found[v] = cupy().asarray(self.halves.constants[v])
        for new in (*self.written, *self.results):
            if new in self.halves.constants:
                found[new] = cupy().asarray(self.halves.constants[new])
        return found

    def _last_reads(self) -> list[list[Value]]:
        """For each part of the work the values that nothing reads later."""
        results = *self.results, *self.written, *self.brought_back
        kept = {*self.task.graph.inputs, *results, *self.constants, *self.uploads}
        last: dict[Value, int] = {}
        for i, part in enumerate(self.work):
            for v in (*part.reads, *part.writes):
                last[v] = i
        over: list[list[Value]] = [[] for _ in self.work]
        for v, i in last.items():
            if v not in kept:
                over[i].append(v)
        return over

    @property
    def uncapturable(self) -> str | None:
        """Why no CUDA graph can hold the work, as far as is known before; None where one may."""
        if self.brought_back:
            return "the device computes a state of the host"
        if any(v not in self.halves.sizes for v in self.uploads):
            return "the host computes an array of another size in each call"
        for part in self.work:
            if isinstance(part, Launch):
                continue
            node, op = part.node, OPS[part.node.key]
            if isinstance(self.calls[node], TensorCall):
                return f"{node.key} decides on the host what runs{_at(node.place)}"
            if op.random:
                return f"{node.key} draws random numbers on the host{_at(node.place)}"
            known = self.halves.constants
            if any(v not in known for i, v in enumerate(node.inputs) if v is not None and is_read_on_host(node, i)):
                return f"{node.key} reads a shape that is computed in each call{_at(node.place)}"
        return None

    def run_host(self, arrays: Sequence[Array]) -> Values:
        """Do the host's half: what it is given, and what it makes. States of the host hold their next values then.

        Args:
            arrays: the task's inputs.
        """
        host, states = self.halves.host, set(self.halves.host.updates.values())
        there = {v: a for v, a in zip(self.task.graph.inputs, arrays, strict=True) if v not in self.halves.on_device}
        known = {v: a.copy() if v in states else a for v, a in there.items()}
        return known | dict(zip(host.graph.outputs, self.host([*there.values()]), strict=True))

    def results_of_host(self, arrays: Sequence[Array], from_host: Values) -> Values:
        """The outputs of the task that the device does not make: states, and what the host made of them.

        Args:
            arrays: the task's inputs.
            from_host: what `run_host` gave.
        """
        places = {v: i for i, v in enumerate(self.task.graph.inputs)}
        found: Values = {}
        for v in self.task.graph.outputs:
            if v in self.task.updates:
                found[v] = arrays[places[self.task.updates[v]]]
            elif v not in self.halves.on_device:
                array = from_host[v] if v in from_host else self.halves.constants[v]
                found[v] = array if v in self.halves.host.graph.outputs else array.copy()
        return found

    def run(self, values: Values, xp: Any, tables: np.ndarray[Any, Any] | None, base: int, watch: Watch | None) -> None:
        """Do the work.

        Args:
            values: arrays by value: inputs, constants and uploads; results and new states are added.
            xp: CuPy, or what stands for it.
            tables: where the tables of launches are put, to be copied to `base` on the device before the work begins;
                None to copy each one now.
            watch: runs each piece of work.
        """
        with cuda_state.standing_in(xp):
            for part, over in zip(self.work, self._over, strict=True):
                if watch is not None:
                    self._watched(part, values, watch)
                elif isinstance(part, Launch):
                    self._launch(part, values, tables, base)
                else:
                    self._call(part, values)
                for v in over:
                    values.pop(v, None)
        self._write(values)

    def _watched(self, part: Work, values: Values, watch: Watch) -> None:
        def ran(*_: Any) -> tuple[Array, ...]:
            if isinstance(part, Launch):
                self._launch(part, values, None, 0)
            else:
                self._call(part, values)
            return tuple(values[v] for v in part.writes if v in values)

        if isinstance(part, Launch):
            nodes = [node for region in part.regions for node in region.nodes]
            op: Any = EngineKernel(part.name)
            origin: Origin = common_origin(nodes)
            attributes: dict[str, Any] = {}
        else:
            op, origin, attributes = self.calls[part.node].op, common_origin([part.node]), dict(part.node.attributes)
        watch(ran, op, [values.get(v) for v in part.reads], attributes, None, origin)

    def _launch(self, launch: Launch, values: Values, tables: Any, base: int) -> None:
        xp, table = cupy(), self.tables[launch]
        run, finish = self.kernels[launch.text]
        partials = xp.empty(table.blocks if finish is not None else 0, np.float64)
        copies = []
        back = []  # states whose elements do not lie in order
        line: list[int] = []
        for region, kernel, (first, count) in zip(launch.regions, launch.kernels, table.blocks_of_line, strict=True):
            values |= {new: values[state] for new, state in region.in_place.items()}
            written = {*region.in_place, *region.in_place.values()}
            for v in kernel.line:
                if v not in values:
                    values[v] = xp.empty(self.halves.sizes[v], v.dtype)
                array = values[v]
                if not array.flags.c_contiguous:
                    array = xp.ascontiguousarray(array)
                    copies.append(array)
                    if v in written:
                        back.append((values[v], array))
                line.append(array.data.ptr)
            line.append(kernel.count)
            if kernel.finish:
                line += [partials.data.ptr, first, count]
        if tables is None:
            copies.append(xp.asarray(np.array(line, np.int64)))
            address = copies[-1].data.ptr
        else:
            tables[table.place : table.place + table.length] = line
            address = base + table.place * tables.itemsize
        run(table.blocks, address, table.plan.data.ptr)
        if finish is not None:
            finish(len(launch.regions), address, table.plan.data.ptr)
        for state, array in back:
            state[...] = array

    def _call(self, part: Single, values: Values) -> None:
        node, known = part.node, self.halves.constants
        arrays = [
            None if v is None else known.get(v, values.get(v)) if is_read_on_host(node, i) else values[v]
            for i, v in enumerate(node.inputs)
        ]
        with device_checks.at(node.place):
            values |= zip(node.outputs, self.calls[node].results(arrays), strict=False)

    def _write(self, values: Values) -> None:
        """Write the next values of the states, once nothing looks at the old ones any more."""
        states = {id(owner(values[state])) for state in self.task.updates.values() if state in values}
        for v in self.results:
            if id(owner(values[v])) in states:
                values[v] = values[v].copy()
        for new, state in self.written.items():
            if values[new] is not values[state] and id(owner(values[new])) in states:
                values[new] = values[new].copy()
        for new, state in self.written.items():
            if values[new] is not values[state]:
                values[state][...] = values[new]


def _at(place: str) -> str:
    return f" ({place})" if place else ""
