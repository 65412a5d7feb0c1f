"""The instructions of a pickle that build plain values, and calls of what `find` allows. The rest is refused.

Protocols 2 to 5, as `torch.save` and Python write them. The format is described in Python's own `pickletools`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError
from ox.serialization.torch_checkpoint.keys import article, key

_LONGEST_INTEGER = 1024  # bytes


class Allowed:
    """What a pickle may call: the name that it goes by, and our function of the budget and the arguments."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call


class Built(ABC):
    """A value that gets its state by a later instruction (BUILD)."""

    @abstractmethod
    def build(self, state: Any, budget: Budget) -> None:
        """Take the state."""


class Unpickler:
    """One pickle in a buffer, from a position on.

    Args:
        find: returns the replacement of a global, by module and name; raises UnreadableError.
        persistent: returns the object of a persistent id.
    """

    def __init__(
        self,
        buffer: Any,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any],
        budget: Budget,
        position: int = 0,
    ) -> None:
        self.buffer, self.position, self.end = buffer, position, len(buffer)
        self.find, self.persistent, self.budget = find, persistent, budget
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under the marks
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The value; `position` is then behind the pickle."""
        while True:
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                (value,) = self.stack
                return value
            step = _STEPS.get(code)
            if step is None:
                raise UnreadableError(
                    f"an instruction that weights do not need: 0x{code:02x} at byte {self.position - 1} of the pickle",
                    expected="a pickle of protocol 2 to 5, as torch.save writes it",
                )
            step(self)

    # -- reading -----------------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        begin, self.position = self.position, self.position + count
        if self.position > self.end:
            raise UnreadableError("a pickle that breaks off", hint="the whole file; this one is cut or damaged")
        return self.buffer[begin : self.position]  # type: ignore[no-any-return]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.buffer.find(b"\n", self.position, self.position + 1000)
        if end < 0:
            raise UnreadableError("a pickle with a name that does not end")
        text = self.take(end - self.position).decode()
        self.position += 1
        return text

    def text(self, form: str) -> None:
        raw = self.take(self.number(form))
        self.push(raw.decode(), 60 + len(raw) * 4)

    def blob(self, form: str, kind: Callable[[bytes], Any] = bytes) -> None:
        raw = self.take(self.number(form))
        self.push(kind(raw), 60 + len(raw))

    def integer(self, form: str) -> None:
        count = self.number(form)
        if not 0 <= count <= _LONGEST_INTEGER:
            raise UnreadableError(f"an integer of {count} bytes")
        self.push(int.from_bytes(self.take(count), "little", signed=True), 32 + count)

    # -- the stack ---------------------------------------------------------------------------------------------

    def push(self, value: Any, cost: int = 40) -> None:
        self.budget.take(cost)
        self.stack.append(value)

    def mark(self) -> None:
        self.budget.take(80)
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def remember(self, index: int) -> None:
        self.budget.take(120)
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise UnreadableError(f"a pickle that reads value {index}, which it has not stored")
        self.push(self.memo[index], 8)

    # -- containers --------------------------------------------------------------------------------------------

    def pack(self, items: list[Any]) -> None:
        self.push(tuple(items), 56 + 8 * len(items))

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise UnreadableError("a pickle that takes more values than it has made")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def extend(self, items: list[Any]) -> None:
        self.budget.take(16 * len(items))
        self.top(list, deque).extend(items)

    def add(self, items: list[Any]) -> None:
        self.budget.take(80 * len(items))
        self.top(set).update([key(self.budget, item) for item in items])

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict, OrderedDict, defaultdict)
        self.budget.take(110 * len(items))
        for name, value in zip(items[::2], items[1::2], strict=True):
            target[key(self.budget, name)] = value

    def top(self, *kinds: type) -> Any:
        if type(self.stack[-1]) not in kinds:
            raise UnreadableError(f"a pickle that fills {article(self.stack[-1])} as if it were a {kinds[0].__name__}")
        return self.stack[-1]

    # -- calls -------------------------------------------------------------------------------------------------

    def named(self) -> None:
        module = self.line()
        self.push(self.find(module, self.line()))

    def named_by_stack(self) -> None:
        module, name = self.last(2)
        if type(module) is not str or type(name) is not str:
            raise UnreadableError("a global whose name is no string")
        self.push(self.find(module, name))

    def reduce(self) -> None:
        function, arguments = self.last(2)
        if type(function) is not Allowed or type(arguments) is not tuple:
            raise UnreadableError(f"a pickle that calls {article(function)}")
        self.budget.take(200)
        self.stack.append(function.call(self.budget, *arguments))

    def build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Built):
            target.build(state, self.budget)
        elif type(target) is OrderedDict and type(state) is dict:
            about = state.get("_metadata")  # what Module.state_dict adds; nothing else is kept
            if isinstance(about, dict) and all(type(each) is dict for each in about.values()):
                target.__dict__["_metadata"] = about
        elif type(target) in (Namespace, SimpleNamespace) and type(state) is dict:
            if not all(type(name) is str for name in state):
                raise UnreadableError(f"{article(target)} with an attribute whose name is no string")
            self.budget.take(110 * len(state))
            vars(target).update(state)
        else:
            raise UnreadableError(f"a pickle that sets attributes of {article(target)}")

    def identify(self) -> None:
        self.stack.append(self.persistent(self.stack.pop()))


def _frozen(machine: Unpickler) -> None:
    items = machine.since_mark()
    machine.push(frozenset([key(machine.budget, item) for item in items]), 216 + 80 * len(items))


def _dict(machine: Unpickler) -> None:
    items = machine.since_mark()
    machine.push({}, 64)
    machine.set_items(items)


def _ignore_frame(machine: Unpickler) -> None:
    machine.take(8)


def _version(machine: Unpickler) -> None:
    version = machine.take(1)[0]
    if version > 5:
        raise UnreadableError(f"a pickle of protocol {version}", expected="protocol 2 to 5")


_STEPS: dict[int, Callable[[Unpickler], Any]] = {
    0x80: _version,
    0x95: _ignore_frame,
    ord("("): Unpickler.mark,
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): Unpickler.since_mark,
    ord("N"): lambda m: m.push(None, 8),
    0x88: lambda m: m.push(True, 8),
    0x89: lambda m: m.push(False, 8),
    ord("J"): lambda m: m.push(m.number("<i")),
    ord("K"): lambda m: m.push(m.take(1)[0]),
    ord("M"): lambda m: m.push(m.number("<H")),
    0x8A: lambda m: m.integer("<B"),
    0x8B: lambda m: m.integer("<i"),
    ord("G"): lambda m: m.push(m.number(">d")),
    ord("X"): lambda m: m.text("<I"),
    0x8C: lambda m: m.text("<B"),
    0x8D: lambda m: m.text("<Q"),
    ord("T"): lambda m: m.text("<I"),
    ord("U"): lambda m: m.text("<B"),
    ord("B"): lambda m: m.blob("<I"),
    ord("C"): lambda m: m.blob("<B"),
    0x8E: lambda m: m.blob("<Q"),
    0x96: lambda m: m.blob("<Q", bytearray),
    ord("]"): lambda m: m.push([], 64),
    ord("}"): lambda m: m.push({}, 72),
    0x8F: lambda m: m.push(set(), 232),
    0x91: _frozen,
    ord(")"): lambda m: m.push((), 8),
    ord("t"): lambda m: m.pack(m.since_mark()),
    0x85: lambda m: m.pack(m.last(1)),
    0x86: lambda m: m.pack(m.last(2)),
    0x87: lambda m: m.pack(m.last(3)),
    ord("l"): lambda m: m.push(m.since_mark(), 64),
    ord("d"): _dict,
    ord("a"): lambda m: m.extend(m.last(1)),
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("s"): lambda m: m.set_items(m.last(2)),
    ord("u"): lambda m: m.set_items(m.since_mark()),
    0x90: lambda m: m.add(m.since_mark()),
    ord("q"): lambda m: m.remember(m.take(1)[0]),
    ord("r"): lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),
    ord("h"): lambda m: m.recall(m.take(1)[0]),
    ord("j"): lambda m: m.recall(m.number("<I")),
    ord("c"): Unpickler.named,
    0x93: Unpickler.named_by_stack,
    ord("R"): Unpickler.reduce,
    0x81: Unpickler.reduce,  # a class, called with arguments
    ord("b"): Unpickler.build,
    ord("Q"): Unpickler.identify,
}
