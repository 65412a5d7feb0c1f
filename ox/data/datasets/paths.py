"""Where the files of ready datasets lie."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ox.errors import LoadError

VARIABLE = "OX_DATA"


def roots(root: str | os.PathLike[str] | None, share: str | None = None) -> list[Path]:
    """The folders to look in: the one given; else $OX_DATA, and what the system's packages share between programs.

    Args:
        share: the folder's name below ``datasets`` in the system's shared data.
    """
    if root is not None:
        return [Path(root).expanduser()]
    found = [Path(os.environ[VARIABLE]).expanduser()] if os.environ.get(VARIABLE) else []
    if share is not None:
        found += [folder / share for folder in found]
        shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"  # the default that XDG declares
        found += [Path(folder) / "datasets" / share for folder in shared.split(":") if folder]
    return found


def find(
    folders: Sequence[Path], below: Iterable[str], names: Sequence[str], dataset: str, hint: str
) -> tuple[Path, ...]:
    """The paths of `names` in the first folder that has them all; each name may end in ``.gz``.

    Args:
        below: where in a folder they may lie; "" for the folder itself.

    Raises:
        LoadError: no folder has them: which were looked in, which files, and how to get them.
    """
    for folder in folders:
        for part in below:
            paths = [_existing(folder / part / name) for name in names]
            if all(paths):
                return tuple(path for path in paths if path)
    raise LoadError(
        f"the files of {dataset} are not there",
        expected=", ".join(names),
        extra={"looked in": ", ".join(map(str, folders)) or f"nowhere: no root was given, and ${VARIABLE} is not set"},
        hint=hint,
    )


def _existing(path: Path) -> Path | None:
    return next((p for p in (path, path.with_name(path.name + ".gz")) if p.is_file()), None)


def applied(transform: Any, value: Any) -> Any:
    return value if transform is None else transform(value)
