"""The few files that a run leaves in its folder.

They are written before and after each step, and the report also during steps of many tests, each by a rename: what is
there is whole whenever the run is ended.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu_run import report
from gpu_run.environment import PACKAGES

REPORT, PAGE, SUMMARY, OUTPUTS = "report.json", "gpu.md", "summary.txt", "results.tgz"
MOST_BYTES = 8 << 20  # of an output; a larger one, such as a trace of nsys, is not packed


def new_folder(folder: Path) -> None:
    """Make the folder, or take the files of an earlier run out of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (REPORT, PAGE, SUMMARY, OUTPUTS):
        (folder / name).unlink(missing_ok=True)


def write(found: dict[str, Any], folder: Path, work: Path) -> None:
    """The report, and the outputs of the steps.

    Args:
        work: the folder with the outputs, to which nothing writes now.
    """
    write_report(found, folder)
    pack(work, outputs(work), folder / OUTPUTS)


def write_report(found: dict[str, Any], folder: Path) -> None:
    """The report as JSON, as a page and in short."""
    for name, text in (
        (REPORT, json.dumps(found, indent=1)),
        (PAGE, report.text(found)),
        (SUMMARY, report.short(found)),
    ):
        part = folder / f"{name}.part"
        part.write_text(text)
        part.replace(folder / name)


def outputs(work: Path) -> list[Path]:
    files = [file for file in work.rglob("*") if file.is_file() and PACKAGES not in file.relative_to(work).parts]
    return sorted(file for file in files if file.stat().st_size <= MOST_BYTES)


def pack(root: Path, files: Iterable[Path], target: Path) -> None:
    """Write an archive of files, with their paths below `root`, whole or not at all."""
    part = target.with_name(f"{target.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=1) as archive:
        for file in files:
            archive.add(file, file.relative_to(root))
    part.replace(target)
