"""A size or a value of the example that leaked into the graph is an error that names the user's line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ExportError

X = np.random.default_rng(0).random((4, 6), dtype=np.float32)


def refused(function: Any, tmp_path: Path, example: Any = X, **arguments: Any) -> ExportError:
    with pytest.raises(ExportError) as caught:
        ox.export.save(function, tmp_path / "model.onnx", example, **arguments)
    assert not list(tmp_path.iterdir())
    assert str(caught.value).endswith("\n  model.onnx was not written")
    return caught.value


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        x = x.reshape(2, -1)
        return self.out(x)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text)


def test_a_literal_size_says_it_as_the_tour_does(tmp_path: Path) -> None:
    error = refused(Head(), tmp_path)
    assert str(error).splitlines() == [
        "the batch size is baked into the model",
        f"  in     Head.forward, test_leaks.py:{line_of('x = x.reshape(2, -1)')}   x = x.reshape(2, -1)",
        "  dim    batch: recorded 2, then 3; Reshape received the constant 2 both times",
        "  try    x.reshape(x.shape[0], -1) or x.flatten(1)",
        "  model.onnx was not written",
    ]


def test_a_literal_size_that_fits_both_times(tmp_path: Path) -> None:
    error = refused(lambda x: x.reshape(2, -1) * 2, tmp_path)
    assert error.what == "the batch size is baked into the model"
    assert "Reshape received the constant 2 both times" in str(error)


def test_a_literal_size_that_stops_the_second_run(tmp_path: Path) -> None:
    error = refused(lambda x: x.reshape(2, 6) + 1, tmp_path)
    assert "Reshape received the constant 2 both times" in str(error) and "x.reshape(2, 6)" in str(error)


def test_a_tensor_of_the_example_size(tmp_path: Path) -> None:
    error = refused(lambda x: x + ox.ones(2, 6), tmp_path)
    assert error.what == "the batch size is baked into the model"
    assert "stopped at the second" in str(error) and "ox.ones(2, 6)" in str(error)


def test_int_of_a_size(tmp_path: Path) -> None:
    error = refused(lambda x: x / int(x.shape[0]), tmp_path)
    assert "batch: recorded 2, then 3; Div received the constant 2.0, then 3.0" in str(error)
    assert "int(x.shape[0])" in str(error) and "x.shape[0] itself" in str(error)


def test_float_arithmetic_on_a_size(tmp_path: Path) -> None:
    error = refused(lambda x: x * math.sqrt(x.shape[0]), tmp_path)
    assert "Mul received the constant 1.414" in str(error) and "then 1.732" in str(error)


def test_a_size_that_counts_inputs(tmp_path: Path) -> None:
    error = refused(lambda x: ox.cat([x] * len(x.array), 1), tmp_path)
    assert "another path" in error.what


def test_a_branch_on_a_size(tmp_path: Path) -> None:
    def branches(x: Any) -> Any:
        if x.shape[0] > 2:
            return x * 2
        return x + 1

    error = refused(branches, tmp_path)
    assert error.what == "the model takes another path at another batch size"
    assert "the code ran Add, then Mul" in str(error) and "return x + 1" in str(error)


def test_a_loop_over_rows(tmp_path: Path) -> None:
    def loops(x: Any) -> Any:
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i]
        return total

    assert "another path" in refused(loops, tmp_path).what


def test_numpy_on_the_data(tmp_path: Path) -> None:
    error = refused(lambda x: x - float(np.mean(x.array)), tmp_path)
    assert error.what == "values of the example are baked into the model"
    assert "np.mean(x.array)" in str(error) and "ox operators" in str(error)


def int_above_zero(x: Any) -> Any:
    return x * int(x.array.max() > 0)


def branch_on_the_sign(x: Any) -> Any:
    return x * 2 if np.sum(vars(x)["array"]) > 0 else x + 1


@rows(
    ("model", "example"),
    [
        (int_above_zero, np.ones((5, 8), np.int64)),
        (int_above_zero, np.arange(40).reshape(5, 8)),
        (int_above_zero, np.zeros((5, 8), np.int32)),
        (int_above_zero, np.full((5, 8), 3, np.uint8)),
        (int_above_zero, X),
        (branch_on_the_sign, np.abs(X)),
        (lambda x: x * bool(getattr(x, "array").min() >= 0), np.abs(X)),  # noqa: B009
        (lambda x: x & bool(x.array.all()), np.ones((5, 8), np.bool_)),
    ],
    ids=["ones", "counts", "zeros", "bytes", "floats", "a branch", "getattr", "bools"],
)
def test_values_that_half_the_example_has_too(tmp_path: Path, model: Any, example: Any) -> None:
    """The sign of a number, and whether it is zero, are the same after a division by two."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"what was there before")
    with pytest.raises(ExportError, match="values of the example are baked into the model"):
        ox.export.save(model, file, example)
    assert file.read_bytes() == b"what was there before"


