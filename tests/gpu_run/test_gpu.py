"""scripts/gpu.py, which `make gpu` runs: its errors, its pages, what is left when it is ended, and a short run on the
stand-in."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu
import pytest
from child_pytest import CUDA_PACKAGES, HERE, environment_with
from gpu_run import environment, plan, results, smoke
from gpu_run.environment import ROOT
from gpu_run.plan import Plan, ranks_of
from gpu_run.steps import Outcome, Run
from gpu_wheel import wheel
from waiting import wait_until

from ox.devices import cuda

GPU = [sys.executable, str(ROOT / "scripts" / "gpu.py")]
FILES = (results.REPORT, results.PAGE, results.SUMMARY, results.OUTPUTS)


def test_a_machine_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    (tmp_path / "thesis.txt").touch()  # stays
    (tmp_path / "results.tgz").write_text("of an earlier run")
    assert gpu.main(["--folder", str(tmp_path), "--only", "tests,user lines,versions"]) == 2
    error = capsys.readouterr().err
    assert "nothing can run here: CuPy " in error and "make gpu STAND_IN=host_cuda" in error
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "thesis.txt"}
    states = {step["name"]: step["state"] for step in report_of(tmp_path)["steps"]}
    passed, failed = dict.fromkeys(["preparation", "versions"], "passed"), {"device": "failed"}
    assert states == passed | failed | dict.fromkeys(["tests", "user lines"], "not run")
    assert outputs_of(tmp_path).keys() == {"device.txt", "versions.json", "versions.txt"}


def test_a_driver_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.COUNT, "", "import signal; signal.pause()")
    with pytest.raises(gpu.NoDevice, match=r"it was ended after 1 s \(device.txt\)"):
        gpu.device_count(Run(tmp_path, 1, {}, tmp_path), "")
    monkeypatch.setitem(gpu.COUNT, "", "print('a warning'); print('no driver')")
    with pytest.raises(gpu.NoDevice, match="nothing can run here: a warning no driver"):
        gpu.device_count(Run(tmp_path, 60, {}, tmp_path), "")
    monkeypatch.setitem(gpu.COUNT, "", "print('a warning'); print(8)")
    assert gpu.device_count(Run(tmp_path, 60, {}, tmp_path), "") == 8


def test_a_signal_while_a_driver_hangs(tmp_path: Path) -> None:
    mark, folder = tmp_path / "mark", tmp_path / "run"
    hangs = f"import pathlib, signal; pathlib.Path({str(mark)!r}).touch(); signal.pause()"
    main = "import sys, gpu; gpu.COUNT[''] = sys.argv[1]; sys.exit(gpu.main(sys.argv[2:]))"
    words = [sys.executable, "-c", main, hangs, "--folder", str(folder), "--only", "versions,tests"]
    with subprocess.Popen(words, env=environment_with(ROOT / "scripts"), stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(mark.exists, process=process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
        finally:
            process.kill()
    states = {step["name"]: (step["state"], step["reason"]) for step in report_of(folder)["steps"]}
    assert states["device"] == ("failed", "nothing can run here: by SIGTERM (device.txt)")
    assert states["versions"] == ("not run", "SIGTERM ended the run") and states["tests"][0] == "not run"


def outputs_of(folder: Path) -> dict[str, str]:
    """The texts in results.tgz."""
    with tarfile.open(folder / "results.tgz") as archive:
        files = [(entry.name, archive.extractfile(entry)) for entry in archive]
        return {name: file.read().decode() for name, file in files if file is not None}


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


def test_a_step_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--folder", str(tmp_path / "run"), "--only", "tests, memchek"]) == 2
    error = capsys.readouterr().err
    assert "no step has the name memchek; expected some of: versions, doctor, a tensor, " in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--minutes", "nan"], "'nan' is no time in minutes"),
        (["--minutes", "-3"], "'-3' is no time in minutes"),
        (["--wheels", "nowhere"], "there is no folder nowhere"),
        (["--parts", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_wrong_options(arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a report of an earlier run is removed."""
    with pytest.raises(SystemExit):
        gpu.main(["--folder", str(tmp_path / "run"), *arguments])
    assert text in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("report", "text"), [('{"steps": [', "is damaged: "), ("{}", "it has no steps")])
