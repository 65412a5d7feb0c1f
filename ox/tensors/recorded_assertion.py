"""`assert` on values of tensors under a recording, which has none: the check is left out, as PyTorch's exporters do."""

from __future__ import annotations

import ast
import dis
import linecache
from functools import cache
from types import FrameType

from ox.core.warn_once import no_effect

Place = tuple[int | None, int | None, int | None, int | None]  # first line, last line, first column, last column


def passing(frame: FrameType) -> bool | None:
    """What lets an `assert` pass, where a frame asks for the truth of its test, or of a part that `and`, `or` and `not`
    join; None where that is not what the frame does, or its source is not there."""
    code, now = frame.f_code, frame.f_lasti
    places: list[Place] = list(code.co_positions())
    test = _assertions(code.co_filename).get(places[now // 2])
    if test is None:
        return None
    # a compiled test jumps once for each part, in their order; its jumps are marked with any place of the test
    parts, around = test
    jumps = [i.offset for i in dis.get_instructions(code) if "_IF_" in i.opname and places[i.offset // 2] in around]
    asked = [part for part, jump in zip(parts, jumps, strict=False) if jump >= now]
    if len(jumps) != len(parts) or not asked:
        return None
    no_effect("assert on values of tensors", "a recording has none, and the exported model does not check them")
    return asked[0]


@cache
def _assertions(file: str) -> dict[Place, tuple[list[bool], set[Place]]]:
    """What each part of an assertion's test must be and the places of all, by each of these places."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            around = {_place(node)}
            test = (_parts(node.test, True, around), around)
            found.update(dict.fromkeys(around, test))
    return found


def _parts(test: ast.expr, wanted: bool, around: set[Place]) -> list[bool]:
    around.add(_place(test))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _parts(test.operand, not wanted, around)
    if isinstance(test, ast.BoolOp):
        return [part for value in test.values for part in _parts(value, wanted, around)]
    return [wanted] * (len(test.ops) if isinstance(test, ast.Compare) else 1)


def _place(node: ast.expr | ast.stmt) -> Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
