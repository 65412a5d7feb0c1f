"""What CONTRIBUTING.md says: the files of each edit, and how they change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
SECTION = re.compile(r"^## Add an? (\w+)\n(.*?)(?=^## |\Z)", re.M | re.S)
FILE = re.compile(r"^\d\. [^\n]*`([^`\n]+)`:\n((?:\n```\w+\n.*?^```\n)+)", re.M | re.S)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Change:
    """One file of an edit: a new one, or lines that are added to one."""

    path: str
    new: str | None
    diffs: tuple[str, ...] = ()

    def apply(self, root: Path) -> None:
        target = root / self.path
        if self.new is not None:
            assert not target.exists(), f"{self.path} is there already"
            target.write_text(self.new)
            return
        text = target.read_text()
        for diff in self.diffs:
            lines = diff.splitlines()
            before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in lines)
            assert text.count(before) == 1, f"CONTRIBUTING.md: these lines are not once in {self.path}:\n{before}"
            text = text.replace(before, after)
        target.write_text(text)


def edits() -> dict[str, list[Change]]:
    """The files of each edit, by what it adds."""
    return {name: [change(path, text) for path, text in FILE.findall(body)] for name, body in SECTION.findall(_text())}


def change(path: str, text: str) -> Change:
    blocks = BLOCK.findall(text)
    if [kind for kind, _ in blocks] == ["python"]:
        return Change(path, blocks[0][1])
    assert {kind for kind, _ in blocks} == {"diff"}, f"{path}: one python block, or diff blocks"
    return Change(path, None, tuple(block for _, block in blocks))


def counts() -> dict[str, str]:
    """How many files each edit has, as the page says in its first word: Three files."""
    return {
        name: found[1] for name, body in SECTION.findall(_text()) if (found := re.search(r"^(\w+) files:", body, re.M))
    }


def _text() -> str:
    return PAGE.read_text()
