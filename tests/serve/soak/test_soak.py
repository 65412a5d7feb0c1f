"""The soak's own judges, which must be able to say no; and one minute of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
ENTRY = {"name": "y", "datatype": "FP32", "shape": [1, 8]}


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The soak's modules by name; they know each other as scripts of one folder do."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(HERE))

    def module(name: str) -> Any:
        return __import__(name)

    yield module
    for name in set(sys.modules) - before:
        if (HERE / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def world(soak: Any, tmp_path: Path) -> Any:
    return soak("world").World(tmp_path)


def test_versions_that_may_answer(world: Any) -> None:
    now = perf_counter()
    assert world.problem("grow", 1, now) is None and world.problem("flip", 1, now) is None
    assert "was not there" in world.problem("grow", 2, now)
    world.lies("grow", 2)
    assert world.problem("grow", 1, now) is None  # it takes a while until it is seen
    assert world.problem("grow", 2, now) is None
    assert world.problem("grow", 1, now) is None  # sent before anybody saw the second
    assert "after 2" in world.problem("grow", 1, perf_counter())
    world.gone("flip", 1)
    assert world.problem("flip", 1, perf_counter()) is None and world.problem("flip", 1, perf_counter() + 60)


def test_answers(soak: Any, world: Any) -> None:
    from ox.bench.address import Address
    from ox.bench.answer import Reply

    made = soak("cases").cases(Address("h", 1, False, False), world)
    by_name: dict[str, Any] = {}
    for case in made:  # the last of a name is asked in JSON
        by_name[case.name] = case
    case = next(
        c
        for c in reversed(made)
        if c.name == "grow" and json.loads(c.request.split(b"\r\n\r\n")[1])["inputs"][0]["shape"] == [1, 8]
    )
    x = np.array(json.loads(case.request.split(b"\r\n\r\n")[1])["inputs"][0]["data"])

    def reply(y: Any, version: str = "1") -> Reply:
        return Reply(200, json.dumps({"model_version": version, "outputs": [{**ENTRY, "data": list(y)}]}).encode())

    now = perf_counter()
    assert case.judge(reply(x + 1), now) is None
    assert "mixture" in case.judge(reply(x + 1 + np.arange(8)), now)
    assert "was not there" in case.judge(reply(x + 7, "7"), now)
    assert "says that it is 2" in case.judge(reply(x + 1, "2"), now)
    assert "refused" in case.judge(Reply(404, b'{"error":"x"}'), now)
    for name in ("no JSON", "wrong shape", "no such model"):
        assert by_name[name].judge(reply(x), now)
    assert by_name["no JSON"].judge(Reply(400, b'{"error":"x"}'), now) is None
    assert "without a word" in by_name["no JSON"].judge(Reply(400, b'{"error":""}'), now)
    assert "stack trace" in by_name["no JSON"].judge(Reply(400, b'{"error":"Traceback (most"}'), now)
    assert by_name["guest"].judge(Reply(404, b"{}"), now) is None


def test_the_book(soak: Any) -> None:
    book = soak("crowd").Book(0.0)
    book.sent = 5
    book.answers["a"] += 3
    assert book.balance() == 2 and not book.good
    book.errors["b"] += 1
    book.spared = 10.0, 20.0
    book.failed(15.0, "closed")
    assert book.balance() == 0 and book.good
    book.sent += 1
    book.failed(25.0, "closed", "reset")
    assert book.balance() == 0 and not book.good and "LOST 1 x closed reset" in book.lines()
    book.sent += 1
    book.failed(15.0, "wrong: grow: a mixture")
    assert book.balance() == 0 and any("WRONG" in line for line in book.lines())


@pytest.mark.slow
def test_one_minute() -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "soak.py"), "--minutes", "1"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "soak: good" in done.stdout, done.stdout + done.stderr
