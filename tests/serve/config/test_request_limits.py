"""Every limit can be set, by its name and with units, and reaches the server."""

from __future__ import annotations

import inspect
import re
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rows import rows
from typer.testing import CliRunner

import ox.serve
from ox.errors import ArgumentError
from ox.serve import RequestLimits, Server
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import KINDS, SIZE, TIME, parse_limits
from ox.serve.config.server_config import ServerConfig
from ox.serve.workers.worker_config import WorkerConfig
from ox_cli import serve as page

NAMES = [entry.name for entry in fields(RequestLimits)]
ROOT = Path(__file__).parents[3]


def changed(name: str) -> tuple[str, Any]:
    """Another value of a limit, as text and as it is."""
    value = getattr(RequestLimits(), name)
    if KINDS[name] == TIME:
        return f"{1000 * value + 500:.0f}ms", value + 0.5
    if KINDS[name] == SIZE:
        return f"{(value >> 10) + 1}KiB", ((value >> 10) + 1) << 10
    return str(value + 1), value + 1


@rows("name", NAMES)
def test_each_reaches_the_server(name: str, monkeypatch: pytest.MonkeyPatch, mlp: Path) -> None:
    """From the command line, through what workers are told, to what the server goes by."""
    text, value = changed(name)
    given: dict[str, Any] = {}
    monkeypatch.setattr(ox.serve, "serve", lambda paths, **others: given.update(others))
    import typer

    app = typer.Typer()
    app.command()(page.serve)
    result = CliRunner().invoke(app, [str(mlp), "--limit", f"{name}={text}"])
    assert result.exit_code == 0, result.output
    limits = given["limits"]
    assert getattr(limits, name) == value
    assert asdict(replace(limits, **{name: getattr(RequestLimits(), name)})) == asdict(
        replace(RequestLimits(), **({"buffered": limits.buffered} if name == "body" else {}))
    )
    orders = WorkerConfig([str(mlp)], ModelConfig("cpu"), limits, ServerConfig())
    assert WorkerConfig.from_json(orders.to_json()).limits == limits
    assert Server([mlp], options=ModelConfig("cpu", max_rows=1), limits=limits).limits == limits


@cache
def limits_read() -> set[str]:
    """The attributes of limits that the server's code reads."""
    texts = (path.read_text() for path in (ROOT / "ox" / "serve").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"[lL]imits\.(\w+)", text)}


@rows("name", NAMES)
def test_each_is_named_where_users_look(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "serving.md").read_text()
    option = inspect.signature(page.serve, eval_str=True).parameters["limit"].annotation.__metadata__[0]
    assert re.search(rf"\b{name}\b", option.help)
    assert name in limits_read(), f"nothing goes by the limit {name}"


def test_units() -> None:
    limits = parse_limits(["json=1.5MiB", "reply=64mb", "url=4096", "idle_s=5min", "write_s=250ms", "rows=8192"])
    assert (limits.json, limits.reply, limits.url) == (3 << 19, 64_000_000, 4096)
    assert (limits.idle_s, limits.write_s, limits.rows) == (300, 0.25, 8192)
    assert parse_limits(()) == RequestLimits()


def test_room_for_all_bodies_grows_with_one() -> None:
    assert parse_limits((), body=64 << 20).buffered == 1 << 30
    assert parse_limits(["body=64MiB"]).buffered == 1 << 30
    assert parse_limits(["body=1MiB"]).buffered == RequestLimits().buffered
    assert parse_limits(["body=64MiB", "buffered=100MiB"]).buffered == 100 << 20
    assert parse_limits(["body=2MiB"], body=64 << 20).body == 2 << 20


@rows(
    ("text", "words"),
    [
        ("lines=3", "there is no limit 'lines'"),
        ("rows", "invalid value for the limit rows"),
        ("rows=many", "invalid value for the limit rows"),
        ("rows=3MiB", "invalid value for the limit rows"),
        ("reply=3s", "a number of bytes, or one with KiB, MiB, GiB"),
        ("idle_s=3MiB", "a number of seconds, or one with ms, s, min, h"),
        ("rows=-1", "invalid value for the limit rows"),
        ("rows=0", "more than 0"),
        ("rows=1.5", "a whole number; more than 0, at most 2,147,483,647"),
        ("rows=-1", "more than 0, at most 2,147,483,647"),
        ("memory=1000TiB", "KiB, MiB, GiB; 0 or more, at most 1,125,899,906,842,624 bytes"),
        ("idle_s=nan", "more than 0, at most 1,000,000,000 seconds"),
        ("body=4GiB", "the limit body is out of range"),
        ("write_s=0", "more than 0"),
        ("idle_s=nan", "invalid value for the limit idle_s"),
    ],
)
def test_what_is_no_limit(text: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_limits([text])
    assert words in str(caught.value)


@pytest.mark.parametrize("values", [{"rows": 1.5}, {"idle_s": float("nan")}, {"rows": True}, {"body": 0}])
def test_values_of_the_wrong_kind(values: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="out of range"):
        RequestLimits(**values)
