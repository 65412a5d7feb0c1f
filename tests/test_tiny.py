"""scripts/tiny.py, which `make tiny` runs: the first step that fails ends it, with an exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny


@pytest.mark.parametrize("failing", tiny.STEPS)
def test_a_step_that_fails_ends_it(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran: list[str] = []

    def step(name: str) -> Callable[[], None]:
        def run() -> None:
            ran.append(name)
            if name == failing:
                subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)

        return run

    assert tiny.main({name: step(name) for name in tiny.STEPS}, tmp_path / "work") == 1
    assert ran == list(tiny.STEPS)[: list(tiny.STEPS).index(failing) + 1]
    assert f"tiny: '{failing}' failed" in capsys.readouterr().err


def test_steps_that_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tiny.main(dict.fromkeys(tiny.STEPS, lambda: None), tmp_path / "work") == 0


@pytest.mark.parametrize("step", [tiny.export, tiny.load, tiny.serve])
def test_a_step_without_what_it_needs_fails(
    step: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=r".+"):
        step()


@pytest.mark.slow
def test_an_operator_without_tests_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "OPERATOR", "NoSuchOperator")
    with pytest.raises(subprocess.CalledProcessError):
        tiny.operator()


@pytest.mark.slow
def test_every_step_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tiny.main(work=tmp_path / "work") == 0
