"""Comparisons of sizes in the user's code, as rules: at which sizes a recording is right.

A test of named sizes alone is evaluated. One of the size of a value inside is first written in named sizes: the graph
is run at some sizes more, and what follows from one name by a division rounded down, or is a product of two, is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.core.size_expression import Expression, combined, evaluate, leaves, substituted
from ox.export.declared_dims import Sizes
from ox.export.example_inputs import Example
from ox.graph.ir import Array, Graph, Value
from ox.graph.record.recorded import SizeOf, SizeTest
from ox.graph.replay import call
from ox.graph.size_rules import SizeRange, SizeRules, range_around

Seen = Sequence[tuple[Sizes, int]]  # the named sizes of a run, and what a size inside was
MOST_DIVISOR = 64


def named(tests: Iterable[SizeTest]) -> list[SizeTest]:
    """Those that are of named sizes alone."""
    return [t for t in tests if t.expression is not None and all(isinstance(n, str) for n in leaves(t.expression))]


def unstated(tests: Iterable[SizeTest]) -> list[SizeTest]:
    """Those that no rule can state, without numbers that are the same at all sizes."""
    tests = list(tests)
    stated = named(tests)
    return [t for t in tests if t not in stated and not isinstance(t.number, int)]


def agreed(first: Sequence[SizeTest], second: Sequence[SizeTest], runs: tuple[Sizes, Sizes]) -> list[SizeTest]:
    """The tests of the first recording, in which a number that the second had otherwise is the size that it is. A test
    that came out otherwise in the second changed nothing, for both are one graph."""
    if len(first) != len(second):
        return list(first)
    return [
        t if t.expression is None else SizeTest(_agreed(t.expression, u.expression, runs), t.where)
        for t, u in zip(first, second, strict=True)
        if t.expression is None or u.expression is None or t.expression[0] == u.expression[0]
    ]


def _agreed(a: Expression, b: Expression, runs: tuple[Sizes, Sizes]) -> Expression:
    if isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0]:
        left, right = (_agreed(x, y, runs) for x, y in zip(a[1:], b[1:], strict=True))
        return combined(a[0], left, right)
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if not numbers or a == b:
        return a
    return next((name for name in runs[0] if (runs[0][name], runs[1][name]) == (a, b)), None)


def in_named_sizes(tests: Sequence[SizeTest], graph: Graph, example: Example, sizes: Sizes) -> list[SizeTest]:
    """The same tests, without sizes of values inside; where one cannot be written so, the test has no expression."""
    inside = {leaf for t in tests for e in (t.expression, t.number) for leaf in leaves(e) if isinstance(leaf, SizeOf)}
    if not inside:
        return list(tests)
    seen = _runs(inside, graph, example, sizes)
    fits = {leaf: _fit(seen[leaf]) for leaf in inside}
    known = {leaf: e for leaf, e in fits.items() if e is not None}
    return [SizeTest(_known(substituted(t.expression, known)), t.where, substituted(t.number, known)) for t in tests]


def _known(expression: Expression) -> Expression:
    return expression if all(isinstance(leaf, str) for leaf in leaves(expression)) else None


def _runs(inside: Iterable[SizeOf], graph: Graph, example: Example, sizes: Sizes) -> Mapping[SizeOf, list[Any]]:
    """What each size was in runs of the graph, each name varied alone, then all of them."""
    tried = [sizes, {name: n + 1 for name, n in sizes.items()}]
    for name, n in sizes.items():
        steps = [*range(1, 10), n] if name != example.batch else [1]
        tried += [sizes | {name: n + step} for step in steps]
    seen: dict[SizeOf, list[Any]] = {leaf: [] for leaf in inside}
    for each in tried:
        shapes = _shapes(graph, example.cut(each))
        for leaf in inside:
            if leaf.value in shapes:
                seen[leaf].append((each, shapes[leaf.value][leaf.axis]))
    return seen


def _shapes(graph: Graph, arrays: Mapping[str, Array]) -> dict[Value, tuple[int, ...]]:
    """The shapes of values in one run, as far as it comes at these sizes: at some the model may not run."""
    known: dict[Value, Any] = {v: make_tensor(arrays[v.name]) for v in graph.inputs}
    known |= {v: make_tensor(array) for v, array in graph.constants.items()}
    with no_grad():
        for node in graph.nodes:
            try:
                results = call(node, [None if v is None else known[v] for v in node.inputs])
            except Exception:  # an operator that does not take these sizes, or what follows from one
                continue
            known.update(zip(node.outputs, results, strict=False))
    return {v: tuple(x.static_shape) for v, x in known.items() if hasattr(x, "static_shape")}


def _fit(seen: Seen) -> Expression:
    """The expression of named sizes that gives what was seen; None where none does, or several."""
    if not seen:
        return None
    numbers = {n for _, n in seen}
    if len(numbers) == 1:
        return numbers.pop()
    names = list(seen[0][0])
    for name in names:
        if all(sizes[name] == n for sizes, n in seen):
            return name
    for name in names:
        found = _quotient(name, seen) or _multiple(name, seen) or _scaled(name, seen)
        if found is not None:
            return found
    products = [("*", a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return next((p for p in products if all(evaluate(p, sizes) == n for sizes, n in seen)), None)


def _quotient(name: str, seen: Seen) -> Expression:
    """``(name + b) // k``, where exactly one b fits."""
    for k in range(1, MOST_DIVISOR + 1):
        low = max(k * n - sizes[name] for sizes, n in seen)
        high = min(k * n - sizes[name] + k - 1 for sizes, n in seen)
        if low == high:
            moved = name if low == 0 else ("+", name, low) if low > 0 else ("-", name, -low)
            return moved if k == 1 else ("//", moved, k)
        if low < high:
            return None
    return None


