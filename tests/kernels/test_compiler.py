"""Compiling the kernels: once, whole or not at all; without a compiler everything else goes on."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from ox.kernels import Library, address, compile_lock, compiler
from ox.kernels.library import _fast_address, _slow_address

SCRIPT = """
import ox
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.kernels import reason
x = ox.linspace(-3, 3, 5000)
ox.nn.functional.gelu(x)
print(float(ox.nn.functional.gelu(x).sum()), compiled.library() is not None, reason())
"""


def started(folder: Path, **environment: str) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if name != "OX_KERNELS"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env={**own, "OX_CACHE": str(folder), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process: subprocess.Popen[str], warnings: int = 0) -> tuple[float, bool, str]:
    """The sum, whether there were kernels, and why not, which this number of warnings says as well."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    value, found, why = out.split(" ", 2)
    said = [line for line in err.splitlines() if "Warning: compiled kernels: " in line]
    assert len(said) == warnings and all(why.strip().rpartition("; ")[2] in line for line in said), err
    return float(value), found == "True", why.strip()


def script(folder: Path, text: str) -> str:
    path = folder / "compiler.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def whole(library: Library, tmp_path: Path) -> Path:
    """A cache folder with the library of this machine."""
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    shutil.copy2(library.path, folder)
    return folder


def test_the_command_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache g++-12")
    assert compiler.find_compiler() == ["ccache", "g++-12"]


def test_an_environment_that_names_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", 'g++ "')
    with pytest.raises(compiler.CompilerError, match="CXX is no command"):
        compiler.find_compiler()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    with pytest.raises(compiler.CompilerError, match="no C\\+\\+ compiler is installed"):
        compiler.find_compiler()


