"""Operators write themselves down: a kernel that is called with symbolic arrays, and this module's namespace in place
of NumPy, leaves its work on one element as a `Body`. A kernel that does more than that is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.function import Function
from ox.core.mode import switch_mode
from ox.core.operator import OPS
from ox.dtypes import DType, bool_
from ox.engines.native.body import Body, Instruction
from ox.engines.native.c_functions import castable, functions_of, name_of
from ox.graph.ir import Array, Node, Value
from ox.graph.record.recording import record
from ox.ops.control.sequence import OfSequences

Shape = tuple[int, ...]
MOST_KNOWN = 4096  # traces that are kept: a training step has the same few for every parameter


class Untraceable(Exception):
    """The kernel does what no expression of one element says."""


@dataclass(frozen=True)
class Traced:
    """What an operator does with one element, and the shape of its result."""

    body: Body
    results: tuple[int, ...]  # places in the body
    shapes: tuple[Shape, ...]
    dtypes: tuple[DType, ...]


@dataclass(frozen=True)
class Argument:
    """An input of a node: type, shape, and its value where that is a constant of one element."""

    dtype: DType
    shape: Shape
    value: Array | None = None

    @property
    def key(self) -> Any:
        return name_of(self.dtype), self.shape, None if self.value is None else self.value.tobytes()


_known: dict[Any, Traced | None] = {}


def trace(node: Node, arguments: list[Argument | None]) -> Traced | None:
    """The work of a node's kernel on one element; None where it is more than that."""
    key = (node.key, repr(node.attributes), len(node.outputs), *[a and a.key for a in arguments])
    if key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = _trace(node, arguments)
    return _known[key]


def _trace(node: Node, arguments: list[Argument | None]) -> Traced | None:
    op = OPS.get(node.key)
    if op is None or op.random or isinstance(op, OfSequences):
        return None
    if isinstance(op, Function) and op.has_body_alone:
        return _trace_body(op, node, arguments)
    attributes = dict(node.attributes)
    if op.takes_output_count:
        attributes["outputs"] = len(node.outputs)
    for name in ("numpy", "symbolic"):  # some kernels look at numbers where NumPy runs, which only constants show
        body = Body()
        try:
            arrays = [None if a is None else _array(body, i, a) for i, a in enumerate(arguments)]
            with np.errstate(all="ignore"):
                made = op.kernel(Namespace(body, name), *arrays, **attributes)
        except Exception:  # whatever a kernel does with what is no array
            continue
        results = made if isinstance(made, tuple) else (made,)
        if len(results) >= len(node.outputs) and all(isinstance(r, SymbolicArray) for r in results):
            kept = results[: len(node.outputs)]
            return Traced(
                body, tuple(r._place for r in kept), tuple(r.shape for r in kept), tuple(r.dtype for r in kept)
            )
    return None


def _trace_body(op: Function, node: Node, arguments: list[Argument | None]) -> Traced | None:
    """The same for a function of operators: of what they do, one behind the other."""
    stand_ins = [
        None if a is None else operator.make_tensor(np.zeros([min(n, 2) for n in a.shape], a.dtype)) for a in arguments
    ]
    given = {f"input_{i}": x for i, x in enumerate(stand_ins) if x is not None}

    def call(*tensors: Any) -> Any:
        rest = iter(tensors)
        made = op.body(*[None if x is None else next(rest) for x in stand_ins], **node.attributes)
        return list(made[: len(node.outputs)]) if isinstance(made, tuple) else made

    try:
        with switch_mode(grad=False, autocast=None, executor=None, watch=None):
            graph = record(call, given)
    except Exception:
        return None
    body = Body()
    known: dict[Value, tuple[int, Argument]] = {}
    for value, i in zip(graph.inputs, [i for i, x in enumerate(stand_ins) if x is not None], strict=True):
        argument = arguments[i]
        if argument is None or not functions_of(argument.dtype):
            return None
        known[value] = body.add(Instruction("input", argument.dtype, payload=i)), argument
    for value, array in graph.constants.items():
        if array.size != 1 or not functions_of(array.dtype):
            return None
        known[value] = _constant(body, array.reshape(())), Argument(array.dtype, array.shape, array)
    for inner in graph.nodes:
        if any(v is not None and v not in known for v in inner.inputs):
            return None
        traced = trace(inner, [None if v is None else known[v][1] for v in inner.inputs])
        if traced is None:
            return None
        places = body.include(traced.body, [-1 if v is None else known[v][0] for v in inner.inputs])
        for value, place, shape, dtype in zip(inner.outputs, traced.results, traced.shapes, traced.dtypes, strict=True):
            known[value] = places[place], Argument(dtype, shape)
    results = [known[v] for v in graph.outputs]
    return Traced(
        body, tuple(r[0] for r in results), tuple(r[1].shape for r in results), tuple(r[1].dtype for r in results)
    )


