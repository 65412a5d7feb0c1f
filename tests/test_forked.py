"""Forked processes are as those that `subprocess` starts."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked")

STATE = """
import json, os, signal, sys, warnings
state = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "folder": os.getcwd(), "name": __name__,
    "input": sys.stdin.read(), "environment": sorted(os.environ.items()), "umask": os.umask(0), "nice": os.nice(0),
    "signals": {int(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
    "mask": list(signal.pthread_sigmask(0, ())), "parent": os.getppid(), "group": os.getpgid(0) == os.getpid(),
    "session": os.getsid(0) == os.getpid(), "main": sorted(vars(sys.modules["__main__"])),
    "streams": [
        (stream.name, stream.encoding, stream.errors, stream.line_buffering, stream.isatty())
        for stream in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "descriptors": [number for number in map(int, os.listdir("/proc/self/fd")) if number < 500],
}
"""
PRINT = "json.dump(state, sys.stdout)\n"
PLAIN = STATE + PRINT
WITH_OX = (
    "import ox\nfrom ox.devices.onnxruntime import dispatch_table, node_session\n"
    + STATE
    + "state['sessions'] = [sorted(dispatch_table.ALLOWED), node_session.forked]\n"
    + "state['filters'] = list(map(str, warnings.filters))\n"
    + ("state |= {'random': str(ox.get_rng_state()), 'environment': sorted(os.environ.items())}\n" + PRINT)
)
SPAWN = """
import left, multiprocessing
process = multiprocessing.get_context("spawn").Process(target=left.spawned)
process.start(), process.join()
print(process.exitcode)
"""
ROWS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "state": (["-c", WITH_OX, "a", "b c"], {"input": "ü\n"}),
    "options": (["-P", "-W", "error", "-W", "ignore:autocast:UserWarning", "-c", WITH_OX], {}),
    "script": (["state.py", "--x"], {}),
    "module": (["-m", "state", "--x"], {}),
    "environment": (["-c", PLAIN], {"env": {**os.environ, "OX_TRACEBACK": "1"}}),
    "session": (["-c", PLAIN], {"start_new_session": True}),
    "error": (["-c", "def f():\n    1 / 0\nf()"], {}),
    "error of a script": (["error.py"], {}),
    "error of the syntax": (["-c", "def f(:"], {}),
    "hook": (["-c", "import sys; sys.excepthook = lambda *error: print('hook'); 1 / 0"], {}),
    "exit code": (["-c", "import sys; sys.exit(7)"], {}),
    "message": (["-c", "import sys; sys.exit('message')"], {}),
    "at exit": (["-c", "import atexit; atexit.register(print, 'end'); print('begin')"], {}),
    "threads": (["-c", "import threading, time; threading.Thread(target=lambda: print('last')).start()"], {}),
    "files": (["-c", "f = open('file', 'w'); f.write('text')"], {}),
    "interrupt": (["-c", "raise KeyboardInterrupt"], {}),
    "signal": (["-c", "import os; os.kill(os.getpid(), 15)"], {}),
    "abort": (["-c", "import os; os.abort()"], {}),
    "no script": (["nowhere.py"], {}),
    "a module's file": (["-c", "import left"], {}),
    "closed output": (["-c", "import sys; sys.stdout.close()"], {}),
    "no output": (["-c", "import sys; sys.stdout = None"], {}),
    "nobody reads": (["-c", "import os; read, write = os.pipe(); os.close(read); os.dup2(write, 1); print(1)"], {}),
    "spawned": (["-c", SPAWN], {}),
    "wrong command": (["-m", "ox_cli", "trian"], {}),
}


def outcome(start: type, words: list[str], folder: Path, *, input: str = "", **options: Any) -> tuple[int, Any, str]:
    options.setdefault("env", dict(os.environ))  # of which readline, in this process, hides two from C
    process = start(
        [sys.executable, *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **options,
    )  # fmt: skip
    out, err = process.communicate(input, timeout=120)
    if out.startswith("{"):
        out = json.loads(out)
    return process.returncode, out, err


def test_they_do_the_same(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for row, (words, options) in ROWS.items():
        with subtests.test(row):
            real, other = (
                compared(start, words, tmp_path, **options) for start in (forked.subprocess_popen, forked.Popen)
            )
            if isinstance(real[1], dict):
                for name, value in real[1].items():
                    assert other[1][name] == value, name
            assert other == real


def compared(start: type, words: list[str], root: Path, **options: Any) -> tuple[Any, ...]:
    """The outcome of a process, with the files that it leaves."""
    folder = root / "folder"
    folder.mkdir()
    (folder / "state.py").write_text(PLAIN)
    (folder / "left.py").write_text("file = open('left', 'w')\nfile.write('text')\ndef spawned(): print('there')\n")
    (folder / "error.py").write_text("import ox\nox.ones(2) @ ox.ones(3)\n")
    done = outcome(start, words, folder, **options)
    files = sorted((path.name, path.read_text()) for path in folder.glob("*") if path.is_file())
    shutil.rmtree(folder)
    return *done, files


def is_forked(process: subprocess.Popen[str]) -> bool:
    """Whether it was not started as a program of its own."""
    return forked.__file__.encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.parametrize("expected", [True, False])
def test_which_processes_are_forked(expected: bool, subtests: pytest.Subtests) -> None:
    for words, environment, is_ in (
        ([], {}, True),
        (["-W", "error"], {"OX_KERNELS": "off"}, True),
        ([], forked.THREADS, True),
        ([], {"OMP_NUM_THREADS": "3"}, False),  # which libraries read at their import
        ([], {"PYTHONPATH": "elsewhere"}, False),
        ([], {"NEW_VARIABLE": ""}, False),
        (["-I"], {}, False),
        (["-X", "dev"], {}, False),
    ):
        if is_ == expected:
            with subtests.test(words=words, environment=environment):
                process = forked.Popen(
                    [sys.executable, *words, "-c", "input()"], env=os.environ | environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                assert is_forked(process) == expected
                process.communicate("\n", timeout=120)
                assert process.returncode == 0


def test_it_is_a_child_like_any_other() -> None:
    """A forked process starts forked ones, and a signal ends it: each is the child of the one that started it."""
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import os; print(os.getppid(), flush=True); input()'],\n"
        "    stdin=subprocess.PIPE)\n"
        "print(os.getpid(), os.getppid(), flush=True)\n"
        "print(child.wait(), open(f'/proc/{os.getpid()}/cmdline').read().count('forked.py'), flush=True)\n"
    )
    process = forked.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]
        assert sorted(lines, key=len) == [[str(process.pid)], [str(process.pid), str(os.getpid())]]
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(120) == -signal.SIGTERM
        assert process.stdout.read() == ""


def test_limits_and_rights_of_now_are_inherited(tmp_path: Path) -> None:
    """Of the process that asks, not of the one that forks, which was started earlier."""
    code = "import os, resource as r; print(os.umask(0), os.sched_getaffinity(0), r.getrlimit(r.RLIMIT_NOFILE))"
    outcome(forked.Popen, ["-c", code], tmp_path)
    (soft, hard), cores = resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)
    umask = os.umask(0o70)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        os.sched_setaffinity(0, {max(cores)})
        real, other = (outcome(start, ["-c", code], tmp_path) for start in (forked.subprocess_popen, forked.Popen))
    finally:
        os.umask(umask)
        os.sched_setaffinity(0, cores)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert other == real == (0, f"{0o70} {{{max(cores)}}} ({soft - 1}, {hard})\n", "")


def test_descriptors_are_handed_over() -> None:
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'text'); os.write(2, b'both')"
    process = forked.Popen(
        [sys.executable, "-c", code], pass_fds=[write], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    os.close(write)
    assert process.communicate(timeout=120)[0] == b"both"
    with open(read, "rb") as pipe:
        assert pipe.read() == b"text"


def test_a_folder_that_does_not_exist() -> None:
    for start in (forked.subprocess_popen, forked.Popen):
        with pytest.raises(FileNotFoundError, match="'/nowhere'"):
            start([sys.executable, "-c", ""], cwd="/nowhere")


def test_random_numbers_of_numpy_differ() -> None:
    code = "import numpy; print(numpy.random.random())"
    drawn = [outcome(forked.Popen, ["-c", code], Path())[1] for _ in range(2)]
    assert drawn[0] != drawn[1]
