"""What the environment variables of a launcher say, and what they cannot say."""

from __future__ import annotations

import os

import pytest

from ox import distributed as dist
from ox.distributed import environment, frames, launcher
from ox.distributed.launcher import Plan
from ox.errors import ArgumentError
from ox_cli import ranks as command_ranks


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a launcher."""
    for name in [*environment._NUMBERS, environment.ATTEMPT, "MASTER_ADDR", "MASTER_PORT", frames.HEARTBEAT]:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    "env",
    [
        {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "2", "RANK": ""}, {"WORLD_SIZE": "2", "RANK": "x"},
        {"WORLD_SIZE": "2", "RANK": "-1"}, {"WORLD_SIZE": "2", "RANK": "\u00b2"}, {"RANK": "0", "WORLD_SIZE": "x"},
        {"RANK": "1"}, {"RANK": "0", "WORLD_SIZE": "0"}, {"RANK": "1", "WORLD_SIZE": "1"},
    ],
)  # fmt: skip
def test_variables_that_name_no_rank(env: dict[str, str], clean: pytest.MonkeyPatch) -> None:
    """The process would train alone, and say nothing."""
    for name, value in (env | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}).items():
        clean.setenv(name, value)
    for begin in (dist.init_process_group, command_ranks.process_group(lambda: "cpu").__enter__):
        with pytest.raises(ArgumentError, match="RANK and WORLD_SIZE name no rank") as raised:
            begin()
        got = {name: repr(env[name]) if name in env else f"no {name}" for name in ("RANK", "WORLD_SIZE")}
        assert all(text in str(raised.value) for text in got.values()), str(raised.value)
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    "env",
    [
        {}, {"WORLD_SIZE": "8"}, {"RANK": "x"}, {"MASTER_ADDR": "a"}, {"MASTER_ADDR": "a", "WORLD_SIZE": "1"},
        {"MASTER_ADDR": "a", "WORLD_SIZE": "1", "RANK": "0"}, {"MASTER_ADDR": "a", "WORLD_SIZE": "2", "RANK": "1"},
        {"MASTER_ADDR": "a", "RANK": "x", "PMI_RANK": "0", "PMI_SIZE": "2"},
    ],
)  # fmt: skip
def test_variables_that_are_no_mistake(env: dict[str, str], clean: pytest.MonkeyPatch) -> None:
    """Some tools set WORLD_SIZE for reasons of their own; then there is no MASTER_ADDR."""
    for name, value in env.items():
        clean.setenv(name, value)
    environment.check_variables(environment.launch())
    assert environment.is_rank() == ("2" in env.values())


@pytest.mark.parametrize("text", ["abc", "-3", "nan", "inf", "1e9", "0.2"])
def test_a_time_limit_of_the_heartbeat_that_is_none(text: str, clean: pytest.MonkeyPatch) -> None:
    clean.setenv(frames.HEARTBEAT, text)
    for check in (environment.check_heartbeat, lambda: launcher.check(Plan(["-m", "x"]))):
        with pytest.raises(ArgumentError, match=f"{frames.HEARTBEAT} .* is a time limit") as raised:
            check()
        assert f"got      {text}" in str(raised.value) and "0 (off), or 1 to 1,000,000" in str(raised.value)


def test_time_limits_of_the_heartbeat(clean: pytest.MonkeyPatch) -> None:
    for text, limit in (("", 60.0), ("0", 0.0), ("5", 5.0), ("1e6", 1e6)):
        clean.setenv(frames.HEARTBEAT, text)
        environment.check_heartbeat()
        assert frames.heartbeat_timeout() == limit


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_time_limit_that_is_none(timeout: float, clean: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="a time limit is not negative"):
        dist.init_process_group(timeout=timeout)
    assert not dist.is_initialized() and "PMI_RANK" not in os.environ


def test_options_of_a_launch_that_cannot_be(clean: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="--max-restarts is how often") as raised:
        launcher.check(Plan(["-m", "x"], restarts=-1))
    assert "expected 0 or more" in str(raised.value)
    for timeout in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match="--timeout is a time limit"):
            launcher.check(Plan(["-m", "x"], timeout=timeout))
    launcher.check(Plan(["-m", "x"], restarts=1, timeout=0.5))
