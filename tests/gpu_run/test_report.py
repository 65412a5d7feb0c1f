"""The report of a run."""

from __future__ import annotations

from typing import Any

from gpu_run import report

VERSIONS = {"card": {"name": "H100", "devices": 1}, "driver": "580.1"}


def outcome(name: str, state: str = "passed", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "seconds": 12.4, "reason": "", "failed": [], "findings": {}, **more}


def found(*outcomes: dict[str, Any], stand_in: str = "") -> dict[str, Any]:
    head = {"date": "2026-12-01", "commit": "abc1234", "stand in": stand_in, "quick": False, "versions": VERSIONS}
    return {**head, "steps": list(outcomes)}


def section(text: str, heading: str) -> str:
    return text.split(f"## {heading}\n\n")[1].split("\n\n## ")[0].strip()


def test_what_failed_or_could_not_run() -> None:
    outcomes = [
        outcome("tests", "failed", failed=["a: wrong", "b: wrong"], reason="see tests.txt"),
        outcome("user lines", "timed out", reason="it was ended after 90 s (user-lines.txt)"),
        outcome("step counts", "not run", reason="no time left: it needs 20 s"),
        outcome("memcheck", "skipped", reason="compute-sanitizer is not there"),
        outcome("profile", "passed"),
    ]
    assert report.problems(outcomes) == [
        "tests: failed, see tests.txt",
        "tests: a: wrong",
        "tests: b: wrong",
        "user lines: timed out, it was ended after 90 s (user-lines.txt)",
        "step counts: not run, no time left: it needs 20 s",
    ]
    text = report.text(found(*outcomes))
    assert "- tests: a: wrong" in section(text, "What failed or could not run")
    assert section(text, "What this machine cannot do") == "- memcheck: compute-sanitizer is not there"
    assert "| tests | failed | 12 | 2 |  |" in section(text, "Steps")


def test_nothing_failed() -> None:
    assert report.problems([outcome("tests"), outcome("memcheck", "skipped", reason="no tool")]) == []
    text = report.text(found(outcome("tests", findings={"passed": ["a", "b"], "skipped": {"c": "one GPU"}})))
    assert "What failed" not in text and "Benchmarks" not in text
    assert section(text, "What this machine cannot do") == "- 1 tests: one GPU"
    assert report.where(found()) == "H100, 2026-12-01"


def test_a_stand_in_is_no_gpu() -> None:
    figures = {"figures": {"matmul": {"ox": [1.0]}}, "left out": {}, "absent": {}, "rounds": 1, "tiny": True}
    trial = report.text(found(outcome("benchmarks", findings=figures), stand_in="host_cuda"))
    assert "**Not of a GPU.**" in trial and "host_cuda" in trial
    assert section(trial, "Benchmarks").startswith("In tiny sizes: each step has run, and the times say nothing.")
    assert "Not of a GPU" not in report.text(found())


def test_benchmarks() -> None:
    figures = {
        "figures": {
            "matmul": {"ox": [3.0, 1.0, 2.0], "torch": [4.0, 4.0, 5.0]},
            "conv": {"ox": [7.0]},
        },
        "left out": {"conv": {"torch": "RuntimeError: a | b"}, "attention": {"ox": "DeviceError: no"}},
        "absent": {},
        "rounds": 3,
        "tiny": False,
    }
    text = section(report.text(found(outcome("benchmarks", findings=figures))), "Benchmarks")
    assert "medians of 3 processes" in text
    assert text.split("\n")[4:] == [
        "| matmul | 2.000 (1.000 to 3.000) | 4.000 (4.000 to 5.000) | 0.50 |",
        "| conv | 7.000 | RuntimeError: a \\| b |  |",
        "| attention | DeviceError: no | – |  |",
    ]


def test_counts_differences_and_profile() -> None:
    counts = {
        "counts": {"gpt, eager": {"waits": 2}}, "recorded": {"gpt, eager": {"waits": 1, "launches": 5}},
        "counted by": "PyTorch's profiler", "notes": ["gpt, eager: waits 2 (host_cuda: 1)"],
    }  # fmt: skip
    profile = {"sizes": {"n_layer": 8}, "operators": [["MatMul", 4.0, 1.5]], "kernels": "PyTorch is not installed"}
    text = report.text(found(outcome("step counts", findings=counts), outcome("profile", findings=profile)))
    assert "| gpt, eager | waits 2 | waits 1, launches 5 |" in section(text, "A training step")
    assert section(text, "What is done more often than on host_cuda") == "- gpt, eager: waits 2 (host_cuda: 1)"
    assert "| MatMul | 4.0 | 1.500 |" in section(text, "A step of a GPT with AMP")
    assert "By kernel: PyTorch is not installed." in text


def test_what_a_server_found() -> None:
    served = {"served": {"loads": {"loads": 50, "MiB taken": 3}}}
    text = report.text(found(outcome("serving by CUDA", findings=served)))
    heading = "A server on ONNX Runtime's CUDA provider"
    assert section(text, heading).splitlines()[-1] == "| loads | loads 50, MiB taken 3 |"
    assert heading not in report.text(found(outcome("serving by CUDA", "not run")))


def test_in_short() -> None:
    outcomes = [
        outcome("tests", "failed", failed=["a: wrong"], reason="see tests.txt", findings={"passed": ["b", "c"]}),
        outcome("memcheck", "skipped", reason="no tool"),
    ]
    assert report.short(found(*outcomes, stand_in="host_cuda")).splitlines() == [
        "H100, 2026-12-01, commit abc1234, host_cuda",
        "",
        "tests              failed       12 s 2 see tests.txt",
        "memcheck           skipped      12 s  no tool",
        "",
        "tests: a: wrong",
    ]


def test_warnings_are_counted() -> None:
    outcomes = [outcome(name, findings={"warnings": {"DeprecationWarning: old": 2}}) for name in ("tests", "more")]
    text = report.text(found(*outcomes))
    assert section(text, "Warnings") == "- 4 times: DeprecationWarning: old" and report.problems(outcomes) == []


def test_a_long_list_ends() -> None:
    text = report.text(found(outcome("tests", "failed", failed=[f"test {i}" for i in range(200)])))
    lines = section(text, "What failed or could not run").split("\n")
    assert len(lines) == report.MOST_TESTS + 1 and lines[-1] == "- and 140 more, in report.json"
