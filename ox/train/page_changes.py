"""Whether the page in a run's folder is the one that the run began with, and what was changed in it."""

from __future__ import annotations

import hashlib
import shlex
from difflib import SequenceMatcher
from pathlib import Path

from ox.errors import LoadError, TrainError
from ox.train import checkpoint
from ox.train.run import Run

MOST = 8  # lines that are shown


def check_page(run: Run) -> None:
    """Compare the run's page with what its config and its checkpoint say of it; a missing one is not looked at.

    Raises:
        TrainError: it was changed; shows the lines, where the page as it was is still to be had.
    """
    page, noted = run.folder / "recipe.py", run.config["recipe"]["sha256"]
    if not page.is_file() or sha256(now := page.read_bytes().decode("utf-8", "replace")) == noted:
        return
    source = Path(run.config["recipe"]["source"])
    before = _kept(run)
    if before is not None and sha256(before) == sha256(now):
        raise TrainError(
            f"{run.folder / 'config.toml'} was changed since the run began: it names another page",
            expected=f'sha256 = "{sha256(before)}" under [recipe]', got=f'"{noted}"',
        )  # fmt: skip
    fetched = f"cp {shlex.quote(str(source))} {shlex.quote(str(page))}"
    if _text(source, noted) is None:
        fetched = "put these lines back" if before is not None else "put it back as it was"
    before = before if before is not None else _text(source, noted)
    raise TrainError(
        f"{page} was changed since the run began",
        extra={} if before is None else {"changed": changed_lines(before, now)},
        hint=f"{fetched}, and resume; or train the changed page as a run of its own: ox train {shlex.quote(str(page))}",
    )


def _kept(run: Run) -> str | None:
    """The page as the newest checkpoint has it."""
    try:
        found = checkpoint.newest(run)
    except LoadError:
        return None
    return None if found is None else found.state.get("page")


def _text(path: Path, noted: str) -> str | None:
    """The text of a file, if it is the page that was noted."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if sha256(text) == noted else None


def sha256(text: str) -> str:
    """As a run's config notes it: of the text with universal line ends."""
    return hashlib.sha256(text.replace("\r\n", "\n").replace("\r", "\n").encode()).hexdigest()


def changed_lines(before: str, now: str) -> str:
    """The lines that differ, each with its number: `-` as it was, `+` as it is."""
    a, b = before.splitlines(), now.splitlines()
    lines = []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += [f"-{i + 1}  {a[i]}" for i in range(a0, a1)] + [f"+{i + 1}  {b[i]}" for i in range(b0, b1)]
    more = len(lines) - MOST
    return "\n".join(lines[:MOST] + ([f"and {more} lines more"] if more > 0 else [])) or "ends of lines"
