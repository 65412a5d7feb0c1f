"""The source of a region's kernel, in the language of ox/kernels/source: the same text serves CPUs and GPUs.

A kernel goes over the tensors of a table (blocks.h), each of which is one region: a line holds the addresses of what
the region reads and writes, and its number of elements; or of rows, where some input is broadcast.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

import numpy as np

from ox.dtypes import DType, bfloat16
from ox.engines.native.body import Instruction
from ox.engines.native.c_functions import BOOL, COMPUTED, NUMBERS, STORED, cast, functions_of, literal, name_of, rounded
from ox.engines.native.fold import Folded
from ox.engines.native.regions import Region
from ox.engines.native.symbolic import Shape
from ox.graph.ir import Value

BLOCK, GPU_BLOCK = 16384, 1024  # elements of a block on a CPU and on a GPU, as in blocks.h
EXACT = frozenset(("where", "negative", "absolute", "maximum", "minimum", "sign", "copysign", "positive"))
CPU_HEAD, GPU_HEAD = '#include "generated.h"\n', '#include "blocks.h"\n'
ROW_REDUCTIONS = {"row_sum": "sum", "row_mean": "sum", "row_max": "max"}
CHEAP = frozenset((*NUMBERS, *BOOL, "input", "constant", "cast", "divide", "negative", "sqrt", "reciprocal", "isnan"))
MOST_KEPT, LONGEST_KEPT = 4, 1024  # arrays of a row on a thread's stack, and elements of each


@dataclass
class Kernel:
    """The text of a region's kernel, and what its table's lines hold. NAME stands in the text for its name, and WIDTH
    for the elements that a block counts for where threads share blocks."""

    text: str
    line: list[Value]  # of which values the addresses are, in order
    count: int  # elements, or rows
    inner: int  # elements of a row; 1 where elements are counted
    finish: bool  # whether a second kernel, NAME_finish, adds up the sums of the blocks


def kernel_of(region: Region, folded: Folded) -> Kernel:
    """The kernel of a region."""
    return _Writer(region, folded).kernel()


def source_of(kernels: dict[str, str], head: str = CPU_HEAD) -> str:
    """The source of kernels by name: each text once."""
    return head + "".join(f"\n{text.replace('NAME', name)}" for text, name in kernels.items())


class _Writer:
    def __init__(self, region: Region, folded: Folded) -> None:
        self.region, self.body = region, region.body.instructions
        self.live = self._live()
        self.used = [v for i, v in enumerate(region.inputs) if any(
            self.body[k].name == "input" and self.body[k].payload == i for k in self.live
        )]  # fmt: skip
        self.shapes = {v: folded.sizes[v] for v in self.used}
        self.output_shapes = {v: folded.sizes[v] for v in region.outputs}
        over = {state: new for new, state in region.in_place.items()}
        self.line = [*self.used, *[v for v in region.outputs if region.in_place.get(v) not in self.used]]
        self.total = region.total
        if self.total is not None:
            self.line.append(self.total.value)
        self.names = {v: f"p{i}" for i, v in enumerate(self.line)}
        for state, new in over.items():
            if state in self.names:
                self.names[new] = self.names[state]
        self.written = {v for v in self.line if v in region.outputs or v in over}
        self.width = len(self.line) + (1 if self.total is None else 4)
        self.reduces_rows = any(self.body[k].name in ROW_REDUCTIONS for k in self.live)
        axes = [self._axes(v) for v in self.used]
        self.loops = _rows_of(region.shape, axes) if self.reduces_rows else _loops(region.shape, axes)

    def _live(self) -> list[int]:
        """The instructions that outputs need, in order."""
        needed = set(self.region.outputs.values())
        if self.region.total is not None:
            needed.add(self.region.total.place)
        for k in reversed(range(len(self.body))):
            if k in needed:
                needed.update(self.body[k].arguments)
        return sorted(needed)

    def _axes(self, value: Value) -> tuple[bool, ...]:
        """For each axis of the region whether the input has it."""
        shape, rank = self.shapes[value], len(self.region.shape)
        aligned = (1,) * (rank - len(shape)) + shape
        return tuple(n == m for n, m in zip(aligned, self.region.shape, strict=True))

    def kernel(self) -> Kernel:
        if len(self.loops) == 1:
            return self._flat()
        return self._reduced_rows() if self.reduces_rows else self._rows()

    def _flat(self) -> Kernel:
        single = self.region.size == 1
        loads = {}
        before = ""
        for v in self.used:
            everywhere = not single and not any(
                has for has, n in zip(self._axes(v), self.region.shape, strict=True) if n > 1
            )
            if everywhere:
                before += f"    const {_type(v.dtype)} s{self.names[v]} = {_load(v, self.names[v], '0')};\n"
            loads[v] = f"s{self.names[v]}" if everywhere else _load(v, self.names[v], "i")
        uniform, varying = self._statements(loads, {v for v in self.used if loads[v].startswith("s")})
        size = self.region.size
        loop = self._loop("end - begin", ["const long long i = begin + c;", *varying], "i", 4)
        if self.total is not None:
            pieces = ["const long long i = k + c;", *varying]
            loop = (
                "    double total = 0.0;\n    for (long long k = begin; k < end; k += PIECE) {\n"
                f"{self._loop('k + PIECE < end ? PIECE : end - k', pieces, 'i', 8)}    }}\n    partials[b] = total;\n"
            )
        end = f"block_end(begin, line[{len(self.line)}])"
        text = f"{self._head(end)}{before}{_lines(uniform, 4)}{loop}}} END\n"
        return self._kernel(text, f"line[{len(self.line)}]", size, 1)

    def _rows(self) -> Kernel:
        inner, rows = self._rows_and_columns()
        offsets, loads, constant = self._loads_of_rows()
        uniform, varying = self._statements(loads, constant)
        head = self._head(self._end_of_rows(inner))
        summed = self.total is not None
        text = (
            f"{head}{'    double total = 0.0;' if summed else ''}\n    for (long long r = begin; r < end; r++) {{\n"
            f"        const long long at = r * {inner};\n{offsets}{_lines(uniform, 8)}"
            f"{self._loop(str(inner), varying, 'at + c', 8)}    }}\n"
            f"{'    partials[b] = total;' if summed else ''}\n}} END\n"
        )
        return self._kernel(text, f"line[{len(self.line)}] * {inner}", rows, inner)

    def _rows_and_columns(self) -> tuple[int, int]:
        """The elements of a row, and the number of rows."""
        *outer, (inner, _) = self.loops
        return inner, prod(n for n, _ in outer)

    def _end_of_rows(self, inner: int) -> str:
        """The row behind the last one of a block. Their number stands in the table: kernels serve any batch."""
        rows = f"line[{len(self.line)}]"
        return f"begin + block_rows({inner}) < {rows} ? begin + block_rows({inner}) : {rows}"

    def _loads_of_rows(self) -> tuple[str, dict[Value, str], set[Value]]:
        """Statements at the start of a row, the text that loads each input, and the inputs with one number a row."""
        starts, loads, row_values = "", {}, ""
        every = set(range(len(self.loops)))
        constant: set[Value] = set()
        for k, v in enumerate(self.used):
            has = {j for j, (_, axes) in enumerate(self.loops) if axes[k]}
            name = self.names[v]
            if has == every:
                loads[v] = _load(v, name, "at + c")
                continue
            offset = _offset(has, [n for n, _ in self.loops])
            if len(self.loops) - 1 in has:
                starts += f"        const long long at_{name} = {offset};\n"
                loads[v] = _load(v, name, f"at_{name} + c")
            else:
                row_values += f"        const {_type(v.dtype)} s{name} = {_load(v, name, offset)};\n"
                loads[v] = f"s{name}"
                constant.add(v)
        return starts + row_values, loads, constant

    def _reduced_rows(self) -> Kernel:
        """A loop over the row for each of its sums and maxima, and one that stores. Each computes what it needs, save
        for expensive numbers of an earlier loop, which are kept."""
        inner, rows = self._rows_and_columns()
        starts, loads, constant = self._loads_of_rows()
        statements, same = self._statements_by_place(loads, constant)
        whole = [v for v in self.region.outputs if self.output_shapes[v] == self.region.shape]
        stored = [self.region.outputs[v] for v in whole]
        keep = self._worth_keeping(stored, same) if inner <= LONGEST_KEPT else []
        kept: set[int] = set()  # by the loops so far

        def loop(head: tuple[str, str], places: list[int], end: str) -> str:
            """`head` is that of a loop, and of one with numbers that other loops share."""
            inside, needed = "", self._needed(places, same, kept)
            for k in needed:
                kind = _type(self.body[k].dtype)
                inside += f"            {f'const {kind} v{k} = t{k}[KEPT_AT(c)];' if k in kept else statements[k]}\n"
                if k in keep and k not in kept:
                    inside += f"            t{k}[KEPT_AT(c)] = v{k};\n"
                    kept.add(k)
            return f"{head[not kept.isdisjoint(needed)]}{{\n{inside}{end}        }}"

        text = self._head(self._end_of_rows(inner))
        for k in keep:
            kind = _type(self.body[k].dtype)
            text += f"    KEPT({kind}, kept{k}, {inner});\n    {kind}* RESTRICT t{k} = kept{k};\n"
        text += f"    for (long long r = begin; r < end; r++) {{\n        const long long at = r * {inner};\n{starts}"
        for k in (k for k in self.live if k in same):
            each = self.body[k]
            if each.name in ROW_REDUCTIONS:
                share = f" / {inner}.0f" if each.name == "row_mean" else ""
                name = ROW_REDUCTIONS[each.name]
                heads = f"ox_{name}({inner}, [=](long long c) ", f"ox_unrolled_{name}<{inner}>([=](long long c) "
                result = f"            return v{each.arguments[0]};\n"
                text += f"        const float v{k} = {loop(heads, [*each.arguments], result)}){share};\n"
            else:
                text += f"        {statements[k]}\n"
        if whole:
            heads = f"COLUMNS(c, {inner}) ", f"UNROLLED_COLUMNS(c, {inner}) "
            text += f"        {loop(heads, stored, self._stores('at + c', 12, whole))}\n"
        text += self._stores("r", 8, [v for v in self.region.outputs if v not in whole])
        return self._kernel(f"{text}    }}\n}} END\n", "", rows, inner)

    def _worth_keeping(self, stored: list[int], same: set[int]) -> list[int]:
        """Expensive instructions that several loops over a row need."""
        loops = [list(self.body[k].arguments) for k in self.live if self.body[k].name in ROW_REDUCTIONS]
        count = Counter(k for places in [*loops, stored] for k in self._needed(places, same, set()))
        return [k for k in self.live if count[k] > 1 and self.body[k].name not in CHEAP][-MOST_KEPT:]

    def _needed(self, places: list[int], same: set[int], kept: set[int]) -> list[int]:
        """The instructions that a loop computes or takes from what was kept, for the numbers at these places."""
        needed: set[int] = set()
        waiting = list(places)
        while waiting:
            k = waiting.pop()
            if k not in needed and k not in same:
                needed.add(k)
                if k not in kept:
                    waiting += self.body[k].arguments
        return sorted(needed)

    def _head(self, end: str) -> str:
        text = (
            f"ROWS(NAME, b, blocks, WIDTH, const long long* RESTRICT table, const long long* RESTRICT plan) {{\n"
            f"    const long long *line = table + {self.width} * plan[2 * b], begin = plan[2 * b + 1];\n"
            f"    const long long end = {end};\n{self._pointers()}"
        )
        if self.total is not None:
            text += f"    double* RESTRICT partials = (double*)line[{len(self.line) + 1}];\n"
        return text

    def _loop(self, count: str, statements: list[str], index: str, indent: int) -> str:
        """A loop over `count` elements, which sums up if there is a total."""
        inside = _lines(statements, indent + 4) + self._stores(index, indent + 4)
        space = " " * indent
        if self.total is None:
            return f"{space}COLUMNS(c, {count}) {{\n{inside}{space}}}\n"
        result = f"{space}    return v{self.total.place};\n"
        return f"{space}total += ox_sum({count}, [=](long long c) {{\n{inside}{result}{space}}});\n"

    def _kernel(self, text: str, elements: str, count: int, block: int) -> Kernel:
        """With the kernel that adds up the sums of blocks in their order: rounding does not depend on threads."""
        if self.total is not None:
            n = len(self.line)
            share = f" / (double)({elements})" if self.total.is_mean else ""
            text += (
                "ROWS(NAME_finish, t, tensors, 1, const long long* RESTRICT table, const long long* RESTRICT plan) {\n"
                f"    const long long* line = table + {self.width} * t;\n"
                f"    const double* RESTRICT partials = (const double*)line[{n + 1}] + line[{n + 2}];\n"
                f"    *(float*)line[{n - 1}] = (float)(ox_sum_of(partials, line[{n + 3}]){share});\n}} END\n"
            )
        return Kernel(text, self.line, count, block, self.total is not None)

    def _pointers(self) -> str:
        text = ""
        for i, v in enumerate(self.line):
            if self.total is not None and v is self.total.value:
                continue
            kind = ("" if v in self.written else "const ") + STORED[name_of(v.dtype)]
            text += f"    {kind}* RESTRICT {self.names[v]} = ({kind}*)line[{i}];\n"
        return text

    def _statements(self, loads: dict[Value, str], constant: set[Value]) -> tuple[list[str], list[str]]:
        """The statements of what is the same for all elements of a loop, and of the others."""
        statements, same = self._statements_by_place(loads, constant)
        return [t for k, t in statements.items() if k in same], [t for k, t in statements.items() if k not in same]

    def _statements_by_place(self, loads: dict[Value, str], constant: set[Value]) -> tuple[dict[int, str], set[int]]:
        """The statements of all live instructions but reductions of rows; and of all, which give the same for all
        elements of a loop."""
        statements: dict[int, str] = {}
        same: set[int] = set()
        for k in self.live:
            is_same = self.body[k].name in ROW_REDUCTIONS
            if not is_same:
                is_same, statements[k] = self._statement(k, loads, constant, same)
            if is_same:
                same.add(k)
        return statements, same

    def _statement(self, k: int, loads: dict[Value, str], constant: set[Value], same: set[int]) -> tuple[bool, str]:
        """Whether an instruction gives the same for all elements of a loop, and its statement."""
        each = self.body[k]
        if each.name == "input":
            value = self.region.inputs[each.payload]
            is_same, text = value in constant, loads[value]
        else:
            is_same = all(a in same for a in each.arguments)
            text = _expression(each, [(f"v{a}", self.body[a].dtype) for a in each.arguments])
        return is_same, f"const {_type(each.dtype)} v{k} = {text};"

    def _stores(self, index: str, indent: int = 8, outputs: list[Value] | None = None) -> str:
        text = ""
        for v in self.region.outputs if outputs is None else outputs:
            value = f"v{self.region.outputs[v]}"
            if v.dtype == bfloat16:
                value = f"to_bfloat16({value})"
            text += f"{' ' * indent}{self.names[v]}[{index}] = {value};\n"
        return text


def _loops(shape: Shape, inputs: list[tuple[bool, ...]]) -> list[tuple[int, tuple[bool, ...]]]:
    """The fewest nested loops over a shape: neighbouring axes that each input has, or has not, are one loop. For each
    its length, and which inputs have it. An input of no axes at all does not count."""
    loops = _nested(shape, inputs)
    plain = [all(not has for has, n in zip(axes, shape, strict=True) if n > 1) for axes in inputs]
    if all(everywhere or all(pattern[k] for _, pattern in loops) for k, everywhere in enumerate(plain)):
        return [(prod(shape), ())]
    return loops


def _rows_of(shape: Shape, inputs: list[tuple[bool, ...]]) -> list[tuple[int, tuple[bool, ...]]]:
    """The same with the last axis as a loop of its own."""
    outer = _nested(shape[:-1], [axes[:-1] for axes in inputs])
    return [*outer, (shape[-1], tuple(axes[-1] for axes in inputs))]


def _nested(shape: Shape, inputs: list[tuple[bool, ...]]) -> list[tuple[int, tuple[bool, ...]]]:
    loops: list[tuple[int, tuple[bool, ...]]] = []
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        pattern = tuple(axes[axis] for axes in inputs)
        if loops and loops[-1][1] == pattern:
            loops[-1] = (loops[-1][0] * n, pattern)
        else:
            loops.append((n, pattern))
    return loops


def _offset(has: set[int], lengths: list[int]) -> str:
    """The place of row r of an input that has some of the loops."""
    last = len(lengths) - 1
    stride = lengths[last] if last in has else 1
    terms: list[str] = []
    for j in reversed(range(last)):
        if j in has:
            below = prod(lengths[j + 1 : last])
            index = f"r / {below}" if below > 1 else "r"
            terms.append(f"({index}) % {lengths[j]} * {stride}" if j else f"({index}) * {stride}")
            stride *= lengths[j]
    return " + ".join(terms) or "0"


def _type(dtype: DType | None) -> str:
    return COMPUTED[name_of(dtype)]


def _load(value: Value, name: str, index: str) -> str:
    text = f"{name}[{index}]"
    if value.dtype == bfloat16:
        return f"from_bfloat16({text})"
    return f"{text} != 0" if value.dtype is not None and value.dtype.kind == "b" else text


def _expression(each: Instruction, arguments: list[tuple[str, DType]]) -> str:
    if each.name == "constant":
        return literal(np.frombuffer(each.payload, each.dtype)[0])
    if each.name == "cast":
        return cast(arguments[0][0], arguments[0][1], each.dtype)
    text = functions_of(arguments[-1][1])[each.name].format(*[name for name, _ in arguments])
    if each.dtype == bfloat16 and each.name not in EXACT:
        return rounded(text)
    if each.dtype.kind in "iu":
        return f"({_type(each.dtype)})({text})"
    return text


def _lines(statements: list[str], indent: int) -> str:
    return "".join(f"{' ' * indent}{each}\n" for each in statements)
