"""How tests wait: by events, and where another process or the system must do something, by tests/waiting.py alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_until

TESTS = Path(__file__).parent
# Polls that may be: until the system gives a process another parent, and in a program that loads a server.
POLLING = (TESTS / "forked.py", TESTS / "serve" / "soak")
# Fractions of a second that may be: of programs that load a server or Ray, of a memory's samples, of the system's
# clock, and timers that let go of what waits meanwhile.
SHORT = tuple(
    TESTS / path
    for path in (
        "serve/soak", "ray/cluster_serving.py", "serve/test_memory.py", "test_manual_clock.py",
        "serve/generation/test_stress.py", "train/run/test_checkpoint_writer.py",
    )
)  # fmt: skip


def short_waits(source: str) -> list[int]:
    """The lines of calls that wait for a fraction of a second: a pause, or a deadline on a busy machine."""

    def is_short(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        values = [word.value for word in node.keywords if word.arg == "timeout"]
        if name in ("wait", "wait_for", "settimeout", "Timer") or (name == "select" and len(node.args) == 4):
            values += node.args
        numbers = [value.value for value in values if isinstance(value, ast.Constant)]
        waits = name in ("wait", "wait_for", "settimeout", "Timer", "select", "join", "get", "acquire", "result")
        return waits and any(isinstance(number, float) and 0 < number < 1 for number in numbers)

    return sorted(node.lineno for node in ast.walk(ast.parse(source)) if is_short(node))  # type: ignore[attr-defined]


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


def test_a_short_wait_is_seen() -> None:
    for call in ("Event().wait(0.5)", "stop.wait(timeout=0.1)", "Timer(0.05, f)", "peer.settimeout(0.5)",
                 "select.select([s], [], [], 0.2)", "queue.get(timeout=0.1)", "thread.join(timeout=0.5)"):  # fmt: skip
        assert short_waits(f"for _ in range(1000):\n  {call}") == [2], call
    assert not short_waits("e.wait(120)\ne.wait()\nd.get('x', 0.5)\nclient(timeout=0.3)\nselect(r, w, x, 0)")


def found(lines_of: Callable[[str], list[int]], likely: str, but: tuple[Path, ...]) -> list[str]:
    """Where tests have such lines, in the files in which a pattern occurs."""
    paths = [path for path in TESTS.rglob("*.py") if not any(path.is_relative_to(part) for part in but)]
    sources = {path: text for path in paths if re.search(likely, text := path.read_text())}
    return [f"{path}:{line}" for path, text in sources.items() for line in lines_of(text)]


def test_no_test_polls() -> None:
    assert not found(polls, "while ", POLLING), "an event, or tests/waiting.py"


def test_no_test_waits_for_a_fraction_of_a_second() -> None:
    likely = r"(?s)((wait|wait_for|settimeout|Timer|select)\(.{,100}?|timeout=)\b0\.\d"
    assert not found(short_waits, likely, SHORT), "an event, a moved clock, or tests/waiting.py"


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
