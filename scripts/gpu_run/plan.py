"""The steps of a run, and their order."""

from __future__ import annotations

import os
import re
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
ALONE = ("tests/devices/gpu/test_cupy_device.py",)  # it looks at the memory of the card, which others use, too
SERVING = "tests/serve/"
SERVER = ("httptools", "hpack", "orjson", "prometheus-client")
FOR_SERVING = (*environment.FOR_TESTS, *SERVER)  # of its conftest.py
SHORT = ("tests/cuda/test_threads_that_meet.py", "tests/devices/gpu/test_cuda_graph.py")  # of a short run
SMOKE = ("a tensor", "a kernel", "a product", "a step", "a compiled call")  # of smoke.py
VITAL = ("a tensor", "a kernel")  # without which nothing else is worth trying
# With --first: what tells most, for as many seconds as a minute each has; then all other steps
FIRST = {
    "versions": 25, **dict.fromkeys(SMOKE, 30), "step counts": 60, "each kernel": 45, "benchmarks of ox": 60,
    "memcheck": 60,
}  # fmt: skip
# Lines of compute-sanitizer and nsys on a machine that does not let them look
REFUSAL = re.compile(
    r"not supported|permission|not permitted|unable to attach|cannot attach|no attachable process|failed to initialize"
    r"|error while launching|ptrace",
    re.IGNORECASE,
)
LEFT_OUT = ("tests/cuda/test_user_lines.py", "tests/cuda/test_step_counts.py")  # steps of their own


def gpu_files() -> list[str]:
    """The files with tests of the mark `gpu` that no other step runs."""
    files = (ROOT / "tests").rglob("test_*.py")
    found = sorted(str(file.relative_to(ROOT)) for file in files if "mark.gpu" in file.read_text())
    return [file for file in found if file not in (*LEFT_OUT, *ALONE)]


def refusal(output: str) -> str:
    """The first line by which a tool says that it may not look; "" if none does."""
    said = (line.strip("= ") for line in output.splitlines() if line.startswith("=====") or " error" in line.lower())
    return next((line[:300] for line in said if REFUSAL.search(line)), "")


