"""How tests wait: by events, and where another process or the system must do something, by tests/waiting.py alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

TESTS = Path(__file__).parent
# Polls that may be: until the system gives a process another parent, and in a program that loads a server.
POLLING = (TESTS / "forked.py", TESTS / "serve" / "soak")


def polls(source: str) -> list[int]:
    """The lines of loops that do nothing but look again. The linter bans the pauses in other loops."""

    def is_pause(node: ast.stmt) -> bool:
        value = getattr(node, "value", None)
        call = value.value if isinstance(value, ast.Await) else value
        called = call.func if isinstance(call, ast.Call) else None
        name = getattr(called, "attr", None) or getattr(called, "id", "")
        timed = isinstance(call, ast.Call) and any(isinstance(word, ast.Constant) for word in call.args)
        return name in ("give_way", "sched_yield", "sleep") or (name == "wait" and timed)

    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.While)]
    return [
        loop.lineno
        for loop in loops
        if all(map(is_pause, loop.body))
        or (isinstance(loop.test, ast.UnaryOp) and all(isinstance(node, ast.Pass) for node in loop.body))
    ]


def test_a_loop_that_polls_is_seen() -> None:
    for body in ("time.sleep(0.1)", "pass", "os.sched_yield()", "stop.wait(0.1)", "await give_way()"):
        assert polls(f"async def f():\n  while not done():\n    {body}") == [2], body
    assert not polls("while not done():\n  work()\nwhile read():\n  pass\nwhile tasks():\n  wait(tasks())")


def test_no_test_polls() -> None:
    paths = [path for path in TESTS.rglob("*.py") if not any(path.is_relative_to(part) for part in POLLING)]
    sources = {path: path.read_text() for path in paths}
    found = [f"{path}:{line}" for path, text in sources.items() if "while " in text for line in polls(text)]
    assert not found, "an event, or tests/waiting.py"


def test_waiting_gives_what_it_has_waited_for() -> None:
    values = iter([[], 0, "x"])
    assert wait_until(lambda: next(values)) == "x"
    with pytest.raises(AssertionError, match="did not come true in 0 seconds"):
        wait_until(lambda: False, seconds=0)


def test_nobody_waits_for_a_process_that_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(AssertionError, match="ended with 3"):
        wait_until(lambda: False, process=process)
    assert wait_until(lambda: True, process=process)
