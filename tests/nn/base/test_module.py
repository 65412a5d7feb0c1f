"""Module: registration, walking, state, hooks, repr, errors."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.core import warn_once
from ox.errors import ArgumentError, BoundsError, DTypeError, GradientError, LoadError, ShapeError


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 3)
        self.fc2 = nn.Linear(3, 2, bias=False)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.fc2(self.fc1(x).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = Head()
        self.scale = nn.Parameter(np.ones(2, np.float32))
        self.table = nn.Buffer(np.arange(2.0, dtype=np.float32), persistent=False)
        self.note = "not registered"

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.head(self.norm(x)) * self.scale + self.table


def batch(*shape: int) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


# -- registration and walking --------------------------------------------------------------------------------------


def test_names() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "scale", "norm.weight", "norm.bias", "head.fc1.weight", "head.fc1.bias", "head.fc2.weight",
    ]  # fmt: skip
    assert [n for n, _ in net.named_buffers()] == [
        "table", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert [n for n, _ in net.named_modules()] == ["", "norm", "head", "head.fc1", "head.fc2"]
    assert [n for n, _ in net.named_children()] == ["norm", "head"]
    assert "table" not in net.state_dict() and "norm.running_mean" in net.state_dict()
    assert [n for n, _ in net.head.named_parameters(prefix="x", recurse=False)] == []
    assert net.get_submodule("head.fc1") is net.head.fc1
    assert net.get_parameter("head.fc1.bias") is net.head.fc1.bias
    assert net.get_buffer("norm.running_var") is net.norm.running_var
    with pytest.raises(AttributeError, match=r"no parameter 'head\.fc1\.nothing'"):
        net.get_parameter("head.fc1.nothing")


def test_what_is_shared_is_counted_once() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(list(net.parameters())) == 2
    assert sorted(net.state_dict()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4


def test_assignment() -> None:
    net = Net()
    net.scale = None
    assert net.scale is None and "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter(np.zeros(2, np.float32))
    assert "scale" in dict(net.named_parameters())
    with pytest.raises(ArgumentError, match="cannot assign Tensor to 'scale'"):
        net.scale = ox.zeros(2)
    net.table = ox.zeros(2)
    assert dict(net.named_buffers())["table"] is net.table
    with pytest.raises(ArgumentError, match="cannot assign int to 'head'"):
        net.head = 3
    net.head = nn.Identity()
    del net.table
    assert not hasattr(net, "table")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = net.nothing
    net.plain = 1
    net.plain = nn.Linear(1, 1)
    assert isinstance(net.plain, nn.Linear) and "plain" not in net.__dict__


def test_registering() -> None:
    net = nn.Module()
    net.register_parameter("w", nn.Parameter(np.ones(1, np.float32)))
    net.register_buffer("b", ox.ones(1), persistent=False)
    net.add_module("m", nn.ReLU())
    assert list(net.state_dict()) == ["w"] and isinstance(net.m, nn.ReLU)
    for name in ("a.b", "", "forward"):
        with pytest.raises(ArgumentError):
            net.register_buffer(name, ox.ones(1))


def test_super_init_comes_first() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    with pytest.raises(ArgumentError, match=r"before Module.__init__") as caught:
        Early()
    assert "super().__init__()" in str(caught.value)


def test_no_forward() -> None:
    with pytest.raises(ArgumentError, match="Module has no forward"):
        nn.Module()(1)


def test_train_eval_apply_requires_grad() -> None:
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    assert net.train().training and net.head.fc1.training
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["BatchNorm1d", "Linear", "Linear", "Head", "Net"]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad() -> None:
    net = Net()
    net(batch(5, 4)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all((p.grad.array == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_to_another_type() -> None:
    net = Net()
    weight = net.head.fc1.weight
    assert net.double().head.fc1.weight is weight and weight.dtype == ox.float64
    assert net.norm.num_batches_tracked.dtype == ox.int64
    assert net(batch(5, 4).double()).dtype == ox.float64
    net.to(ox.float16)
    assert weight.dtype == ox.float16 and weight.requires_grad
    assert net.to(ox.zeros(1)).head.fc1.weight.dtype == ox.float32
    with pytest.raises(ArgumentError, match="only take a floating type"):
        net.to(ox.int64)


def test_a_move_between_forward_and_backward_is_noticed() -> None:
    net = nn.Linear(2, 2)
    loss = net(batch(3, 2).requires_grad_()).sum()
    net.double()
    with pytest.raises(GradientError):
        loss.backward()


def test_deepcopy() -> None:
    net = Net()
    other = copy.deepcopy(net)
    for (n, p), (m, q) in zip(net.named_parameters(), other.named_parameters(), strict=True):
        assert n == m and p is not q and (p.array == q.array).all() and q.requires_grad
        assert not np.shares_memory(p.array, q.array)
    other(batch(5, 4)).sum().backward()
    assert net.scale.grad is None and other.scale.grad is not None
    assert "table" not in other.state_dict()


# -- state ---------------------------------------------------------------------------------------------------------


def test_state_goes_over() -> None:
    a, b = Net(), Net()
    a(batch(5, 4))
    result = b.load_state_dict(a.state_dict())
    assert result.missing_keys == [] and result.unexpected_keys == []
    x = batch(3, 4)
    assert (a.eval()(x).array == b.eval()(x).array).all()
    state = a.state_dict()
    assert np.shares_memory(state["scale"].array, a.scale.array) and not state["scale"].requires_grad
    assert a.state_dict(keep_vars=True)["scale"] is a.scale
    assert list(a.state_dict(prefix="net.")) == ["net." + name for name in state]


def test_state_of_another_architecture_changes_nothing() -> None:
    net = Net()
    before = {k: v.array.copy() for k, v in net.state_dict().items()}
    state: dict[str, Any] = {k: np.zeros_like(v) for k, v in before.items()}
    state["extra"] = np.zeros(1)
    del state["norm.bias"]
    state["head.fc1.weight"] = np.zeros((5, 4), np.float32)
    with pytest.raises(LoadError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("the state does not fit Net")
    assert "missing    norm.bias" in text
    assert "unexpected extra" in text
    assert "shapes     head.fc1.weight [3, 4] (given [5, 4])" in text
    assert all((net.state_dict()[k].array == v).all() for k, v in before.items())
    with pytest.raises(LoadError, match="does not fit"):
        net.load_state_dict(state, strict=False)
    del state["head.fc1.weight"]
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["norm.bias", "head.fc1.weight"] and result.unexpected_keys == ["extra"]
    assert (net.scale.array == 0).all()


def test_loading_casts() -> None:
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": np.ones((1, 2), np.float64), "bias": np.ones(1, np.float16)})
    assert net.weight.dtype == ox.float32 and (net.weight.array == 1).all()


# -- hooks ---------------------------------------------------------------------------------------------------------


def test_forward_hooks() -> None:
    net = nn.Identity()
    calls: list[str] = []
    first = net.register_forward_pre_hook(lambda m, args: calls.append("pre"))
    net.register_forward_pre_hook(lambda m, args: args[0] + 1.0, prepend=True)
    net.register_forward_hook(lambda m, args, y: calls.append(f"post {args[0].item()}"))
    net.register_forward_hook(lambda m, args, kwargs, y: y * 2.0, with_kwargs=True)
    assert net(ox.tensor(1.0)).item() == 4
    first.remove()
    first.remove()
    net(ox.tensor(2.0))
    assert calls == ["pre", "post 2.0", "post 3.0"]
    with net.register_forward_pre_hook(lambda m, args: (ox.tensor(9.0),)):
        assert net(ox.tensor(0.0)).item() == 18  # it comes after the one that adds 1
    assert net(ox.tensor(0.0)).item() == 2


def test_backward_hooks() -> None:
    layer = nn.Linear(3, 2, bias=False)
    seen: list[Any] = []
    layer.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2.0,))
    handle = layer.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    x = batch(4, 3).requires_grad_()
    layer(x).sum().backward()
    ((given,), (out,)) = seen[0]
    assert (out.array == 2).all() and np.allclose(given.array, 2 * layer.weight.array.sum(0))
    assert np.allclose(x.grad.array, given.array)
    handle.remove()
    layer.register_full_backward_hook(lambda m, given, out: (given[0] * 0.0,))
    x.grad = None
    layer(x).sum().backward()
    assert len(seen) == 1 and (x.grad.array == 0).all()


def test_backward_hook_of_several_inputs_and_outputs() -> None:
    class Two(nn.Module):
        def forward(self, a: ox.Tensor, n: int, b: ox.Tensor) -> tuple[ox.Tensor, ox.Tensor]:
            return a * b, a + b

    two, seen = Two(), []
    two.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    a, b = ox.tensor(3.0).requires_grad_(), ox.tensor(5.0).requires_grad_()
    p, q = two(a, 1, b)
    (p + q * 10.0).backward()
    given, out = seen[0]
    assert [g if g is None else g.item() for g in given] == [15.0, None, 13.0]
    assert [g.item() for g in out] == [1.0, 10.0]
    assert (a.grad.item(), b.grad.item()) == (15.0, 13.0)


def test_backward_hook_without_tracked_inputs() -> None:
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    layer(batch(4, 3)).sum().backward()
    assert seen[0][0] == (None,) and seen[0][1][0].shape == (4, 2)
    with ox.no_grad():
        layer(batch(4, 3))


# -- showing and errors --------------------------------------------------------------------------------------------


def test_repr() -> None:
    assert repr(Net()) == (
        "Net(\n"
        "  (norm): BatchNorm1d(4, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n"
        "  (head): Head(\n"
        "    (fc1): Linear(in_features=4, out_features=3, bias=True)\n"
        "    (fc2): Linear(in_features=3, out_features=2, bias=False)\n"
        "  )\n"
        ")"
    )


def test_reprs_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for make in (
        lambda m: m.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False),
        lambda m: m.Conv2d(4, 6, 3, padding="same", dilation=2, padding_mode="reflect"),
        lambda m: m.Sequential(m.MaxPool2d(2), m.AvgPool2d(3, 1), m.AdaptiveAvgPool2d((1, None)), m.Dropout(0.2)),
        lambda m: m.Sequential(m.LayerNorm(3), m.GELU("tanh"), m.Softmax(1), m.Flatten(), m.Embedding(5, 2, 0)),
        lambda m: m.ModuleDict({"a": m.ReLU(), "b": m.ModuleList([m.Tanh()])}),
        lambda m: m.CrossEntropyLoss(),
    ):
        assert repr(make(nn)) == repr(make(torch.nn))


def test_a_wrong_shape_names_module_expected_and_got() -> None:
    net = Net()
    net.norm = nn.Identity()
    with pytest.raises(ShapeError) as caught:
        net(batch(64, 12))
    text = str(caught.value)
    assert "cannot multiply [64, 12] by [4, 3]" in text
    assert "Net.head.fc1 (Linear), test_module.py:" in text and "return self.fc2(self.fc1(x).relu())" in text
    assert "expected input [..., 4]" in text and "got      input [64, 12]" in text
    assert "try      nn.Linear(12, 3), or check the pooling before it" in text


@rows(
    ("layer", "x", "texts"),
    [
        (nn.Linear(4, 3), batch(2, 8, 8, 4, 3), ["input [..., 4]"]),
        (nn.Linear(48, 3), batch(2, 3, 4, 4), ["nn.Flatten() before it"]),
        (nn.Conv2d(3, 4, 3), batch(2, 5, 8, 8), ["expected input [batch, 3, height, width]", "nn.Conv2d(5, 4, ...)"]),
        (nn.Conv2d(3, 4, 3), batch(2, 8, 8, 3), ["x.permute(0, 3, 1, 2)"]),
        (nn.Conv2d(3, 4, 3), batch(2, 8), ["[batch, 3, height, width]", "2 dimensions"]),
        (nn.BatchNorm2d(3), batch(2, 5, 4, 4), ["expected input [batch, 3, height, width]", "nn.BatchNorm2d(5)"]),
        (nn.BatchNorm2d(3), batch(2, 3), ["BatchNorm2d does not take 2 dimensions"]),
        (nn.BatchNorm2d(1), batch(2, 5, 4, 4), ["nn.BatchNorm2d(5)"]),
        (nn.BatchNorm1d(3), batch(1, 3), ["more than one value a channel"]),
        (nn.LayerNorm(1), batch(2, 5), ["over [1]", "nn.LayerNorm(5)"]),
        (nn.Embedding(5, 2), ox.tensor([[1, 7]]), ["out of range", "0 to 4", "got      7"]),
        (nn.Embedding(5, 2), ox.tensor([[1, -1]]), ["got      -1"]),
        (nn.MaxPool2d(2), batch(2, 2), ["MaxPool2d does not take 2 dimensions"]),
        (nn.MultiheadAttention(4, 2), batch(2, 3, 5), ["expected query [..., 4]"]),
    ],
)
def test_wrong_shapes(layer: Any, x: Any, texts: list[str]) -> None:
    with pytest.raises((ShapeError, BoundsError)) as caught:
        layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
    for text in [*texts, type(layer).__name__, "test_module.py"]:
        assert text in str(caught.value), str(caught.value)


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(4), nn.LayerNorm(4)])
def test_wrong_types(layer: Any) -> None:
    for dtype in (ox.float64, ox.int64):
        with pytest.raises(DTypeError) as caught:
            layer(ox.ones(2, 4, 4, 4).to(dtype))
        assert "expected input float32" in str(caught.value) and "x.to(ox.float32)" in str(caught.value)
    with pytest.raises(DTypeError, match="embedding does not take float32"):
        nn.Embedding(3, 2)(batch(2))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (ox.tensor([0, 4]), "class out of range"),
        (ox.tensor([0, -1]), "got      -1"),
        (ox.tensor([[0], [1]]), r"target \[2\] for input \[2, 4\]"),
        (ox.tensor([0, 1, 2]), "cannot score"),
        (ox.ones(2), "target"),
    ],
)
def test_wrong_targets(target: ox.Tensor, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        nn.CrossEntropyLoss()(batch(2, 4), target)
    with pytest.raises(ShapeError, match="compares values one by one"):
        nn.MSELoss()(batch(2, 1), batch(2))
    with pytest.raises(DTypeError, match="targets of type bool"):
        nn.CrossEntropyLoss()(batch(2, 4), ox.tensor([True, False]))


@rows(
    "make",
    [
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(3, 4, 3, padding="some"),
        lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"),
        lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"),
        lambda: nn.Conv2d(3, 4, (3, 3, 3)),
        lambda: nn.Dropout(1.5),
        lambda: nn.MultiheadAttention(5, 2),
        lambda: nn.MSELoss(reduction="average"),
        lambda: nn.CrossEntropyLoss(label_smoothing=2),
        lambda: nn.GELU("fast"),
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lambda: nn.Sequential(nn.ReLU(), 3),
    ],
)
def test_what_layers_refuse(make: Any) -> None:
    with pytest.raises(ArgumentError):
        make()


# -- containers ----------------------------------------------------------------------------------------------------


def test_sequential() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[-1], nn.Linear) and len(net[:2]) == 2
    net.append(nn.Tanh()).insert(1, nn.Sigmoid())
    assert [type(m).__name__ for m in net] == ["Linear", "Sigmoid", "ReLU", "Linear", "Tanh"]
    del net[1]
    net[1] = nn.Identity()
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    named = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    assert list(named.state_dict()) == ["a.weight", "a.bias"] and named(batch(1, 2)).shape == (1, 2)
    with pytest.raises(IndexError):
        net[7]


def test_list_and_dict() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers.extend([nn.ReLU()])
    assert len(layers) == 4 and len(list(layers.parameters())) == 6 and len(layers.__add__([nn.Tanh()])) == 5
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    assert list(named) == ["a", "b"] and "a" in named and list(dict(named.items())) == ["a", "b"]
    assert isinstance(named.pop("b"), nn.ReLU) and len(named) == 1


# -- randomness ----------------------------------------------------------------------------------------------------


def test_dropout() -> None:
    ox.manual_seed(1)
    x = ox.ones(100, 100).requires_grad_()
    layer = nn.Dropout(0.25)
    y = layer(x)
    assert set(np.unique(y.array)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y.array == 0).mean() - 0.25) < 0.02
    y.sum().backward()
    assert (x.grad.array == y.array).all()
    assert not (layer(x).array == y.array).all()
    ox.manual_seed(1)
    assert (layer(x).array == y.array).all()
    assert layer.eval()(x) is x
    assert (nn.Dropout(1.0)(x).array == 0).all()


def test_the_call_costs_little() -> None:
    """Counted in calls of functions, so that no machine is too slow: the module's own, forward, the look at hooks."""
    called: list[str] = []

    class Nothing(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    net = Nothing()
    sys.setprofile(lambda frame, event, argument: called.append(f"{event} {frame.f_code.co_name}"))
    try:
        net(1)
    finally:
        sys.setprofile(None)
    assert sum(each.startswith(("call ", "c_call ")) for each in called) <= 8, called


def test_strict_refuses_a_missing_and_an_unexpected_name_alone() -> None:
    model = nn.Linear(2, 2)
    state = model.state_dict()
    missing = {"weight": state["weight"]}
    unexpected = {**state, "extra": state["bias"]}
    for wrong, name in ((missing, "bias"), (unexpected, "extra")):
        with pytest.raises(LoadError, match=name):
            model.load_state_dict(wrong)
        model.load_state_dict(wrong, strict=False)


def test_repeated_blocks_print_once() -> None:
    class Block(nn.Linear):
        def _get_name(self) -> str:
            return "Named"

    blocks = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.Sequential(nn.ReLU()), Block(1, 2)])
    assert repr(blocks).split("\n") == [
        "ModuleList(",
        "  (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)",
        "  (2): Sequential(",
        "    (0): ReLU()",
        "  )",
        "  (3): Named(in_features=1, out_features=2, bias=True)",
        ")",
    ]
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_loading_says_that_all_names_were_there() -> None:
    net = nn.Linear(1, 1)
    assert repr(net.load_state_dict(net.state_dict())) == "<All keys matched successfully>"
    assert "missing_keys=['bias']" in repr(net.load_state_dict({"weight": net.weight}, strict=False))


