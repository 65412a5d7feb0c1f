"""The harness of `make embed`, its page, and the fifteen models in each runtime that `make embed` has installed."""

from __future__ import annotations

import re
from pathlib import Path

import embed
import embedded_runtimes
import numpy as np
import pytest
from embed_page import BEGIN, END, Result, tables
from embedded_models import MODELS
from embedded_runtimes import RUNTIMES, Runtime, missing, one_line

from ox.graph.targets import TARGETS

NAMES = [each.name for each in RUNTIMES]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A runtime of this interpreter, whose runner a test writes."""
    monkeypatch.setattr(embedded_runtimes, "RUNNERS", tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    return Runtime("mine", "mine.py", (), npm=True)


def ran(runtime: Runtime, folder: Path, code: str) -> embedded_runtimes.Run:
    runner = Path(embed.__file__).parent / "runners"
    head = f"import os, signal, sys, time\nsys.path.insert(0, {str(runner)!r})\nfrom runner import main\n"
    (folder / "mine.py").write_text(head + code)
    feed = {"x": np.arange(3.0)}
    return embedded_runtimes.run(runtime, folder, folder / "model.onnx", feed, ["y"])


def test_outputs_and_version(runtime: Runtime, tmp_path: Path) -> None:
    found = ran(runtime, tmp_path, "main('1.2', lambda path, feed, names: lambda feed: [feed['x'] * 2])")
    assert found.version == "1.2" and found.reason is None
    assert np.array_equal(found.outputs[0], [0.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("main('1', lambda *_: 1 / 0)", "ZeroDivisionError: division by zero"),
        ("main('1', lambda *_: os.kill(os.getpid(), signal.SIGSEGV))", "ends with SIGSEGV"),
        ("main('1', lambda *_: lambda feed: os._exit(3))", "ends with 3"),
        ("import no_such_runtime", "ModuleNotFoundError: No module named 'no_such_runtime'"),
    ],
)
def test_a_failure_is_a_reason(runtime: Runtime, tmp_path: Path, code: str, reason: str) -> None:
    assert ran(runtime, tmp_path, code).reason == reason


def test_a_run_without_end(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_runtimes, "SECONDS", 2)
    assert ran(runtime, tmp_path, "time.sleep(600)").reason == "no result after 2 s"


def test_a_reason_fits_a_line_of_the_page() -> None:
    assert one_line("what\n  /build/some/folder/file.cc:3 | says <this>") == r"what file.cc:3 \| says &lt;this>"
    assert len(one_line("long " * 100)) == 180


def test_tables_of_results() -> None:
    results = []
    for each in RUNTIMES:
        for target in dict.fromkeys((None, each.target)):
            for model in MODELS:
                bad = "it does not like it" if (each.name, target, model) == ("TVM", None, "GRU") else None
                results.append(Result(each.name, model, target, "7.1", 0.5, None if bad else 1e-7, bad))
    text = tables(results)
    assert "| TVM | 7.1 | 14 of 15 | `tvm` | 15 of 15 |" in text
    assert "- TVM, GRU: it does not like it" in text
    assert f"| GRU | {'1e-07, 0.5 s | ' * 8}no | 1e-07, 0.5 s | 1e-07, 0.5 s |" in text


def test_the_page_is_of_these_models_and_runtimes() -> None:
    text = embed.PAGE.read_text()
    block = text[text.index(BEGIN) : text.index(END)]
    summary, *_ = block.split("\n\n")[1:]
    assert re.findall(r"^\| (.+?) \|", summary, re.M)[1:] == NAMES
    assert {each.target for each in RUNTIMES if each.target} == set(TARGETS)
    for grid in [part for part in block.split("\n\n") if part.startswith("| model |")]:
        assert re.findall(r"^\| (.+?) \|", grid, re.M)[1:] == list(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_in_the_runtime(name: str, tmp_path: Path) -> None:
    """A model that every runtime runs with its target, where `make embed` has installed the runtime."""
    runtime = next(each for each in RUNTIMES if each.name == name)
    if (lacks := missing(runtime)) is not None:
        pytest.skip(lacks)
    work = embed.ROOT / ".embed"
    if not embedded_runtimes.installed(runtime, work):
        pytest.skip(f"{name} is not installed: make embed does")
    found = embed.measure(runtime, "GroupNorm net", runtime.target, work, tmp_path)
    assert found.reason is None and found.far is not None