def test_a_damaged_report(report: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(report)
    assert gpu.main(["--from", str(tmp_path)]) == 2
    assert f"gpu: {tmp_path / 'report.json'}" in (error := capsys.readouterr().err) and text in error


def test_wheels_that_cannot_be_installed_stop_nothing(fake: Any, tmp_path: Path) -> None:
    cache = tmp_path / "kernels.tgz"
    cache.write_text("no archive")
    code = fake(["true"], "--wheels", str(tmp_path), "--parts", str(tmp_path), "--cache", str(cache)).wait(60)
    preparation, step = report_of(tmp_path / "run")["steps"]
    assert code == 1 and preparation["state"] == "failed" and step["state"] == "passed"
    parts, archive = preparation["failed"]
    assert "SHA256SUMS" in parts and archive.startswith(f"{cache} cannot be read, so kernels are compiled: ")


FAKE = """
import json, sys
from dataclasses import replace
import gpu
from gpu_run.plan import Plan
from gpu_run.steps import Step

scripts = json.loads(sys.argv[1])

def step(self, i, script):  # one of the shell's; of tests, if it is a list of words
    if isinstance(script, str):
        return Step(f"step {i}", ["sh", "-c", script], 600, 0)
    return replace(self.tests(f"step {i}", [], 600, 0, needs=()), words=script)

Plan.steps = lambda self: [step(self, i, script) for i, script in enumerate(scripts)]
gpu.device_count = lambda *_: 1
sys.exit(gpu.main(sys.argv[2:]))
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Any]:
    """Starts a run whose steps are scripts of the shell, in tmp_path / "run". It changes no page of the tree."""
    started: list[subprocess.Popen[bytes]] = []

    def start(scripts: list[Any], *arguments: str) -> subprocess.Popen[bytes]:
        folder = ["--folder", str(tmp_path / "run"), "--quick"]
        words = [sys.executable, "-c", FAKE, json.dumps(scripts), *folder, *arguments]
        env = {**environment_with(ROOT / "scripts"), "TMPDIR": str(tmp_path)}
        started.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("at", range(3))
def test_what_is_left_when_a_run_is_ended(number: signal.Signals, at: int, fake: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    scripts = [f"echo output of {i}" for i in range(3)]
    scripts[at] = f"echo $$ > {mark}.part; mv {mark}.part {mark}; exec sleep 600"
    process = fake(scripts)
    wait_until(mark.exists, process=process)
    process.send_signal(number)
    killed = number == signal.SIGKILL
    assert process.wait(60) == (-number if killed else 128 + number)
    wait_until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())  # nothing goes on and uses the GPU
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {*FILES}
    _, *steps = report_of(folder)["steps"]
    ended = "running" if killed else "ended"
    assert [step["state"] for step in steps] == [*["passed"] * at, ended, *["not run"] * (2 - at)]
    if not killed:
        assert steps[at]["reason"] == f"by {number.name} (step-{at}.txt)"
        assert all(step["reason"] == f"{number.name} ended the run" for step in steps[at + 1 :])
    assert f"step {at}" in (folder / "summary.txt").read_text() and f"| step {at} | {ended} " in page_of(folder)
    outputs = {f"step-{i}.txt": f"output of {i}\n" for i in range(at)}
    assert outputs_of(folder) == outputs | ({} if killed else {f"step-{at}.txt": ""})


TESTS = """
import os, signal
from pathlib import Path

import pytest

@pytest.mark.parametrize("i", range(30))
def test_one(i):
    assert i % 10 != 3
    if i == 25:
        pid = Path(__file__).with_name("pid")
        pid.with_suffix(".new").write_text(str(os.getpid()))
        pid.with_suffix(".new").rename(pid)
        signal.pause()  # until it is killed
"""


def test_what_is_left_of_tests_when_a_run_is_killed_in_the_middle(fake: Any, tmp_path: Path) -> None:
    """By SIGKILL, which lets it write nothing more: the report has each test that is over."""
    (tmp_path / "test_some.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "gpu_run.case_log", "-p", "no:randomly", "-q"]
    process = fake([[*words, f"--rootdir={tmp_path}", str(tmp_path / "test_some.py")]])
    folder, pid = tmp_path / "run", tmp_path / "pid"

    def is_shown() -> bool:
        """In the file that is written last: how many have passed, of 25 tests of which three fail."""
        return pid.exists() and " s 22 " in (folder / "summary.txt").read_text()

    wait_until(is_shown, process=process)
    process.kill()
    process.wait(60)
    wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists())
    _, tests = report_of(folder)["steps"]
    assert tests["state"] == "running" and len(tests["findings"]["passed"]) == 22
    failed = [text.partition("::")[2].partition(":")[0] for text in tests["failed"]]
    assert failed == ["test_one[13]", "test_one[23]", "test_one[3]"]
    assert "test_one[3]" in (folder / "summary.txt").read_text() and "test_one[13]" in page_of(folder)


def page_of(folder: Path) -> str:
    return (folder / "gpu.md").read_text()


def test_compiled_kernels_go_from_run_to_run(fake: Any, tmp_path: Path) -> None:
    write = "mkdir -p $CUPY_CACHE_DIR && ls $CUPY_CACHE_DIR && echo a kernel > $CUPY_CACHE_DIR/one"
    for known in ("", "one\n"):
        assert fake([write], "--cache", str(tmp_path / "kernels.tgz")).wait(60) == 0
        assert outputs_of(tmp_path / "run") == {"step-0.txt": known}


def test_a_wheel_in_parts_that_come_in_two_runs(fake: Any, tmp_path: Path) -> None:
    whole = wheel(tmp_path / "wheels", "ox_test_module")
    data, names = whole.read_bytes(), [f"{whole.name}.{i:02}" for i in range(2)]
    halves = dict(zip(names, (data[:300], data[300:]), strict=True))
    parts = tmp_path / "parts"
    parts.mkdir()
    sums = [f"{hashlib.sha256(half).hexdigest()}  {name}\n" for name, half in halves.items()]
    (parts / "SHA256SUMS").write_text("".join(sums))
    said = []
    for name in names:
        (parts / name).write_bytes(halves[name])
        code = fake([f"{sys.executable} -c 'import ox_test_module' || true"], "--parts", str(parts)).wait(60)
        preparation, _ = report_of(tmp_path / "run")["steps"]
        assert (code, preparation["state"]) == (0, "passed")
        said.append(preparation["reason"])
    assert f"{parts}: {names[1]} not there yet" in said[0] and "installed" not in said[0].split(";")[0]
    assert "installed for this run: ox_test_module" in said[1]
    assert outputs_of(tmp_path / "run")["step-0.txt"] == ""


def made(folder: Path) -> Path:
    results.new_folder(folder)
    return folder


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
    folder = made(tmp_path / "run")
    found = gpu.found_by(outcomes(state), "", False)
    results.write(found, folder, tmp_path / "outputs")
    assert gpu.finish(found, folder) == code
    assert "1 failed or could not run" in capsys.readouterr().out or not code
    page, of_tree = pages
    assert of_tree.read_text() == (folder / "gpu.md").read_text()
    assert ("9 of 9 lines; H100, 20" in page.read_text()) == (state != "skipped")
    written = page.read_text()
    page.write_text(written.replace("9 of 9 lines", "no"))
    assert gpu.main(["--from", str(folder)]) == code  # as after a run on a machine without this tree
    assert page.read_text() == written


def test_a_page_that_has_changed_is_a_failure(
    pages: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages[0].write_text("# GPU\n")
    folder = made(tmp_path / "run")
    assert gpu.finish(gpu.found_by(outcomes("passed"), "", False), folder) == 1
    assert "docs/gpu.md has no table" in capsys.readouterr().out and (folder / "gpu.md").exists()


@pytest.mark.parametrize(("stand_in", "quick"), [("host_cuda", False), ("", True)])
def test_a_trial_writes_no_page_of_the_tree(stand_in: str, quick: bool, pages: Any, tmp_path: Path) -> None:
    before = gpu.PAGE.read_text()
    gpu.finish(gpu.found_by(outcomes("passed"), stand_in, quick), made(tmp_path / "run"))
    assert gpu.PAGE.read_text() == before and not gpu.RESULTS.exists()


@pytest.mark.parametrize(("only", "number"), [("", 0), ("versions", 0), ("", signal.SIGTERM)])
def test_a_part_of_a_run_writes_no_page_of_the_tree(
    only: str, number: int, pages: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of all steps does."""

    def ran(run: Run, steps: Any) -> list[Outcome]:
        run.ended_by = number
        return outcomes("passed")

    monkeypatch.setattr(Run, "all", ran)
    monkeypatch.setattr(gpu, "device_count", lambda *_: 1)
    folder = tmp_path / "run"
    assert gpu.main(["--folder", str(folder), "--only", only]) == (128 + number if number else 0)
    assert pages[1].exists() == (not only and not number) and "H100" in (folder / "gpu.md").read_text()
    assert ("H100, 20" in pages[0].read_text()) == pages[1].exists()


def test_the_plan_fits_into_the_time(tmp_path: Path) -> None:
    """What every step needs at least fits twice, and each program and file is there."""
    steps = Plan(tmp_path, "", False).steps()
    assert {step.name for step in steps} > {*plan.FIRST} and (*smoke.NAMES,) == plan.SMOKE
    assert [step.name for step in steps if step.vital] == ["a tensor", "a kernel"]
    steps = Plan(tmp_path, "", False).chosen()
    assert "benchmarks of ox" not in {step.name for step in steps}
    assert sum(step.least for step in steps) * 1.5 < gpu.MINUTES * 60
    assert len({step.file for step in steps}) == len(steps)
    for step in steps:
        modules = [word for word in step.words if word.startswith("gpu_run.") and word != "gpu_run.case_log"]
        assert all((ROOT / "scripts" / f"{module.replace('.', '/')}.py").exists() for module in modules)
        assert all((ROOT / word).exists() for word in step.words if word.endswith(".py"))
    files = [word for step in steps for word in step.words if word.startswith("tests/")]
    assert {"tests/ops/test_cuda.py", "tests/serve/runtime/test_session.py", *plan.ALONE} < {*files}
    assert not {*plan.LEFT_OUT} & {*files} and all((ROOT / file).exists() for file in (*files, *plan.LEFT_OUT))


def test_what_comes_first(tmp_path: Path) -> None:
    """In 280 seconds: at most a minute and a half for the first look, and about one for what follows."""
    steps = Plan(tmp_path, "", False, first=True).chosen()
    assert tuple(step.name for step in steps)[: len(plan.FIRST)] == (*plan.FIRST,)
    assert {step.name for step in steps} == {step.name for step in Plan(tmp_path, "", False).steps()}
    assert all(step.least <= step.most for step in steps)
    assert [step.name for step in Plan(tmp_path, "", False).chosen("tests,user lines")] == ["tests", "user lines"]


def test_a_tool_that_may_not_look() -> None:
    """The first line is of the tool; those of the program say nothing about it."""
    refused = "========= COMPUTE-SANITIZER\n========= Error: Target process is not permitted to be traced\n"
    assert plan.refusal(refused) == "Error: Target process is not permitted to be traced"
    assert plan.refusal("========= ERROR SUMMARY: 3 errors\nthis type is not supported\n") == ""


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
    assert "onnxruntime-gpu" in by_name["serving by CUDA"].missing()
    assert by_name["two ranks"].skipped() == "NCCL needs two devices, and there is 1"
    ranks = next(step for step in Plan(tmp_path, "", False, devices=2).steps() if step.name == "two ranks")
    assert not ranks.skipped() and ranks.missing() == "not installed: mpi4py, mpiexec"


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
    page, exists = gpu.PAGE.read_text(), gpu.RESULTS.exists()
    folder = made(tmp_path / "run")
    work = tmp_path / "work"
    work.mkdir()
    variables = environment.variables(work, "host_cuda") | {"GPU_QUICK": "1"}
    left_out = ("doctor", "tests of memory", "tests of serving", "profile")  # which take the most time
    steps = [step for step in Plan(work, "host_cuda", True).chosen() if step.name not in left_out]
    # and one that fails, and one that hangs
    steps[3:3] = [
        replace(steps[0], name="fails", words=[sys.executable, "-c", "raise SystemExit('broken')"]),
        replace(steps[0], name="hangs", words=["sleep", "600"], most=1, least=0),
    ]
    found = gpu.found_by(Run(work, 600, variables, ROOT).all(steps), "host_cuda", True)
    results.write(found, folder, work)
    assert gpu.finish(found, folder) == 1
    states = {step["name"]: step["state"] for step in found["steps"]}
    assert states.pop("fails") == "failed" and states.pop("hangs") == "timed out"
    skipped = {name for name, state in states.items() if state == "skipped"}
    assert skipped == {"two ranks", "memcheck", "racecheck", "profile by nsys"}
    output = "".join(file.read_text() for file in work.glob("*.txt")) + capsys.readouterr().out
    assert {*states.values()} == {"passed", "skipped"}, output[-5000:]
    kernels = next(step["findings"]["kernels"] for step in found["steps"] if step["name"] == "each kernel")
    assert kernels > 60
    text = (folder / "gpu.md").read_text()
    assert "**Not of a GPU.**" in text and "| step: LeNet, batch 64 |" in text and "| gpt, eager | launches" in text
    assert gpu.PAGE.read_text() == page and gpu.RESULTS.exists() == exists
    assert json.loads((folder / "report.json").read_text()) == found


def test_the_command_line(tmp_path: Path) -> None:
    help_text = subprocess.run([*GPU, "--help"], capture_output=True, text=True, check=True, env={**os.environ}).stdout
    assert "python3 scripts/gpu.py --first --minutes 4" in help_text
    done = subprocess.run(["make", "-n", "gpu", "GPU_PYTHON=py", "STAND_IN=host_cuda", "GPU_WHEELS=w", "ARGS=--quick"],
                          cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    assert "py scripts/gpu.py --stand-in host_cuda --wheels w --quick" in done.stdout
