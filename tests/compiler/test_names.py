"""`ox.compile` as scripts write it, and the names around it."""

from __future__ import annotations

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from beside_eager import recordings

import ox
from ox import compiler, nn
from ox.engines.reference import Reference
from ox.errors import ArgumentError, CompileError


def test_decorators() -> None:
    @ox.compile
    def double(x: ox.Tensor) -> ox.Tensor:
        """Twice."""
        return x * 2

    @ox.compile(dynamic=True, fullgraph=True)
    def triple(x: ox.Tensor) -> ox.Tensor:
        return x * 3

    for _ in range(2):
        assert double(ox.ones(1)).item() == 2 and triple(ox.ones(1)).item() == 3
    assert double.__name__ == "double" and double.__doc__ == "Twice."
    assert len(recordings(double)) == len(recordings(triple)) == 1
    assert ox.compile(double) is double


def test_what_is_none() -> None:
    model = nn.Linear(2, 2)
    assert ox.compile(model, disable=True) is model
    with pytest.raises(ArgumentError, match="no module and no function"):
        ox.compile(3)
    with pytest.raises(CompileError, match="there is no backend 'tpu'"):
        ox.compile(model, backend="tpu")
    with pytest.raises(CompileError, match="this backend is no engine"):
        ox.compile(model, backend=print)
    for backend in ("native", "eager", "onnxruntime", "openvino"):
        with pytest.raises(ArgumentError, match=f"engine '{backend}' does not take these options"):
            ox.compile(model, backend=backend, options={"speed": 1})


@pytest.mark.parametrize("backend", ["native", "eager", "inductor", "aot_eager"])
def test_backends(backend: str) -> None:
    compiled = ox.compile(lambda x: x.exp() + 1, backend=backend)
    for _ in range(2):
        assert compiled(ox.zeros(3)).tolist() == [2, 2, 2]
    assert len(recordings(compiled)) == 1


def test_an_engine_of_ones_own() -> None:
    built = []

    class Mine(Reference):
        name = "mine"

        def build(self, task: Any) -> Any:
            built.append(task)
            return super().build(task)

    compiled = ox.compile(lambda x: x + 1, backend=Mine())
    compiled(ox.zeros(1)), compiled(ox.zeros(1))
    assert len(built) == 1 and "mine: 1 operators" in str(compiled.explain())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = 2.0

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.linear(x) * self.scale

    def twice(self) -> float:
        return self.scale * 2


def test_a_compiled_module_is_a_module() -> None:
    model = Net()
    compiled = ox.compile(model)
    assert isinstance(compiled, nn.Module) and compiled._orig_mod is model
    assert [*compiled.state_dict()] == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    assert compiled.linear is model.linear and compiled.twice() == 4
    compiled.scale = 3.0
    assert model.scale == 3 and compiled.scale == 3
    compiled.eval()
    assert not model.training and not compiled.training
    compiled.train()
    assert model.training and model.linear.training and compiled.training
    assert "(_orig_mod): Net(" in repr(compiled)
    compiled.load_state_dict(compiled.state_dict())
    assert isinstance(compiled, ox._dynamo.OptimizedModule)
    sequence = ox.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert len(sequence) == 2 and isinstance(sequence[1], nn.ReLU) and len(list(sequence)) == 2


def test_copies() -> None:
    compiled = ox.compile(Net())
    x = ox.randn(2, 3)
    y = compiled(x)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(other) is type(compiled) and other(x).equal(y)
        assert other.linear.weight is not compiled.linear.weight
        with ox.no_grad():
            other.linear.weight.zero_()
        assert not other(x).equal(compiled(x)) and compiled(x).equal(y)


def test_compiled_in_place() -> None:
    model = Net()
    x = ox.randn(2, 3)
    y = model(x)
    assert model.compile(fullgraph=True) is None
    for _ in range(3):
        assert model(x).equal(y)
    hooks = model._hooks
    assert hooks is not None and len(recordings(hooks.compiled)) == 1
    assert [*model.state_dict()] == ["linear.weight", "linear.bias"]
    other = copy.deepcopy(model)
    with ox.no_grad():
        other.linear.weight.zero_()
    assert not other(x).equal(y) and model(x).equal(y)


def test_a_compiled_model_is_exported_as_the_original(tmp_path: Path) -> None:
    model = Net().eval()
    compiled, x = ox.compile(model), ox.randn(2, 3)
    compiled(x)
    ox.export.save(compiled, tmp_path / "compiled.onnx", x)
    loaded = ox.export.load(tmp_path / "compiled.onnx")
    assert {name for name, _ in loaded.named_parameters()} == {"linear.weight", "linear.bias"}
    assert ox.allclose(loaded(x), model(x))


