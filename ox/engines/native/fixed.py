"""Values whose memory is the same in every call: results of launches and of recorded kernels in the planned memory,
constants, and views of them. What is a view of the graph's inputs has its memory once these are bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from ox.core.operator import OPS, kind_of
from ox.engines.engine import Task
from ox.engines.native.aliases import Aliases
from ox.engines.native.calls import Array, KernelCall, call_of
from ox.engines.native.fold import Folded
from ox.engines.native.launches import Launch, Work
from ox.engines.native.memory import AddressSpace, Life, SharedBlock, place
from ox.engines.native.recorder import RECORDABLE, Recorder
from ox.graph.ir import Node, Value
from ox.kernels import Library

MOST_COPIED = 1 << 16  # elements of a result that may be copied out of the planned memory, or into it


@dataclass
class _Buffer:
    """Memory of one step's result, or of its temporaries."""

    size: int
    step: int
    values: list[Value] = field(default_factory=list)  # that lie in it
    memory: Array = None


class FixedMemory:
    """Decides which values have fixed memory, and gives them their places."""

    def __init__(
        self,
        task: Task,
        folded: Folded,
        aliases: Aliases,
        work: list[Work],
        library: Library | None,
        memory: SharedBlock,
    ) -> None:
        self.memory = memory
        self.folded, self.aliases, self.library = folded, aliases, library
        self.kept = {aliases.root(v) for v in task.graph.outputs}
        self.bound = set(task.graph.inputs)  # values in the memory of inputs
        self.views: dict[Node, KernelCall] = {}
        self.recorded: dict[Node, KernelCall] = {}
        self.copied: dict[Node, KernelCall] = {}  # nodes whose small results are put into the planned memory
        self.arrays: dict[Value, Array] = dict(folded.constants)  # of bound values: only for their form
        self._buffers: dict[Node | Value, list[_Buffer]] = {}
        self._unused = AddressSpace()  # for what has no place yet
        for v in task.graph.inputs:
            if v in folded.sizes and v.dtype is not None:
                self.arrays[v] = self._unused.array(folded.sizes[v], v.dtype)
        for i, part in enumerate(work):
            if isinstance(part, Launch):
                self._find_launch(part, i)
            elif all(v in self.arrays for v in part.reads) and all(v in folded.sizes for v in part.writes):
                self._find_node(part.node, i)
        self.planned, self.unplanned = self._place(work)
        for part in work:
            if not isinstance(part, Launch):
                self._set(part.node)

    def is_fixed(self, value: Value) -> bool:
        """Whether the value has its memory before any call."""
        return value in self.arrays and value not in self.bound

    def inputs_of(self, node: Node) -> list[Array | None]:
        """The arrays that a node with fixed memory reads."""
        return [None if v is None else self.arrays[v] for v in node.inputs]

    def record(self, node: Node, arrays: list[Array | None]) -> Recorder:
        """The calls of a recorded node on these arrays, with results in its places."""
        assert self.library is not None
        recorder = Recorder(self.library, [buffer.memory for buffer in self._buffers[node]])
        self._results(recorder, node, self.recorded[node], arrays)
        return recorder

    def _results(
        self, recorder: Recorder, node: Node, call: KernelCall, arrays: list[Array | None]
    ) -> tuple[Array, ...]:
        """What a recorder makes of a node."""
        if kind_of(node.key) == "reshape":
            return (recorder.reshaped(arrays[0], self.folded.sizes[node.outputs[0]]),)
        if node.key == "Concat":
            return (recorder.joined(arrays, node.attributes["axis"]),)
        return recorder.record(call, arrays)

    def _find_launch(self, launch: Launch, i: int) -> None:
        for region in launch.regions:
            for v in region.writes:
                size, dtype = self.folded.sizes[v], np.dtype(v.dtype)
                if v in region.in_place:
                    self.arrays[v] = self._unused.array(size, dtype)
                    self.bound.add(v)
                elif v not in self.kept:
                    self.arrays[v] = self._unused.array(size, dtype)
                    self._buffers[v] = [_Buffer(prod(size) * dtype.itemsize, i, [v])]

    def _find_node(self, node: Node, i: int) -> None:
        op, call = OPS.get(node.key), call_of(node)
        if op is None or not isinstance(call, KernelCall):
            return
        given = self.inputs_of(node)
        if op.view and self._find_view(node, call, given):
            return
        if any(v in self.kept and prod(self.folded.sizes[v]) > MOST_COPIED for v in node.outputs):
            return
        recordable = op.kind == "reshape" or node.key == "Concat" or node.key in RECORDABLE
        if recordable and self._find_recording(node, call, given, i):
            return
        if all(v.dtype is not None and prod(self.folded.sizes[v]) <= MOST_COPIED for v in node.outputs):
            self.copied[node] = call
            self._buffers[node] = []
            for v in node.outputs:
                size, dtype = self.folded.sizes[v], np.dtype(v.dtype)
                self.arrays[v] = self._unused.array(size, dtype)
                self._buffers[node].append(_Buffer(prod(size) * dtype.itemsize, i, [v]))

    def _find_view(self, node: Node, call: KernelCall, given: list[Array | None]) -> bool:
        """Whether the results are views of the first input."""
        source = given[0]
        results = call.results(given)
        if source is None or not all(np.may_share_memory(r, source) for r in results):
            return False
        self.views[node] = call
        self.arrays |= zip(node.outputs, results, strict=False)
        if node.inputs[0] in self.bound:
            self.bound.update(node.outputs)
        return True

    def _find_recording(self, node: Node, call: KernelCall, given: list[Array | None], i: int) -> bool:
        """Whether the node can be recorded."""
        if self.library is None:
            return False
        recorder = Recorder(self.library, self._unused)
        try:
            results = self._results(recorder, node, call, given)
        except Exception:  # whatever it is, it is raised again when the node runs
            return False
        self.recorded[node] = call
        self.arrays |= zip(node.outputs, results, strict=False)
        buffers = [_Buffer(each.nbytes, i) for each in recorder.made]
        for v, result in zip(node.outputs, results, strict=False):
            for buffer, each in zip(buffers, recorder.made, strict=True):
                if np.may_share_memory(result, each):
                    buffer.values.append(v)
        self._buffers[node] = buffers
        return True

    def _place(self, work: list[Work]) -> tuple[int, int]:
        """Give all buffers their memory. The bytes planned, and if each had its own."""
        last: dict[Value, int] = {}
        for i, part in enumerate(work):
            for v in (*part.reads, *part.writes):
                last[self.aliases.root(v)] = i
        buffers = [buffer for several in self._buffers.values() for buffer in several]
        lives = []
        for buffer in buffers:
            roots = [self.aliases.root(v) for v in buffer.values]  # of a copied view too: then it lives too long
            ends = [len(work) if v in self.kept else last[v] for v in roots]
            lives.append(Life(buffer.size, buffer.step, max([buffer.step, *ends])))
        offsets, total = place(lives)
        memory = self.memory.part(total)
        for buffer, offset in zip(buffers, offsets, strict=True):
            buffer.memory = memory[offset : offset + buffer.size]
        for key, several in self._buffers.items():
            if isinstance(key, Value) or key in self.copied:
                for buffer in several:
                    (v,) = buffer.values
                    self.arrays[v] = buffer.memory.view(np.dtype(v.dtype)).reshape(self.folded.sizes[v])
        return total, sum(life.size for life in lives)

    def _set(self, node: Node) -> None:
        """The arrays of a node's results, now that those of its inputs have their places."""
        if node in self.views:
            self.arrays |= zip(node.outputs, self.views[node].results(self.inputs_of(node)), strict=False)
        elif node in self.recorded:
            assert self.library is not None
            recorder = Recorder(self.library, [buffer.memory for buffer in self._buffers[node]])
            results = self._results(recorder, node, self.recorded[node], self.inputs_of(node))
            self.arrays |= zip(node.outputs, results, strict=False)
