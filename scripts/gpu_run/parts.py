"""A program of parts: one that ends its process, or breaks the device for it, does not keep the others from running."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_run import device
from gpu_run.case_log import breaks_the_device
from gpu_run.parent_death import end_with_parent

ONLY = "--parts"
Part = Callable[[], Any]


def run(module: str, names: Sequence[str], file: Path, before: Sequence[str] = ()) -> dict[str, Any]:
    """Run parts in a process, and those that it did not come to in another one, and so on.

    A part has failed if it raised an error or ended its process, and a process if its exit code says so. SIGINT ends it
    all, with what is known by then.

    Args:
        module: the program, which calls `answer` where ONLY is among its arguments.
        file: takes the findings of each part as soon as it is over.
        before: a tool that is to run the program.

    Returns:
        "failed", and "found": the findings of each part by name. {} if no part has begun.
    """
    file.unlink(missing_ok=True)
    failed: list[str] = []
    with suppress(KeyboardInterrupt):
        left = list(names)
        while left:
            words = [*before, sys.executable, "-m", module, str(file), ONLY, *left]
            code = subprocess.run(words, check=False, preexec_fn=end_with_parent).returncode
            begun = read(file)
            reached = [name for name in left if name in begun]
            if code and all(len(begun[name]) > 1 for name in reached):  # not in the middle of one
                failed.append(f"{' '.join(before[:3]) or 'the process'} ended with {code}")
            if not reached:
                break
            left = [name for name in left if name not in begun]
    begun = read(file)
    for name, part in begun.items():
        if "found" not in part:
            failed.append(f"{name}: {part.get('failed', 'its process ended')}")
    failed += [f"{name}: not run" for name in names if name not in begun and begun]
    found = {name: part["found"] for name, part in begun.items() if "found" in part}
    return {"failed": failed, "found": found} if begun else {}


def answer(parts: Mapping[str, Part]) -> int:
    """Run the parts that the command line names after ONLY."""
    file, names = Path(sys.argv[1]), sys.argv[sys.argv.index(ONLY) + 1 :]
    for name in names:
        write(file, name)
        try:
            found = parts[name]()
        except Exception as error:
            write(file, name, failed=device.one_line(error))
            print(f"{name}: {error}", flush=True)
            if breaks_the_device(str(error)):
                break
        else:
            write(file, name, found=found)
            print(f"{name}: {found}", flush=True)
    return 0


def write(file: Path, name: str, **entry: Any) -> None:
    with file.open("a") as log:
        log.write(json.dumps({"part": name, **entry}) + "\n")


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The last entry of each part that has begun."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {entry["part"]: entry for entry in map(json.loads, lines)}
