"""The day with a GPU: tests, user lines, counts, compute-sanitizer, benchmarks and a profile, in ten minutes.

    make gpu                                     # on a machine with an NVIDIA GPU; or, without make
    python3 scripts/gpu.py                       # with the packages of this Python, and without any network
    python3 scripts/gpu.py --first --minutes 4   # what tells most in the first minutes
    python3 scripts/gpu.py --only "user lines,tests"
    make gpu GPU_WHEELS=folder                   # install wheels of missing packages for this run first
    make gpu STAND_IN=host_cuda ARGS=--quick     # try everything on a machine without a GPU
    make gpu ARGS="--from gpu-report"            # write the pages from a run on another machine

Each step is a process with a limit of its own; one that fails or hangs does not stop the others. A step for which no
time is left is listed. Before and after each step the folder has what is known by then: report.json, gpu.md,
summary.txt, and results.tgz with the output of each step. On a GPU the last column of the table in docs/gpu.md and
benchmarks/results/gpu.md are written, if neither --only nor a signal left steps out; --from writes them of any report.
The exit code is 1 if anything failed or could not run, 2 if nothing could run, and 130 or 143 after SIGINT or SIGTERM,
which end the running step.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_run import environment, page, report, results
from gpu_run.environment import ROOT, WheelsError
from gpu_run.kernel_cache import KernelCache
from gpu_run.plan import Plan, UnknownStep
from gpu_run.steps import FAILED, NOT_RUN, PASSED, RUNNING, Outcome, Run, Step

PAGE, RESULTS = ROOT / "docs" / "gpu.md", ROOT / "benchmarks" / "results" / "gpu.md"
MINUTES = 10.0
RESERVE = 8.0  # seconds of them to end the last step, and to write what it found
SAY_WHY = ("versions", "doctor")  # the steps that are run where nothing can
SIGNALS = (signal.SIGINT, signal.SIGTERM)
COUNT = {  # Python that prints the number of devices or, in place of it, why there is none; by stand-in
    "": "from ox.devices import cuda\ntry: cuda.cupy(); print(cuda.device_count())\nexcept Exception as e: print(e)",
    "host_cuda": "from host_cuda import build; print(build.missing() or 1)",
}


class ReportError(Exception):
    """A report of an earlier run that cannot be read."""


class NoDevice(Exception):
    """Why nothing can run here."""


def say(line: str) -> None:
    """Print it; whoever read the output may be gone."""
    with suppress(OSError):
        print(line, flush=True)


def commit() -> str:
    """The commit of the tree, if git knows it."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def device_count(run: Run, stand_in: str) -> int:
    """How many devices there are, as a step says: a driver may hang.

    Raises:
        NoDevice: nothing can run here, or a signal ended the run.
    """
    step = Step("device", [sys.executable, "-c", COUNT[stand_in]], 30, 0)
    outcome = run.one(step, max(1.0, min(step.most, run.end - run.clock())))
    said = (run.folder / f"{step.file}.txt").read_text(errors="replace").split()
    if outcome.state != PASSED or not said or not said[-1].isdigit():
        why = " ".join(said)[-500:] if outcome.state == PASSED else outcome.reason
        raise NoDevice(f"nothing can run here: {why}")
    return int(said[-1])


def write_pages(found: dict[str, Any], folder: Path, whole: bool) -> list[Path]:
    """Write the pages: in the folder, and of a whole run on a GPU those of the tree."""
    targets = [folder / results.PAGE]
    targets[0].write_text(report.text(found))
    if whole and not found["stand in"] and not found["quick"] and found["versions"]:
        RESULTS.write_text(report.text(found))
        PAGE.write_text(page.written(PAGE.read_text(), found["steps"], report.where(found)))
        targets += [RESULTS, PAGE]
    return targets


def found_by(outcomes: Sequence[Outcome], stand_in: str, quick: bool) -> dict[str, Any]:
    """What report.json has."""
    versions = next((each.findings.get("versions", {}) for each in outcomes if each.name == "versions"), {})
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "stand in": stand_in,
        "quick": quick,
        "versions": versions,
        "steps": [each.to_dict() for each in outcomes],
    }


def finish(found: dict[str, Any], folder: Path, whole: bool = True) -> int:
    """Write the pages, and say what failed.

    Args:
        whole: whether all steps had their turn; else the pages of the tree keep what an earlier run found.
    """
    problems = report.problems(found["steps"])
    try:
        for path in write_pages(found, folder, whole):
            say(f"written: {path}")
    except page.PageError as error:
        problems.append(str(error))
    say(f"\n{len(problems)} failed or could not run" if problems else "\nnothing failed")
    for line in problems:
        say(f"  {line}")
    return int(bool(problems))


