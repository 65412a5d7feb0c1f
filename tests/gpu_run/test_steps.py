"""Steps of `make gpu`: one that fails or hangs does not stop the others, and the time is shared out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_run import steps
from gpu_run.steps import ENDED, FAILED, NOT_RUN, PASSED, SKIPPED, TIMED_OUT, Outcome, Run, Step
from waiting import wait_until


def step(name: str, code: str, most: float = 60, least: float = 1, **more: Any) -> Step:
    return Step(name, [sys.executable, "-c", code], most, least, **more)


def run(folder: Path, *chosen: Step, seconds: float = 1000, **more: Any) -> list[Outcome]:
    return Run(folder, seconds, dict(os.environ), folder, more.pop("tell", lambda line: None), **more).all(chosen)


def test_a_step_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    lines: list[str] = []
    broken = step("one", "print('before', flush=True); raise SystemExit('it is broken')")
    first, second = run(tmp_path, broken, step("two", "print('fine')"), tell=lines.append)
    assert (first.state, first.reason) == (FAILED, "it is broken (one.txt)")
    assert (second.state, second.reason) == (PASSED, "")
    assert sorted((tmp_path / "one.txt").read_text().split("\n")) == ["", "before", "it is broken"]
    assert [line.split()[:2] for line in lines] == [["one", "failed"], ["two", "passed"]]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Run(tmp_path, 10, {}, tmp_path).process(Step("one", ["/nowhere/program"], 5, 1), tmp_path / "one.txt", 5)
    missing, after = run(tmp_path, Step("one", ["/nowhere/program"], 5, 1), step("two", ""))
    assert missing.state == FAILED and "/nowhere/program" in missing.reason
    assert after.state == PASSED


def test_a_step_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "KILLED_AFTER", 0.1)
    script = """
    trap '' INT  # so that only SIGKILL ends it
    echo '{"failed": ["known so far"], "held": 3}' > hangs.json
    sleep 600 &
    echo $! > pid
    wait
    """
    hanging, after = run(tmp_path, Step("hangs", ["sh", "-c", script], 2, 1), step("after", ""))
    assert hanging.state == TIMED_OUT and hanging.reason == "it was ended after 2 s (hangs.txt)"
    assert hanging.failed == ["known so far"] and hanging.findings == {"held": 3}
    assert after.state == PASSED
    wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


WRITES = "import time\nwhile True:\n    print('a line', file=open('one.log', 'a'))\n    time.sleep(0.01)"


def watched(code: str, most: float) -> Step:
    return step("one", code, most, source=".log", read=lambda file: {"size": file.stat().st_size}, lines=True)


def test_a_report_that_cannot_be_written_does_not_end_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LOOKED_AT_EVERY", 0.01)

    def show(outcomes: list[Outcome]) -> None:
        (tmp_path / "shown").touch()
        raise OSError(28, "No space left on device")

    waits = "import os, time\nopen('one.log', 'w').write('a line')\nwhile not os.path.exists('shown'): time.sleep(0.01)"
    (outcome,) = run(tmp_path, watched(waits, 60), show=show)
    assert (outcome.state, outcome.findings) == (PASSED, {"size": 6})


def test_the_time_of_a_report_is_part_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LOOKED_AT_EVERY", 0.01)
    now, shown = [0.0], list[str]()

    def show(outcomes: list[Outcome]) -> None:
        shown.append(outcomes[0].state)
        now[0] += 100

    (outcome,) = run(tmp_path, watched(WRITES, 2), clock=lambda: now[0], show=show)
    assert (outcome.state, len(shown)) == (TIMED_OUT, 1)


def test_later_steps_keep_the_seconds_that_they_need(tmp_path: Path) -> None:
    """The clock stands still: of 100 seconds, 60 are kept for two steps after the first."""
    said = "import os; print(os.environ['GPU_STEP_SECONDS'])"
    outcomes = run(
        tmp_path, step("one", said, 90, 10), step("two", said, 50, 30), step("three", said, 50, 30),
        seconds=100, clock=lambda: 0.0,
    )  # fmt: skip
    assert [outcome.state for outcome in outcomes] == [PASSED] * 3
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("one", "two", "three")] == [
        "40.0\n",
        "50.0\n",
        "50.0\n",
    ]


def test_first_steps_are_not_starved_for_later_ones(tmp_path: Path) -> None:
    """Of 60 seconds where 80 are needed: later ones keep half of the 60 together."""
    said = "import os; print(os.environ['GPU_STEP_SECONDS'])"
    chosen = [step("one", said, 90, 20), step("two", said, 90, 20), step("three", said, 90, 40)]
    assert [each.state for each in run(tmp_path, *chosen, seconds=60, clock=lambda: 0.0)] == [PASSED] * 3
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("one", "two")] == ["37.5\n", "45.0\n"]
    run(tmp_path, *chosen, seconds=60, clock=lambda: 0.0, keeps=False)
    assert (tmp_path / "one.txt").read_text() == "60.0\n"


def test_a_step_whose_least_fits_runs_although_later_ones_need_more(tmp_path: Path) -> None:
    said = "import os; print(os.environ['GPU_STEP_SECONDS'])"
    chosen = [step("one", said, 90, 15), step("two", said, 90, 40)]
    assert [each.state for each in run(tmp_path, *chosen, seconds=20, clock=lambda: 0.0)] == [PASSED, NOT_RUN]
    assert (tmp_path / "one.txt").read_text() == "15.0\n"


def test_nothing_is_kept_for_what_cannot_run(tmp_path: Path) -> None:
    said = "import os; print(os.environ['GPU_STEP_SECONDS'])"
    tool, package = (
        step("tool", "", 90, 50, skipped=lambda: "no tool"),
        step("package", "", 90, 40, missing=lambda: "no"),
    )
    run(tmp_path, step("one", said, 90, 10), tool, package, seconds=100, clock=lambda: 0.0)
    assert (tmp_path / "one.txt").read_text().strip() == "90.0"


def test_a_step_without_time_is_listed(tmp_path: Path) -> None:
    times = iter([0.0, *[50.0] * 20])
    outcomes = run(tmp_path, step("one", "", 90, 20), step("two", "", 20, 5), seconds=60, clock=lambda: next(times))
    assert (outcomes[0].state, outcomes[0].reason) == (NOT_RUN, "no time left: it needs 20 s")
    assert outcomes[1].state == PASSED  # it takes less
    assert not (tmp_path / "one.txt").exists()


def test_what_the_machine_or_the_environment_lacks(tmp_path: Path) -> None:
    tool, package, fine = run(
        tmp_path,
        step("tool", "raise SystemExit(1)", skipped=lambda: "no such tool"),
        step("package", "raise SystemExit(1)", missing=lambda: "not installed: pytest"),
        step("fine", ""),
    )
    assert (tool.state, tool.reason) == (SKIPPED, "no such tool")
    assert (package.state, package.reason) == (NOT_RUN, "not installed: pytest")
    assert fine.state == PASSED


def test_nothing_is_tried_without_a_vital_step(tmp_path: Path) -> None:
    first, second = run(tmp_path, step("smoke", "raise SystemExit(1)", vital=True), step("two", ""))
    assert first.state == FAILED and first.reason == "exit code 1 (smoke.txt)"
    assert (second.state, second.reason) == (NOT_RUN, "'smoke' failed")


def test_findings(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"failed": [')
    (tmp_path / "bad.json").write_text('{"failed": ["a line"], "held": 2}')
    (tmp_path / "text.log").write_text("a\nb\n")
    broken, bad, text = run(
        tmp_path,
        step("broken", ""),
        step("bad", ""),
        step("text", "", source=".log", read=lambda file: {"lines": file.read_text().split()}),
    )
    assert broken.state == PASSED and broken.findings == {}
    assert (bad.state, bad.reason, bad.failed) == (FAILED, "see bad.txt", ["a line"]) and bad.findings == {"held": 2}
    assert text.findings == {"lines": ["a", "b"]}


class Late(Run):
    """A signal comes right after it was asked, for the first time, whether there was one."""

    asked = False

    @property
    def ended_by(self) -> int:
        found = self.number
        if self.asked:
            self.asked = False
            self.end_by(signal.SIGTERM)
        return found

    @ended_by.setter
    def ended_by(self, number: int) -> None:
        self.number = number


def test_a_signal_between_the_start_and_the_wait(tmp_path: Path) -> None:
    late = Late(tmp_path, 60, dict(os.environ), tmp_path)
    late.asked = True
    outcome = late.one(step("one", ""), 60)
    assert (outcome.state, outcome.reason) == (ENDED, "by SIGTERM (one.txt)")


def test_a_process_that_a_signal_ends(tmp_path: Path) -> None:
    (outcome,) = run(tmp_path, step("one", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"))
    assert outcome.state == FAILED and outcome.reason == "ended by SIGSEGV (one.txt)"
