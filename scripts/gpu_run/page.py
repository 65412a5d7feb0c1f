"""The last column of the table "What has been checked" in docs/gpu.md, from the outcome of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_run.served_tensors import NOT_HERE
from gpu_run.steps import SKIPPED, TIMED_OUT

HEADING = "## What has been checked"
COLUMN = "run on a GPU"
SERVING = "serving by CUDA"
LINEAR_ALGEBRA = ("Det", "DFT", "STFT", "TopK", "Unique")  # and Einsum is a product


@dataclass(frozen=True)
class Row:
    """What belongs to a row: tests by the beginnings of their names, steps by name, and parts of the step SERVING."""

    begins: str  # of the row's first cell
    tests: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()  # of the tests, those with one of these parameters only
    steps: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def has(self, test: str) -> bool:
        if not test.startswith(self.tests):
            return False
        return not self.operators or any(f"[{name}]" in test for name in self.operators)

    def served(self, outcome: dict[str, Any]) -> tuple[int, int]:
        """How many of its parts an outcome says to have passed and failed; neither are those that this machine lacks
        something for, and those that did not run."""
        if outcome["name"] != SERVING:
            return 0, 0
        found = outcome["findings"].get("served", {})
        good = sum(part in found and NOT_HERE not in found[part] for part in self.parts)
        failed = [text for text in outcome["failed"] if not text.endswith(": not run")]
        return good, sum(any(text.startswith(f"{part}: ") for text in failed) for part in self.parts)


ROWS = (
    Row("operators and their gradients", tests=("tests/ops/",)),
    Row("over 400 lines that people write", steps=("user lines",)),
    Row("training steps of LeNet, GPT and an LSTM", steps=("step counts",)),
    Row("`ox.compile`", tests=("tests/engines/native/cuda/", "tests/devices/", "tests/compiler/")),
    Row(
        "ox's own kernels",
        tests=("tests/devices/gpu/test_kernel_table.py", "tests/optim/"),
        steps=("each kernel", "memcheck", "racecheck"),
    ),
    Row("kernels of RNN, GRU and LSTM", tests=("tests/devices/gpu/test_recurrent.py",)),
    Row("kernels of convolutions, pools", tests=("tests/devices/gpu/test_windows.py",)),
    Row(
        "cuDNN: convolutions, attention, norms",
        tests=(
            "tests/devices/gpu/test_cudnn.py",
            "tests/devices/gpu/test_cudnn_norm.py",
            "tests/devices/gpu/test_captured_cudnn.py",
            "tests/backends/test_cudnn.py",
        ),
    ),
    Row("sorting, Fourier transforms", tests=("tests/ops/",), operators=LINEAR_ALGEBRA),
    Row("autocast, GradScaler", tests=("tests/amp/",)),
    Row("pinned memory", tests=("tests/devices/gpu/test_pinned_memory.py", "tests/data/test_pinned_batches.py")),
    Row("the CPU's own tests"),  # which nothing moves to a GPU yet
    Row("NCCL's operations", tests=("tests/distributed/",), steps=("two ranks",)),
    Row("a second device in a process"),  # whose tests need the stand-in
    Row(
        "serving: pinned buffers",
        tests=(
            "tests/serve/runtime/test_device_buffers.py",
            "tests/serve/runtime/test_padded_buffers.py",
            "tests/serve/text/test_on_gpu.py",
        ),
        parts=("CUDA graphs", "lengths"),
    ),
    Row("serving: batch sizes", tests=("tests/serve/tuning/test_gpu_trial.py",), parts=("batch sizes",)),
    Row(
        "serving: weights that instances share",
        tests=("tests/serve/runtime/test_shared_weights.py",),
        parts=("shared weights",),
    ),
    Row(
        "serving: the memory of all models",
        tests=("tests/serve/runtime/test_models_on_gpus.py",),
        parts=("float16", "memory limit", "request beyond a limit"),
    ),
    Row(
        "serving: text generation",
        tests=("tests/serve/generation/gpu/", "tests/serve/generation/test_bfloat16_decoder.py"),
        parts=(
            "texts in float16",
            "texts by CUDA graphs",
            "texts in bfloat16",
            "texts of long prompts",
            "texts in float32",
        ),
    ),
    Row("serving: TensorRT", tests=("tests/serve/runtime/test_tensorrt.py",), parts=("TensorRT",)),
    Row("serving: ONNX Runtime's CUDA provider", tests=("tests/serve/runtime/",), steps=(SERVING,)),
    Row("CUDA shared memory of the protocol", tests=("tests/serve/protocol/test_cuda_shared_memory.py",)),
)


class PageError(Exception):
    """A page without the table."""


def cell(row: Row, outcomes: Sequence[dict[str, Any]], where: str) -> str | None:
    """The text of a row's cell; None where nothing of the row has run."""
    passed = failed = 0
    words: list[str] = []
    cut = False
    for outcome in outcomes:
        findings = outcome["findings"]
        good = sum(row.has(test) for test in findings.get("passed", []))
        bad = sum(row.has(test) for test in findings.get("failed tests", []))
        passed, failed = passed + good, failed + bad
        cut |= good + bad > 0 and outcome["state"] == TIMED_OUT
        if outcome["name"] in row.steps and outcome["state"] != SKIPPED and outcome["seconds"]:
            if "lines" in findings:
                words.append(f"{findings['held']} of {findings['lines']} lines")
            else:
                words.append(f"{outcome['name']} {outcome['state']}")
        if sum(parts := row.served(outcome)):
            words.append(f"{parts[0]} of {sum(parts)} parts of {SERVING}")
    if passed or failed:
        text = f"{passed:,} of {passed + failed:,} tests"
        words.insert(0, f"{text} before the time ran out" if cut else text)
    return f"{', '.join(words)}; {where}" if words else None


def written(text: str, outcomes: Sequence[dict[str, Any]], where: str) -> str:
    """The page with new cells in the last column; the rest of it stays.

    Args:
        where: the card and the date.

    Raises:
        PageError: the page has no such table, or a row of it that ROWS does not have.
    """
    begin = text.find(HEADING)
    table = re.compile(r"^\|.*\|\n\|[-|: ]+\|\n(?:\|.*\|\n)+", re.MULTILINE).search(text, max(begin, 0))
    if begin < 0 or table is None or COLUMN not in table[0].split("\n")[0].rsplit("|", 2)[1]:
        raise PageError(f"docs/gpu.md has no table with the last column '{COLUMN}' below '{HEADING}'")
    head, rule, *lines = table[0].rstrip("\n").split("\n")
    made = [head, rule]
    for line in lines:
        row = next((row for row in ROWS if line.startswith(f"| {row.begins}")), None)
        if row is None:
            raise PageError(f"scripts/gpu_run/page.py has no entry in ROWS for the row: {line}")
        new = cell(row, outcomes, where)
        made.append(line if new is None else f"{line.rsplit('|', 2)[0]}| {new} |")
    return text[: table.start()] + "".join(f"{line}\n" for line in made) + text[table.end() :]