def test_models_that_take_no_other_signs(tmp_path: Path) -> None:
    """The opposite values are outside of what these take, which says nothing about the file."""
    table = ox.nn.Embedding(40, 4)
    ox.export.save(lambda x: table(x), tmp_path / "table.onnx", np.arange(1, 7).reshape(3, 2))

    def positive_only(x: Any) -> Any:
        if (x.array < 0).any():
            raise ValueError("below zero")
        return x.log()

    ox.export.save(positive_only, tmp_path / "log.onnx", np.abs(X) + 1)


def test_numpy_by_the_front_door(tmp_path: Path) -> None:
    error = refused(lambda x: x - float(x.mean()), tmp_path)
    assert "value of a tensor" in error.what and "float(x.mean())" in str(error)


def test_which_of_two_sizes(tmp_path: Path) -> None:
    error = refused(lambda x: x * int(x.shape[1]), tmp_path, dims={"x": ["batch", "length"]}, input_names=["x"])
    assert error.what == "the size 'length' is baked into the model"
    assert "length: recorded 6, then 5; Mul received the constant 6.0, then 5.0" in str(error)


def test_what_is_no_leak(tmp_path: Path) -> None:
    """Sizes that stay sizes, and literals that speak of other dimensions, are fine."""

    def fine(x: Any) -> Any:
        y = x.reshape(x.shape[0] * 3, 2).reshape(-1, 2, 3) / x.shape[0]
        y = y + ox.zeros(x.shape[0], 1, 1) + ox.arange(x.shape[0]).reshape(-1, 1, 1) * 0.0
        assert x.shape[0] == len(x) and x.shape[1] == 6
        return y.transpose(0, 1).reshape(2, -1)

    report = ox.export.save(fine, tmp_path / "m.onnx", X, golden=None)
    assert report.dims == "x [batch, 6] → output [2, output_1]"


SIZES = {
    "half": lambda x: x[: x.shape[0] // 2],
    "half, rounded up": lambda x: x[: -(-x.shape[0] // 2)],
    "a negative divisor": lambda x: x[: -(x.shape[0] // -2)],
    "divided by a size": lambda x: x[: 5 // x.shape[0]],
    "remainder": lambda x: x[: x.shape[0] % 3],
    "remainder of a negative": lambda x: x[: -x.shape[0] % 4],
    "a number's remainder": lambda x: x[: 7 % x.shape[0]],
    "divmod": lambda x: x[: sum(divmod(x.shape[0], 3))],
    "divmod of a number": lambda x: x[: sum(divmod(7, x.shape[0]))],
    "what a multiple lacks": lambda x: x[: (4 - x.shape[0] % 4) % 4],
}


@rows("case", SIZES)
def test_whole_arithmetic_on_a_size_is_pythons_at_every_size(tmp_path: Path, case: str) -> None:
    function = SIZES[case]
    ox.export.save(function, tmp_path / "model.onnx", X)
    loaded = ox.export.load(tmp_path / "model.onnx")
    for count in range(1, 10):
        x = ox.ones(count, 6)
        assert tuple(loaded(x).shape) == tuple(function(x).shape), count


def test_int_of_a_quotient_names_floor_division(tmp_path: Path) -> None:
    error = refused(lambda x: x[: int(x.shape[0] / 1)] * 2, tmp_path)
    assert error.where is not None and "test_leaks.py" in error.where
    assert error.hint is not None and "a // b" in error.hint
