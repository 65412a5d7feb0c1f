"""Steps of a run: each is a process with a limit of its own, and all of them together have one, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gpu_run.parent_death import end_with_parent

PASSED, FAILED, TIMED_OUT, NOT_RUN, SKIPPED = "passed", "failed", "timed out", "not run", "skipped"
RUNNING, ENDED = "running", "ended"  # when a report was written; by a signal to the whole run
BAD = (FAILED, TIMED_OUT, NOT_RUN, RUNNING, ENDED)
LOOKED_AT_EVERY = 2.0  # seconds: the file of a running step, if it is `lines`
KILLED_AFTER = 3.0  # seconds that a process has to end by itself, to write what it knows


def nothing_missing() -> str:
    return ""


def accepted(output: str) -> str:
    return ""


def read_json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


@dataclass(frozen=True)
class Step:
    """A process. It may leave findings in the file NAME.json: texts under "failed" and "notes", and anything else.

    Args:
        source: the ending of the file that `read` reads the findings from; ".txt" is the output of the process.
        lines: whether that file can be read while the process writes it.
    """

    name: str
    words: Sequence[str]
    most: float  # seconds that it may take
    least: float  # seconds without which it is not begun
    skipped: Callable[[], str] = nothing_missing  # why this machine cannot do it, which is no failure
    missing: Callable[[], str] = nothing_missing  # which package it needs that is not installed, which is one
    refused: Callable[[str], str] = accepted  # why this machine does not let it work, by its output; no failure either
    vital: bool = False  # whether nothing else is worth trying without it
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment
    source: str = ".json"
    read: Callable[[Path], dict[str, Any]] = read_json
    lines: bool = False

    @property
    def file(self) -> str:
        """The name of its files, without the ending."""
        return self.name.replace(" ", "-").replace(",", "")


@dataclass
class Outcome:
    """What became of a step."""

    name: str
    state: str
    seconds: float = 0.0
    reason: str = ""
    failed: list[str] = field(default_factory=list)
    findings: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        count = f", {len(self.failed)} failed" if self.failed else ""
        return (
            f"{self.name:<22} {self.state:<9} {self.seconds:6.1f} s{count}{f' · {self.reason}' if self.reason else ''}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Ended(BaseException):
    """A signal ended the run while a step was running."""


class Run:
    """Runs steps within a number of seconds, in their order. SIGINT and SIGTERM end the step that is running.

    Args:
        folder: takes the output of each step in NAME.txt, and its findings in NAME.json.
        tell: is given a line after each step.
        save: is given the outcomes of all steps, as far as they are known, before and after each.
        show: is given them while a step of `lines` runs, when there are more.
        keeps: whether later steps keep the seconds that they need at least; else the first ones take what they may.

    `ended_by` is the number of the signal that ended the run; 0 if none did.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float,
        environment: Mapping[str, str],
        cwd: Path,
        tell: Callable[[str], object] = print,
        clock: Callable[[], float] = time.monotonic,
        save: Callable[[list[Outcome]], object] = lambda known: None,
        show: Callable[[list[Outcome]], object] = lambda known: None,
        keeps: bool = True,
    ) -> None:
        self.folder, self.environment, self.cwd, self.tell, self.clock = folder, environment, cwd, tell, clock
        self.save, self.show, self.keeps, self.end = save, show, keeps, clock() + seconds
        self.ended_by, self.waits = 0, False

    def end_by(self, number: int, frame: object = None) -> None:
        """What to do at a signal."""
        self.ended_by = self.ended_by or number
        if self.waits:
            self.waits = False
            raise Ended

    def all(self, steps: Sequence[Step]) -> list[Outcome]:
        known = [Outcome(step.name, NOT_RUN, reason="nothing is known of it yet") for step in steps]
        lost, share = "", self.share(steps)
        for i, step in enumerate(steps):
            if self.ended_by:
                lost = f"{signal.Signals(self.ended_by).name} ended the run"
            if lost:
                known[i] = Outcome(step.name, NOT_RUN, reason=lost)
            else:
                known[i] = still_running(step.name)
                self.save(known)

                def show(outcome: Outcome, i: int = i) -> None:
                    known[i] = outcome
                    self.show(known)

                left = self.end - self.clock()
                later = share * sum(each.least for each in steps[i + 1 :] if can_run(each))
                # a step whose least still fits runs, also if later ones then have less
                known[i] = self.one(step, min(step.most, max(left - later, min(step.least, left))), show)
                self.save(known)
            self.tell(known[i].line())
            if step.vital and known[i].state != PASSED:
                lost = lost or f"'{step.name}' {known[i].state}"
        self.save(known)
        return known

    def share(self, steps: Sequence[Step]) -> float:
        """The part of their least seconds that later steps keep.

        Where there is not enough for all, they keep half of the time together: the first ones get more than their
        least, and the last ones may get nothing.
        """
        left, needed = self.end - self.clock(), sum(step.least for step in steps if can_run(step))
        if not self.keeps:
            return 0.0
        return 1.0 if needed <= left else max(0.0, 0.5 * left / needed)

    def one(self, step: Step, limit: float, show: Callable[[Outcome], object] = lambda outcome: None) -> Outcome:
        """Run a step for at most `limit` seconds.

        Args:
            show: is given what is known of a step of `lines` while it runs, when there is more.
        """
        if reason := step.skipped():
            return Outcome(step.name, SKIPPED, reason=reason)
        if reason := step.missing():
            return Outcome(step.name, NOT_RUN, reason=reason)
        if limit < step.least:
            return Outcome(step.name, NOT_RUN, reason=f"no time left: it needs {step.least:.0f} s")
        output, began = self.folder / f"{step.file}.txt", self.clock()
        try:
            code = self.process(step, output, limit, lambda: show(self.so_far(step, began)))
        except OSError as error:
            return Outcome(step.name, FAILED, reason=f"it cannot be started: {error}")
        findings = self.findings(step)
        failed = [str(text) for text in findings.pop("failed", [])]
        if code is None and self.ended_by:
            state, reason = ENDED, f"by {signal.Signals(self.ended_by).name}"
        elif code is None:
            state, reason = TIMED_OUT, f"it was ended after {limit:.0f} s"
        elif code and not findings and (refusal := step.refused(output.read_text(errors="replace"))):
            return Outcome(step.name, SKIPPED, self.clock() - began, refusal)
        elif code or failed:
            state, reason = FAILED, "" if failed else how_it_ended(code, output)
        else:
            state, reason = PASSED, ""
        if state != PASSED:
            reason = f"{reason} ({output.name})" if reason else f"see {output.name}"
        return Outcome(step.name, state, self.clock() - began, reason, failed, findings)

    def so_far(self, step: Step, began: float) -> Outcome:
        """What is known of a step that runs."""
        findings = self.findings(step)
        failed = [str(text) for text in findings.pop("failed", [])]
        return replace(still_running(step.name), seconds=self.clock() - began, failed=failed, findings=findings)

    def process(self, step: Step, output: Path, limit: float, show: Callable[[], object] = lambda: None) -> int | None:
        """The exit code; None if it did not end in time. No process of it is left."""
        environment = {**self.environment, **step.variables, "GPU_STEP_SECONDS": f"{limit:.1f}"}
        end = self.clock() + limit
        with output.open("w") as file:
            process = subprocess.Popen(
                step.words, cwd=self.cwd, env=environment, stdout=file, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, process_group=0, preexec_fn=end_with_parent,
            )  # fmt: skip
            try:
                code, size = None, 0
                while code is None:
                    self.waits = True  # before the question: a signal after it is not only noted
                    if self.ended_by:  # since the step began, or since the last look
                        raise Ended
                    left = max(0.0, end - self.clock())  # the time that `show` takes is the step's, too
                    turn = min(left, LOOKED_AT_EVERY) if step.lines else left
                    try:
                        code = process.wait(turn)
                    except subprocess.TimeoutExpired:
                        if turn == left:
                            raise
                    self.waits = False
                    if code is None and (now := self.size(step)) != size:
                        size = now
                        with suppress(OSError):  # a full disk, say: the step goes on, and `save` writes it later
                            show()
                return code
            except (subprocess.TimeoutExpired, Ended):
                self.waits = False
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(KILLED_AFTER)
                return None
            finally:
                kill_group(process.pid)
                process.wait()

    def size(self, step: Step) -> int:
        """Of the file with its findings; 0 where there is none."""
        file = self.folder / f"{step.file}{step.source}"
        return file.stat().st_size if file.exists() else 0

    def findings(self, step: Step) -> dict[str, Any]:
        """What the process left; nothing of a file that is not whole."""
        file = self.folder / f"{step.file}{step.source}"
        try:
            return step.read(file) if file.exists() else {}
        except ValueError:
            return {}


def still_running(name: str) -> Outcome:
    return Outcome(name, RUNNING, reason="it had not ended when this was written")


def can_run(step: Step) -> bool:
    return not step.skipped() and not step.missing()


def kill_group(pid: int) -> None:
    """End what is left of a process and of those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def how_it_ended(code: int, output: Path) -> str:
    """The signal that ended a process, or the last line that it printed."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    lines = output.read_text(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), f"exit code {code}")
