"""Sizes that change from call to call: what is recorded for them, and what the limit counts."""

from __future__ import annotations

import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn
from ox.compiler.compiled import NEW_SIZE, TOO_MANY


def test_the_limit_names_what_changes() -> None:
    compiled = ox.compile(lambda x: x + 1)
    with pytest.warns(UserWarning, match=r"recorded 8 times.*dimension 1 of argument 0 is 9 after 8.*mark_dynamic"):
        for n in range(1, 10):
            assert compiled(ox.zeros(2, n)).tolist() == [[1] * n] * 2
    for n in (3, 12):
        assert compiled(ox.zeros(2, n)).tolist() == [[1] * n] * 2
    assert len(recordings(compiled)) == 8


def test_another_limit_and_name() -> None:
    compiled = ox.compile(lambda x: x + 1, name="increment", recompile_limit=2, isolate_recompiles=True)
    with pytest.warns(UserWarning, match=r"increment was recorded 2 times.*dimension 1 of argument 0 is 3 after 2"):
        for n in range(1, 5):
            assert compiled(ox.zeros(1, n)).tolist() == [[1] * n]
    assert len(recordings(compiled)) == 2
    strict = ox.compile(ox.nn.Identity(), fullgraph=True, recompile_limit=1)
    strict(ox.zeros(1, 1))
    with pytest.warns(UserWarning, match="Identity was recorded 1 time;"), pytest.raises(ox.errors.CompileError):
        strict(ox.zeros(1, 2))
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ox.errors.ArgumentError, match="recompile_limit is no count"):
            ox.compile(lambda x: x, recompile_limit=wrong)


def test_a_method_keeps_the_choices() -> None:
    class Net:
        @ox.compile(recompile_limit=1, name="twice")
        def double(self, x: ox.Tensor) -> ox.Tensor:
            return x * 2

    net = Net()
    net.double(ox.ones(1, 1))
    with pytest.warns(UserWarning, match="twice was recorded 1 time;"):
        assert net.double(ox.ones(1, 2)).tolist() == [[2, 2]]


def test_sizes_that_may_change_have_no_limit() -> None:
    compiled = ox.compile(lambda x: x + 1, dynamic=True)
    marked = ox.compile(lambda x: x + 1)
    batched = ox.compile(lambda x: x + 1)
    for n in [*range(1, 20)] * 2:
        x = ox.zeros(2, n)
        assert compiled(x).tolist() == [[1] * n] * 2
        ox.compiler.mark_dynamic(x, 1)
        assert marked(x).tolist() == [[1] * n] * 2
        assert batched(ox.zeros(n)).tolist() == [1] * n
    assert len(recordings(compiled)) == len(recordings(marked)) == len(recordings(batched)) == 19


def test_a_size_that_never_comes_again_is_not_recorded() -> None:
    compiled = ox.compile(lambda x: x + 1)
    for n in range(1, 20):
        assert compiled(ox.zeros(n)).tolist() == [1] * n
    assert len(recordings(compiled)) == 4 and reasons(compiled) == NEW_SIZE
    strict = ox.compile(lambda x: x + 1, fullgraph=True)
    for n in range(1, 20):
        assert strict(ox.zeros(n)).tolist() == [1] * n
    assert len(recordings(strict)) == 19


def test_no_size_may_change() -> None:
    compiled = ox.compile(lambda x: x + 1, dynamic=False)
    with pytest.warns(UserWarning, match=r"recorded 8 times.*dimension 0 of argument 0 is 9 after 8"):
        for n in range(1, 10):
            assert compiled(ox.zeros(n)).tolist() == [1] * n


def test_other_settings_count_once_for_all_sizes() -> None:
    model = nn.Dropout()
    compiled = ox.compile(model)
    for training in (True, False):
        model.train(training)
        for _ in range(2):
            for n in range(1, 10):
                compiled(ox.ones(n, 2))
    assert len(recordings(compiled)) == 18
    assert ox.compiler.explain(compiled).lines[0].endswith("recorded 18 times")


def test_what_was_not_called_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.compiler.compiled.MOST_PLANS", 3)
    compiled = ox.compile(lambda x: x + 1)
    for n in (1, 2, 3, 1, 4, 1):
        assert compiled(ox.zeros(n)).tolist() == [1] * n
    assert len(recordings(compiled)) == 3 and len(compiled.history) == 4  # 2 is gone
    compiled(ox.zeros(3))
    assert len(compiled.history) == 4


def test_only_declared_sizes_have_no_limit() -> None:
    compiled = ox.compile(lambda x: x + 1)
    with pytest.warns(UserWarning, match=r"recorded 8 times.*dimension 1 of argument 0 is 9 after 8"):
        for n in range(1, 12):
            for rows in (2, 3):
                x = ox.zeros(rows, n)
                ox.compiler.mark_dynamic(x, -2)
                assert compiled(x).tolist() == [[1] * n] * rows
    assert len(recordings(compiled)) == 16


def test_more_sizes_that_come_again_than_are_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To record one after the other for ever is slower than eager code."""
    monkeypatch.setattr("ox.compiler.compiled.MOST_PLANS", 4)
    for function, recorded in ((lambda x: x + 1, 8), (lambda x: x + x.sum().item() * 0 + 1, 0)):
        caplog.clear()
        compiled = ox.compile(function)
        with pytest.warns(UserWarning, match=r"too many ways.*Others stay eager") as warned:
            for n in [*range(1, 9)] * 10:
                assert compiled(ox.zeros(n)).tolist() == [1] * n
        assert len(warned) == 1 and warned[0].filename == __file__
        assert len(compiled.history) == 8 and len(recordings(compiled)) == min(recorded, 4)
        assert f"calls: {TOO_MANY}" in str(compiled.explain())
        assert [TOO_MANY in record.getMessage() for record in caplog.records].count(True) == 1
        compiled.reset()
        compiled(ox.zeros(9))
        assert len(recordings(compiled)) == min(recorded, 1)


def test_recordings_that_were_of_use_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.compiler.compiled.MOST_PLANS", 2)
    monkeypatch.setattr("ox.compiler.compiled.WORTH", 3)
    compiled = ox.compile(lambda x: x + 1)
    for n in range(1, 12):
        for _ in range(6):
            compiled(ox.zeros(n))
    assert len(compiled.history) == 11 and reasons(compiled) == NEW_SIZE


def test_the_limit_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    compiled = ox.compile(lambda x, factor: x * factor)
    with pytest.warns(UserWarning, match=r"argument 1 is 0.111.* after 0.125") as warned:
        for n in range(1, 100):
            compiled(ox.ones(2), 1 / n)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert len(caplog.records) == 1 and len(compiled.eager) == 1
    assert str(compiled.explain()).count("eager, 91 calls: it was recorded 8 times: argument 1 is 0.111") == 1


def test_reasons_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    compiled = ox.compile(lambda x, other: x)
    for n in range(100):
        compiled(ox.ones(2), type(f"Rows{n}", (list,), {})())
    assert len(compiled.eager) == 65 and compiled.eager["other reasons"] == 36 and len(caplog.records) == 64
