"""`ox.jit`: what scripts name at their head does nothing, and what only TorchScript has is refused."""

from __future__ import annotations

import warnings

import pytest

import ox
from ox import jit, nn
from ox.core import warn_once
from ox.errors import ExportError, LoadError


@pytest.fixture(autouse=True)
def _unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())


class Net(jit.ScriptModule):
    __constants__ = ["scale"]  # noqa: RUF012
    scale: jit.Final[float]

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.scale = 2.0

    @jit.script_method
    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.helper(x) * jit.annotate(float, self.scale)

    @jit.export
    def helper(self, x: ox.Tensor) -> ox.Tensor:
        return self.fc(x) if jit.is_scripting() else self.fc(x) + 1

    @jit.unused
    def one(self) -> int:
        return 1

    @jit.ignore
    def two(self) -> int:
        return 2

    @jit.ignore(drop=True)
    def three(self) -> int:
        return 3


def test_a_script_module_is_a_module() -> None:
    net = Net()
    x = ox.ones(1, 2)
    assert isinstance(net, nn.Module) and (net.one(), net.two(), net.three()) == (1, 2, 3)
    assert bool((net(x) == (net.fc(x) + 1) * 2).all())


def test_script_and_trace_give_back_what_they_get_and_say_so_once() -> None:
    net = nn.Linear(2, 2)
    with pytest.warns(
        UserWarning, match=r"ox\.jit\.script changes nothing: .*ox\.export\.save.* \(this warning appears once\)"
    ) as caught:
        assert jit.script(net) is net
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"ox\.jit\.trace changes nothing"):
        assert jit.trace(net, ox.ones(1, 2), strict=False) is net
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @jit.script
        def double(x: ox.Tensor) -> ox.Tensor:
            return x * 2

        assert double(ox.ones(1)).item() == 2
    assert jit.freeze(net) is net and jit.optimize_for_inference(net) is net


def test_is_tracing_says_whether_a_call_is_recorded(tmp_path: object) -> None:
    seen = []

    class Asks(nn.Module):
        def forward(self, x: ox.Tensor) -> ox.Tensor:
            seen.append((jit.is_tracing(), ox.compiler.is_exporting(), ox.onnx.is_in_onnx_export()))
            return x * 2

    Asks()(ox.ones(1))
    assert seen.pop() == (False, False, False) and not seen
    ox.export.save(Asks(), f"{tmp_path}/x.onnx", ox.ones(3))
    assert (True, True, True) in seen


def test_small_names() -> None:
    assert jit.isinstance(1, int) and jit.Attribute(3, int).value == 3
    assert jit.wait(jit.fork(max, 1, 2)) == 2
    with jit.optimized_execution(False), jit.fuser("fuser2"):
        assert not jit.onednn_fusion_enabled()
    assert not issubclass(jit.ScriptFunction, nn.Module) and issubclass(jit.TracerWarning, Warning)


def test_files_of_torchscript_are_refused() -> None:
    with pytest.raises(ExportError, match=r"no TorchScript to save[\s\S]*ox\.export\.save"):
        jit.save(nn.Linear(1, 1), "x.pt")
    with pytest.raises(LoadError, match=r"x\.pt is TorchScript[\s\S]*ox\.export\.load"):
        jit.load("x.pt")
