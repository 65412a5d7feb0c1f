"""Modules, containers and their state beside PyTorch's: names, orders, files."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")


def build(t: Any, n: Any) -> Any:
    """The same model in either library."""

    class Block(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = n.Linear(3, 3)
            self.norm = n.BatchNorm1d(3)
            self.register_buffer("table", t.zeros(2), persistent=False)
            self.register_buffer("kept", t.ones(2))
            self.register_parameter("none", None)

        def forward(self, x: Any) -> Any:
            return self.norm(self.lin(x))

    model = n.Sequential()
    model.add_module("first", Block())
    model.register_module("list", n.ModuleList([n.Linear(3, 2), n.ReLU()]))
    model.append(n.ModuleDict({"a": n.Linear(1, 1), "b": n.Identity()}))
    model.extra = n.ParameterList([n.Parameter(t.zeros(2)), n.Parameter(t.ones(1))])
    model.more = n.ParameterDict({"x": n.Parameter(t.zeros(1)), "y": n.Parameter(t.zeros(3))})
    model.again = model.first.lin
    return model


QUESTIONS = [
    lambda m: [name for name, _ in m.named_modules()],
    lambda m: [name for name, _ in m.named_modules(prefix="p", remove_duplicate=False)],
    lambda m: [name for name, _ in m.named_children()],
    lambda m: [name for name, _ in m.named_parameters()],
    lambda m: [name for name, _ in m.named_parameters(prefix="p", recurse=False)],
    lambda m: [name for name, _ in m.named_parameters(remove_duplicate=False)],
    lambda m: [name for name, _ in m.named_buffers()],
    lambda m: [name for name, _ in m.first.named_buffers(recurse=False)],
    lambda m: [tuple(p.shape) for p in m.parameters()],
    lambda m: list(m.state_dict()),
    lambda m: list(m.state_dict(prefix="p.")),
    lambda m: [type(c).__name__ for c in m.modules()],
    lambda m: type(m.get_submodule("first.lin")).__name__,
    lambda m: tuple(m.get_parameter("first.lin.weight").shape),
    lambda m: tuple(m.get_buffer("first.kept").shape),
    lambda m: m.train(False).training or m.first.lin.training,
    lambda m: [p.requires_grad for p in m.requires_grad_(False).parameters()],
    lambda m: str(m.double().first.kept.dtype).removeprefix("torch."),
    lambda m: str(m.half().more["x"].dtype).removeprefix("torch."),
    lambda m: str(m.float().first.norm.num_batches_tracked.dtype).removeprefix("torch."),
    lambda m: len(m) and [name for name, _ in list(m.named_children())[:2]],
    lambda m: repr(m.first.lin),
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_answers(ask: Any) -> None:
    assert ask(build(ox, nn)) == ask(build(torch, torch.nn))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: m.get_submodule("first.gone"),
        lambda m: m.get_submodule("first.lin.weight"),
        lambda m: m.get_parameter("first.kept"),
        lambda m: m.get_buffer("first.lin"),
        lambda m: m.set_submodule("first.gone.deep", m.first),
        lambda m: m.gone,
    ],
)
def test_both_say_there_is_none(wrong: Any) -> None:
    for model in (build(ox, nn), build(torch, torch.nn)):
        with pytest.raises(AttributeError):
            wrong(model)


def test_state_goes_over_and_back() -> None:
    here, there = build(ox, nn), build(torch, torch.nn)
    here.load_state_dict({k: v.numpy() for k, v in there.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    got, expected = here.first(ox.tensor(x)), there.first(torch.tensor(x))
    assert np.allclose(got.detach().array, expected.detach().numpy(), atol=1e-5)
    there.load_state_dict({k: torch.tensor(np.array(v.array)) for k, v in here.state_dict().items()})


@pytest.mark.parametrize("strict", [True, False])
def test_names_that_do_not_fit(strict: bool) -> None:
    given = {"weight": np.zeros((2, 3), np.float32), "more": np.zeros(1, np.float32)}
    here, there = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs = {k: torch.tensor(v) for k, v in given.items()}
    if strict:
        for model, state in ((here, given), (there, theirs)):
            with pytest.raises((ValueError, RuntimeError)):
                model.load_state_dict(state)
        return
    ours = here.load_state_dict(given, strict=False)
    keys = there.load_state_dict(theirs, strict=False)
    assert ours.missing_keys == keys.missing_keys and ours.unexpected_keys == keys.unexpected_keys


def test_lazy() -> None:
    here, there = nn.LazyLinear(4), torch.nn.LazyLinear(4)
    for model, x in ((here, ox.ones(2, 3)), (there, torch.ones(2, 3))):
        assert model.has_uninitialized_params()
        model(x)
        assert type(model).__name__ == "Linear" and tuple(model.weight.shape) == (4, 3)


CONTAINERS = ["Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_have_every_method(name: str) -> None:
    theirs = {n for n in vars(getattr(torch.nn, name)) if not n.startswith("_") or n.startswith("__")}
    dull = {"__module__", "__doc__", "__annotations__", "__dir__", "__firstlineno__", "__static_attributes__"}
    assert not {n for n in theirs - dull if not hasattr(getattr(nn, name), n)}


# what a PyTorch's module has on other devices, compilers and scripts
ELSEWHERE = {"compile", "ipu", "xpu", "mtia", "share_memory", "register_backward_hook", "dump_patches", "T_destination"}


def test_the_module_has_every_method() -> None:
    theirs = {n for n in dir(torch.nn.Module) if not n.startswith("_")} - ELSEWHERE
    assert not {n for n in theirs if not hasattr(nn.Module(), n) and n != "call_super_init"}


@pytest.mark.parametrize(
    "name",
    [
        *("add_module", "apply", "buffers", "children", "eval", "forward", "get_buffer", "get_parameter"),
        *("get_submodule", "load_state_dict", "modules", "named_buffers", "named_children", "named_modules"),
        *("named_parameters", "parameters", "register_buffer", "register_forward_hook", "register_forward_pre_hook"),
        *("register_full_backward_hook", "register_full_backward_pre_hook", "register_module", "register_parameter"),
        *("register_load_state_dict_post_hook", "register_load_state_dict_pre_hook", "requires_grad_"),
        *("set_submodule", "set_extra_state", "to_empty", "train", "type", "zero_grad", "state_dict"),
    ],
)
def test_arguments(name: str) -> None:
    ours = inspect.signature(getattr(nn.Module, name)).parameters.values()
    theirs = inspect.signature(getattr(torch.nn.Module, name)).parameters.values()
    fixed = [p for p in theirs if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    named = {p.name: p.default for p in ours}
    if name not in ("forward", "add_module"):
        assert {p.name: p.default for p in fixed} == {k: v for k, v in named.items() if k in {p.name for p in fixed}}
