"""A recording that is ready: what it is guarded on, and how later calls run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count
from operator import is_
from threading import Lock
from typing import Any

import numpy as np

from ox.autograd.accumulate_grad import accumulate, accumulating, owner
from ox.compiler.execution.backward_node import CompiledBackward, Freed
from ox.compiler.execution.failed_run import state_before_error
from ox.compiler.execution.split import split
from ox.compiler.recording.capture import has_hooks
from ox.compiler.recording.guard_source import Place, is_ox_class, same
from ox.compiler.recording.trace import Trace
from ox.compiler.signature import setting_signature
from ox.compiler.tensor_facts import facts_of
from ox.core.changes import CHANGES
from ox.core.memory_format import memory_order
from ox.core.mode import switch_mode
from ox.core.node import Leaf
from ox.core.operator import make_tensor
from ox.core.tensor import is_tensor
from ox.devices.gpu.cupy_device import to_device
from ox.engines.engine import Engine, ForGpu
from ox.engines.reference import Reference
from ox.engines.watched import run
from ox.errors import DeviceError, OxError
from ox.graph.passes.recompute import size_of
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

BY = "ox.compile"
_calls = count(1)
SHARED = "arguments share memory that the call writes"  # with one another or with state: no graph can say what happens


class Plan:
    """One recorded call, for one signature.

    Args:
        engine: what runs its graphs.
        budget: see `ox.compiler.execution.split.split`.
        reason: why it was recorded, for people.

    Raises:
        OxError: the engine cannot run a graph.
    """

    def __init__(self, trace: Trace, engine: Engine, reason: str, budget: float = 1.0) -> None:
        self.trace, self.reason, self.engine = trace, reason, _for_device(trace, engine)
        self.used = next(_calls)  # the number of its last call, among those of all
        self.runs = 0
        self.layout = split(trace, budget)
        self._devices = {} if trace.capture.is_on_host() else self._output_devices()
        outputs = self.layout.task.graph.outputs
        on_device = {outputs[i]: device.startswith("cuda") for i, device in self._devices.items()}
        self.forward = self.engine.build(replace(self.layout.task, on_device=on_device))
        self.backward = None if self.layout.backward is None else self.engine.build(self.layout.backward)
        self._lock = Lock()
        self._count = len(trace.arguments)
        states = trace.states
        self._fixed = [(i, s) for i, s in enumerate(states) if s.tensor is not None]
        self._placed = [(p.get, p.key, p.value, p.path) for s in states for p in s.places]
        self._read = [(s.read, s.argument) for s in states]
        self._arrays: list[Any] = [None] * len(states)
        orders = [memory_order(s.tensor.array) if is_tensor(s.tensor) else None for s in states]
        self._kinds = [(s.value.dtype, s.value.shape, order) for s, order in zip(states, orders, strict=True)]
        self._quick, self._counted = _checks(trace.places)
        self._changes = CHANGES.count
        own = (m for m in trace.modules if trace.dynamic or not is_ox_class(type(m)))
        self._attributes = [vars(module) for module in own]
        self._held = [*chain.from_iterable(map(dict.values, self._attributes))]
        self._requires = [(t, t.node is None) for s in states if is_tensor(t := s.tensor)]
        self._grads = [(*_argument_or_tensor(trace, g.tensor), g.value, g.adds) for g in trace.grads]
        self._grads_none = [(*_argument_or_tensor(trace, tensor), none) for tensor, none in trace.grads_none]
        self._cleared = [_argument_or_tensor(trace, tensor) for tensor in trace.capture.cleared]
        self._grads_read = [(self._count + i, s.argument) for i, s in enumerate(states) if s.argument is not None]
        filled = {*[number for number, *_ in self._grads], *[s.argument for s in states]}
        self._returned = {result[1] for result in trace.results if result[0] == "state"}
        self._walked = trace.capture.walked
        self._filled = [i for i in range(self._count) if i in filled]
        self._hooked = [t.node for n, t, *_ in self._grads if n is None and isinstance(t.node, Leaf)]
        self._settings = [(group, setting_signature(group), path) for group, path in trace.settings]
        self._owned = [*trace.capture.settings.values()]
        self._written = {place for _, place in self.layout.updates}
        argument_writes = {i for i in self._written if i < self._count}
        self._check_memory = bool(self._written) and (bool(argument_writes) or self._count > 0)
        self._memory: set[int] = set()
        self._known = set(map(id, trace.known))
        self._facts = [(*_argument_or_tensor(trace, tensor), facts) for tensor, facts in trace.facts]

    # -- guards ------------------------------------------------------------------------------------------------

    def broken(self, tensors: list[Tensor]) -> str | None:
        """Why the recording does not fit a call of the same signature; None if it does."""
        for get, key, expected, path in self._placed:
            try:
                now = get(key)
            except (LookupError, ValueError, AttributeError):
                now = None
            if now is not expected:
                return f"{path} was replaced"
        for get, key, expected, place in self._quick:
            try:
                now = get(key)
            except (LookupError, ValueError, AttributeError):
                return f"{place.path} is gone"
            if now is not expected and not same(expected, now):
                return _changed(place, now)
        for group, signature, path in self._settings:
            group.settle()
            if setting_signature(group) != signature:
                return f"a setting of {path} changed"
        for owner_, names, values in self._owned:
            if tuple([getattr(owner_, name) for name in names]) != values:
                return f"a setting of {type(owner_).__name__} changed"
        for argument, tensor, none in self._grads_none:
            owned = tensor if argument is None else tensors[argument]
            if (owned._grad is None) is not none:
                return "gradients are there at the beginning" if none else "gradients are not there at the beginning"
        for argument in self._filled:
            if not isinstance(tensors[argument].node, Leaf):
                return "an argument whose gradient is computed inside has a history"
        if self._walked and any(has_hooks(t.node) for t in tensors if t.node is not None):
            return "an argument has hooks"
        if not self._known.isdisjoint(map(id, tensors)):
            return "an argument is also a tensor that the code reads by another name"
        for argument, tensor, facts in self._facts:
            if facts_of(tensor if argument is None else tensors[argument]) != facts:
                return "a tensor is a leaf, a view or lies in memory otherwise"
        if CHANGES.count != self._changes or not self._are_attributes_as_they_were():
            count = CHANGES.count
            held = [*chain.from_iterable(map(dict.values, self._attributes))]
            reason = self._broken_structure()
            if reason is not None:
                return reason
            self._changes, self._held = count, held
        return self._broken_memory(tensors)

    def _are_attributes_as_they_were(self) -> bool:
        """Whether the dicts of the modules hold the same objects: code may write into them without being counted."""
        if not self._attributes:
            return True
        now = chain.from_iterable(map(dict.values, self._attributes))
        return sum(map(len, self._attributes)) == len(self._held) and all(map(is_, now, self._held))

    def _broken_structure(self) -> str | None:
        for get, key, expected, place in self._counted:
            try:
                now = get(key)
            except (LookupError, ValueError, AttributeError):
                return f"{place.path} is gone"
            if now is not expected and not same(expected, now):
                return _changed(place, now)
        for tensor, none in self._requires:
            if (tensor.node is None) is not none:
                return "requires_grad of a parameter or buffer changed"
        for leaf in self._hooked:
            if has_hooks(leaf):
                return "a hook was set on a parameter"
        return None

    def _broken_memory(self, tensors: list[Tensor]) -> str | None:
        """Of the state: whether its memory is another one, of another kind, or shared with an argument."""
        arrays = []
        for read, number in self._read:
            found = read() if number is None else tensors[number]._grad
            if found is None:
                return "a tensor from outside is gone"
            arrays.append(found.array if is_tensor(found) else found)
        if [*map(id, arrays)] != [*map(id, self._arrays)]:
            for array, (dtype, shape, order) in zip(arrays, self._kinds, strict=True):
                if array.dtype != dtype or array.shape != shape:
                    return f"a parameter, buffer or state is {array.dtype} {list(array.shape)} now"
                if order is not None and memory_order(array) != order:
                    return "a parameter, buffer or state has another memory order"
            self._memory = {id(owner(a)) for i, a in enumerate(arrays) if i + self._count in self._written}
            self._arrays = arrays
        if self._check_memory:
            seen = self._memory
            owners = [id(owner(t.array)) for t in tensors]
            if not seen.isdisjoint(owners):
                return SHARED
            for i in self._written:
                if i < self._count and owners.count(owners[i]) > 1:
                    return SHARED
        return None

    # -- the call ----------------------------------------------------------------------------------------------

    def __call__(self, tensors: list[Tensor]) -> Any:
        """Run it on these arguments, after `broken` gave None."""
        trace, layout = self.trace, self.layout
        self.used = next(_calls)
        self.runs += 1
        with self._lock:
            arrays = [t.array for t in tensors]
            arrays.extend(self._arrays)
            kept = {i: trace.states[i].of(tensors) for i in self._returned}  # before another gradient takes its place
            for place, number in self._grads_read:  # another thread's call has others
                arrays[place] = tensors[number]._grad.array  # type: ignore[union-attr]
            undo = self._undo(tensors, arrays) if trace.catches else None
            for argument, tensor in self._cleared:  # their memory serves the new ones
                (tensor if argument is None else tensors[argument])._grad = None
            try:
                outputs = run(self.engine.name, self.forward, arrays)
            except OxError:
                if undo is not None:
                    undo()
                else:
                    self._catch_up(arrays)
                raise
        for number, device in self._devices.items():
            outputs[number] = _on(device, outputs[number])
        for _, place in layout.updates:
            changed = tensors[place] if place < self._count else trace.states[place - self._count].of(tensors)
            if is_tensor(changed):
                version = changed._shared_version()
                version[0] += 1
                version[1] = BY
        for (argument, tensor, value, adds), number in zip(self._grads, layout.grads, strict=True):
            target = tensor if argument is None else tensors[argument]
            if adds and target._grad is not None:
                with accumulating, switch_mode(grad=False):
                    accumulate(target, make_tensor(outputs[number]), set())
            else:
                target._grad = None if value is None else make_tensor(outputs[number])
        for (generator, _), number in zip(trace.counters, layout.counters, strict=True):
            generator.counter = make_tensor(outputs[number])
        made = self._results(tensors, outputs, kept)
        if self.backward is not None:
            CompiledBackward(self, tensors, arrays, outputs, made)
        for call in trace.capture.host_calls:
            call()
        return trace.rebuild(made)

    def _output_devices(self) -> dict[int, str]:
        """The devices of those outputs that are results or gradients, by number."""
        trace, layout = self.trace, self.layout
        results = zip(layout.results, trace.devices, strict=True)
        grads = zip(layout.grads, [g.tensor.device for g in trace.grads], strict=True)
        return {i: device for i, device in (*results, *grads) if i >= 0}

    def _catch_up(self, arrays: list[Any]) -> None:
        """After an error: what eager code would have done before it, to generators and to state."""
        counters, written = state_before_error(self.layout, arrays)
        for (generator, _), counter in zip(self.trace.counters, counters, strict=False):
            if counter is not None:
                generator.counter = counter
        if getattr(self.engine, "writes_last", False):
            for place, array in written:
                arrays[place][...] = array

    def _undo(self, tensors: list[Tensor], arrays: list[Any]) -> Callable[[], None]:
        """What gives tensors back what they hold now, for code that catches an error has to run on that."""
        written = [(arrays[i], arrays[i].copy()) for i in self._written]
        owned = [tensor if argument is None else tensors[argument] for argument, tensor in self._cleared]
        grads = [(tensor, tensor._grad) for tensor in owned]

        def undo() -> None:
            for array, before in written:
                array[...] = before
            for tensor, grad in grads:
                tensor._grad = grad

        return undo

    def _results(self, tensors: list[Tensor], outputs: list[Any], kept: dict[int, Any]) -> list[Any]:
        made: list[Any] = []
        by_number: dict[int, Tensor] = {}
        freed: list[Tensor] = []
        for result, number in zip(self.trace.results, self.layout.results, strict=True):
            if result[0] == "argument":
                made.append(tensors[result[1]])
            elif result[0] == "state":
                made.append(kept[result[1]])
            elif result[0] == "grad":
                argument, tensor, *_ = self._grads[result[1]]
                made.append((tensor if argument is None else tensors[argument])._grad)
            else:
                first = by_number.get(number)
                y = make_tensor(outputs[number]) if first is None else first.shallow_copy()
                by_number.setdefault(number, y)
                made.append(y)
                if result[0] == "freed":
                    freed.append(y)
        if freed:
            node = Freed(len(freed))
            for port, y in enumerate(freed):
                y.node, y.port = node, port
        return made

    def kept_bytes(self) -> int:
        """Bytes of what a call keeps for its backward besides its inputs and results."""
        layout = self.layout
        results = set(layout.results)
        kept = {number for kind, number in layout.saved if kind == "output" and number not in results}
        return sum(size_of(layout.task.graph.outputs[number]) for number in kept)

    def explain(self) -> list[str]:
        """Lines for people: what was recorded, and what the engine says of it."""
        trace = self.trace
        lines = [
            f"recorded because {self.reason}",
            f"{len(self.layout.task.graph.nodes)} operators, {len(trace.arguments)} inputs, "
            f"{len(trace.states)} tensors of state, {len(trace.updates)} written in place",
        ]
        if self.layout.backward is not None:
            count = len(self.layout.backward.graph.nodes)
            kept = f"{len(self.layout.saved)} values kept, {self.kept_bytes():,} bytes of them intermediate"
            again = f", {len(self.layout.recomputed)} operators run again" if self.layout.recomputed else ""
            lines.append(f"backward: {count} operators, {kept}{again}")
        counts = len(self._placed), len(self._quick), len(self._counted)
        lines.append("guards: {} tensors, {} values, {} attributes of modules".format(*counts))
        if trace.dynamic:
            lines.append(f"all attributes that the code can reach are guarded: {trace.dynamic}")
        lines += [f"{self.engine.name}: {line}" for line in self.forward.explain()]
        if self.backward is not None:
            lines += [f"{self.engine.name}, backward: {line}" for line in self.backward.explain()]
        return lines


def _for_device(trace: Trace, engine: Engine) -> Engine:
    """The engine for the device of the recorded call.

    Raises:
        DeviceError: the engine computes on CPUs only.
    """
    if trace.capture.is_on_host() or engine.name == Reference.name:
        return engine
    if isinstance(engine, ForGpu):
        return engine.on_gpu
    raise DeviceError(
        f"the engine '{engine.name}' computes on CPUs", got="tensors on a GPU", hint="the engine 'native'"
    )


def _on(device: str, array: Any) -> Any:
    """An output where it was in the recorded call: what is made of sizes and constants alone is made on the host, and
    `x.cpu()` is nothing in a graph."""
    if isinstance(array, np.ndarray) is not device.startswith("cuda"):
        return array
    return to_device(array, device) if isinstance(array, np.ndarray) else array.get()


def _argument_or_tensor(trace: Trace, tensor: Tensor) -> tuple[int | None, Any]:
    """Which argument a tensor of the recorded call was, for another call has its own; or the tensor."""
    number = trace.argument_of(tensor)
    return number, tensor if number is None else None


def _changed(place: Place, now: Any) -> str:
    def show(value: Any) -> str:
        return f"{value!r:.60}" if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__

    if show(place.value) == show(now):
        return f"{place.path} was replaced"
    return f"{place.path} was {show(place.value)} and is {show(now)}"


Check = tuple[Callable[[Any], Any], Any, Any, Place]


def _checks(places: list[Place]) -> tuple[list[Check], list[Check]]:
    """The places to look at in every call, and those to look at once something of a module changed."""
    quick: list[Check] = []
    counted: list[Check] = []
    seen: set[tuple[int, Any]] = set()
    for place in places:
        try:
            mark = id(getattr(place.get, "__self__", place.get)), place.key
            if mark in seen:
                continue
            seen.add(mark)
        except TypeError:  # a key that is not hashable
            pass
        (counted if place.module else quick).append((place.get, place.key, place.value, place))
    return quick, counted


__all__ = ["Module", "Plan"]
