"""scripts/gpu.py, which `make gpu` runs: its errors, its pages, and a short run from end to end on the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu
import pytest
from child_pytest import CUDA_PACKAGES, HERE, environment_with
from gpu_run import environment, plan
from gpu_run.environment import ROOT
from gpu_run.plan import Plan, ranks_of
from gpu_run.steps import Outcome, Run

from ox.devices import cuda

GPU = [sys.executable, str(ROOT / "scripts" / "gpu.py")]


def test_a_machine_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    assert gpu.main(["--folder", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "nothing can run here: CuPy " in error and "make gpu STAND_IN=host_cuda" in error
    assert [path.name for path in (tmp_path / "run").iterdir()] == [gpu.MARK]


def test_a_folder_of_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").touch()
    assert gpu.main(["--folder", str(tmp_path)]) == 2
    assert "has files that are not of an earlier run" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_the_folder_of_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    folder = gpu.new_folder(tmp_path / "run")
    (folder / "report.json").touch()
    assert [path.name for path in gpu.new_folder(folder).iterdir()] == [gpu.MARK]


def test_a_folder_without_wheels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--folder", str(tmp_path / "run"), "--wheels", str(tmp_path)]) == 2
    assert "no wheels there" in capsys.readouterr().err


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Copies of the pages that a run writes."""
    page, results = tmp_path / "gpu.md", tmp_path / "results.md"
    page.write_text(gpu.PAGE.read_text())
    monkeypatch.setattr(gpu, "PAGE", page)
    monkeypatch.setattr(gpu, "RESULTS", results)
    return page, results


def outcomes(state: str) -> list[Outcome]:
    versions = {"versions": {"card": {"name": "H100"}}}
    found = {"held": 9, "lines": 9}
    return [Outcome("versions", "passed", 1.0, findings=versions), Outcome("user lines", state, 2.0, findings=found)]


