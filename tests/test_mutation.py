"""scripts/mutation.py: faults are put into a tiny package, and noticed by its tests or not."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import faults
import mutation
import pytest

SOURCE = '''
"""A docstring with 1 + 1."""
import threading

__all__ = ["f" + "g"]
lock = threading.Lock()


async def f(a: tuple[int, 3], b: int = 4) -> bool:
    """if a < b: raise"""
    if not a:
        raise ValueError(f"{a + b}" + "5")
    with lock:
        await g(a, b)
    return a[0] < b and (a[1]) > 2


def g(a, b) -> list[int]:
    return [a + b]
'''
TINY = {
    "ox/__init__.py": "",
    "ox/limits.py": "def within(x, low, high):\n    return low <= x and x < high\n",
    "ox/unused.py": "def twice(x):\n    return x + x\n",
    "tests/test_limits.py": """
from ox.limits import within

def test_within():
    assert within(1, 1, 3) and not within(0, 1, 3)

def test_by_chance():
    import pathlib
    assert "low < x" not in pathlib.Path("ox/limits.py").read_text()
    assert 0
""",
}
GIT = ["git", "-c", "user.name=ox", "-c", "user.email=ox@example.org"]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, whose second test always fails."""
    root = tmp_path / "tiny"
    for name, text in TINY.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "tiny"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    monkeypatch.setattr(mutation, "ROOT", root)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return root


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["mutation.py", *map(str, words)])
    return mutation.main()


def test_every_kind_and_nothing_else() -> None:
    listed = [(fault.kind, fault.text, fault.new) for fault in faults.Faults("ox/a.py", SOURCE).list]
    assert listed == [
        ("constant", "4", "5"),
        ("guard", 'if not a:\n        raise ValueError(f"{a + b}" + "5")', "pass"),
        ("not", "not a", "(a)"),
        ("wait", "lock", "__import__('contextlib').nullcontext()"),
        ("wait", "await g(a, b)", "pass"),
        ("arguments", "g(a, b)", "g(b, a)"),
        ("return", "a[0] < b and (a[1]) > 2", "not (a[0] < b and (a[1]) > 2)"),
        ("boolean", "a[0] < b and (a[1]) > 2", "a[0] < b or (a[1]) > 2"),
        ("comparison", "a[0] < b", "a[0] <= b"),
        ("constant", "0", "1"),
        ("constant", "1", "2"),
        ("constant", "2", "3"),
        ("return", "[a + b]", "([a + b])[:-1]"),
        ("arithmetic", "a + b", "a - b"),
    ]


def test_ox_with_each_fault_is_still_python() -> None:
    root = Path(mutation.__file__).parents[1]
    files, kinds = [file for files in faults.packages(root).values() for file in files], set()
    for number, file in enumerate(file for start in range(50) for file in files[start::50]):
        if number * 50 >= len(files) and len(kinds) == 9:  # of every 50th file, and of more until each kind was there
            break
        source = (root / file).read_bytes()
        tree = ast.dump(ast.parse(source))
        one_of_each_kind = {fault.kind: fault for fault in faults.Faults(file, source.decode()).list}
        kinds |= one_of_each_kind.keys()
        for fault in one_of_each_kind.values():
            assert ast.dump(ast.parse(fault.apply(source))) != tree, fault
    assert len(kinds) == 9


def test_a_fault_in_another_commit(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# a new line\n" + SOURCE.replace("async def f", "async def other"))
    for fault in faults.Faults("a.py", SOURCE).list:
        other = faults.find(fault, tmp_path)
        assert other is not None and (other.kind, other.text, other.line) == (fault.kind, fault.text, fault.line + 1)
    assert faults.find(replace(fault, text="b + a"), tmp_path) is None
    assert faults.find(replace(fault, file="b.py"), tmp_path) is None


def test_shares() -> None:
    assert faults.quotas({"a": 90_000, "b": 2000, "c": 100}, 50) == {"a": 47, "b": 3, "c": 0}


def test_killed_and_survived(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    out = tmp_path / "before.json"
    assert run(monkeypatch, "--count", 20, "--out", out) == 0
    data = json.loads(out.read_text())
    outcomes = {(result["text"], result["new"]): result["outcome"] for result in data["results"]}
    assert outcomes == {
        ("low <= x and x < high", "low <= x or x < high"): "killed",
        ("low <= x", "low < x"): "killed",
        ("x < high", "x <= high"): "survived",
        ("x + x", "x - x"): "survived",
    }
    assert data["unsound"] == ["tests/test_limits.py::test_by_chance"]
    assert "x < high  ->  x <= high" in capsys.readouterr().out
    assert len(subprocess.run(["git", "worktree", "list"], cwd=tiny, capture_output=True).stdout.splitlines()) == 1

    # One of them in a later commit, where lines moved and another test is there
    (tiny / "ox/limits.py").write_text("# moved\n" + TINY["ox/limits.py"])
    (tiny / "tests/test_limits.py").write_text("from ox.limits import within\ndef test(): assert not within(0, 1, 3)\n")
    subprocess.run([*GIT, "commit", "-qam", "moved"], cwd=tiny, check=True)
    data["results"] = [result for result in data["results"] if result["new"] == "low < x"]
    out.write_text(json.dumps(data))
    after = tmp_path / "after.json"
    assert run(monkeypatch, "--faults", out, "--out", after) == 0
    assert "1 of 1 faults" in capsys.readouterr().out
    assert run(monkeypatch, "--compare", out, after) == 1
    shown = capsys.readouterr().out
    assert "1 ->    0  fewer" in shown and "no longer noticed  ox/limits.py:3 within" in shown
    assert run(monkeypatch, "--compare", after, out) == 0
