"""A plugin of pytest, `-p gpu_run.case_log`: writes each test with its outcome to GPU_CASE_LOG as soon as it is over.

A run that is ended still says what it knows. A test that breaks the device for its process ends the process, so that
the tests after it do not fail, too: pytest-xdist starts another one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any


def breaks_the_device(text: str) -> bool:
    """Whether an error of this text leaves the device unusable for its process."""
    from ox.devices.gpu.sticky_errors import lost  # which a run of steps does not need to begin

    return lost(text) is not None


def write(test: str, outcome: str, reason: str = "") -> None:
    with open(os.environ["GPU_CASE_LOG"], "a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "reason": reason[:500]}) + "\n")


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Before pytest makes its report."""
    if call.excinfo is not None and breaks_the_device(str(call.excinfo.value)) and hasattr(item.config, "workerinput"):
        write(item.nodeid, "failed", str(call.excinfo.value))
        os._exit(1)


def pytest_runtest_logreport(report: Any) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return  # the process that started this one has the report, too
    if report.when == "call" or report.outcome != "passed":
        reason = "" if report.outcome == "passed" else reason_of(report)
        write(report.nodeid, report.outcome, reason)


def pytest_collectreport(report: Any) -> None:
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        write(report.nodeid, "failed", f"it cannot be read: {reason_of(report)}")


def pytest_warning_recorded(warning_message: Any, nodeid: str) -> None:
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        lines = str(warning_message.message).strip().splitlines() or [""]
        write(nodeid, "warned", f"{warning_message.category.__name__}: {lines[0]}")


def reason_of(report: Any) -> str:
    """The line of an error, or why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0] if crash and lines else lines[-1] if lines else ""


def read(file: Path) -> dict[str, Any]:
    """The findings of a run that may still write: tests by outcome, what failed, and warnings with their number."""
    cases: dict[str, dict[str, str]] = {}
    warnings: Counter[str] = Counter()
    for line in file.read_text().split("\n")[:-1]:  # what is behind the last one is not whole yet
        case = json.loads(line)
        if case["outcome"] == "warned":
            warnings[case["reason"]] += 1
            continue
        known = cases.get(case["test"])
        if known is None or (known["outcome"] != "failed" and case["outcome"] == "failed"):
            cases[case["test"]] = case
    by_outcome: dict[str, list[str]] = {"passed": [], "skipped": [], "failed": []}
    for test, case in sorted(cases.items()):
        by_outcome[case["outcome"]].append(test)
    failed = [f"{test}: {cases[test]['reason']}" for test in by_outcome["failed"]]
    skipped = {test: cases[test]["reason"] for test in by_outcome["skipped"]}
    tests = {"failed tests": by_outcome["failed"], "passed": by_outcome["passed"], "skipped": skipped}
    return {"failed": failed, **tests, "warnings": dict(warnings.most_common())}
