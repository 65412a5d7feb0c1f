"""Mutation testing: puts faults into `ox/`, one at a time, and counts how many the tests notice (killed; survived).

    python scripts/mutation.py --seed 7 --out runs/after.json
    python scripts/mutation.py --seed 7 --commit v0.1 --out runs/before.json
    python scripts/mutation.py --faults runs/before.json --out runs/after.json
    python scripts/mutation.py --compare runs/before.json runs/after.json

It works on a commit, in a git worktree of its own, and never on the files here; `--faults` takes the faults of another
run, which are found by their source text. For each fault it runs the test files that are nearest to it, best first:
the mirror of the module, those that import it or one that imports it, those that name the function. It stops at the
first failure, and after `--limit` seconds of CPU of tests. A test that fails without the fault, too, counts for
nothing. A run that was interrupted goes on where it was, with the same `--out`. `--compare` ends with 1 if fewer are
killed in a package.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import faults
from faults import Fault

ROOT = Path(__file__).resolve().parents[1]
FILES = 16  # the most test files for a fault
HANGS = 300  # seconds: a single test that takes longer hangs
GENERAL = {"forward", "run", "call", "read", "write", "get", "main", "close", "step"}  # too common to find tests by

# pytest's side: this file is a plugin of the tests, too.

_report: dict[str, Any] = {"at": "", "tests": 0, "failed": "", "message": "", "stopped": False, "collection_s": 0.0}


def _save() -> None:
    if path := os.environ.get("MUTATION_REPORT"):
        Path(path).write_text(json.dumps(_report))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Tests whose names contain a word of the fault first: of a generated table, its own rows."""
    words = os.environ.get("MUTATION_WORDS", "").lower().split()
    items.sort(key=lambda item: not any(word in item.nodeid.lower() for word in words))


def pytest_collection_finish() -> None:
    _report.update(collection_s=sum(os.times()[:4]))


def pytest_runtest_logstart(nodeid: str) -> None:
    _report.update(at=nodeid, tests=_report["tests"] + 1)
    _save()


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed and not _report["failed"]:
        crash = getattr(report.longrepr, "reprcrash", None)
        _report.update(failed=report.nodeid, message=getattr(crash, "message", str(report.longrepr))[:200])
        _save()


def pytest_runtest_teardown(item: Any) -> None:
    if sum(os.times()[:4]) - _report["collection_s"] > float(os.environ.get("MUTATION_LIMIT", "inf")):
        item.session.shouldstop = "limit of time"
        _report.update(stopped=True)
        _save()


# The tests that can notice a fault.


@dataclass
class Source:
    """What a Python file imports, and the words in it."""

    imports: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> Source:
        text = path.read_text()
        source = cls(words=set(re.findall(r"\w+", text)))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                source.imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                source.imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return source


class Tests:
    """The test files of a tree, ranked for a fault."""

    def __init__(self, root: Path) -> None:
        self.ox = {path.relative_to(root): Source.read(path) for path in (root / "ox").rglob("*.py")}
        self.tests = {path.relative_to(root): Source.read(path) for path in (root / "tests").rglob("test_*.py")}
        if importlib.util.find_spec("torch") is None:
            self.tests = {path: source for path, source in self.tests.items() if path.parts[1] != "parity"}

    def nearest(self, fault: Fault) -> list[str]:
        path = Path(fault.file)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        users = {".".join(user.with_suffix("").parts) for user, source in self.ox.items() if module in source.imports}
        names = {name for name in fault.scope.split(".") if not name.startswith("_")} - GENERAL
        parts, scores = (*path.parts[1:-1], path.stem), {}
        for test, source in self.tests.items():
            mirror = (*test.parts[1:-1], test.stem.removeprefix("test_"))  # of a package, a folder or a single file
            same = 0
            while mirror[: same + 1] == parts[: same + 1] and same < len(parts):
                same += 1
            score = 2 * same + 4 * (module in source.imports) + 3 * len(names & source.words)
            score += 2 * bool(users & source.imports) + 4 * (mirror == parts) + (path.stem in source.words)
            scores[test] = score
        best = sorted(scores, key=lambda test: (-scores[test], str(test)))[:FILES]
        return [str(test) for test in best if scores[test]]


