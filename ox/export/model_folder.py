"""Folders of a model and what belongs to it: their files, and how they appear."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON for people to read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def replace_folder(folder: Path, new: Path) -> None:
    """The new folder takes the name. One that was there is beside it for the moment, as ``NAME.old``, so that nothing
    is lost where the process is killed in between."""
    if not folder.exists():
        new.rename(folder)
        return
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)