def test_without_any_compiler_the_work_goes_on(tmp_path: Path) -> None:
    """It is no error that a warning would have to name; `reason()` and `ox doctor` say it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nreal = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'ziglang' else real(name, *more)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    value, found, why = result(started(tmp_path / "cache", PATH="/nowhere", CXX="", PYTHONPATH=path))
    assert not found and "no C++ compiler is installed" in why and not (tmp_path / "cache").exists()
    assert value == pytest.approx(3336.243, rel=1e-5)


@pytest.mark.parametrize("cache", ["/proc/nowhere", "file"])
def test_a_cache_that_cannot_be_written_is_said_once(cache: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    value, found, why = result(started(tmp_path / cache, CXX="g++"), warnings=1)
    assert not found and "the kernels cannot be kept in" in why and value == pytest.approx(3336.243, rel=1e-5)


def test_a_compiler_that_dies_halfway_leaves_nothing(tmp_path: Path) -> None:
    """As on a full disk."""
    text = 'while [ "$1" != -o ]; do shift; done; printf x > "$2"; echo "fatal error: full" >&2; exit 1'
    half = script(tmp_path, text)
    value, found, why = result(started(tmp_path / "cache", CXX=half), warnings=1)
    assert not found and "failed: fatal error: full" in why and value == pytest.approx(3336.243, rel=1e-5)
    assert [path.name for path in (tmp_path / "cache").rglob("*")] == ["kernels"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('while [ "$1" != -o ]; do shift; done; printf "%0100d" 0 > "$2"', "invalid ELF header"),
        ("exit 0", "cannot open shared object file"),
    ],
)
def test_a_compiler_that_makes_no_library_is_refused(text: str, said: str, tmp_path: Path) -> None:
    value, found, why = result(started(tmp_path / "cache", CXX=script(tmp_path, text)), warnings=1)
    assert not found and "ended without an error, but not with a library" in why and said in why
    assert value == pytest.approx(3336.243, rel=1e-5)
    assert [path.name for path in (tmp_path / "cache").rglob("*")] == ["kernels"]


def test_a_broken_compiler_leaves_the_work_to_others(tmp_path: Path) -> None:
    broken = script(tmp_path, 'echo "kernels.cpp:7: error: no such thing" >&2; exit 1')
    value, found, why = result(started(tmp_path / "cache", CXX=broken), warnings=1)
    assert not found and "kernels.cpp:7: error: no such thing" in why
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []
    same, switched_on, why = result(started(tmp_path / "cache", OX_KERNELS="0"))
    assert (same, switched_on) == (value, False) and "OX_KERNELS=0" in why


def test_a_compiler_that_talks_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It takes no memory, and one line of its words is shown."""
    monkeypatch.setenv("CXX", script(tmp_path, "head -c 50000000 /dev/zero | tr '\\0' '\\033' >&2; exit 1"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(compiler.CompilerError, match="failed: ") as failed:
        compiler.library(tmp_path / "cache")
    assert len(str(failed.value)) < 1000 and str(failed.value).isprintable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "KiB"


def test_a_compiler_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(compiler, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(compiler, "POLL_SECONDS", 0.05)
    with pytest.raises(compiler.CompilerError, match=r"0.2 seconds without any, and was ended: .*kernels.cpp"):
        compiler.library(tmp_path / "cache")


def test_a_compiler_that_never_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its CPU time is that of the processes that it starts, too."""
    monkeypatch.setenv("CXX", script(tmp_path, "while true; do :; done & wait"))
    monkeypatch.setattr(compiler, "SECONDS", 0.2)
    monkeypatch.setattr(compiler, "POLL_SECONDS", 0.05)
    with pytest.raises(compiler.CompilerError, match=r"0.2 seconds of CPU time, and was ended: .*kernels.cpp"):
        compiler.library(tmp_path / "cache")


def test_a_compiler_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch, library: Library, tmp_path: Path) -> None:
    """It is slow, and is not ended: it has had less CPU time than it may take."""
    slow = script(tmp_path, f'sleep 0.4; while [ "$1" != -o ]; do shift; done; cp {library.path} "$2"')
    monkeypatch.setenv("CXX", slow)
    monkeypatch.setattr(compiler, "SECONDS", 0.2)
    monkeypatch.setattr(compiler, "POLL_SECONDS", 0.05)
    assert compiler.library(tmp_path / "cache").is_file()


def test_sigterm_ends_the_compiler_too(tmp_path: Path) -> None:
    slow = script(tmp_path, f"echo $$ > {tmp_path}/starting; mv {tmp_path}/starting {tmp_path}/pid; exec sleep 600")
    process = started(tmp_path / "cache", CXX=slow)
    pid = tmp_path / "pid"
    wait_until(pid.exists)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert [path.name for path in (tmp_path / "cache").rglob("*")] == ["kernels"]


def test_sigterm_while_the_compiler_is_started(tmp_path: Path) -> None:
    """The compiler itself sends it, before its parent knows of it or just after."""
    process = started(tmp_path / "cache", CXX=script(tmp_path, "kill -TERM $PPID; exec sleep 600"))
    process.communicate(timeout=60)  # a compiler that is left behind holds the pipes
    assert process.returncode == -signal.SIGTERM


def test_a_handler_of_sigterm_stays(tmp_path: Path) -> None:
    """And the default comes back. In a process of its own, which a signal that comes late may end."""
    killing = script(tmp_path, "kill -TERM $PPID; exit 1")
    code = f"""
import os, signal
from pathlib import Path
from ox.kernels import compiler

def compile():
    try:
        compiler.library(Path({str(tmp_path / "cache")!r}))
    except compiler.CompilerError as error:
        print("failed" in str(error))

came = []
signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
compile()
print(set(came) == {{signal.SIGTERM}})
Path({killing!r}).write_text("#!/bin/sh\\nexit 1\\n")
signal.signal(signal.SIGTERM, signal.SIG_DFL)
compile()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    environment = {**os.environ, "CXX": killing}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"] * 4, done.stderr


def test_a_folder_that_cannot_be_made(library: Library, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(compiler.CompilerError, match="cannot be kept"):
        compiler.library(tmp_path / "file" / "kernels")


def test_a_full_disk(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    def made(command: list[str], temporary: str) -> None:
        Path(command[command.index("-o") + 1]).write_bytes(b"x")

    monkeypatch.setattr(compiler, "run", made)
    monkeypatch.setattr(compiler, "_check_loads", lambda *given: None)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(compiler.CompilerError, match="No space left on device"):
        compiler.library(tmp_path / "kernels")
    assert list((tmp_path / "kernels").iterdir()) == []


def test_the_cache_is_used_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "run", lambda *given: pytest.fail("compiled again"))
    assert compiler.library(whole).parent == whole


def test_what_was_made_of_something_else_is_not_used(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = compiler.find_compiler()
    before = compiler._key(command, compiler.FLAGS, compiler.sources_digest())
    for name, value in (("FLAGS", (*compiler.FLAGS, "-g")), ("_processor", lambda: "another processor")):
        with monkeypatch.context() as changed:
            changed.setattr(compiler, name, value)
            assert compiler._key(command, compiler.FLAGS, compiler.sources_digest()) != before
            assert compiler._cached(whole, compiler._key(command, compiler.FLAGS, compiler.sources_digest())) is None


def test_a_damaged_library_is_not_loaded(whole: Path) -> None:
    (path,) = whole.iterdir()
    key = path.stem.partition("-")[0]
    assert compiler._cached(whole, key) == path
    path.write_bytes(path.read_bytes()[:-100])
    assert compiler._cached(whole, key) is None


@pytest.mark.parametrize("target", ["folder", "file"])
def test_what_others_may_write_is_not_loaded(whole: Path, target: str) -> None:
    (path,) = whole.iterdir()
    changed = whole if target == "folder" else path
    changed.chmod(stat.S_IMODE(changed.stat().st_mode) | 0o020)
    assert compiler._cached(whole, path.stem.partition("-")[0]) is None
    if target == "folder":
        with pytest.raises(compiler.CompilerError, match="could be written by others"):
            compiler.library(whole)


def counting(library: Library, folder: Path) -> str:
    """A compiler that writes a line for each call, takes a second, and gives the library of this machine."""
    return script(
        folder,
        f'echo called >> {folder}/calls; sleep 1; while [ "$1" != -o ]; do shift; done; cp {library.path} "$2"',
    )


LIBRARY = "import sys; from pathlib import Path; from ox.kernels import compiler; compiler.library(Path(sys.argv[1]))"
GENERATED = LIBRARY.replace("compiler.library(", "compiler.generated_library('// nothing', ")


@pytest.mark.parametrize("code", [LIBRARY, GENERATED], ids=["kernels", "generated"])
def test_one_process_compiles_for_all(library: Library, tmp_path: Path, code: str) -> None:
    environment = {**os.environ, "CXX": counting(library, tmp_path)}
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    ranks = [subprocess.Popen(command, env=environment) for _ in range(4)]
    assert [rank.wait(120) for rank in ranks] == [0] * 4
    assert (tmp_path / "calls").read_text() == "called\n"
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".so"]


def test_nobody_waits_longer_than_a_compiler_may_take(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", counting(library, tmp_path))
    key = compiler._key(compiler.find_compiler(), compiler.FLAGS, compiler.sources_digest())
    with compile_lock.one_at_a_time(tmp_path / "cache", key, 0.1):  # a process that hangs
        monkeypatch.setattr(compiler, "BUSY", 0.001)  # of 120 seconds
        assert compiler.library(tmp_path / "cache").is_file()


def test_the_lock_of_a_process_that_died_is_free(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", counting(library, tmp_path))
    key = compiler._key(compiler.find_compiler(), compiler.FLAGS, compiler.sources_digest())
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / f"{compile_lock.BEGUN}{key}").write_text("")
    monkeypatch.setattr(compile_lock, "PAUSE", "it does not wait")
    assert [compiler.library(tmp_path / "cache")] == [*(tmp_path / "cache").iterdir()]


def test_zig_may_take_longer() -> None:
    assert compiler.seconds_of([sys.executable, "-m", "ziglang", "c++"]) > compiler.seconds_of(["g++"]) == 120


@pytest.mark.slow
def test_two_processes_compile_at_once(library: Library, tmp_path: Path) -> None:
    both = [started(tmp_path) for _ in range(2)]
    results = [result(process) for process in both]
    assert results[0] == results[1] and results[0][1]
    kept = list((tmp_path / "kernels").iterdir())
    assert kept and all(path.suffix == ".so" for path in kept)


def test_any_number_of_threads_is_taken(library: Library) -> None:
    """Below 1 it is 1, and above the largest it is the largest; the work is done by as many, with the same bits."""
    import numpy as np

    x, found = np.linspace(-3, 3, 300_000, dtype=np.float32), []
    threads = ctypes.CDLL(library.path).ox_threads
    for count, most in ((0, 1), (-3, 1), (1, 1), (3 * (os.cpu_count() or 1), None), (1000, 256), (10**6, 256)):
        library.set_threads(count)
        assert threads() == (count if most is None else most)
        found.append(np.empty_like(x))
        library.ox_gelu_forward(x.size, address(x), address(found[-1]))
        assert np.array_equal(found[0], found[-1])
    assert found[0][-1] == pytest.approx(2.99595, rel=1e-5)


def test_the_address_of_an_array(library: Library) -> None:
    import numpy as np

    for array in (np.zeros(3), np.zeros((4, 5))[1:, 2:], np.zeros(0), np.frombuffer(b"12345678", np.float32)):
        assert _fast_address(array) == _slow_address(array)