# Runs.


class Run:
    """Faults in one commit, and what became of each; kept in a file."""

    def __init__(self, options: argparse.Namespace, commit: str) -> None:
        self.options, self.path, self.lock = options, Path(options.out), threading.Lock()
        self.data: dict[str, Any] = {"commit": commit, "limit": options.limit, "results": [], "unsound": []}
        if self.path.exists():
            self.data = json.loads(self.path.read_text())
            if (self.data["commit"], self.data["limit"]) != (commit, options.limit):
                raise SystemExit(f"{self.path} holds a run of another commit or --limit: name another file with --out")
        self.trees: SimpleQueue[Path] = SimpleQueue()

    def save(self, result: dict[str, Any]) -> None:
        with self.lock:
            self.data["results"].append(result)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.data, indent=1))
        print(
            f"{result['outcome']:8} {result['file']}:{result['line']} {result['kind']} {result.get('test', '')}",
            flush=True,
        )

    def run_fault(self, fault: Fault) -> None:
        """Runs the tests with one fault, and what failed without it: a test that fails there, too, is left out."""
        tree = self.trees.get()
        try:
            files = self.tests.nearest(fault)
            while (result := self.run_tests(tree, fault, files))["outcome"] == "killed":
                test = result["test"]  # none where a module could not be imported
                if self.pytest(tree, fault, [test] if test else ["--collect-only", *files], 0)[0] == 0:
                    break
                if not test:
                    result["outcome"] = "survived"
                    break
                with self.lock:
                    self.data["unsound"].append(test)
            self.save(asdict(fault) | {"package": fault.package} | result)
        finally:
            self.trees.put(tree)

    def run_tests(self, tree: Path, fault: Fault, files: list[str]) -> dict[str, Any]:
        path = tree / fault.file
        source = path.read_bytes()
        try:
            path.write_bytes(fault.apply(source))
            self.remove_bytecode(path)
            code, report = self.pytest(tree, fault, files, self.options.limit) if files else (5, dict(_report))
        finally:
            path.write_bytes(source)
            self.remove_bytecode(path)
        outcome = "survived" if code in (0, 5) or (report["stopped"] and not report["failed"]) else "killed"
        test = report["failed"] or (report["at"] if outcome == "killed" else "")
        message = report["message"] or (f"pytest ended with {code}" if outcome == "killed" else "")
        return {
            "outcome": outcome,
            "test": test,
            "message": message,
            "tests": report["tests"],
            "stopped": report["stopped"],
        }

    @staticmethod
    def remove_bytecode(path: Path) -> None:
        """Removes the bytecode of a module: it tells one source from another by the second and the size."""
        for file in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            file.unlink()

    def pytest(self, tree: Path, fault: Fault, files: list[str], limit: float) -> tuple[int, dict[str, Any]]:
        """The exit code of pytest and its report."""
        with tempfile.TemporaryDirectory(prefix="ox-mutation-") as folder:
            report, cache = Path(folder) / "report.json", Path(folder) / "cache"
            with contextlib.suppress(shutil.Error, OSError):  # others compile kernels there
                shutil.copytree(Path.home() / ".cache/ox", cache)
            words = {Path(fault.file).stem, *fault.scope.split(".")} - {""}
            env = os.environ | {
                "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "cli", tree / "models", Path(__file__).parent))),
                "MUTATION_REPORT": str(report), "MUTATION_LIMIT": str(limit or "inf"),
                "MUTATION_WORDS": " ".join(words), "OX_CACHE": str(cache), "TMPDIR": folder,
            }  # fmt: skip
            options = ["-p", "mutation", "-p", "no:randomly", "-p", "no:cacheprovider", "-x", "-q", "-m", "not slow"]
            options += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
            options += [f"--deselect={test}" for test in self.data["unsound"]]
            seconds = 10 * int(self.options.limit)
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *files], cwd=tree, env=env, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (seconds, seconds)),
            )  # fmt: skip
            try:
                code = process.wait()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            return code, json.loads(report.read_text()) if report.exists() else dict(_report)

    def run_all(self, chosen: list[Fault], folder: Path) -> None:
        """Runs what is not in the file yet."""
        for job in range(self.options.jobs):
            git("worktree", "add", "--detach", str(folder / str(job)), self.data["commit"])
            self.trees.put(folder / str(job))
        self.tests = Tests(folder / "0")
        finished = {(*identity(result), result["start"]) for result in self.data["results"]}
        pending = [fault for fault in chosen if (*identity(asdict(fault)), fault.start) not in finished]
        with ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.run_fault, pending))


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def identity(result: dict[str, Any]) -> tuple[str, ...]:
    """Which fault it is, in any commit; several in one function can be alike."""
    return tuple(result[name] for name in ("file", "scope", "kind", "text", "new"))


