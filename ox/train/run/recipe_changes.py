"""Detects changes of the recipe file in a run folder since the run started."""

from __future__ import annotations

import hashlib
import shlex
from difflib import SequenceMatcher
from pathlib import Path

from ox.errors import LoadError, TrainError
from ox.train.run import checkpoint
from ox.train.run.run import Run

MAX_LINES = 8  # lines to show


def check_recipe_file(run: Run) -> None:
    """Compares the recipe file of a run with the checksum in its config. A missing file is ignored.

    Raises:
        TrainError: it was changed; shows the changed lines if the original text is available.
    """
    page, noted = run.folder / "recipe.py", run.config["recipe"]["sha256"]
    if not page.is_file() or sha256(now := page.read_bytes().decode("utf-8", "replace")) == noted:
        return
    source = Path(run.config["recipe"]["source"])
    before = _text_in_checkpoint(run)
    if before is not None and sha256(before) == sha256(now):
        raise TrainError(
            f"{run.folder / 'config.toml'} was changed since the run began: it names another recipe file",
            expected=f'sha256 = "{sha256(before)}" under [recipe]', got=f'"{noted}"',
        )  # fmt: skip
    fetched = f"cp {shlex.quote(str(source))} {shlex.quote(str(page))}"
    if _text_if_unchanged(source, noted) is None:
        fetched = "put these lines back" if before is not None else "put it back as it was"
    before = before if before is not None else _text_if_unchanged(source, noted)
    raise TrainError(
        f"{page} was changed since the run began",
        extra={} if before is None else {"changed": changed_lines(before, now)},
        hint=f"{fetched}, and resume; or train the changed file as a new run: ox train {shlex.quote(str(page))}",
    )


def _text_in_checkpoint(run: Run) -> str | None:
    """The text of the recipe file in the newest checkpoint."""
    try:
        found = checkpoint.newest(run)
    except LoadError:
        return None
    return None if found is None else found.state.get("page")


def _text_if_unchanged(path: Path, noted: str) -> str | None:
    """The text of a file, if it has the checksum of the config."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if sha256(text) == noted else None


def sha256(text: str) -> str:
    """The checksum in the config of a run: of the text with universal newlines."""
    return hashlib.sha256(text.replace("\r\n", "\n").replace("\r", "\n").encode()).hexdigest()


def changed_lines(before: str, now: str) -> str:
    """The lines that differ, each with its number: `-` before, `+` now."""
    a, b = before.splitlines(), now.splitlines()
    lines = []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += [f"-{i + 1}  {a[i]}" for i in range(a0, a1)] + [f"+{i + 1}  {b[i]}" for i in range(b0, b1)]
    more = len(lines) - MAX_LINES
    return "\n".join(lines[:MAX_LINES] + ([f"and {more} lines more"] if more > 0 else [])) or "ends of lines"
