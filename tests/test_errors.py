"""Errors speak one language: what, where (the user's line), expected, got, what to try."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from rows import rows

import ox
from ox import errors
from ox.errors import ArgumentError, BoundsError, DTypeError, LoadError, OxError, ShapeError, first_line

BUILT_IN = {
    "ShapeError": ValueError, "DTypeError": TypeError, "ArgumentError": ValueError, "BoundsError": IndexError,
    "GradientError": RuntimeError, "LinAlgError": RuntimeError, "DeviceError": RuntimeError,
    "OutOfMemoryError": MemoryError, "RecordError": RuntimeError, "DistributedError": RuntimeError,
    "WorkerError": RuntimeError, "ExportError": RuntimeError,
    "LoadError": ValueError, "WriteError": OSError, "TrainError": RuntimeError, "RecipeError": ValueError,
    "ServeError": RuntimeError,
}  # fmt: skip


def test_the_tree_of_classes_is_the_docstrings() -> None:
    found = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type)
        and issubclass(kind, OxError)
        and kind is not OxError
        and kind.__module__ == "ox.errors"
    }
    assert set(BUILT_IN) <= set(found)
    drawn = dict(re.findall(r"── (\w+) +\((\w+)\)", errors.__doc__ or ""))
    for name, kind in found.items():
        assert kind.__doc__
        assert issubclass(kind, RuntimeError)
        if name in BUILT_IN:
            assert issubclass(kind, BUILT_IN[name])
            assert drawn[name] == BUILT_IN[name].__name__


def test_the_format() -> None:
    error = ShapeError(
        "what", where="train.py:3   x @ y", expected="[2]", got="one\ntwo", hint="this", extra={"dimension": "batch"}
    )
    assert str(error) == (
        "what\n  in        train.py:3   x @ y\n  dimension batch\n  expected  [2]\n  got       one\n            two\n"
        "  try       this"
    )
    assert error.one_line() == "what; in train.py:3   x @ y; dimension batch; expected [2]; got one\\ntwo; try this"
    assert str(OxError("only this")) == "only this"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ShapeError
    assert str(again) == str(error)


def run(code: str, **names: Any) -> OxError:
    with pytest.raises(OxError) as caught:
        exec(compile(code, "mine.py", "exec"), {"ox": ox, **names})
    return caught.value


def test_the_tours_first_example_on_plain_tensors() -> None:
    error = run("\ny = x @ w", x=ox.ones(64, 512), w=ox.ones(784, 128))
    assert isinstance(error, ShapeError)
    lines = str(error).splitlines()
    assert lines[0] == "MatMul cannot multiply [64, 512] by [784, 128]"
    assert lines[1].startswith("  in       mine.py:2")


# code on x [2, 3], and what the message must hold besides the line
@rows(
    "code, kind, parts",
    [
        ("x + ox.ones(4)", ShapeError, ["Add", "[2, 3]", "[4]"]),
        ("x * ox.ones(3, 2)", ShapeError, ["Mul", "[2, 3]", "[3, 2]"]),
        ("x > ox.ones(2)", ShapeError, ["Greater", "[2, 3]", "[2]"]),
        ("ox.where(x > 0, x, ox.ones(5))", ShapeError, ["Where", "[5]"]),
        ("x @ x", ShapeError, ["MatMul cannot multiply [2, 3] by [2, 3]"]),
        ("x @ x.T.long()", DTypeError, ["MatMul", "float32", "int64", "x.to(ox.float32)"]),
        ("x.reshape(4, 2)", ShapeError, ["Reshape", "[4, 2]", "[2, 3]", "multiply to 6"]),
        ("x.expand(2, 4)", ShapeError, ["[2, 3] does not broadcast to [2, 4]"]),
        ("ox.cat([x, ox.ones(2, 2)])", ShapeError, ["Concat", "[2, 3]", "[2, 2]"]),
        ("ox.cat([x, 3])", ArgumentError, ["tensor 1 is no tensor", "int", "ox.tensor"]),
        ("ox.stack([x, x.T])", ShapeError, ["[1, 2, 3]", "[1, 3, 2]"]),
        ("x.split([1, 2])", ShapeError, ["Split", "[2, 3]", "add to 2"]),
        ("x.squeeze(2)", BoundsError, ["dimension 2", "-2 to 1"]),
        ("x[2]", BoundsError, ["index 2 is outside dimension 0", "-2 to 1"]),
        ("x[ox.tensor([0, 5])]", BoundsError, ["points outside", "5"]),
        ("x.gather(1, ox.tensor([[7]]))", BoundsError, ["gather's index", "0 to 2", "7"]),
        ("x.index_select(1, ox.tensor([7]))", BoundsError, ["index_select's index", "7"]),
        ("x.gather(1, x)", DTypeError, ["gather's index", "int64", "float32"]),
        ("x.gather(1, ox.tensor([0]))", ShapeError, ["gather", "[2, 3]", "[1]"]),
        ("x.scatter(0, ox.tensor([[0]]), ox.ones(1, 1).long())", DTypeError, ["scatter", "float32", "int64"]),
        ("ox.tensor([1]).mean()", DTypeError, ["mean", "int64", "x.float().mean()"]),
        ("ox.ones(2) & ox.ones(2)", DTypeError, ["bools and integers", "float32"]),
        ("ox.div(x, 'a')", DTypeError, ["cannot be combined with str"]),
        ("x.to('nonsense')", DTypeError, ["nonsense", "ox.float32"]),
        ("x.item()", ArgumentError, ["one element", "[2, 3]"]),
        ("if x == x: pass", ArgumentError, ["ambiguous", "ox.equal"]),
        ("x.fill_('a')", OxError, []),
        ("x.clamp()", ArgumentError, ["min, max or both"]),
        ("ox.ops.Add(x)", OxError, ["Add"]),
        ("ox.ops.Add(x, x, axis=1)", ArgumentError, ["Add", "axis"]),
        ("ox.ops.Add(x, x.long())", DTypeError, ["one type for 'A' and 'B'", "never promotes"]),
        ("ox.ops.Softmax(x, axis=7)", OxError, ["Softmax"]),
        ("ox.ops.Cast(x, to=8)", ArgumentError, ["TensorProto type 8"]),
        ("ox.ops.Transpose(x, perm=[0, 0])", ShapeError, ["Transpose", "perm=[0, 0]"]),
        ("x.backward()", OxError, ["does not depend", "requires_grad_"]),
    ],
)
def test_bad_input(code: str, kind: type[OxError], parts: list[str]) -> None:
    error = run(code, x=ox.ones(2, 3))
    assert isinstance(error, kind)
    text = str(error)
    for part in parts:
        assert part in text
    assert text.splitlines()[0].strip()
    assert error.where is not None
    assert error.where.startswith("mine.py:1")


def test_a_device_that_is_not_there() -> None:
    from ox.devices import cuda

    try:
        cuda.cupy()
    except errors.DeviceError:
        with pytest.raises(errors.DeviceError) as caught:
            ox.ones(1).to("cuda")
        assert caught.value.hint
    else:
        pytest.skip("CUDA is there")


def test_the_place_is_the_users_line_and_its_text() -> None:
    with pytest.raises(ShapeError) as caught:
        ox.ones(2) + ox.ones(3)  # here
    assert caught.value.where.startswith("test_errors.py:")
    assert caught.value.where.endswith("ox.ones(2) + ox.ones(3)  # here")


def test_an_error_of_ox_finds_the_users_line_by_itself() -> None:
    raising = "from ox.errors import ArgumentError\ndef inner(): return ArgumentError('no')\n"
    raising += "def outer(): return inner()\n"
    ours: dict[str, Any] = {}
    exec(compile(raising, str(Path(ox.__file__).with_name("imagined.py")), "exec"), ours)
    made = ours["outer"]()  # here
    assert made.where.startswith("test_errors.py:") and made.where.endswith('made = ours["outer"]()  # here')

    class Net(ox.nn.Module):
        def forward(self) -> Any:
            return ours["outer"]()

    assert Net()().where.startswith("Net, test_errors.py:")
    assert ArgumentError("of somebody else's code").where is None
    assert copy.copy(made).where == made.where == pickle.loads(pickle.dumps(made)).where


def test_no_line_where_pythons_library_or_an_event_loop_stands_between() -> None:
    """The line that runs a server has not sent the request; one that calls `copy.deepcopy` has asked for the copy."""
    x = ox.ones(2, requires_grad=True) * 2
    with pytest.raises(errors.GradientError) as caught:
        copy.deepcopy(x)  # here
    assert str(caught.value.where).endswith("copy.deepcopy(x)  # here")
    seen: list[Any] = []

    async def main() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.set_exception_handler(lambda _, context: [seen.append(context["exception"]), over.set()])
        loop.call_soon(ox.ones(2).item)
        await over.wait()

    asyncio.run(main())
    assert isinstance(seen[0], ArgumentError) and not seen[0].where


def test_no_traceback_of_the_library_below() -> None:
    """A TypeError, ValueError or IndexError that catches keeps working; a second cause is not shown for our own."""
    with pytest.raises(ValueError, match="cannot multiply") as caught:
        ox.ones(2, 3) @ ox.ones(2, 3)
    assert caught.value.__cause__ is None or caught.value.__suppress_context__


def test_long_strings_of_a_file_are_shown_by_their_start() -> None:
    error = LoadError("m.onnx: " + 3000 * "x", got=2000 * "ab ")
    assert str(error) == f"m.onnx: {200 * 'x'}…\n  got    {(2000 * 'ab ')[:2000]}…"


def test_first_lines_of_messages() -> None:
    assert first_line(ValueError("\n  one \ntwo")) == "one"
    assert first_line(MemoryError()) == "MemoryError"
    assert first_line(ValueError(" \n")) == "ValueError"


def test_no_first_line_is_read_of_a_message_that_may_be_empty() -> None:
    """Foreign libraries also raise exceptions without a message."""
    unsafe = re.compile(r"str\(\w+\)(\.strip\(\))?\.splitlines\(\)\[")
    package = Path(ox.__file__).parent
    assert not [str(path) for path in package.rglob("*.py") if unsafe.search(path.read_text(encoding="utf-8"))]


def test_one_line_is_one() -> None:
    error = ArgumentError("there is no 'a\r\nb\u2028\0'", got="\ud800 and ü", expected="x")
    assert error.one_line().isprintable() and "\\r\\nb\\u2028\\x00" in error.one_line() and "ü" in error.one_line()
    error.one_line().encode()