def print_table(results: list[dict[str, Any]]) -> None:
    """How many faults were killed, by package, and those that survived."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        packages[result["package"]][result["outcome"]] += 1
        packages["all"][result["outcome"]] += 1
    print(f"{'package':20} faults killed survived")
    for name in sorted(packages):
        counts = packages[name]
        print(f"{name:20} {counts.total():6} {counts['killed']:6} {counts['survived']:8}")
    for result in results:
        if result["outcome"] == "survived":
            note = "limit of time" if result["stopped"] else f"{result['tests']} tests"
            text, new = (" ".join(result[name].split())[:70] for name in ("text", "new"))
            print(f"survived  {result['file']}:{result['line']} {result['scope']} ({note}): {text}  ->  {new}")


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    """Prints, by package, how many of the faults in both were killed; 1 where that became fewer."""
    left, pairs = defaultdict(list), []
    for result in after:
        left[identity(result)].append(result)
    for result in sorted(before, key=lambda result: int(result["start"])):
        if left[identity(result)]:
            pairs.append((result, left[identity(result)].pop(0)))
    print(f"{len(before)} faults before, {len(after)} after, {len(pairs)} in both")
    names, fewer = sorted({one["package"] for one, _ in pairs}), 0
    for name in names:
        killed = [sum(pair[k]["outcome"] == "killed" for pair in pairs if pair[0]["package"] == name) for k in (0, 1)]
        fewer |= killed[1] < killed[0]
        print(f"{name:20} {killed[0]:4} -> {killed[1]:4}{'  fewer' if killed[1] < killed[0] else ''}")
    for one, other in pairs:
        if one["outcome"] == "killed" and other["outcome"] == "survived":
            print(f"no longer noticed  {other['file']}:{other['line']} {other['scope']}; before by {one['test']}")
    return int(fewer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150, help="of the faults")
    parser.add_argument("--commit", default="HEAD", help="whose ox and tests are taken")
    parser.add_argument("--faults", help="the file of another run, whose faults are taken")
    parser.add_argument("--out", default="runs/mutation.json")
    parser.add_argument("--limit", type=float, default=60, help="seconds of CPU for the tests of one fault")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), help="two files, instead of a run")
    options = parser.parse_args()
    if options.compare:
        return compare(*(json.loads(Path(path).read_text())["results"] for path in options.compare))
    run = Run(options, git("rev-parse", "--short", options.commit))
    folder = Path(tempfile.mkdtemp(prefix="ox-mutation-"))
    try:
        git("worktree", "add", "--detach", str(folder / "source"), run.data["commit"])
        if options.faults:
            rows = json.loads(Path(options.faults).read_text())["results"]
            before = [Fault(**{name: row[name] for name in Fault.__dataclass_fields__}) for row in rows]
            chosen = [fault for one in before if (fault := faults.find(one, folder / "source")) is not None]
            print(f"{len(chosen)} of {len(before)} faults can be put into {run.data['commit']}", flush=True)
        else:
            chosen = faults.sample(folder / "source", options.seed, options.count)
        run.run_all(chosen, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        git("worktree", "prune")
    print_table(run.data["results"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