def prepare(given: argparse.Namespace, work: Path, cache: KernelCache | None, end: float) -> Outcome:
    """Bring what the run needs into its folder: wheels, parts of large ones, compiled kernels of an earlier run."""
    said, failed, began = [], [], time.monotonic()
    joined = work.with_name("joined")
    try:
        if given.parts and (missing := environment.join(given.parts, joined)):
            said.append(f"{given.parts}: {', '.join(missing)} not there yet")
        for wheels in [given.wheels] * bool(given.wheels) + [joined] * any(joined.glob("*.whl")):
            installed = environment.install(wheels, work, max(1.0, end - time.monotonic()))
            said.append(f"installed for this run: {', '.join(installed) or 'nothing, nothing was missing'}")
    except (OSError, WheelsError) as error:
        failed.append(str(error))
    try:
        said += [cache.unpack()] if cache else []
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        failed.append(f"{given.cache} cannot be read, so kernels are compiled: {error}")
    wanted = [*environment.needed(), *environment.FOR_TESTS, *environment.HELPFUL]
    said += [text for text in [environment.missing_text(wanted, work)] if text]
    state = FAILED if failed else PASSED
    return Outcome("preparation", state, time.monotonic() - began, "; ".join(said), failed)


@contextmanager
def handled(run: Run) -> Iterator[None]:
    """Signals end the run, and not this process."""
    before = [signal.signal(number, run.end_by) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def run_steps(given: argparse.Namespace, work: Path, began: float) -> int:
    """The run itself.

    Raises:
        UnknownStep: --only names one. OSError: the folder cannot be written.
    """
    folder, stand_in, quick = given.folder.absolute(), given.stand_in, given.quick
    plan = Plan(work, stand_in, quick, given.first)
    unknown = [Outcome(step.name, NOT_RUN, reason="nothing is known of it yet") for step in plan.chosen(given.only)]
    cache = KernelCache(given.cache.absolute(), work.with_name("kernels")) if given.cache else None
    variables = environment.variables(work, stand_in) | ({"GPU_QUICK": "1"} if quick else {})
    variables |= cache.variables() if cache else {}
    results.new_folder(folder)
    first = [Outcome("preparation", RUNNING, reason="it had not ended when this was written")]

    def save(known: list[Outcome]) -> None:
        results.write(found_by([*first, *known], stand_in, quick), folder, work)
        if cache:
            cache.pack()

    def show(known: list[Outcome]) -> None:
        results.write_report(found_by([*first, *known], stand_in, quick), folder)

    end = began + given.minutes * 60 - RESERVE
    run = Run(work, end - time.monotonic(), variables, ROOT, say, save=save, show=show, keeps=not given.first)
    with handled(run):
        save(unknown)
        first[0] = prepare(given, work, cache, end)
        say(first[0].line())
        try:
            devices = device_count(run, stand_in)
        except NoDevice as error:
            first.append(Outcome("device", FAILED, reason=str(error)))
            known = run.all([step for step in plan.chosen(given.only) if step.name in SAY_WHY])
            save([*known, *(each for each in unknown if each.name not in {step.name for step in known})])
            print(f"gpu: {error}", file=sys.stderr)
            if not stand_in:
                print("gpu: make gpu STAND_IN=host_cuda tries the run itself, without a GPU", file=sys.stderr)
            return 128 + run.ended_by if run.ended_by else 2
        plan = Plan(work, stand_in, quick, given.first, devices)
        outcomes = run.all(plan.chosen(given.only))
        whole = not given.only and not run.ended_by
        code = finish(found_by([*first, *outcomes], stand_in, quick), folder, whole)
    return 128 + run.ended_by if run.ended_by else code


def minutes(text: str) -> float:
    """A time that is worth a start."""
    number = float(text)
    if not 0 < number < 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in minutes")
    return number


def existing_folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return Path(text)


def earlier_report(folder: Path) -> dict[str, Any]:
    """What an earlier run found.

    Raises:
        ReportError: the file is damaged. OSError: it cannot be read.
    """
    file = folder / results.REPORT
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise ReportError(f"{file} is damaged: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("steps"), list):
        raise ReportError(f"{file} is no report of a run: it has no steps")
    return found


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=minutes, default=MINUTES, help="in which all of it has to end (10)")
    parser.add_argument("--stand-in", choices=["host_cuda"], default="", help="what computes in place of a GPU")
    parser.add_argument("--quick", action="store_true", help="a little of each step, to try them out")
    parser.add_argument("--wheels", type=existing_folder, help="a folder of wheels of missing packages")
    parser.add_argument(
        "--parts", type=existing_folder, help="a folder that takes parts of a large wheel, over several runs"
    )
    parser.add_argument(
        "--cache", type=Path, help="an archive of compiled kernels: read before, and written after steps"
    )
    parser.add_argument("--first", action="store_true", help="begin with what tells most")
    parser.add_argument("--only", default="", metavar="A,B", help="only the steps of these names")
    parser.add_argument("--folder", type=Path, default=ROOT / "gpu-report", help="takes all outputs (gpu-report)")
    parser.add_argument("--from", type=Path, dest="source", help="folder of an earlier run: only write the pages")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given, began = parsed(arguments), time.monotonic()
    try:
        if given.source:
            return finish(earlier_report(given.source), given.source)
        with tempfile.TemporaryDirectory(prefix="ox-gpu-") as temporary:
            work = Path(temporary) / "work"
            work.mkdir()
            return run_steps(given, work, began)
    except (OSError, UnknownStep, ReportError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
