"""The last column of the table in docs/gpu.md, written from a run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from gpu_run import page
from gpu_run.cuda_serving import PARTS
from gpu_run.environment import ROOT
from gpu_run.page import ROWS, PageError, written
from gpu_run.plan import gpu_files

from ox.core.operator import OPS

WHERE = "H100, 2026-12-01"
TEXT = (ROOT / "docs" / "gpu.md").read_text()


def outcome(name: str, state: str = "passed", seconds: float = 1.0, **findings: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "seconds": seconds, "reason": "", "failed": [], "findings": findings}


def rows(text: str) -> dict[str, list[str]]:
    """The cells of the table's rows, by the first words of each."""
    lines = text[text.index(page.HEADING) :].split("\n\n")[1].split("\n")[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row.begins: found for row in ROWS for found in cells if found[0].startswith(row.begins)}


def test_each_row_has_its_evidence() -> None:
    assert [*rows(TEXT)] == [row.begins for row in ROWS]
    for row in ROWS:
        assert all((ROOT / path).exists() for path in row.tests), row
        assert all(name in OPS for name in row.operators), row


def test_each_row_of_serving_has_tests_that_run_on_a_gpu() -> None:
    """Those that do not need the stand-in: with it, the CPU provider computes."""
    serving = [row for row in ROWS if any(path.startswith("tests/serve/") for path in row.tests)]
    paths = [path for row in serving for path in row.tests]
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu and not stand_in", *paths]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout.split("\n")
    tests = [line for line in listed if "::" in line]
    for row in serving:
        assert sum(row.has(test) for test in tests) > 0, row.begins
    marked = {file for file in gpu_files() if file.startswith("tests/serve/")}
    assert marked - {test.partition("::")[0] for test in tests} <= {"tests/serve/telemetry/test_gpu.py"}


def test_each_part_of_serving_is_there() -> None:
    assert {part for row in ROWS for part in row.parts} <= {*PARTS}


def test_parts_of_serving() -> None:
    found = {"texts in float16": {"texts": 12}, "lengths": {}, "TensorRT": {"not here:": "libnvinfer.so.10"}}
    failed = ["texts in bfloat16: AssertionError: token 3", "CUDA graphs: RuntimeError: x", "batch sizes: not run"]
    outcomes = [{**outcome("serving by CUDA", "failed", served=found), "failed": failed}]
    last = {begins: cells[-1] for begins, cells in rows(written(TEXT, outcomes, WHERE)).items()}
    assert last["serving: text generation"] == f"1 of 2 parts of serving by CUDA; {WHERE}"
    assert last["serving: pinned buffers"] == f"1 of 2 parts of serving by CUDA; {WHERE}"
    assert last["serving: ONNX Runtime's CUDA provider"] == f"serving by CUDA failed; {WHERE}"
    assert last["serving: TensorRT"] == last["serving: batch sizes"] == "no"


def test_only_the_last_column_is_written() -> None:
    tests = [f"tests/ops/test_cuda.py::test_a_case[{name}]" for name in ("Abs", "Det", "TopK")]
    outcomes = [
        outcome("tests", "failed", passed=tests, **{"failed tests": ["tests/amp/test_cuda.py::test_scaler"]}),
        outcome("user lines", "failed", held=430, lines=431),
        outcome("step counts", "passed"),
        outcome("each kernel", "passed"),
        outcome("memcheck", "failed"),
        outcome("racecheck", "skipped", 0.0),
        outcome("two ranks", "skipped", 0.0),
    ]
    text = written(TEXT, outcomes, WHERE)
    before, after = rows(TEXT), rows(text)
    assert [cells[:-1] for cells in after.values()] == [cells[:-1] for cells in before.values()]
    last = {begins: cells[-1] for begins, cells in after.items()}
    assert last["operators and their gradients"] == f"3 of 3 tests; {WHERE}"
    assert last["sorting, Fourier transforms"] == f"2 of 2 tests; {WHERE}"
    assert last["autocast, GradScaler"] == f"0 of 1 tests; {WHERE}"
    assert last["over 400 lines that people write"] == f"430 of 431 lines; {WHERE}"
    assert last["training steps of LeNet, GPT and an LSTM"] == f"step counts passed; {WHERE}"
    assert last["ox's own kernels"] == f"each kernel passed, memcheck failed; {WHERE}"
    for begins in ("NCCL's operations", "`ox.compile`", "serving: ONNX Runtime's CUDA provider"):
        assert last[begins] == before[begins][-1]
    start, end = TEXT.index(page.HEADING), TEXT.index("\n\n", TEXT.index("\n\n", TEXT.index(page.HEADING)) + 2)
    assert text.startswith(TEXT[:start]) and text.endswith(TEXT[end:])


def test_writing_again_replaces_what_was_written() -> None:
    once = written(TEXT, [outcome("user lines", held=3, lines=9)], "A100, 2026-11-30")
    again = written(once, [outcome("user lines", held=9, lines=9)], WHERE)
    assert again == written(TEXT, [outcome("user lines", held=9, lines=9)], WHERE) != once
    assert written(once, [], WHERE) == once


def test_a_run_that_was_cut_short() -> None:
    cut = outcome("tests", "timed out", passed=["tests/ops/test_cuda.py::test_a_case[Abs]"])
    cells = rows(written(TEXT, [cut], WHERE))
    assert cells["operators and their gradients"][-1] == f"1 of 1 tests before the time ran out; {WHERE}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# GPU\n", "no table"),
        (f"{page.HEADING}\n\n| part | other |\n|---|---|\n| x | y |\n", "no table"),
        (TEXT.replace("| autocast, GradScaler", "| something new"), "no entry in ROWS for the row: | something new"),
    ],
)
def test_a_page_that_is_another(text: str, message: str) -> None:
    with pytest.raises(PageError, match=message.replace("|", r"\|")):
        written(text, [], WHERE)
