"""State hooks, extra state, assigned state, submodules put in place, types, containers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, LoadError


def test_hooks_around_state_dict() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    told: list[Any] = []
    model[0].register_state_dict_pre_hook(lambda m, prefix, keep: told.append((type(m).__name__, prefix, keep)))

    def rename(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
        state[prefix + "w"] = state.pop(prefix + "weight")

    handle = model[0].register_state_dict_post_hook(rename)
    assert list(model.state_dict()) == ["0.w"]
    assert told == [("Linear", "0.", False)]
    handle.remove()
    assert list(model.state_dict(prefix="m.")) == ["m.0.weight"]


def test_hooks_around_load_state_dict() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))

    def old_name(m: Any, state: Any, prefix: str, _: Any, strict: bool, *lists: Any) -> None:
        if prefix + "w" in state:
            state[prefix + "weight"] = state.pop(prefix + "w")

    model[0].register_load_state_dict_pre_hook(old_name)
    given = {"0.w": np.ones((2, 2), np.float32)}
    model.load_state_dict(given)
    assert (model[0].weight.array == 1).all() and list(given) == ["0.w"]

    seen = []
    handle = model.register_load_state_dict_post_hook(lambda m, keys: seen.append(list(keys.unexpected_keys)))
    with pytest.raises(LoadError):
        model.load_state_dict({**given, "more": np.zeros(1)})
    assert seen == [["more"]]
    handle.remove()
    model.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    model.load_state_dict({**given, "more": np.zeros(1)})
    model[0].register_load_state_dict_pre_hook(lambda *a: a[-1].append("not today"))
    with pytest.raises(LoadError, match="not today"):
        model.load_state_dict(given)


def test_extra_state() -> None:
    class Counting(nn.Module):
        count: Any = 3

        def get_extra_state(self) -> Any:
            return self.count

        def set_extra_state(self, state: Any) -> None:
            self.count = state

    model = nn.Sequential(Counting())
    assert model.state_dict() == {"0._extra_state": 3}
    model.load_state_dict({"0._extra_state": {"any": "thing"}})
    assert model[0].count == {"any": "thing"}
    with pytest.raises(LoadError):
        model.load_state_dict({})
    with pytest.raises(ArgumentError, match="no get_extra_state"):
        nn.ReLU().get_extra_state()


def test_assigned_state() -> None:
    model = nn.Linear(2, 2)
    weight = ox.ones(2, 2)
    before = model.bias
    model.load_state_dict({"weight": weight, "bias": nn.Parameter(np.zeros(2, np.float32))}, assign=True)
    assert model.weight.array is weight.array and isinstance(model.weight, nn.Parameter) and model.weight.requires_grad
    assert model.bias is not before


def test_set_submodule() -> None:
    model = nn.Sequential(nn.Sequential(nn.ReLU()))
    model.set_submodule("0.0", nn.Tanh())
    model.set_submodule("0.1", nn.Linear(1, 1))
    assert isinstance(model.get_submodule("0.0"), nn.Tanh) and len(model[0]) == 2
    with pytest.raises(AttributeError):
        model.set_submodule("0.7", nn.ReLU(), strict=True)
    with pytest.raises(AttributeError):
        model.set_submodule("0.1.weight", nn.ReLU())
    with pytest.raises(ArgumentError):
        model.set_submodule("", nn.ReLU())


def test_types() -> None:
    model = nn.BatchNorm1d(2)
    model.type(ox.float64)
    assert model.num_batches_tracked.dtype == ox.float64
    assert model.to_empty(device="cpu") is model and not model.weight.array.any()


def test_a_hook_that_is_always_called() -> None:
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyError("broken")

    seen: list[Any] = []
    model = Broken()
    model.register_forward_hook(lambda *a: seen.append(a[-1]), always_call=True)
    model.register_forward_hook(lambda *a: seen.append("not me"))
    with pytest.raises(KeyError):
        model(1)
    assert seen == [None]


def test_lists_of_modules() -> None:
    a, b, c = (nn.Linear(n, n) for n in (1, 2, 3))
    model = nn.Sequential(a, b)
    assert list(model + nn.Sequential(c)) == [a, b, c] and list(model * 2) == [a, b, a, b] == list(2 * model)
    assert list(model.pop(slice(0, 1))) == [a] and list(model) == [b]
    model += nn.Sequential(a)
    model *= 2
    assert list(model) == [b, a, b, a]
    model[1:3] = [c]
    assert list(model) == [b, c, a] and "0.weight" in model.state_dict()
    with pytest.raises(DTypeError):
        model.__add__([a])
    with pytest.raises(ArgumentError):
        model * 0
    held = nn.ModuleList([a])
    held += [b]
    longer = held + nn.ModuleList([c])
    assert isinstance(longer, nn.ModuleList) and list(longer) == [a, b, c] and held.pop(0) is a


def test_parameter_list() -> None:
    held = nn.ParameterList([ox.ones(2), nn.Parameter(np.zeros(1, np.float32)), "text"])
    assert [n for n, _ in held.named_parameters()] == ["0", "1"] and held[2] == held[-1] == "text" and len(held) == 3
    held[0] = ox.zeros(3)
    held += [ox.ones(1)]
    assert isinstance(held[0], nn.Parameter) and list(held.state_dict()) == ["0", "1", "3"]
    assert len(held[1:]) == 3 and repr(nn.ParameterList()) == "ParameterList()"
    assert "(0): Parameter containing: [float32 of size 3]" in repr(held)
    with pytest.raises(IndexError):
        held[4]
    with pytest.raises(TypeError):
        held.extend(ox.ones(2))
    with pytest.raises(ArgumentError):
        held(1)


def test_parameter_dict() -> None:
    held = nn.ParameterDict({"keys": ox.ones(2), "n": 3})
    assert list(held) == ["keys", "n"] and isinstance(held["keys"], nn.Parameter) and held.get("x", 7) == 7
    held.update([("a", ox.zeros(1))])
    assert list(reversed(held)) == ["a", "n", "keys"] and "a" in held and len(held) == 3
    assert held.setdefault("n", 4) == 3 and held.setdefault("m", 4) == 4
    assert held.popitem() == ("m", 4) and held.pop("n") == 3 and list(held.state_dict()) == ["keys", "a"]
    other = held | {"b": ox.ones(1)}
    assert list(other) == ["keys", "a", "b"] and list(held.copy()) == ["keys", "a"] and other["a"] is held["a"]
    assert list({"z": 1} | held) == ["z", "keys", "a"] and dict(held.fromkeys("xy", 0).items()) == {"x": 0, "y": 0}
    held |= {"c": 1}
    del held["c"]
    held.clear()
    assert not len(held) and not list(held.parameters())
    with pytest.raises(KeyError):
        held["gone"]
    with pytest.raises(TypeError):
        held["a.b"] = ox.ones(1)


def test_a_prefix_leaves_names_and_metadata() -> None:
    from ox.nn.modules.utils import consume_prefix_in_state_dict_if_present

    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    state = nn.ModuleDict({"module": model}).state_dict()
    state["other"] = ox.ones(1)
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == [*model.state_dict(), "other"] and state._metadata == model.state_dict()._metadata
    consume_prefix_in_state_dict_if_present(state, "module.")
    del state["other"]
    model.load_state_dict(state)
    plain = {"module.a": 1, "module": 2}
    consume_prefix_in_state_dict_if_present(plain, "module.")
    assert plain == {"a": 1, "module": 2}


def test_batch_norm_of_no_samples_leaves_the_statistics() -> None:
    for layer, x in (
        (nn.BatchNorm1d(3), ox.zeros(0, 3)),
        (nn.BatchNorm2d(3, track_running_stats=False), ox.zeros(2, 3, 0, 4)),
    ):
        y = layer(x.requires_grad_())
        y.sum().backward()
        assert y.shape == x.shape == x.grad.shape and layer.weight.grad.tolist() == [0, 0, 0]
        if layer.running_mean is not None:
            assert layer.running_mean.tolist() == [0] * 3 and layer.num_batches_tracked.item() == 1
    with pytest.raises(ValueError, match="more than one value"):
        nn.BatchNorm1d(3)(ox.zeros(1, 3))
