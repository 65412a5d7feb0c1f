"""The steps of a run, in the order of what has to be known first."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_run import case_log, environment, user_line_verdicts
from gpu_run.environment import ROOT
from gpu_run.steps import Step

PATIENCE = 6  # times the seconds of a GPU, for a stand-in
MOST_WORKERS = 12  # each has a context on the card
ALONE = ("tests/devices/test_cuda.py",)  # it looks at the memory of the card, which others use, too
SERVING = "tests/serve/"
FOR_SERVING = (*environment.FOR_TESTS, "httptools", "hpack", "orjson", "prometheus-client")  # of its conftest.py
SHORT = ("tests/cuda/test_threads_that_meet.py", "tests/devices/test_cuda_graph.py")  # of a short run
LEFT_OUT = ("tests/cuda/test_user_lines.py", "tests/cuda/test_step_counts.py")  # steps of their own


def gpu_files() -> list[str]:
    """The files with tests of the mark `gpu` that no other step runs."""
    files = (ROOT / "tests").rglob("test_*.py")
    found = sorted(str(file.relative_to(ROOT)) for file in files if "mark.gpu" in file.read_text())
    return [file for file in found if file not in (*LEFT_OUT, *ALONE)]


def ranks_of(output: Path) -> dict[str, Any]:
    """The findings in the output of tests/cuda/nccl_ranks.py."""
    lines = output.read_text(errors="replace").splitlines()
    failed = [line for line in lines if " failed: " in line]
    held = [line for line in lines if line.endswith(" held")]
    return {"failed": failed or ([] if held else ["no check of two ranks has ended"]), "checks": held}


@dataclass(frozen=True)
class Plan:
    """Makes the steps.

    Args:
        stand_in: what computes in place of a GPU, or "".
        quick: a little of each step.
    """

    folder: Path
    stand_in: str
    quick: bool

    def steps(self) -> list[Step]:
        """All of them, with the most and the least seconds of each."""
        nsys = ["profile", "--trace=cuda,nvtx,cublas", "--stats=true", "--force-overwrite=true"]
        nsys += [f"--output={self.folder / 'gpt-step'}"]
        serving = [file for file in gpu_files() if file.startswith(SERVING)]
        others = [file for file in gpu_files() if file not in serving]
        bench = [sys.executable, "benchmarks/bench_gpu.py", str(self.folder / "benchmarks.json")]
        steps = [
            self.program("versions", "versions", 30, 5),
            Step("doctor", [sys.executable, "-m", "ox_cli", "doctor"], 40, 5),
            self.program("smoke", "smoke", 60, 15, vital=True),
            self.tests("tests", SHORT if self.quick else others, 210, 60),
            self.tests("tests of memory", ALONE, 30, 5, parallel=False),
            self.tests("tests of serving", serving, 30, 5, parallel=False, needs=FOR_SERVING),
            self.program("user lines", "user_line_verdicts", 90, 30, source=".log", read=user_line_verdicts.findings),
            self.program("step counts", "step_counts", 60, 20),
            self.two_ranks(),
            self.program("each kernel", "each_kernel", 60, 15),
            self.by_tool("memcheck", "each_kernel", 90, 30, "compute-sanitizer", "--tool", "memcheck"),
            self.by_tool("racecheck", "each_kernel", 90, 30, "compute-sanitizer", "--tool", "racecheck"),
            Step("benchmarks", bench, 150, 60),
            self.program("profile", "gpt_profile", 60, 20),
            self.by_tool("profile by nsys", "gpt_profile", 90, 20, "nsys", *nsys),
        ]
        return [replace(step, most=step.most * PATIENCE) for step in steps] if self.stand_in else steps

    def program(self, name: str, module: str, most: float, least: float, *before: str, **more: Any) -> Step:
        """One of this package, which is given the file for its findings."""
        step = Step(name, (), most, least, **more)
        words = [*before, sys.executable, "-m", f"gpu_run.{module}", str(self.folder / f"{step.file}{step.source}")]
        return Step(name, words, most, least, **more)

    def by_tool(self, name: str, module: str, most: float, least: float, tool: str, *options: str) -> Step:
        """A program under a tool of CUDA."""
        found = environment.tool(tool)
        reason = "" if found else f"{tool} is neither on the PATH nor in CUDA_HOME"
        if self.stand_in:
            reason = f"{tool} looks at a real device"
        if tool == "compute-sanitizer":
            options = (*options, "--error-exitcode", "9", "--report-api-errors", "no")  # which CuPy raises
        return self.program(name, module, most, least, found or tool, *options, skipped=lambda: reason)

    def tests(
        self,
        name: str,
        files: Sequence[str],
        most: float,
        least: float,
        parallel: bool = True,
        mark: str = "gpu",
        needs: Sequence[str] = environment.FOR_TESTS,
    ) -> Step:
        """Tests with a mark; in several processes where pytest-xdist is installed."""
        step = Step(name, (), most, least)
        words = [sys.executable, "-m", "pytest", "-p", "gpu_run.case_log", "-m", mark, "-q", "--tb=short"]
        words += ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
        words += [f"--junitxml={self.folder / f'{step.file}.xml'}"]
        if self.stand_in and mark == "gpu":
            words += ["-p", "on_host_cuda"]
        if parallel and not self.quick and environment.installed("pytest-xdist", self.folder):
            workers = min(MOST_WORKERS, os.cpu_count() or 1)
            words += ["-p", "xdist.plugin", "-n", str(workers), "--dist", "worksteal"]
            words += [f"--max-worker-restart={10 * workers}"]
        absent = environment.missing_text(needs, self.folder)
        log = str(self.folder / f"{step.file}.log")
        # The plugins of somebody else's environment may warn, and a warning is an error in these tests
        variables = {"GPU_CASE_LOG": log, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return Step(
            name, [*words, *files], most, least, missing=lambda: absent, variables=variables, source=".log",
            read=case_log.read,
        )  # fmt: skip

    def two_ranks(self) -> Step:
        """NCCL between two devices, or with the library that stands for it."""
        name, mpiexec = "two ranks", shutil.which("mpiexec")
        if self.stand_in and not self.quick:
            return self.tests(name, ["tests/cuda/test_nccl_ranks.py"], 150, 20, parallel=False, mark="slow")

        def reason() -> str:
            if self.stand_in:
                return "left out of a short run"
            found = self.folder / "smoke.json"
            count = json.loads(found.read_text())["devices"] if found.exists() else 0
            return f"NCCL needs two devices, and there is {count}" if count < 2 else ""

        absent = "" if mpiexec and environment.installed("mpi4py", self.folder) else "not installed: mpi4py, mpiexec"
        words = [mpiexec or "mpiexec", "-n", "2", sys.executable, "tests/cuda/nccl_ranks.py"]
        return Step(name, words, 60, 20, skipped=reason, missing=lambda: absent, source=".txt", read=ranks_of)
