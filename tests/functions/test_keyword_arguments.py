"""PyTorch's other keywords: NumPy's names, sizes by name, what changes nothing, and their wrong uses."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core import warn_once
from ox.errors import ArgumentError
from ox.functions.keyword_arguments import keywords

x = ox.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


@rows(
    ("call", "same"),
    [
        (lambda: ox.sum(x, axis=1), lambda: ox.sum(x, 1)),
        (lambda: ox.sum(x=x, axis=1, keepdims=True), lambda: ox.sum(x, 1, True)),
        (lambda: x.cumsum(axis=0), lambda: x.cumsum(0)),
        (lambda: x.unsqueeze(axis=0), lambda: x.unsqueeze(0)),
        (lambda: ox.cat(tensors=[x, x], axis=1), lambda: ox.cat([x, x], 1)),
        (lambda: ox.atan2(x1=x, x2=x), lambda: ox.atan2(x, x)),
        (lambda: ox.split(x, split_size=1)[1], lambda: ox.split(x, 1)[1]),
        (lambda: x.split(split_size=2, dim=1)[1], lambda: x.split(2, 1)[1]),
        (lambda: x.reshape(shape=(3, 2)), lambda: x.reshape(3, 2)),
        (lambda: ox.reshape(input=x, shape=(3, 2)), lambda: x.reshape(3, 2)),
        (lambda: x.view(size=(3, 2)), lambda: x.view(3, 2)),
        (lambda: x.permute(dims=(1, 0)), lambda: x.permute(1, 0)),
        (lambda: x.expand(size=(4, 2, 3)), lambda: x.expand(4, 2, 3)),
        (lambda: x.repeat(repeats=(2, 1)), lambda: x.repeat(2, 1)),
        (lambda: ox.tile(input=x, dims=(2, 1)), lambda: x.tile(2, 1)),
        (lambda: ox.flip(x, dims=[0]), lambda: x.flip(0)),
        (lambda: ox.broadcast_to(x, size=(2, 2, 3)), lambda: x.broadcast_to(2, 2, 3)),
        (lambda: ox.mm(input=x, mat2=x.t()), lambda: x @ x.t()),
        (lambda: ox.linalg.det(A=x[:, :2]), lambda: ox.det(input=x[:, :2])),
        (lambda: ox.zeros(size=(2,), layout=None, pin_memory=True), lambda: ox.zeros(2)),
        (lambda: ox.ones_like(x, layout="strided", memory_format=ox.preserve_format), lambda: ox.ones(2, 3)),
        (lambda: x.new_ones(size=(2,)), lambda: ox.ones(2)),
        (lambda: x.new_full(size=(2,), fill_value=3), lambda: ox.full((2,), 3.0)),
        (lambda: ox.arange(end=3), lambda: ox.tensor([0, 1, 2])),
        (lambda: ox.arange(ox.tensor(1), ox.tensor(3)), lambda: ox.tensor([1, 2])),
        (lambda: ox.linspace(ox.tensor(0.0), ox.tensor(1), 3), lambda: ox.tensor([0.0, 0.5, 1.0])),
        (lambda: ox.var(x, 0, False), lambda: ox.var(x, 0, correction=0)),
        (lambda: ox.softmax(x, 1, ox.float64), lambda: ox.softmax(x.double(), 1)),
    ],
)
def test_another_name_is_the_same_call(call: Any, same: Any) -> None:
    found, expected = call(), same()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.array, expected.array)


@rows(
    ("call", "words"),
    [
        (lambda: ox.sum(x, foo=1), ("sum", "foo")),
        (lambda: ox.sum(x, keepdms=True), ("sum", "keepdms", "keepdim=")),
        (lambda: ox.sum(x, dim=0, axis=1), ("sum", "'dim' twice", "axis")),
        (lambda: ox.sum(x, 1, axis=1), ("sum", "'dim' twice", "axis")),
        (lambda: ox.topk(x), ("topk", "'k'", "expected")),
        (lambda: ox.cumsum(axis=0), ("cumsum", "'input'")),
        (lambda: ox.flatten(x, out=x), ("flatten", "out")),
        (lambda: x.reshape(3, 2, shape=(3, 2)), ("reshape", "'shape' twice")),
        (lambda: x.permute(1, 0, dims=(1, 0)), ("permute", "'dims' twice")),
        (lambda: ox.zeros(2, size=(2,)), ("zeros", "'size' twice")),
        (lambda: ox.zeros(2, sizes=(2,)), ("zeros", "sizes", "size=")),
        (lambda: ox.arange(), ("arange", "end")),
        (lambda: x.new_zeros(2, colour=1), ("new_zeros", "colour")),
    ],
)
def test_a_wrong_keyword_is_a_type_error_that_names_the_function(call: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ox.errors.CallError) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "test_keyword_arguments.py" in str(caught.value)


def test_a_layout_that_tensors_do_not_have_is_refused() -> None:
    with pytest.raises(ox.errors.ArgumentError, match="layout='sparse_coo'"):
        ox.zeros(2, layout="sparse_coo")
    with pytest.raises(ox.errors.ShapeError, match="no dimensions"):
        ox.linspace(x, 1, 3)


def test_a_type_error_of_the_function_itself_is_left_alone() -> None:
    @keywords
    def broken(input: Any, dim: int = 0) -> Any:
        return len(dim)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len") as caught:
        broken(1, axis=2)
    assert not isinstance(caught.value, ox.OxError)


def test_functions_with_keywords_are_pickled_by_name() -> None:
    for function in (ox.sum, ox.softmax, ox.zeros, ox.linalg.svd, ox.fft.fft, ox.concat):
        assert pickle.loads(pickle.dumps(function)) is function


def test_the_nuclear_norm_is_of_two_dimensions() -> None:
    values = ox.tensor(np.diag([3.0, 4.0]))
    assert values.norm("nuc").item() == pytest.approx(7)
    assert ox.norm(values[None], p="nuc", dim=(1, 2), keepdim=True).shape == (1, 1, 1)
    for wrong in (lambda: values.norm("nuc", 0), lambda: values[None].norm("nuc"), lambda: values.norm("fr")):
        with pytest.raises(ox.errors.ArgumentError):
            wrong()


def test_copysign_sends_a_gradient_of_zero_to_the_sign() -> None:
    sizes, signs = ox.tensor([1.0, -2.0]).requires_grad_(), ox.tensor([-1.0, float("inf")]).requires_grad_()
    made = ox.copysign(sizes, signs)
    made.sum().backward()
    assert made.tolist() == [-1, 2]
    assert sizes.grad.tolist() == [-1, -1]
    assert signs.grad.tolist() == [0, 0]


@rows("name", ["add", "maximum", "lt", "exp", "reshape", "where", "isnan"])
def test_a_call_of_one_operator_names_the_function_in_its_type_error(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'colour'"):
        getattr(ox, name)(x, colour=1)


@pytest.mark.parametrize(
    "call",
    [
        *(partial(getattr(ox, f"{name}_like"), x) for name in ("zeros", "ones", "empty", "rand", "randn")),
        partial(ox.full_like, x, 1), partial(ox.randint_like, x, 2), partial(ox.empty, 2, 3),
    ],
)  # fmt: skip
def test_a_memory_format_of_new_tensors(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())
    with pytest.warns(UserWarning, match=r"ox.channels_last changes nothing for new tensors.*x.to\(memory_format="):
        assert call(memory_format=ox.channels_last).is_contiguous()
    call(memory_format=ox.channels_last)  # said once
    call(memory_format=ox.contiguous_format)
    with pytest.raises(ArgumentError, match="memory format"):
        call(memory_format="foo")
