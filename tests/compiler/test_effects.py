"""Effects on settings and tensors from outside, and questions to the file system: such calls stay eager."""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside_eager import reasons, recordings
from rows import rows

import ox
from ox import nn

ONE = ox.ones(1)


def test_requires_grad_of_a_tensor_from_outside_is_turned() -> None:
    t = ox.ones(1)

    def call(x: Any) -> Any:
        t.requires_grad_(not t.requires_grad)
        return x + 1

    compiled = ox.compile(call)
    found = []
    for _ in range(5):
        compiled(ONE)
        found.append(t.requires_grad)
    assert found == [True, False, True, False, True]
    assert "requires_grad of t is changed by the call" in reasons(compiled)


def test_a_parameter_that_is_frozen_inside() -> None:
    def run(compiled: bool) -> list[Any]:
        m = nn.Linear(2, 1)

        def call(x: Any) -> Any:
            m.weight.requires_grad_(not m.weight.requires_grad)
            return m(x)

        step, found = ox.compile(call) if compiled else call, []
        for _ in range(6):
            m.zero_grad()
            step(ox.ones(1, 2)).sum().backward()
            found.append((m.weight.requires_grad, m.weight.grad is None))
        return found

    assert run(True) == run(False)


def test_a_model_that_is_frozen_for_a_while_is_recorded() -> None:
    m, other = nn.Linear(2, 1), nn.Linear(2, 2)

    def call(x: Any) -> Any:
        m.requires_grad_(False)
        y = m(other(x)).sum()
        m.requires_grad_(True)
        return y

    compiled = ox.compile(call)
    for _ in range(4):
        m.zero_grad()
        compiled(ox.ones(1, 2)).backward()
        assert m.weight.grad is None and m.weight.requires_grad
    assert recordings(compiled), reasons(compiled)


def test_the_default_dtype_is_set_inside() -> None:
    def call(x: Any) -> Any:
        ox.set_default_dtype(ox.float64)
        return x + 1

    compiled = ox.compile(call)
    try:
        for _ in range(3):
            ox.set_default_dtype(ox.float32)
            compiled(ONE)
            assert ox.get_default_dtype() == ox.float64
    finally:
        ox.set_default_dtype(ox.float32)
    assert "set_default_dtype() is called (test_effects.py" in reasons(compiled)


ASKING: dict[str, Callable[[Path], Any]] = {
    "exists": os.path.exists,
    "isfile": os.path.isfile,
    "isdir": lambda file: os.path.isdir(file.parent / "new"),
    "listdir": lambda file: len(os.listdir(file.parent)),
    "scandir": lambda file: len([*os.scandir(file.parent)]),
    "stat": lambda file: os.stat(file.parent).st_nlink,
    "Path.exists": Path.exists,
    "Path.glob": lambda file: len([*file.parent.glob("*")]),
    "getcwd": lambda file: len(os.getcwd()),
}


@rows("name", ASKING)
def test_a_question_to_the_file_system(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, file = ASKING[name], tmp_path / "file"
    compiled = ox.compile(lambda x: x + int(ask(file)))
    for i in range(4):
        assert compiled(ONE).item() == 1 + int(ask(file))
        if i == 1:
            file.touch()
            (tmp_path / "new").mkdir()
            monkeypatch.chdir(tmp_path / "new")
    assert not recordings(compiled) and "() is called (test_effects.py" in reasons(compiled)


def test_what_was_only_tried_is_not_counted_as_recorded(tmp_path: Path) -> None:
    compiled = ox.compile(lambda x: x + os.path.exists(tmp_path) if x.ndim == 1 else x)
    for _ in range(3):
        compiled(ONE)
    lines = ox.compiler.explain(compiled).lines
    assert lines[0].endswith("recorded 0 times") and lines[1] == "tried, and not recorded: 1 call"
    compiled(ox.ones(2, 2))
    assert ox.compiler.explain(compiled).lines[0].endswith("recorded 1 time")
    compiled.reset()
    assert len(ox.compiler.explain(compiled).lines) == 1


def test_an_import_is_no_part_of_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "import os\nFACTOR = float(os.environ.get('A_TEST', '2'))\nprint(FACTOR)\n"
    (tmp_path / "reads_environment.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def scaled(x: Any) -> Any:
        import reads_environment  # type: ignore[import-not-found]

        return x * reads_environment.FACTOR

    compiled = ox.compile(scaled, fullgraph=True)
    assert [compiled(ox.ones(2)).tolist() for _ in range(2)] == [[2, 2], [2, 2]]


def test_under_cprofile() -> None:
    """It goes on after a recording; what it sets itself is no function that `sys.setprofile` takes."""
    layer = nn.Linear(2, 2)
    compiled = ox.compile(lambda x: helper_that_is_counted(layer(x)))
    with cProfile.Profile() as profile:
        for _ in range(3):
            assert compiled(ox.ones(1, 2)).tolist() == (layer(ox.ones(1, 2)) + 1).tolist()
        helper_that_is_counted(ox.ones(1))
    assert sys.getprofile() is None
    counts = {name: calls for (_, _, name), (calls, *_) in pstats.Stats(profile).stats.items()}
    assert counts["helper_that_is_counted"] >= 1


def helper_that_is_counted(x: Any) -> Any:
    return x + 1