def _array(body: Body, position: int, argument: Argument) -> SymbolicArray:
    if not functions_of(argument.dtype):
        raise Untraceable
    if argument.value is not None:
        return SymbolicArray(body, _constant(body, argument.value.reshape(())), argument.dtype, argument.shape)
    place = body.add(Instruction("input", argument.dtype, payload=position))
    return SymbolicArray(body, place, argument.dtype, argument.shape)


def _constant(body: Body, value: Any) -> int:
    return body.add(Instruction("constant", value.dtype, payload=value.tobytes()))


class SymbolicArray:
    """Stands for an array in a kernel: knows type and shape, and the instruction that computes an element."""

    __array_ufunc__ = None  # NumPy's numbers leave operators to this class
    __hash__ = object.__hash__

    def __init__(self, body: Body, place: int, dtype: DType, shape: Shape) -> None:
        self._body, self._place, self.dtype, self.shape = body, place, dtype, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def item(self) -> Any:
        """The number, where it is a constant."""
        instruction = self._body.instructions[self._place]
        if instruction.name != "constant":
            raise Untraceable
        return np.frombuffer(instruction.payload, self.dtype)[0].item()

    def astype(self, dtype: Any, copy: bool = True) -> SymbolicArray:
        return _cast(self, np.dtype(dtype))

    def copy(self) -> SymbolicArray:
        return SymbolicArray(self._body, self._place, self.dtype, self.shape)

    def _assign(self, value: Any) -> SymbolicArray:
        """Becomes this value, in its own type and shape, as an array that is written in place."""
        value = _as_symbolic(self._body, value, self.dtype)
        if np.broadcast_shapes(value.shape, self.shape) != self.shape:
            raise Untraceable
        self._place = _cast(value, self.dtype)._place
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is Ellipsis:
            self._assign(value)
        elif isinstance(key, SymbolicArray) and key.dtype == bool_ and np.ndim(value) == 0:
            self._assign(Namespace(self._body).where(key, value, self))
        else:
            raise Untraceable

    def __getitem__(self, key: Any) -> SymbolicArray:
        if key is not Ellipsis:
            raise Untraceable
        return self

    def __bool__(self) -> bool:
        raise Untraceable

    def __iter__(self) -> Any:
        raise Untraceable


