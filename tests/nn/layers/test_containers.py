"""Sequential, ModuleList and ModuleDict."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, RegistrationError


def test_lists_and_dicts_hold_none_in_a_modules_place() -> None:
    """As networks write it whose last stage has no step of reduction: `ModuleList([block, down if more else None])`."""
    layers = nn.ModuleList([nn.Linear(2, 2), None, nn.Linear(2, 3)])
    assert len(layers) == 3 and layers[1] is None and [m is None for m in layers] == [False, True, False]
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [name for name, _ in layers.named_children()] == ["0", "2"]
    assert layers.eval().double()[0].weight.dtype == ox.float64 and "None" in repr(layers)
    layers.insert(1, nn.ReLU())
    assert [type(m).__name__ for m in layers] == ["Linear", "ReLU", "NoneType", "Linear"]
    del layers[1]
    layers[1] = nn.Tanh()
    assert isinstance(layers.append(None)[1], nn.Tanh) and layers[-1] is None
    assert [type(m).__name__ for m in layers[1:]] == ["Tanh", "Linear", "NoneType"]

    named = nn.ModuleDict({"norm": None, "act": nn.ReLU()})
    assert named["norm"] is None and next(iter(named.values())) is None and list(named.modules())[1:] == [named["act"]]
    copy = nn.ModuleList([nn.Linear(2, 2), None, nn.Linear(2, 3)])
    assert copy.load_state_dict(nn.ModuleList([layers[0].float(), None, layers[2].float()]).state_dict()) is not None


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Sequential accepts only modules"):
        nn.Sequential(nn.ReLU(), None)
    with pytest.raises(ArgumentError, match="ModuleList accepts only modules"):
        nn.ModuleList([nn.ReLU(), len])
    with pytest.raises(ArgumentError, match="ModuleDict accepts only modules"):
        nn.ModuleDict({"a": 1})


def test_the_keys_of_a_plain_dict_are_sorted_in_a_parameter_dict() -> None:
    """As in PyTorch, so that the state of its optimizers, which goes by position, fits."""
    held = nn.ParameterDict({"z": ox.ones(1), "a": ox.ones(2)})
    held.update({"y": ox.ones(3), "b": ox.ones(4)})
    held.update(OrderedDict(x=ox.ones(5), c=ox.ones(6)))
    held.update(nn.ParameterDict([("w", ox.ones(7)), ("d", ox.ones(8))]))
    assert [name for name, _ in held.named_parameters()] == [*"az", *"by", *"xc", *"wd"]
    assert list(held.copy()) == list(held) and list(held | {"v": 1, "e": 2})[-2:] == ["e", "v"]


def test_parameter_containers_register_modules() -> None:
    held = nn.ParameterList([ox.ones(1), nn.ParameterList([ox.ones(2)])])
    held[0] = None
    assert [name for name, _ in held.named_parameters()] == ["1.0"] and held[0] is None
    held[1] = 5
    assert not list(held.parameters()) and list(held) == [None, 5]


def test_module_dicts_take_one_another_and_pairs() -> None:
    held = nn.ModuleDict(nn.ModuleDict({"zy": nn.ReLU(), "ab": nn.Tanh()}))
    held.update([("m", nn.GELU())])
    assert list(held) == ["zy", "ab", "m"]
    for wrong in (7, [7], [("a",)], ox.ones(2)):
        with pytest.raises((DTypeError, ArgumentError), match="ModuleDict"):
            held.update(wrong)


def test_a_name_that_something_else_has_is_not_registered() -> None:
    class Model(nn.Module):
        on_class = None

    model = Model()
    model.weight, model.head, model.plain = nn.Parameter(ox.ones(1)), nn.ReLU(), 5
    for name in ("head", "weight", "plain", "on_class"):
        with pytest.raises(KeyError, match="already exists") as error:
            model.register_buffer(name, ox.ones(1))
        assert isinstance(error.value, RegistrationError) and f"del module.{name}" in str(error.value)
    with pytest.raises(RegistrationError):
        model.on_class = nn.Parameter(ox.ones(1))  # reading it would give what the class has
    for call in (
        lambda: model.register_buffer("b", 5),
        lambda: model.register_parameter("p", ox.ones(1)),
        lambda: model.add_module("m", ox.relu),
    ):
        with pytest.raises(TypeError, match="cannot register"):
            call()
