"""Programs of parts: one that ends its process does not keep the others from running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_run import parts
from gpu_run.environment import ROOT
from waiting import wait_until

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from gpu_run import parts

def fails(): raise ValueError("it is broken")
def ends(): os._exit(11)
def breaks(): raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
def hangs():
    Path("mark").touch()
    time.sleep(600)

PARTS = {"one": os.getpid, "fails": fails, "ends": ends, "two": os.getpid, "breaks": breaks, "three": os.getpid,
         "hangs": hangs}
names, before = json.loads(sys.argv[2]) if sys.argv[2][0] == "[" else [], sys.argv[3:]
if parts.ONLY in sys.argv:
    sys.exit(parts.answer(PARTS))
print(json.dumps(parts.run("program", names, Path(sys.argv[1]), before)))
"""


def start(folder: Path, names: str, *before: str) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "scripts")])}
    words = [sys.executable, "-m", "program", "log", names, *before]
    return subprocess.Popen(words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, process_group=0)


def found(process: subprocess.Popen[str]) -> Any:
    return json.loads(process.communicate(timeout=60)[0].splitlines()[-1])


def test_each_part_is_run(tmp_path: Path) -> None:
    result = found(start(tmp_path, '["one", "fails", "ends", "two", "breaks", "three"]'))
    assert result["failed"] == [
        "fails: ValueError: it is broken",
        "ends: its process ended",
        "breaks: RuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered",
    ]
    assert [*result["found"]] == ["one", "two", "three"] and len({*result["found"].values()}) == 3


def test_what_is_known_when_it_is_ended(tmp_path: Path) -> None:
    process = start(tmp_path, '["one", "hangs", "two"]')
    wait_until((tmp_path / "mark").exists, process=process)
    os.killpg(process.pid, signal.SIGINT)
    result = found(process)
    assert result["failed"] == ["hangs: its process ended", "two: not run"] and [*result["found"]] == ["one"]


@pytest.mark.parametrize(("tool", "failed"), [(["env"], []), (["sh", "-c", '"$@"; exit 9', "sh"], ["ended with 9"])])
def test_what_a_tool_says_of_parts_that_passed(tool: list[str], failed: list[str], tmp_path: Path) -> None:
    result = found(start(tmp_path, '["one", "two"]', *tool))
    assert [*result["found"]] == ["one", "two"] and len(result["failed"]) == len(failed)
    assert all(end in text for end, text in zip(failed, result["failed"], strict=True))


def test_a_tool_that_does_not_start_the_program(tmp_path: Path) -> None:
    assert found(start(tmp_path, '["one"]', "false")) == {}


def test_the_last_entry_of_a_part_counts(tmp_path: Path) -> None:
    parts.write(tmp_path / "log", "one")
    parts.write(tmp_path / "log", "one", found=3)
    assert parts.read(tmp_path / "log") == {"one": {"part": "one", "found": 3}}