class Owner:
    """Of a compiled method."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @ox.compile
    def times(self, x: ox.Tensor) -> ox.Tensor:
        return x * self.factor


def test_a_method() -> None:
    one, two = Owner(2.0), Owner(3.0)
    for _ in range(2):
        assert one.times(ox.ones(1)).item() == 2 and two.times(ox.ones(1)).item() == 3
    one.factor = 5.0
    assert one.times(ox.ones(1)).item() == 5


def test_a_method_of_a_copy() -> None:
    owner, one = Owner(2), ox.ones(1)
    for _ in range(2):
        assert owner.times(one).item() == 2
    for made in (copy.copy(owner), copy.deepcopy(owner)):
        made.factor = 5
        for _ in range(3):
            assert made.times(one).item() == 5 and owner.times(one).item() == 2
        assert made.times is made.times and made.times is not owner.times


def test_a_method_of_a_class_with_slots() -> None:
    class Owner:
        __slots__ = ("factor",)

        def __init__(self, factor: float) -> None:
            self.factor = factor

        @ox.compile
        def times(self, x: ox.Tensor) -> ox.Tensor:
            return x * self.factor

    owners = Owner(2), Owner(3)
    for _ in range(3):
        for owner in owners:
            assert owner.times(ox.ones(1)).item() == owner.factor
    owners[0].factor = 7
    assert owners[0].times(ox.ones(1)).item() == 7
    assert len(recordings(Owner.times)) == 3 and not Owner.times.eager


def test_questions_of_code() -> None:
    answers: list[Any] = []

    def f(x: ox.Tensor) -> ox.Tensor:
        answers.append((compiler.is_compiling(), compiler.is_dynamo_compiling(), compiler.is_exporting()))
        return x + 1

    compiled = ox.compile(f)
    assert not compiler.is_compiling()
    compiled(ox.ones(1))
    assert answers == [(True, True, False)]


def test_disable() -> None:
    @compiler.disable
    def noted(x: ox.Tensor) -> ox.Tensor:
        return x + 1

    @compiler.disable(recursive=False)
    def other(x: ox.Tensor) -> ox.Tensor:
        return x

    compiled = ox.compile(lambda x: noted(x) * 2)
    for _ in range(2):
        assert compiled(ox.ones(1)).item() == 4
    assert not recordings(compiled) and "is marked with disable" in str(compiled.explain())
    assert other(ox.ones(1)).item() == 1 and compiler.allow_in_graph(noted) is noted


def test_reset() -> None:
    compiled = ox.compile(lambda x: x + 1)
    for reset in (compiler.reset, ox._dynamo.reset):
        compiled(ox.ones(1))
        assert recordings(compiled)
        reset()
        assert not recordings(compiled)


def test_dynamo_s_names() -> None:
    def one(x: ox.Tensor) -> ox.Tensor:
        return x + 1

    ox._dynamo.config.suppress_errors = True
    ox._dynamo.config.cache_size_limit = 64
    compiled = ox._dynamo.optimize("inductor")(one)
    assert compiled(ox.ones(1)).item() == compiled(ox.ones(1)).item() == 2
    assert len(recordings(compiled)) == 1
    assert ox.fx.wrap("one") == "one" and ox.fx.wrap(one) is one and not isinstance(one, ox.fx.Proxy)
    ox._assert(True, "fine")
    with pytest.raises(AssertionError, match="not fine"):
        ox._assert(False, "not fine")
    with pytest.raises(AttributeError, match="ox has no symbolic tracing"):
        ox.fx.symbolic_trace  # noqa: B018


def test_explanation(tmp_path: Path) -> None:
    compiled = ox.compile(nn.Linear(3, 2))
    compiled(ox.ones(2, 3)).sum().backward()
    text = str(compiled.explain())
    assert "Linear: recorded 1 time" in text and "float32 [2, 3]" in text and "backward:" in text


@pytest.mark.usefixtures("library")
def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ox.compile(lambda x: (x.exp() * 2 + 1).sin() @ x.T)
    compiled(ox.ones(64, 64, requires_grad=True)).sum().backward()
    found, file = compiled.explain(), tmp_path / "graph.dot"
    found.save(file)
    before, after = file.read_text().split("recording 1, as it runs")[:2]
    assert before.startswith("digraph ox {") and "launch" not in before
    assert "launch 1: [64, 64]" in after and '"Exp"' in after and 'tooltip="test_names.py:' in after
    assert "recording 1, backward, as it runs" in after
    text = file.read_text()
    assert text.count("{") == text.count("}") and text.count(" -> ") > 10
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ox.errors.WriteError, match=r"Graphviz, which draws \.svg files, is not installed"):
        found.save(tmp_path / "graph.svg")
    with pytest.raises(ox.errors.ArgumentError, match=r"no such form(.|\n)*\.svg"):
        found.save(tmp_path / "graph.gif")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws(tmp_path: Path) -> None:
    compiled = ox.compile(nn.Linear(3, 2))
    compiled(ox.ones(2, 3))
    compiled.explain().save(tmp_path / "graph.svg")
    assert "ox.Linear" in (tmp_path / "graph.svg").read_text()


class AddHundred:
    def __call__(self, module: nn.Module, args: Any, result: ox.Tensor) -> ox.Tensor:
        return result + 100


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_of_a_compiled_module_have_its_hooks(copied: Any) -> None:
    model = nn.Linear(2, 3)
    compiled = ox.compile(model)
    compiled.register_forward_hook(AddHundred())
    x = ox.ones(1, 2)
    made = copied(compiled)
    for _ in range(3):
        assert ox.allclose(made(x), model(x) + 100)


def test_explain_of_what_is_compiled() -> None:
    x = ox.ones(2, 3)
    in_place, around = Net(), ox.compile(Net())
    in_place.compile()
    function = ox.compile(lambda x: x * 2)
    for made in (in_place, around, function):
        made(x)
        assert "recorded 1 time" in str(compiler.explain(made))
    in_place.compile(disable=True)
    for other in (Net(), in_place, len):
        with pytest.raises(ArgumentError, match="not compiled"):
            compiler.explain(other)
