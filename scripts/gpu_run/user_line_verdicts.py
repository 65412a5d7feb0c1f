"""The lines of tests/cuda/user_lines.txt on the device, beside what host_cuda was recorded to do for each.

`python -m gpu_run.user_line_verdicts LOG` starts a process for the lines. An error that breaks the device for the rest
of its process (an address out of range, say) ends it, and another one goes on behind that line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_run import device
from gpu_run.case_log import breaks_the_device
from gpu_run.device_counts import counter, kept, more_than_recorded

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "cuda" / "user_lines.json"
MOST_PROCESSES = 20
EVERY = 24  # in a short run, each 24th line
ENDED = "the process ended in this line"


def cases() -> list[tuple[str, str, str]]:
    from user_lines import read

    found = list(read())
    return found[::EVERY] if device.short() else found


def run_lines(begin: int, log: Path) -> None:
    """The lines from `begin` on. The log gets an entry before each, and one with its verdict: "" where it holds."""
    from user_line_check import check

    counting, who = counter()
    with log.open("a") as file:

        def write(**entry: Any) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        lines = cases()
        write(counted_by=who, lines=len(lines))
        for number, (name, kind, line) in list(enumerate(lines))[begin:]:
            label = f"{name}: {line}"
            write(number=number, label=label, verdict=ENDED)
            counts: dict[str, int] = {}
            verdict = ""
            try:
                check(name, kind, line, kept(counting, counts))
            except Exception as error:
                verdict = device.one_line(error)
            write(number=number, label=label, verdict=verdict, counts=counts)
            if breaks_the_device(verdict):
                return


def findings(log: Path) -> dict[str, Any]:
    """What failed here and held on host_cuda, where every line holds; and what is done more often than there."""
    entries: dict[int, dict[str, Any]] = {}
    head: dict[str, Any] = {"counted_by": "nothing", "lines": 0}
    for text in log.read_text().splitlines():
        entry = json.loads(text)
        if "number" in entry:
            entries[entry["number"]] = entry
        else:
            head = entry
    recorded = json.loads(RECORDED.read_text())
    failed, notes = [], []
    for entry in entries.values():
        label = entry["label"]
        if entry["verdict"]:
            failed.append(f"{label}: {entry['verdict']} (held on host_cuda)")
        elif more := more_than_recorded(entry["counts"], recorded.get(label, {})):
            notes.append(f"{label}: {more}")
    if len(entries) < head["lines"]:
        failed.append(f"{head['lines'] - len(entries)} of {head['lines']} lines were not reached")
    held = sum(not entry["verdict"] for entry in entries.values())
    counts = {"held": held, "lines": head["lines"], "counted by": head["counted_by"]}
    return {"failed": failed, "notes": notes, "reached": max(entries, default=-1), **counts}


def main() -> int:
    log = Path(sys.argv[1])
    if "--from" in sys.argv:
        device.prepare()
        run_lines(int(sys.argv[-1]), log)
        return 0
    begin = 0
    for _ in range(MOST_PROCESSES):
        words = [sys.executable, "-m", "gpu_run.user_line_verdicts", str(log), "--from", str(begin)]
        subprocess.run(words, check=False)
        if not log.exists():
            return 1
        reached = findings(log)["reached"] + 1
        if reached in (begin, findings(log)["lines"]):
            break
        begin = reached
    found = findings(log)
    print(f"{found['held']} of {found['lines']} lines hold; counted by {found['counted by']}")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
