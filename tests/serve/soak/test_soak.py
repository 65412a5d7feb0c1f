"""The soak's own judges, which must be able to say no; and one minute of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import MagicMock

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


@pytest.mark.parametrize("protocol", ["AsksHttp", "AsksGrpc"])
def test_a_connection_that_ends_before_it_asks_is_no_request(soak: Any, protocol: str) -> None:
    crowd = soak("crowd")
    book = crowd.Book(0.0)
    client = getattr(crowd, protocol)(MagicMock(recorder=book))
    client.transport = MagicMock()
    client.connection_lost(None)
    assert book.unsent == {"connect": 1} and book.balance() == 0 and book.good


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


STREAM = [
    b'data: {"choices":[{"index":0,"text":"In","finish_reason":null},{"index":1,"text":"A","finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":1,"text":"","finish_reason":"stop"}]}\n\n: \n\n',
    b'data: {"choices":[{"index":0,"text":" the","finish_reason":"length"}]}\n\n',
    b"data: [DONE]\n\n",
]


def test_the_choices_of_a_stream(soak: Any) -> None:
    cases = soak("text_cases")

    def read(*parts: bytes) -> Any:
        found = cases.StreamedChoices(cases.COMPLETIONS)
        for byte in b"".join(parts):
            found.add(bytes([byte]))
        return found

    whole = read(*STREAM)
    assert whole.problem is None and whole.done and whole.choices() == [("In the", "length"), ("A", "stop")]
    case = cases.TextCase(cases.COMPLETIONS, {}, [("In the", "length"), ("A", "stop")])
    assert case.problem(whole.choices()) is None
    assert "not the same" in case.problem([("In the", "stop"), ("A", "stop")])
    assert "not the same" in case.problem(read(*STREAM[:2]).choices()) and not read(*STREAM[:3]).done
    assert "error in the stream" in read(STREAM[0], b'data: {"error":{"message":"x"}}\n\n').problem
    assert "after the end" in read(*STREAM[:3], STREAM[0]).problem
    assert "may not be" in read(*STREAM, STREAM[0]).problem and "may not be" in read(b"event: x\n\n").problem
    assert cases.refusal_problem(400, b'{"error":{"message":"x"}}', 400) is None
    for status, body in ((500, b'{"error":{"message":"x"}}'), (400, b"{}"), (400, b'{"error":{"message":""}}')):
        assert cases.refusal_problem(status, body, 400)


def test_the_book_of_texts(soak: Any) -> None:
    book = soak("text_clients").TextBook(0.0)
    book.sent["read"], book.sent["stop reading"] = 200, 1
    book.seen["read", "right"], book.seen["read", "busy"] = 198, 2
    book.seen["stop reading", "ended for slowness"] = 1
    assert book.problems() == []
    book.sent["read"] += 1
    assert book.problems() == ["1 requests of 'read' without an outcome"]
    book.note("read", "ended for slowness")
    assert book.problems() == ["1 x read: ended for slowness"]
    book.seen["read", "busy"] += 1
    book.seen["read", "right"] -= 1
    assert any("busy" in problem for problem in book.problems())


def run(*arguments: str) -> None:
    command = [sys.executable, str(HERE / "soak.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "soak: good" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_one_minute() -> None:
    run("--minutes", "1", "--only", "main,large,kill,disk,clock")


@pytest.mark.slow
def test_texts() -> None:
    run("--minutes", "0.15", "--only", "texts", "--text-clients", "40")