@pytest.mark.parametrize(("state", "code"), [("passed", 0), ("skipped", 0), ("timed out", 1), ("not run", 1)])
def test_the_exit_code_and_the_pages(
    state: str, code: int, pages: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = gpu.new_folder(tmp_path / "run")
    assert gpu.finish(gpu.found_by(outcomes(state), "", False), folder) == code
    assert "1 failed or could not run" in capsys.readouterr().out or not code
    page, results = pages
    assert results.read_text() == (folder / "gpu.md").read_text()
    assert ("9 of 9 lines; H100, 20" in page.read_text()) == (state != "skipped")
    written = page.read_text()
    page.write_text(written.replace("9 of 9 lines", "no"))
    assert gpu.main(["--from", str(folder)]) == code  # as after a run on a machine without this tree
    assert page.read_text() == written


def test_a_page_that_has_changed_is_a_failure(
    pages: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages[0].write_text("# GPU\n")
    folder = gpu.new_folder(tmp_path / "run")
    assert gpu.finish(gpu.found_by(outcomes("passed"), "", False), folder) == 1
    assert "docs/gpu.md has no table" in capsys.readouterr().out and (folder / "gpu.md").exists()


@pytest.mark.parametrize(("stand_in", "quick"), [("host_cuda", False), ("", True)])
def test_a_trial_writes_no_page_of_the_tree(stand_in: str, quick: bool, pages: Any, tmp_path: Path) -> None:
    before = gpu.PAGE.read_text()
    gpu.finish(gpu.found_by(outcomes("passed"), stand_in, quick), gpu.new_folder(tmp_path / "run"))
    assert gpu.PAGE.read_text() == before and not gpu.RESULTS.exists()


def test_the_plan_fits_into_the_time(tmp_path: Path) -> None:
    """What every step needs at least fits twice, and each program and file is there."""
    steps = Plan(tmp_path, "", False).steps()
    assert sum(step.least for step in steps) * 1.5 < gpu.MINUTES * 60
    assert len({step.file for step in steps}) == len(steps)
    for step in steps:
        modules = [word for word in step.words if word.startswith("gpu_run.") and word != "gpu_run.case_log"]
        assert all((ROOT / "scripts" / f"{module.replace('.', '/')}.py").exists() for module in modules)
        assert all((ROOT / word).exists() for word in step.words if word.endswith(".py"))
    files = [word for step in steps for word in step.words if word.startswith("tests/")]
    assert {"tests/ops/test_cuda.py", "tests/serve/runtime/test_session.py", *plan.ALONE} < {*files}
    assert not {*plan.LEFT_OUT} & {*files} and all((ROOT / file).exists() for file in (*files, *plan.LEFT_OUT))


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "tool", lambda name: None)
    monkeypatch.setattr(environment, "installed", lambda name, folder: False)
    by_name = {step.name: step for step in Plan(tmp_path, "", False).steps()}
    assert by_name["memcheck"].skipped() == "compute-sanitizer is neither on the PATH nor in CUDA_HOME"
    assert by_name["profile by nsys"].skipped() == "nsys is neither on the PATH nor in CUDA_HOME"
    assert by_name["tests"].missing().startswith("not installed: pytest, hypothesis (")
    assert "orjson" in by_name["tests of serving"].missing()  # without which no other test is lost
    assert "-n" not in by_name["tests"].words  # without pytest-xdist, in one process
    assert not by_name["user lines"].missing()  # which needs no pytest
    (tmp_path / "smoke.json").write_text('{"devices": 1}')
    assert by_name["two ranks"].skipped() == "NCCL needs two devices, and there is 1"
    (tmp_path / "smoke.json").write_text('{"devices": 2}')
    assert not by_name["two ranks"].skipped() and by_name["two ranks"].missing() == "not installed: mpi4py, mpiexec"


def test_the_output_of_two_ranks(tmp_path: Path) -> None:
    output = tmp_path / "two-ranks.txt"
    output.write_text("reductions of rank 0 held\nreductions of rank 1 failed: AssertionError\n  at a line\n")
    assert ranks_of(output)["failed"] == ["reductions of rank 1 failed: AssertionError"]
    output.write_text("Segmentation fault\n")
    assert ranks_of(output)["failed"] == ["no check of two ranks has ended"]


@pytest.mark.slow
def test_a_short_run_on_the_stand_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "from host_cuda import build; print(build.missing() or '')"
    env = environment_with(HERE, CUDA_PACKAGES)
    asked = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    page, results = gpu.PAGE.read_text(), gpu.RESULTS.exists()
    folder = gpu.new_folder(tmp_path / "run")
    variables = environment.variables(folder, "host_cuda") | {"GPU_QUICK": "1"}
    left_out = ("doctor", "tests of memory", "tests of serving", "profile")  # which take the most time
    steps = [step for step in Plan(folder, "host_cuda", True).steps() if step.name not in left_out]
    # and one that fails, and one that hangs
    steps[3:3] = [
        replace(steps[0], name="fails", words=[sys.executable, "-c", "raise SystemExit('broken')"]),
        replace(steps[0], name="hangs", words=["sleep", "600"], most=1, least=0),
    ]
    found = gpu.found_by(Run(folder, 600, variables, ROOT).all(steps), "host_cuda", True)
    assert gpu.finish(found, folder) == 1
    states = {step["name"]: step["state"] for step in found["steps"]}
    assert states.pop("fails") == "failed" and states.pop("hangs") == "timed out"
    skipped = {name for name, state in states.items() if state == "skipped"}
    assert skipped == {"two ranks", "memcheck", "racecheck", "profile by nsys"}
    output = "".join(file.read_text() for file in folder.glob("*.txt")) + capsys.readouterr().out
    assert {*states.values()} == {"passed", "skipped"}, output[-5000:]
    kernels = next(step["findings"]["kernels"] for step in found["steps"] if step["name"] == "each kernel")
    assert kernels > 60
    text = (folder / "gpu.md").read_text()
    assert "**Not of a GPU.**" in text and "| step: LeNet, batch 64 |" in text and "| gpt, eager | launches" in text
    assert gpu.PAGE.read_text() == page and gpu.RESULTS.exists() == results
    assert json.loads((folder / "report.json").read_text()) == found


def test_the_command_line(tmp_path: Path) -> None:
    help_text = subprocess.run([*GPU, "--help"], capture_output=True, text=True, check=True, env={**os.environ}).stdout
    assert "make gpu GPU_PYTHON=python3" in help_text
    done = subprocess.run(["make", "-n", "gpu", "GPU_PYTHON=py", "STAND_IN=host_cuda", "GPU_WHEELS=w", "ARGS=--quick"],
                          cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    assert "py scripts/gpu.py --stand-in host_cuda --wheels w --quick" in done.stdout
