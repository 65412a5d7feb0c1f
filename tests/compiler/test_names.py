"""`ox.compile` and what scripts name around it."""

from __future__ import annotations

import pytest

import ox
from ox import compiler, nn
from ox.core import warn_once
from ox.errors import ArgumentError


def test_compile_gives_back_the_model_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())
    model = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match=r"ox\.compile changes nothing: training is eager"):
        assert ox.compile(model) is model
    assert ox.compile(model, mode="max-autotune", fullgraph=True, dynamic=None) is model

    @ox.compile
    def double(x: ox.Tensor) -> ox.Tensor:
        return x * 2

    @ox.compile(dynamic=True)
    def triple(x: ox.Tensor) -> ox.Tensor:
        return x * 3

    assert double(ox.ones(1)).item() == 2 and triple(ox.ones(1)).item() == 3
    assert model.compile() is None
    assert not [w for w in recwarn if "ox.compile" in str(w.message)]
    with pytest.raises(ArgumentError, match="no module and no function"):
        ox.compile(3)


def test_marks_do_nothing() -> None:
    def one() -> int:
        return 1

    assert compiler.disable(one) is one and compiler.disable()(one) is one
    assert compiler.disable(recursive=False)(one) is one and compiler.allow_in_graph(one) is one
    assert not compiler.is_compiling() and not compiler.is_dynamo_compiling()
    ox._dynamo.config.suppress_errors = True
    ox._dynamo.config.cache_size_limit = 64
    assert ox._dynamo.optimize("inductor")(one) is one and ox._dynamo.disable(one) is one
    ox._dynamo.reset()
    assert ox.fx.wrap("one") == "one" and ox.fx.wrap(one) is one and not isinstance(one, ox.fx.Proxy)
    ox._assert(True, "fine")
    with pytest.raises(AssertionError, match="not fine"):
        ox._assert(False, "not fine")
    with pytest.raises(AttributeError, match="ox has no symbolic tracing"):
        ox.fx.symbolic_trace  # noqa: B018
