"""The order and the kinds of what a module holds, beside PyTorch's: an optimizer's state goes by the position of a
parameter, so another order gives each parameter the moments of another one."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sides import run, split
from test_module_reprs import MODULES

import ox
from ox import nn

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

MORE = """
nn.Transformer(4, 2, 1, 1, 8, bias=False); nn.TransformerEncoderLayer(4, 2, 8); nn.TransformerDecoderLayer(4, 2, 8)
nn.MultiheadAttention(4, 2, add_bias_kv=True); nn.LSTM(2, 3, 2, bidirectional=True, proj_size=2)
nn.RNN(2, 3, 2, bidirectional=True); nn.GRU(2, 3, 2, bidirectional=True); nn.RNNCell(2, 3); nn.GRUCell(2, 3)
nn.InstanceNorm3d(3, affine=True, track_running_stats=True); nn.Conv3d(2, 4, 3); nn.ConvTranspose1d(2, 4, 3)
nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6], head_bias=True); nn.LazyConvTranspose2d(3, 3); nn.NLLLoss(T.ones(3))
nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3)); nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
nn.utils.weight_norm(nn.Linear(2, 3))
nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.LSTM(2, 1))
"""


def size(tensor: Any) -> Any:
    return None if "Uninitialized" in type(tensor).__name__ else tuple(tensor.shape)


def contents(module: Any) -> Any:
    return (
        [(name, size(parameter)) for name, parameter in module.named_parameters()],
        [(name, size(buffer)) for name, buffer in module.named_buffers()],
        list(module.state_dict()),
        [name for name, _ in module.named_modules()],
    )


@pytest.mark.parametrize(
    "module", [each for each in split(MODULES + MORE) if "info" not in each and "load" not in each]
)
def test_a_layer_holds_the_same_in_the_same_order(module: str) -> None:
    assert contents(run(module, {}, 0)) == contents(run(module, {}, 1))


def tensors(t: Any, n: Any, *sizes: int) -> list[Any]:
    return [n.Parameter(t.zeros(size)) for size in sizes]


def changed_list(t: Any, n: Any) -> Any:
    values = n.ParameterList(tensors(t, n, 1, 2, 3))
    values[1] = n.Parameter(t.zeros(5))
    values += tensors(t, n, 6)
    values.append(n.ParameterList(tensors(t, n, 7, 8)))
    values.append(n.Linear(2, 1))
    return values


def changed_dict(t: Any, n: Any) -> Any:
    values = n.ParameterDict(OrderedDict(zip("zya", tensors(t, n, 1, 2, 3), strict=True)))
    values["m"], values["b"] = tensors(t, n, 4, 5)
    values["y"] = t.zeros(6)
    values["z"] = None
    values.update({"q": t.zeros(7), "c": t.zeros(8), "z": t.zeros(9)})
    values.pop("m")
    values.setdefault("aa", t.zeros(10))
    values["nested"] = n.ParameterDict({"d": t.zeros(2), "c": t.zeros(3)})
    return values


def changed_modules(t: Any, n: Any) -> Any:
    values = n.ModuleDict({"z": n.Linear(1, 1), "a": n.Linear(1, 2)})
    values.update({"y": n.Linear(1, 3), "b": n.Linear(1, 4)})
    values.update(n.ModuleDict({"xy": n.Linear(1, 5), "cd": n.Linear(1, 6)}))
    values.update([("w", n.Linear(1, 7)), ("z", n.Linear(1, 8))])
    values.pop("a")
    values["a"] = n.Linear(1, 9)
    return values


def changed_sequence(t: Any, n: Any) -> Any:
    values = n.Sequential(OrderedDict(z=n.Linear(1, 1), a=n.Linear(1, 2)))
    values.append(n.Linear(2, 3))
    values.extend([n.Linear(3, 4)])
    holder = n.Module()
    holder.steps = values
    holder.part = values[1:]
    holder.list = n.ModuleList([n.Linear(1, 1), n.Linear(1, 2)])
    holder.list.insert(0, n.Linear(1, 3))
    holder.list += [n.Linear(1, 4)]
    del holder.list[1]
    return holder


CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "ParameterDict of a dict": lambda t, n: n.ParameterDict({"z": t.zeros(1), "a": t.zeros(2), "m": t.zeros(3)}),
    "of an OrderedDict": lambda t, n: n.ParameterDict(OrderedDict({"z": t.zeros(1), "a": t.zeros(2)})),
    "of a ParameterDict": lambda t, n: n.ParameterDict(n.ParameterDict([("z", t.zeros(1)), ("a", t.zeros(2))])),
    "of pairs": lambda t, n: n.ParameterDict([("z", t.zeros(1)), ("a", t.zeros(2))]),
    "copy": lambda t, n: n.ParameterDict([("z", t.zeros(1)), ("a", t.zeros(2))]).copy(),
    "or a dict": lambda t, n: n.ParameterDict({"n": t.zeros(1)}) | {"z": t.zeros(2), "a": t.zeros(3)},
    "fromkeys": lambda t, n: n.ParameterDict().fromkeys(["z", "a"], t.zeros(2)),
    "ParameterList": changed_list,
    "ParameterDict": changed_dict,
    "ModuleDict": changed_modules,
    "Sequential, ModuleList": changed_sequence,
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_holds_the_same_in_the_same_order(name: str) -> None:
    here, there = CONTAINERS[name](ox, nn), CONTAINERS[name](torch, torch.nn)
    assert contents(here) == contents(there)
    if hasattr(there, "keys"):
        assert list(here.keys()) == list(there.keys())


@pytest.mark.parametrize("wrong", [7, [7], [("a",)], [("a", 1, 2)]], ids=str)
@pytest.mark.parametrize("name", ["ParameterDict", "ModuleDict"])
def test_both_refuse_what_is_not_pairs(name: str, wrong: Any) -> None:
    for n in (nn, torch.nn):
        with pytest.raises((TypeError, ValueError)):
            getattr(n, name)().update(wrong)


def test_moments_go_to_the_parameter_that_they_belong_to() -> None:
    def build(t: Any) -> Any:
        values = t.nn.ParameterDict({"z": t.zeros(2), "a": t.zeros(2)})
        return values, t.optim.Adam(values.parameters(), lr=0.1)

    theirs, optimizer = build(torch)
    (theirs["z"] * 100 + theirs["a"] * 0.01).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    ours, mine = build(ox)
    state = ox.load(file)
    ours.load_state_dict(state["model"])
    mine.load_state_dict(state["optimizer"])
    for name in ("z", "a"):
        expected = optimizer.state[theirs[name]]["exp_avg"].numpy()
        assert np.array_equal(mine.state[ours[name]]["exp_avg"].numpy(), expected)


# a name that is free, or has a value of each kind, gets a value of each kind in each way
KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda t, n: None,
    "attribute": lambda t, n: 5,
    "tensor": lambda t, n: t.ones(1),
    "parameter": lambda t, n: n.Parameter(t.ones(2)),
    "module": lambda t, n: n.Linear(1, 3),
    "buffer": lambda t, n: n.Buffer(t.ones(4)),
    "transient": lambda t, n: n.Buffer(t.ones(5), persistent=False),
}
WAYS: dict[str, Callable[[Any, str, Any], Any]] = {
    "setattr": setattr,
    "register_parameter": lambda m, name, value: m.register_parameter(name, value),
    "register_buffer": lambda m, name, value: m.register_buffer(name, value),
    "transient": lambda m, name, value: m.register_buffer(name, value, persistent=False),
    "add_module": lambda m, name, value: m.add_module(name, value),
    "delete, setattr": lambda m, name, value: (delattr(m, name), setattr(m, name, value)),
}
NAMES = ["x", "on_class", "forward", "a.b", ""]


def registered(t: Any, before: str, way: str, after: str, name: str) -> Any:
    module = type("Model", (t.nn.Module,), {"on_class": None})()
    module.first, module.last = t.nn.Parameter(t.ones(1)), t.nn.Linear(1, 1)
    if before != "free":
        setattr(module, name, KINDS[before](t, t.nn))
    module.register_buffer("table", t.ones(1))
    try:
        WAYS[way](module, name, KINDS[after](t, t.nn))
    except Exception as error:
        bases = (KeyError, TypeError, AttributeError)
        return [base.__name__ for base in bases if isinstance(error, base)]
    return contents(module), name in vars(module), sorted(module._non_persistent_buffers_set)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", ["free", *KINDS])
def test_a_value_under_a_name_that_another_value_has(before: str, way: str) -> None:
    for after in KINDS:
        ours, theirs = (registered(t, before, way, after, "x") for t in (ox, torch))
        assert ours == theirs, after


@pytest.mark.parametrize("way", [way for way in WAYS if way != "delete, setattr"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_be_registered(name: str, way: str) -> None:
    for after in KINDS:
        ours, theirs = (registered(t, "free", way, after, name) for t in (ox, torch))
        assert ours == theirs, after


def test_a_pickled_container_keeps_its_order() -> None:
    values = nn.ParameterDict([("z", ox.zeros(1)), ("a", ox.zeros(2))])
    assert [name for name, _ in pickle.loads(pickle.dumps(values)).named_parameters()] == ["z", "a"]
