"""Where ox keeps what it can make or download again."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """``$OX_CACHE/KIND``, else ``~/.cache/ox/KIND``, else a folder of the user in that for temporary files. It may not
    exist yet."""
    named = os.environ.get("OX_CACHE")
    if named:
        return Path(named) / kind
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home) and _writable(Path(home)):
        return Path(home) / "ox" / kind
    return Path(tempfile.gettempdir()) / f"ox-{kind}-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}"


def _writable(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, can be written."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    return os.access(folder, os.W_OK)