def _multiple(name: str, seen: Seen) -> Expression:
    """``k * name + b``."""
    other = next(((sizes, n) for sizes, n in seen if sizes[name] != seen[0][0][name]), None)
    if other is None:
        return None
    k, rest = divmod(other[1] - seen[0][1], other[0][name] - seen[0][0][name])
    b = seen[0][1] - k * seen[0][0][name]
    if rest or not all(k * sizes[name] + b == n for sizes, n in seen):
        return None
    scaled = ("*", k, name)
    return scaled if b == 0 else ("+", scaled, b) if b > 0 else ("-", scaled, -b)


def _scaled(name: str, seen: Seen) -> Expression:
    """``c * ((name + b) // k)``."""
    for c in (2, 3, 4, 8, 16, 32):
        if all(n % c == 0 for _, n in seen):
            inner = _quotient(name, [(sizes, n // c) for sizes, n in seen])
            if inner is not None:
                return ("*", c, inner)
    return None


def rules_of(tests: Sequence[SizeTest], sizes: Sizes, declared: Mapping[str, SizeRange]) -> SizeRules:
    """The rules that tests of named sizes make, and those that were declared."""
    alone: dict[str, list[Expression]] = {name: [] for name in sizes}
    together: list[Expression] = []
    for test in named(tests):
        names = set(leaves(test.expression))
        if len(names) == 1:
            alone[names.pop()].append(test.expression)
        elif names and test.expression not in together:
            together.append(test.expression)
    ranges = {}
    for name, own in sizes.items():
        known = declared.get(name, SizeRange())
        steps = {known.multiple_of, *(step for test in alone[name] for step in _moduli(test))}
        holds = _holds(name, alone[name], known)
        found = range_around(own, holds, steps, min(1, known.min)) if alone[name] else known
        if not found.open:
            ranges[name] = found
    return SizeRules(ranges, tuple(together))


def _moduli(expression: Expression) -> Iterator[int]:
    """The numbers by which remainders are taken."""
    if isinstance(expression, tuple):
        sign, a, b = expression
        if sign == "%" and isinstance(b, int) and b > 0:
            yield b
        yield from (*_moduli(a), *_moduli(b))


def _holds(name: str, tests: Sequence[Expression], known: SizeRange) -> Callable[[int], bool]:
    def holds(size: int) -> bool:
        try:
            sizes = {name: size}
            return size in known and all(evaluate(test, sizes) for test in tests)
        except (ZeroDivisionError, OverflowError):
            return False

    return holds
