"""Every code block of README.md and docs/ runs, page by page, top to bottom, in an empty folder.

- ```python: executed; the blocks of one page share their names.
- ```console: each `$ ox ...` is run (output is not compared: figures differ from machine to machine). `$ ox serve ...`
  is started in the background, waited for until it prints its address, and stopped at the end of the page. It listens
  on a free port: whatever the page names as its port means that one from there on.
- other fences show text and are not run, except that ```bash and ```sh need a marker like blocks that cannot run.

Markers, as HTML comments on the line before a block (or anywhere on the page for the last two):

    <!-- not run: REASON -->     the block is left out; pytest's summary lists it with its reason
    <!-- file: train.py -->     the block is written to a file of this name, for a command further down
    <!-- raises: ShapeError -->  the block (python), or its last command (console), must end in that error
    <!-- slow page -->           this page belongs to `make test-all` only
    <!-- needs: PACKAGE -->      this page is skipped where the package is not installed
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import forked
import pytest
from contributing_page import PAGE, edits
from int8_products import skip_if_they_saturate
from rows import rows

ROOT = Path(__file__).resolve().parents[1]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
BLOCK = re.compile(
    r"(?:^[ ]*<!--(?P<marker>[^\n]*)-->[ ]*\n\n?)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of the first line inside the fence
    kind: str
    text: str
    not_run: str | None
    raises: str | None
    file: str | None = None

    def commands(self) -> list[str]:
        """The `ox` commands of a console block; a backslash at a line's end goes on below."""
        joined = self.text.replace("\\\n", " ")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ox ")]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        marker = (match["marker"] or "").strip()
        reason = re.fullmatch(r"not run:(.*)", marker)
        error = re.fullmatch(r"raises: *(\w+)", marker)
        file = re.fullmatch(r"file: *(\w+\.\w+)", marker)
        line = text.count("\n", 0, match.start("text")) + 1
        name = page.relative_to(ROOT).as_posix()
        not_run, raises = reason and reason[1].strip(), error and error[1]
        found.append(Block(name, line, match["kind"], match["text"], not_run, raises, file and file[1]))
    return found


class Runner:
    """Runs one page in the current folder; this file, called as a script, is its process."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.servers: list[subprocess.Popen[str]] = []
        self.ports: dict[str, str] = {}  # as the page says it: as it is

    def run(self, page: Path) -> None:
        try:
            for block in blocks_of(page):
                if block.not_run is not None:
                    continue
                print(f"-- {block.page}:{block.line}", flush=True)
                if block.file is not None:
                    Path(block.file).write_text(block.text)
                elif block.kind == "python":
                    self.python(block)
                elif block.kind == "console":
                    commands = block.commands()
                    for number, command in enumerate(commands, 1):
                        self.command(command, block.raises if number == len(commands) else None)
        finally:
            for server in self.servers:
                server.send_signal(signal.SIGTERM)
                server.wait(timeout=120)

    def real(self, text: str) -> str:
        """The text with the ports that are listened on."""
        return re.sub(r"\b\d{4,5}\b", lambda match: self.ports.get(match[0], match[0]), text)

    def python(self, block: Block) -> None:
        # The blank lines make a traceback name the page's own line.
        code = compile("\n" * (block.line - 1) + self.real(block.text), str(ROOT / block.page), "exec")
        try:
            exec(code, self.names)
        except Exception as error:
            if type(error).__name__ != block.raises:
                raise
        else:
            assert not block.raises, f"{block.page}:{block.line} should raise {block.raises}"

    def command(self, command: str, raises: str | None) -> None:
        print(f"$ {command}", flush=True)
        words = [sys.executable, "-m", "ox_cli", *shlex.split(self.real(command), comments=True)[1:]]
        if words[3] == "serve" and raises is None:
            self.serve(words)
            return
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        print(done.stdout, done.stderr, flush=True)
        if raises is None:
            assert done.returncode == 0, f"{command} ended with {done.returncode}"
        else:
            assert done.returncode != 0, f"{command} should fail"
            assert f"{raises}:" in done.stderr, f"{command} should end in {raises}"

    def serve(self, words: list[str]) -> None:
        if "--port" not in words:
            words += ["--port", "8000"]
        place = words.index("--port") + 1
        said, words[place] = words[place], "0"
        server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.servers.append(server)
        assert server.stdout is not None
        watchdog = threading.Timer(300, server.kill)
        watchdog.daemon = True  # a page that fails does not wait for it
        watchdog.start()
        for line in server.stdout:
            print(line, end="", flush=True)
            if address := re.search(r"http://[\w.]+:(\d+)", line):
                self.ports[said] = address[1]
                break
        else:
            raise AssertionError("the server ended before it was ready")
        watchdog.cancel()


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LEFT_OUT = [block for block in BLOCKS if block.not_run is not None]


def slow_pages() -> list[object]:
    marks = {True: [pytest.mark.slow], False: []}
    slow = {page: "<!-- slow page -->" in page.read_text() for page in PAGES}
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=marks[slow[page]]) for page in PAGES]


@pytest.mark.parametrize("page", slow_pages())
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README.md and its commands in processes like those of a user, the other pages in forked ones."""
    start = forked.subprocess_popen if page.name == "README.md" else forked.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    for package in re.findall(r"<!-- needs: *(\w+) *-->", page.read_text()):
        if getattr(find_spec(package), "origin", None) is None:  # a folder of this name is no package
            pytest.skip(f"{page.name} needs {package}, which is not installed")
    if "<!-- exact int8 products -->" in page.read_text():
        skip_if_they_saturate()
    # which types `ox.autocast` says are no faster depends on the processor
    words = [sys.executable, "-W", "error", "-W", "ignore:autocast to:UserWarning", __file__, str(page)]
    environment = {**os.environ, **forked.THREADS}  # as `ox launch` sets them for its ranks, which are forked, too
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