class UnknownStep(Exception):
    """A step that is not in the plan."""


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
        first: whether the steps of FIRST come first.
        devices: how many there are.
    """

    folder: Path
    stand_in: str
    quick: bool
    first: bool = False
    devices: int = 1

    def chosen(self, names: str = "") -> list[Step]:
        """The steps of these names, with commas between them; all for none.

        Raises:
            UnknownStep: there is none of a name.
        """
        steps = self.steps()
        if not names:
            return [
                step for step in steps if self.first or step.name != "benchmarks of ox"
            ]  # which benchmarks has, too
        wanted = [name.strip() for name in names.split(",")]
        if unknown := set(wanted) - {step.name for step in steps}:
            got = ", ".join(sorted(unknown))
            raise UnknownStep(f"no step has the name {got}; expected some of: {', '.join(s.name for s in steps)}")
        return [step for step in steps if step.name in wanted]

    def steps(self) -> list[Step]:
        """All of them, with the most and the least seconds of each."""
        nsys = ["profile", "--trace=cuda,nvtx,cublas", "--stats=true", "--force-overwrite=true"]
        nsys += [f"--output={self.folder / 'gpt-step'}"]
        serving = [file for file in gpu_files() if file.startswith(SERVING)]
        others = [file for file in gpu_files() if file not in serving]
        steps = [
            self.program("versions", "versions", 30, 5),
            Step("doctor", [sys.executable, "-m", "ox_cli", "doctor"], 40, 5),
            *(self.smoke(name) for name in SMOKE),
            self.tests("tests", SHORT if self.quick else others, 210, 60),
            self.tests("tests of memory", ALONE, 30, 5, parallel=False),
            self.program("serving by CUDA", "cuda_serving", 120, 20, missing=self.missing_for_serving),
            self.tests("tests of serving", serving, 120, 10, parallel=False, needs=FOR_SERVING),
            self.program("user lines", "user_line_verdicts", 90, 30, source=".log", read=user_line_verdicts.findings),
            self.program("step counts", "step_counts", 60, 20),
            self.two_ranks(),
            self.program("each kernel", "each_kernel", 60, 15),
            self.sanitizer("memcheck"),
            self.sanitizer("racecheck"),
            self.benchmarks("benchmarks of ox", 60, 30, "ox"),
            self.benchmarks("benchmarks", 150, 60),
            self.program("profile", "gpt_profile", 60, 20),
            self.by_tool("profile by nsys", "gpt_profile", 90, 20, "nsys", *nsys),
        ]
        if self.first:
            limited = [replace(step, most=FIRST.get(step.name, step.most)) for step in steps]
            steps = sorted(limited, key=lambda step: [*FIRST, step.name].index(step.name))
        return [replace(step, most=step.most * PATIENCE) for step in steps] if self.stand_in else steps

    def smoke(self, name: str) -> Step:
        step = self.program(name, "smoke", 40, 5, vital=name in VITAL)
        return replace(step, words=[*step.words, name])

    def benchmarks(self, name: str, most: float, least: float, *sides: str) -> Step:
        step = Step(name, (), most, least)
        file = str(self.folder / f"{step.file}.json")
        return replace(step, words=[sys.executable, "benchmarks/bench_gpu.py", file, *sides])

    def missing_for_serving(self) -> str:
        provider = [] if self.stand_in else ["onnxruntime-gpu"]
        return environment.missing_text([*SERVER, *provider], self.folder)

    def program(self, name: str, module: str, most: float, least: float, *before: str, **more: Any) -> Step:
        """One of this package, which is given the file for its findings."""
        step = Step(name, (), most, least, **more)
        words = [*before, sys.executable, "-m", f"gpu_run.{module}", str(self.folder / f"{step.file}{step.source}")]
        return Step(name, words, most, least, **more)

    def by_tool(self, name: str, module: str, most: float, least: float, tool: str, *options: str) -> Step:
        """A program under a tool of CUDA."""
        found, reason = self.tool(tool)
        return self.program(name, module, most, least, found, *options, skipped=lambda: reason, refused=refusal)

    def sanitizer(self, name: str) -> Step:
        """Each kernel under a tool of compute-sanitizer, which the program starts itself."""
        found, reason = self.tool("compute-sanitizer")
        options = ["--tool", name, "--error-exitcode", "9", "--report-api-errors", "no"]  # which CuPy raises
        step = self.program(name, "each_kernel", 90, 30, skipped=lambda: reason, refused=refusal)
        return replace(step, words=[*step.words, found, *options])

    def tool(self, name: str) -> tuple[str, str]:
        """The path of a tool, and why it cannot be used here."""
        if self.stand_in:
            return name, f"{name} looks at a real device"
        found = environment.tool(name)
        return found or name, "" if found else f"{name} is neither on the PATH nor in CUDA_HOME"

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
        # Errors elsewhere. A NumPy that is newer than those of the tests brings some, which are reported.
        words += ["-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning"]
        words += [f"--junitxml={self.folder / f'{step.file}.xml'}"]
        if self.stand_in and mark == "gpu":
            words += ["-p", "on_host_cuda"]
        if parallel and not self.quick and environment.installed("pytest-xdist", self.folder):
            workers = min(MOST_WORKERS, os.cpu_count() or 1)
            words += ["-p", "xdist.plugin", "-n", str(workers), "--dist", "worksteal"]
            words += [f"--max-worker-restart={10 * workers}"]
        log = str(self.folder / f"{step.file}.log")
        # The plugins of somebody else's environment may warn, and a warning is an error in these tests
        variables = {"GPU_CASE_LOG": log, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return Step(
            name, [*words, *files], most, least, missing=lambda: environment.missing_text(needs, self.folder),
            variables=variables, source=".log", read=case_log.read, lines=True,
        )  # fmt: skip

    def two_ranks(self) -> Step:
        """NCCL between two devices, or with the library that stands for it."""
        name, mpiexec = "two ranks", shutil.which("mpiexec")
        if self.stand_in and not self.quick:
            return self.tests(name, ["tests/cuda/test_nccl_ranks.py"], 150, 20, parallel=False, mark="slow")

        def reason() -> str:
            if self.stand_in:
                return "left out of a short run"
            return f"NCCL needs two devices, and there is {self.devices}" if self.devices < 2 else ""

        absent = "" if mpiexec and environment.installed("mpi4py", self.folder) else "not installed: mpi4py, mpiexec"
        words = [mpiexec or "mpiexec", "-n", "2", sys.executable, "tests/cuda/nccl_ranks.py"]
        return Step(name, words, 60, 20, skipped=reason, missing=lambda: absent, source=".txt", read=ranks_of)
