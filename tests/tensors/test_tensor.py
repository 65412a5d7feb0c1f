"""The Tensor itself: out to Python and NumPy, types, printing. Parity with PyTorch is in tests/parity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, BoundsError, DTypeError, GradientError, ShapeError


@rows(
    "text, dtype",
    [
        ("i32 + i64", ox.int64),
        ("i8 + u8", ox.int16),
        ("i64 + f16", ox.float16),
        ("f16 + bf16", ox.float32),
        ("f32 + f64", ox.float64),
        ("b + u8", ox.uint8),
        ("b + b", ox.bool),
        ("i8 + 1", ox.int8),
        ("i8 + 1.5", ox.float32),
        ("b + 1", ox.int64),
        ("f16 * 2.5", ox.float16),
        ("f16 * np.float64(2.5)", ox.float16),
        ("bf16 + 1", ox.bfloat16),
        ("i32 + i64[0]", ox.int32),  # no dimensions: only another kind promotes
        ("i32[0] + f16", ox.float16),
        ("i32 + f64[0]", ox.float64),
        ("f32 + f64[0]", ox.float32),
        ("f64[0] + f32", ox.float32),
        ("b + i8[0]", ox.int8),
        ("f64[0] + i64[0]", ox.float64),
        ("i64 / i64", ox.float32),
        ("i64 // i64", ox.int64),
        ("i64 ** 2", ox.int64),
        ("i64 ** 2.0", ox.float32),
        ("i8.sum()", ox.int64),
        ("b.sum()", ox.int64),
        ("f16.sum()", ox.float16),
        ("bf16.mean()", ox.bfloat16),
        ("f32 > 1", ox.bool),
        ("ox.where(b, i8, f16)", ox.float16),
        ("ox.cat([i8, f16, b])", ox.float16),
        ("np.ones(3) + f32", ox.float64),
        ("np.float32(2) * f64", ox.float64),
    ],
)
def test_types_meet(text: str, dtype: ox.dtypes.DType) -> None:
    names = {
        name: ox.tensor([1, 2, 3]).to(kind)
        for name, kind in {
            "i8": ox.int8, "u8": ox.uint8, "i32": ox.int32, "i64": ox.int64, "b": ox.bool,
            "f16": ox.float16, "bf16": ox.bfloat16, "f32": ox.float32, "f64": ox.float64,
        }.items()
    }  # fmt: skip
    result = eval(text, {"ox": ox, "np": np}, names)
    assert isinstance(result, ox.Tensor)
    assert result.dtype == dtype


def test_the_default_type_of_floats() -> None:
    assert ox.get_default_dtype() == ox.float32
    ox.set_default_dtype(ox.float64)
    try:
        assert ox.tensor([1.5]).dtype == ox.float64
        assert (ox.tensor([1]) / 2).dtype == ox.float64
        assert ox.zeros(2).dtype == ox.float64
    finally:
        ox.set_default_dtype(ox.float32)


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(ArgumentError, match="300 does not fit uint8") as caught:
        ox.tensor([1], dtype=ox.uint8) + 300
    assert "test_tensor.py" in caught.value.where
    assert (ox.tensor([1.0], dtype=ox.float16) + 1e6).tolist() == [math.inf]
    x = ox.tensor([0.0, 1.0])
    assert [math.copysign(1, v) for v in (x * -0.0).tolist()] == [-1, -1]
    assert [math.copysign(1, v) for v in (x[1:] * 0.0).tolist()] == [1]  # -0.0 and 0.0 are not one constant
    assert math.isnan((x + math.nan)[0].item())


def test_integer_division_rounds_down_and_takes_the_divisors_sign() -> None:
    a, b = ox.tensor([7, -7, 7, -7]), ox.tensor([2, 2, -2, -2])
    assert (a // b).tolist() == [3, -4, -4, 3]
    assert (a % b).tolist() == [1, 1, -1, -1]
    assert (7.5 // ox.tensor([2.0, -2.0])).tolist() == [3, -4]
    assert (ox.tensor(1.0, dtype=ox.float64) // 0.1).item() == 9  # as Python
    assert (a / b).tolist() == [3.5, -3.5, -3.5, 3.5]
    with pytest.raises(ArgumentError, match="divided by zero"):
        a // 0


def test_bits_and_bools() -> None:
    i, b = ox.tensor([6, 3], dtype=ox.uint8), ox.tensor([True, False])
    assert ((i & 3).tolist(), (i | 8).tolist(), (i ^ 1).tolist(), (~i).tolist()) == (
        [2, 3],
        [14, 11],
        [7, 2],
        [249, 252],
    )
    assert (~ox.tensor([5, -1])).tolist() == [-6, 0]
    assert ((b & True).tolist(), (b | b).tolist(), (b ^ True).tolist(), (~b).tolist()) == (
        [True, False],
        [True, False],
        [False, True],
        [False, True],
    )
    with pytest.raises(DTypeError, match="bools and integers"):
        ox.ones(2) & b


def test_smallest_values_do_not_overflow() -> None:
    x = ox.tensor([-128, 5, 127], dtype=ox.int8)
    assert x.min().item() == -128
    assert x.argmin().item() == 0
    assert ox.tensor([200, 3], dtype=ox.uint8).min().item() == 3


def test_numpy_shares_memory_both_ways() -> None:
    array = np.zeros((2, 3), np.float32)
    t = ox.from_numpy(array)
    array[0, 0] = 1
    t[1, 2] = 2
    t.numpy()[0, 1] = 3
    assert array.tolist() == t.tolist() == [[1, 3, 0], [0, 0, 2]]
    assert t.numpy() is array
    assert np.asarray(t) is array
    assert np.shares_memory(ox.as_tensor(array).numpy(), array)
    assert not np.shares_memory(ox.tensor(array).numpy(), array)
    assert np.array(t) is not array
    assert np.asarray(t, np.float64).dtype == np.float64
    view = ox.from_numpy(array[:, 1:])
    view.zero_()
    assert array.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert np.sin(t).shape == (2, 3)


def test_numpy_of_a_tracked_tensor() -> None:
    x = ox.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match="requires a gradient") as caught:
        x.numpy()
    assert caught.value.hint == "x.detach().numpy()"
    with ox.no_grad():
        x.numpy()
    assert np.asarray(x).tolist() == [1, 1]  # reading is harmless


def test_numpy_on_the_left_gives_a_tensor() -> None:
    t = ox.ones(3)
    for result in (np.ones(3, np.float32) + t, np.float32(2) * t, np.ones(3) / t, np.ones((3, 3), np.float32) @ t):
        assert isinstance(result, ox.Tensor)
    assert (np.arange(3) == ox.arange(3)).all()


def test_out_to_python() -> None:
    t = ox.tensor([[1, 2], [3, 4]])
    assert t.tolist() == [[1, 2], [3, 4]]
    assert [row.tolist() for row in t] == t.tolist()
    assert len(t) == 2
    assert ox.tensor(2.5, dtype=ox.bfloat16).item() == 2.5
    assert type(ox.tensor(2.5, dtype=ox.float16).item()) is float
    assert type(ox.tensor(2, dtype=ox.uint8).item()) is int
    assert ox.tensor([1.5], dtype=ox.bfloat16).tolist() == [1.5]
    assert list(range(5))[ox.tensor(3)] == 3
    assert 3 in t
    assert 9 not in t
    assert hash(t) == hash(t)
    assert bool(ox.tensor([0.5]))
    assert (int(ox.tensor(2.7)), float(ox.tensor(2))) == (2, 2.0)
    assert t.__eq__(None) is NotImplemented
    assert t != "a"


def test_what_python_cannot_have() -> None:
    t = ox.ones(2)
    with pytest.raises(ArgumentError, match="ambiguous") as caught:
        if t == t:
            pass
    assert "ox.equal" in caught.value.hint
    with pytest.raises(ArgumentError, match="one element"):
        t.item()
    with pytest.raises(TypeError, match="no length"):
        len(ox.tensor(1))
    with pytest.raises(TypeError):
        list(ox.tensor(1))
    with pytest.raises(DTypeError, match="index or a count"):
        range(ox.tensor(2.0))
    with pytest.raises(ArgumentError, match="ambiguous"):
        bool(ox.zeros(0))


def test_repr() -> None:
    assert repr(ox.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(ox.tensor(3)) == "tensor(3)"
    assert repr(ox.tensor([True])) == "tensor([ True])"
    assert repr(ox.zeros(2, dtype=ox.float16)) == "tensor([0., 0.], dtype=ox.float16)"
    assert repr(ox.ones(1, dtype=ox.bfloat16)) == "tensor([1.], dtype=ox.bfloat16)"
    assert repr(ox.ones(1, requires_grad=True)) == "tensor([1.], requires_grad=True)"
    assert repr(ox.ones(1, requires_grad=True) * 2) == "tensor([2.], grad_fn=<MulBackward>)"
    assert repr(ox.zeros(0, 3)) == "tensor([], size=(0, 3))"
    assert repr(ox.zeros(0)) == "tensor([])"
    assert len(repr(ox.zeros(1000, 1000))) < 500
    assert eval(repr(ox.tensor([[1, 2]], dtype=ox.int8)), {"tensor": ox.tensor, "ox": ox}).dtype == ox.int8


def test_types_and_devices() -> None:
    t = ox.tensor([1.7, -1.7])
    assert t.long().tolist() == [1, -1]
    assert t.to(ox.float64).dtype == ox.float64
    assert t.to("cpu") is t
    assert t.to(ox.float32) is t
    assert t.device == "cpu"
    for wrong in ("nonsense", np.complex64, object()):
        with pytest.raises(DTypeError, match="no element type"):
            t.to(wrong)
    x = ox.ones(2, requires_grad=True)
    x.double().half().float().sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_shapes_and_views() -> None:
    t = ox.arange(6)
    m = t.reshape(2, 3)
    m[0, 0] = 9
    assert t[0].item() == 9
    assert m.T.shape == (3, 2)
    assert not m.T.is_contiguous()
    assert m.T.contiguous().is_contiguous()
    assert m.contiguous() is m
    assert m.T.reshape(6).tolist() == [9, 3, 1, 4, 2, 5]
    with pytest.raises(ShapeError, match="Reshape cannot make") as caught:
        m.reshape(4, 2)
    assert "multiply to 6" in caught.value.expected


@rows(
    "call",
    ["m.sum(2)", "m.softmax(-3)", "m.transpose(0, 2)", "m.squeeze(2)", "m.unsqueeze(-4)", "m.flatten(2)", "m.max(5)",
     "m.split(1, 2)", "m.size(2)", "m.gather(2, m.long())", "ox.cat([m, m], 2)", "ox.stack([m, m], 3)", "m.argmax(2)",
     "m.var(2)", "m.unbind(2)", "m.narrow(2, 0, 1)", "m.permute(0, 2)", "m.flip(2)"],
)  # fmt: skip
def test_a_dimension_that_is_not_there(call: str) -> None:
    with pytest.raises(BoundsError) as caught:
        eval(call, {"m": ox.ones(2, 2), "ox": ox})
    assert "to" in caught.value.expected
    assert isinstance(caught.value, IndexError)


def test_a_tensor_of_one_element_formats_as_its_number() -> None:
    loss = ox.tensor(1.23456, requires_grad=True)
    assert f"{loss:.3f} {loss.detach():8.1e}" == "1.235  1.2e+00"
    assert f"{loss}" == str(loss.item())
    with pytest.raises(ArgumentError, match="one element"):
        format(ox.ones(2), ".3f")


def test_a_size_of_nothing_cannot_be_divided() -> None:
    with pytest.raises(ShapeError, match="the size -1 cannot be computed"):
        ox.ones(3, 4).reshape(0, -1)


def test_data_is_the_memory_outside_the_graph() -> None:
    x = ox.ones(3, requires_grad=True)
    y = (x * x).sum()
    x.data.add_(1.0)  # not counted: the gradient is of what is there now
    y.backward()
    assert not x.data.requires_grad and x.tolist() == [2.0, 2.0, 2.0]
    assert x.grad is not None and x.grad.tolist() == [4.0, 4.0, 4.0]
    x.data.add_(x.grad, alpha=-0.5)
    assert x.tolist() == [0.0, 0.0, 0.0] and x.is_leaf and x.requires_grad


def test_data_can_be_another_tensor() -> None:
    x, other = ox.ones(2, requires_grad=True), ox.zeros(2, 2)
    x.data = other
    assert x.shape == (2, 2) and x.requires_grad
    other.fill_(5.0)
    assert x.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    with pytest.raises(ArgumentError, match="is set to a tensor"):
        x.data = 3.0  # type: ignore[assignment]
    with pytest.raises(DTypeError, match="element type"):
        x.data = ox.zeros(2, dtype=ox.float64)


def test_a_shape_knows_how_many_elements_it_makes() -> None:
    x = ox.zeros(2, 3, 4)
    assert x.shape == (2, 3, 4) and repr(x.shape) == "(2, 3, 4)"
    assert x.shape.numel() == 24 and x.shape[1:].numel() == 12 and x.shape[:1] + x.shape[1:] == x.shape
    assert isinstance(x.shape, ox.Size) and isinstance(x.size()[:1], ox.Size) and ox.Size([2, 3]) == (2, 3)
    assert ox.zeros(x.shape[:2]).shape == (2, 3)


def test_numpys_functions_give_tensors() -> None:
    x = ox.tensor([1.0, 4.0])
    assert isinstance(np.sqrt(x), ox.Tensor) and np.sqrt(x).tolist() == [1.0, 2.0]
    assert isinstance(np.ones(2, np.float32) * x, ox.Tensor) and isinstance(np.float32(2) * x, ox.Tensor)
    assert isinstance(np.concatenate([x, x]), np.ndarray)


def test_where_a_tensor_lies() -> None:
    x = ox.ones(2)
    assert x.is_cpu and not x.is_cuda and not x.is_quantized
    assert x.pin_memory().to("cpu", non_blocking=True) is x and not x.is_pinned()


def test_a_number_is_formatted_as_a_number() -> None:
    loss = ox.tensor(1.5, requires_grad=True) * 2
    assert f"{loss} {loss:.2f}" == "3.0 3.00"
    assert f"{ox.tensor([1.5])}" == "tensor([1.5000])"
    assert f"{ox.nn.Parameter(ox.tensor(1.5))}".startswith("Parameter containing")


@rows(
    ("args", "names", "dtype"),
    [
        ((), {}, ox.float32),
        ((None,), {}, ox.float32),
        ((ox.float64,), {}, ox.float64),
        (("cpu",), {}, ox.float32),
        (("cpu:0", ox.float64), {}, ox.float64),
        ((ox.device("cpu"), ox.float16, True), {}, ox.float16),
        ((None, ox.int64, False, True), {}, ox.int64),
        ((ox.ones(1, dtype=ox.int8),), {}, ox.int8),
        ((ox.ones(1, dtype=ox.int8), True, True), {}, ox.int8),
        ((), {"tensor": ox.ones(1, dtype=ox.int8)}, ox.int8),
        ((), {"device": "cpu", "dtype": ox.bool, "non_blocking": True, "copy": True}, ox.bool),
        (("cpu",), {"dtype": ox.float64, "memory_format": ox.contiguous_format}, ox.float64),
    ],
)
def test_to_takes_all_forms(args: tuple[object, ...], names: dict[str, object], dtype: object) -> None:
    x = ox.ones(2, 2)
    made = x.to(*args, **names)
    assert made.dtype == dtype
    assert made.device == "cpu"
    copied = names.get("copy") or args[-2:] in ((False, True), (True, True))
    assert (made is x) == (dtype == ox.float32 and not copied)


@rows(
    ("args", "names", "words"),
    [
        (("cpu", "cpu"), {}, "'device' twice"),
        ((ox.float32,), {"dtype": ox.float64}, "'dtype' twice"),
        ((ox.ones(1),), {"dtype": ox.float64}, "'dtype' twice"),
        ((True, True, True), {}, "two bools"),
        (("gpu",), {}, "'gpu'"),
        ((), {"colour": 1}, "colour"),
    ],
)
def test_wrong_forms_of_to_are_type_errors(args: tuple[object, ...], names: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        ox.ones(2).to(*args, **names)
    if words != "colour":
        with pytest.raises(TypeError, match=words):
            ox.nn.Linear(1, 1).to(*args, **names)


def test_numpy_of_any_tensor_by_force() -> None:
    x = ox.ones(2).requires_grad_()
    with pytest.raises(GradientError):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1, 1]