@rows("block", LEFT_OUT, ids=lambda block: f"{block.page}:{block.line}")
def test_block_is_left_out(block: Block) -> None:
    """One skip for each, so that the summary counts them and says why."""
    assert block.not_run, "a block that does not run needs a reason"
    pytest.skip(f"{block.page}:{block.line} {block.not_run}")


def test_what_looks_runnable_runs_or_says_why_not() -> None:
    silent = [
        f"{block.page}:{block.line}"
        for block in BLOCKS
        if block.not_run is None
        and (block.kind in ("bash", "sh", "shell") or (block.kind == "console" and not block.commands()))
    ]
    assert not silent, f"nothing of these blocks runs, and no `not run:` marker says why: {silent}"


def test_the_runner_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of its own: shared names, an expected error, a left-out block, a command."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\n\n<!-- raises: ZeroDivisionError -->\n```python\na / 0\n```\n\n"
        "<!-- not run: it would hang -->\n```python\nwhile True: pass\n```\n\n"
        "```console\n$ ox --version\nox 0.1\n```\n\n<!-- file: page.py -->\n```python\na = 2\n```\n\n"
        "```python\nimport page\nassert (a, page.a) == (1, 2)\nopen('done', 'w').close()\n```\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert [block.line for block in blocks_of(page)] == [2, 7, 12, 16, 22, 26]
    Runner().run(page)
    sys.modules.pop("page")
    assert (tmp_path / "done").exists()


def without_code(text: str) -> str:
    """In code, `layers[0](x)` is no link."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def links(page: Path) -> list[tuple[Path, str]]:
    """Each link of a page to a file of the repository, with its anchor or an empty string."""
    found = re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", without_code(page.read_text()))
    return [((page.parent / target).resolve() if target else page, anchor) for target, anchor in found]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: lower case, spaces as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKING = [
    *PAGES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "models" / "README.md",
]


@rows("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    dead = [
        f"{target}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert not dead, f"links to files or headings that do not exist: {dead}"


# Paths in SECURITY.md begin in tests/; its own test checks them.
NAMING_FILES = [page for page in LINKING if page.name != "SECURITY.md"]


@rows("page", NAMING_FILES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_in_the_text_exist(page: Path) -> None:
    """Paths of the repository in `code` or at the start of a line. A placeholder such as <family> ends a path."""
    text = page.read_text()
    spans = " ".join([*re.findall(r"`[^`\n]+`", without_code(text)), *re.findall(r"^(?:ox|cli)/.*$", text, re.M)])
    paths = re.findall(r"(?<![\w./<-])((?:ox|cli|tests|scripts|benchmarks|deploy)/[\w./-]*)", spans)
    added = {change.path for changes in edits().values() for change in changes} if page == PAGE else set()
    missing = [path for path in paths if not (ROOT / path).exists() and path not in added]
    assert not missing, f"files of the repository that do not exist: {missing}"


def test_the_index_lists_every_page() -> None:
    """docs/README.md, to which README.md links, has each page of docs/ in one table, with a line about it."""
    index = ROOT / "docs" / "README.md"
    assert index in [target for target, _ in links(ROOT / "README.md")]
    entries = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| .*\w.* \|$", index.read_text(), re.M)
    assert len(entries) == len(set(entries))
    pages = {page.name for page in PAGES if page.parent == index.parent and page != index}
    assert {entry for entry in entries if "/" not in entry} == pages


if __name__ == "__main__":
    Runner().run(Path(sys.argv[1]))