class Namespace:
    """Stands for NumPy in a kernel."""

    def __init__(self, body: Body, name: str = "numpy") -> None:
        self._body, self.__name__ = body, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, np.ufunc):
            return lambda *arguments, **options: _call(self._body, found, arguments, **options)
        if isinstance(found, (type, float)) or name == "errstate":  # element types, pi, inf
            return found
        raise Untraceable(name)

    def where(self, condition: Any, first: Any, second: Any) -> SymbolicArray:
        dtype = np.result_type(*[x.dtype if isinstance(x, SymbolicArray) else x for x in (first, second)])
        chosen = [_cast(_as_symbolic(self._body, x, dtype), dtype) for x in (first, second)]
        condition = _cast(_as_symbolic(self._body, condition, bool_), bool_)
        return _made(self._body, "where", dtype, [condition, *chosen])

    def clip(self, x: Any, low: Any, high: Any) -> SymbolicArray:
        made: SymbolicArray = self.minimum(self.maximum(x, low), high)
        return made

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        if not isinstance(x, SymbolicArray):
            return np.asarray(x, dtype)
        return x if dtype is None else x.astype(dtype)

    ascontiguousarray = asarray

    def full_like(self, x: SymbolicArray, value: Any, dtype: Any = None) -> SymbolicArray:
        kind = np.dtype(dtype or x.dtype)
        return SymbolicArray(self._body, _constant(self._body, np.asarray(value, kind)), kind, x.shape)

    def zeros_like(self, x: SymbolicArray, dtype: Any = None) -> SymbolicArray:
        return self.full_like(x, 0, dtype)

    def ones_like(self, x: SymbolicArray, dtype: Any = None) -> SymbolicArray:
        return self.full_like(x, 1, dtype)

    empty_like = zeros_like


def _call(body: Body, function: Any, arguments: tuple[Any, ...], out: Any = None, **options: Any) -> SymbolicArray:
    """A ufunc: its arguments in the types of the loop that NumPy would run."""
    if options or len(arguments) != function.nin or function.nout != 1:
        raise Untraceable
    kinds = [_kind(x) for x in arguments]
    *types, result = function.resolve_dtypes((*kinds, None))
    given = [_cast(_as_symbolic(body, x, kind), kind) for x, kind in zip(arguments, types, strict=True)]
    if function.__name__ not in functions_of(types[-1]) or not functions_of(result):
        raise Untraceable
    made = _made(body, function.__name__, result, given)
    return made if out is None else out._assign(made)


def _kind(x: Any) -> Any:
    """What NumPy chooses a loop by: a type, or a Python type, which adapts itself."""
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return bool_ if isinstance(x, bool) else type(x)
    return x.dtype


def _as_symbolic(body: Body, x: Any, dtype: DType) -> SymbolicArray:
    """A number as a constant, in the type that the other operands have."""
    if isinstance(x, SymbolicArray):
        return x
    value = np.asarray(x) if isinstance(x, (np.generic, np.ndarray)) else np.asarray(x, dtype)
    if value.size != 1:
        raise Untraceable
    return SymbolicArray(body, _constant(body, value.reshape(())), value.dtype, value.shape)


def _cast(x: SymbolicArray, dtype: DType) -> SymbolicArray:
    if x.dtype == dtype:
        return x.copy()
    if not castable(x.dtype, dtype):
        raise Untraceable
    return SymbolicArray(x._body, x._body.add(Instruction("cast", dtype, (x._place,))), dtype, x.shape)


def _made(body: Body, name: str, dtype: DType, given: list[SymbolicArray]) -> SymbolicArray:
    shape = np.broadcast_shapes(*[x.shape for x in given])
    return SymbolicArray(body, body.add(Instruction(name, dtype, tuple(x._place for x in given))), dtype, shape)


def _binary(name: str) -> tuple[Any, Any, Any]:
    function = getattr(np, name)

    def forward(self: SymbolicArray, other: Any) -> SymbolicArray:
        return _call(self._body, function, (self, other))

    def reflected(self: SymbolicArray, other: Any) -> SymbolicArray:
        return _call(self._body, function, (other, self))

    def in_place(self: SymbolicArray, other: Any) -> SymbolicArray:
        return self._assign(_call(self._body, function, (self, other)))

    return forward, reflected, in_place


def _unary(name: str) -> Any:
    return lambda self: _call(self._body, getattr(np, name), (self,))


for _operator, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    _forward, _reflected, _in_place = _binary(_name)
    setattr(SymbolicArray, f"__{_operator}__", _forward)
    setattr(SymbolicArray, f"__r{_operator}__", _reflected)
    setattr(SymbolicArray, f"__i{_operator}__", _in_place)
for _operator, _name in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(SymbolicArray, f"__{_operator}__", _binary(_name)[0])
for _operator, _name in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(SymbolicArray, f"__{_operator}__", _unary(_name))