def test_what_is_replaced_keeps_its_place() -> None:
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    net.add_module("last", nn.Tanh())
    setattr(net, "0", nn.Linear(3, 2))
    net.add_module("1", nn.GELU())
    assert [type(m).__name__ for m in net.children()] == ["Linear", "GELU", "Linear", "Tanh"]
    layer = nn.Linear(2, 2)
    layer.weight = net[2].weight
    layer.register_parameter("bias", None)
    assert list(layer.state_dict()) == ["weight"] and next(iter(layer._parameters)) == "weight"
    assert next(name for name, _ in nn.Sequential(layer, nn.Linear(1, 1)).named_parameters()) == "0.weight"


def test_parameters_stay_row_major(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())
    net = nn.Conv2d(2, 3, 3)
    with pytest.warns(UserWarning, match=r"changes nothing for parameters.*x.to\(memory_format=ox.channels_last"):
        assert net.to(memory_format=ox.channels_last) is net
    assert net.to(memory_format=ox.channels_last).weight.is_contiguous()  # said once
    assert not net.weight.is_contiguous(memory_format=ox.channels_last)


def test_moving_takes_pytorchs_arguments() -> None:
    net = nn.Linear(1, 1).to("cpu", ox.float64, True).to(device="cpu", non_blocking=True)
    assert net.to(memory_format=ox.contiguous_format).weight.dtype == ox.float64
    if not ox.cuda.is_available():
        for move in (lambda: net.cuda(0), lambda: net.cuda(ox.device("cuda:0")), lambda: net.weight.cuda(0, True)):
            with pytest.raises(ox.errors.DeviceError):
                move()
