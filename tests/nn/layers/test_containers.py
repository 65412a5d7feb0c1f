"""Sequential, ModuleList and ModuleDict."""

from __future__ import annotations

import pytest

import ox
from ox import nn
from ox.errors import ArgumentError


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
