"""Compiles the kernels for this processor, once: the library is kept in a cache folder under a name that says what it
was made of (sources, flags, compiler, processor) and what it contains (its SHA-256).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "source"
COMMON_FLAGS = (
    "-std=c++17", "-O3", "-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC",
    "-pthread",
)  # fmt: skip
FLAGS = (*COMMON_FLAGS, "-march=native", "-shared")
# With -fwrapv integers overflow as NumPy's do.
GENERATED_FLAGS = (*FLAGS, "-fwrapv", f"-I{SOURCE}")
GENERATED_INCLUDES = ("generated.h", "words.h", "float_math.h", "blocks.h")
GENERATED = 2048  # libraries of generated sources that are kept, of 20 KB each
MOST_SAID, LONGEST_LINE = 1 << 20, 300  # bytes of a compiler's messages, and characters of the line that is shown
# CPU time: on a busy machine a compiler takes many times as long, and its library is still wanted.
SECONDS = 120  # a compiler needs ten
ZIG_SECONDS = 300  # zig makes its C++ library first, which takes a minute
BUSY = 10  # how many times its CPU time a compiler takes on a very busy machine
IDLE_SECONDS = 120  # a compiler hangs that has used no CPU time for so long
POLL_SECONDS = 1.0  # between two looks at the CPU time of a compiler
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # of the times in /proc/PID/stat, a second
BEGUN = ".compiling-"  # begins the names of folders in which a compiler works


class CompilerError(Exception):
    """Why there is no library: no compiler, its first error, or no folder for the result."""


class NoCompilerError(CompilerError):
    """There is no compiler to try."""


class _Terminated(BaseException):
    """SIGTERM came."""


class _Sigterm:
    """In the main thread it waits while a compiler is started: an exception there would leave the compiler behind."""

    waits = came = False

    def hold(self) -> None:
        self.waits = threading.current_thread() is threading.main_thread() or self.waits

    def go_on(self) -> None:
        """Raise what has waited."""
        if threading.current_thread() is threading.main_thread():
            self.waits = False
            if self.came:
                raise _Terminated


_sigterm = _Sigterm()


@contextmanager
def _cleaning_up_at_sigterm() -> Iterator[None]:
    """SIGTERM ends the process as it always does, but after the compiler and its files. A handler of the user's own
    stays as it is; in other threads than the main one Python allows none."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the clean-up
        _sigterm.came = True
        if not _sigterm.waits:
            raise _Terminated

    _sigterm.came = _sigterm.waits = False
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, g++, clang++, or that of the package ziglang.

    Raises:
        NoCompilerError: none is installed.
        CompilerError: $CXX is no command.
    """
    named = os.environ.get("CXX", "")
    if named.strip():
        try:
            return shlex.split(named)
        except ValueError as error:
            raise CompilerError(f"$CXX is no command: {error}") from None
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return [name]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    raise NoCompilerError("no C++ compiler is installed (g++, clang++ or the extra 'compile')")


def seconds_of(command: list[str]) -> float:
    """The CPU time that a compiler may take."""
    return ZIG_SECONDS if "ziglang" in command else SECONDS


def library(cache: Path | None = None) -> Path:
    """The compiled library, from the cache or made now (some seconds).

    Args:
        cache: the folder; by default `cache_folder()`.

    Raises:
        CompilerError: there is no compiler, it failed, or nothing can be written.
    """
    if not hasattr(os, "getuid"):
        raise NoCompilerError("the kernels are compiled on Linux and macOS only")
    command = find_compiler()
    folder = cache_folder() if cache is None else cache
    key = _key(command, FLAGS, sources_digest())
    found = _cached(folder, key)
    if found is not None:
        return found
    if sys.stderr.isatty():
        print("compiling the kernels of ox for this processor (once, some seconds)", file=sys.stderr)
    from ox.kernels.compile_lock import one_at_a_time  # a wheel is built without what ox imports

    with _cleaning_up_at_sigterm(), one_at_a_time(folder, key, BUSY * seconds_of(command)):
        found = _cached(folder, key)  # another process made it meanwhile
        return found or _compile([*command, *FLAGS], SOURCE / "kernels.cpp", folder, key)


def generated_library(text: str, cache: Path | None = None) -> Path:
    """The library of a generated source, from the cache or made now. The source includes generated.h.

    Args:
        cache: the folder; by default one in `cache_folder()`, which keeps the GENERATED libraries used last.

    Raises:
        CompilerError: there is no compiler, it failed, or nothing can be written.
    """
    if not hasattr(os, "getuid"):
        raise NoCompilerError("the kernels are compiled on Linux and macOS only")
    command = find_compiler()
    folder = cache_folder() / "generated" if cache is None else cache
    key = _key(command, GENERATED_FLAGS, _headers_digest() + text)
    found = _cached(folder, key)
    if found is not None:
        with suppress(OSError):
            os.utime(found)
        return found
    from ox.kernels.compile_lock import one_at_a_time  # a wheel is built without what ox imports

    with _cleaning_up_at_sigterm(), one_at_a_time(folder, key, BUSY * seconds_of(command)):
        found = _cached(folder, key)  # another process made it meanwhile
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="ox-generated-") as temporary:
            source = Path(temporary) / "generated.cpp"
            source.write_text(text)
            made = _compile([*command, *GENERATED_FLAGS], source, folder, key)
    _forget_oldest(folder)
    return made


def cache_folder() -> Path:
    """``kernels`` in the cache of ox."""
    from ox.cache_folder import cache_folder as folder_of  # here: what builds a wheel has no ox

    return folder_of("kernels")


def sources_digest() -> str:
    """The SHA-256 of the names and contents of the source files, in hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _headers_digest() -> str:
    """The SHA-256 of what generated sources include, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name in GENERATED_INCLUDES:
        digest.update(name.encode() + b"\0" + (SOURCE / name).read_bytes())
    return digest.hexdigest()


def _key(command: list[str], flags: tuple[str, ...], source: str) -> str:
    """What the library is made of, as 16 hexadecimal digits."""
    digest = hashlib.sha256(source.encode())
    program = shutil.which(command[0])
    state = os.stat(program) if program else None
    digest.update(repr((flags, command, program, state and (state.st_size, state.st_mtime_ns))).encode())
    digest.update(repr((platform.machine(), platform.libc_ver(), _processor())).encode())
    return digest.hexdigest()[:16]


@cache
def _processor() -> str:
    """The model and the instruction sets, which -march=native follows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _cached(folder: Path, key: str) -> Path | None:
    """The library of this key, if nobody else could have written it and its contents are those that were compiled."""
    try:
        for path in sorted(folder.glob(f"{key}-*.so")):
            if _mine(folder) and _mine(path) and path.stem == f"{key}-{_contents(path)}":
                return path
    except OSError:
        return None
    return None


def _mine(path: Path) -> bool:
    state = path.stat()
    return state.st_uid == os.getuid() and not state.st_mode & 0o022


def _contents(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _compile(command: list[str], source: Path, folder: Path, key: str) -> Path:
    """Compile beside the final place, then rename: another process sees the whole library or none."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _mine(folder):
            raise CompilerError(f"{folder} could be written by others; the kernels are not kept there")
        with tempfile.TemporaryDirectory(dir=folder, prefix=BEGUN, ignore_cleanup_errors=True) as temporary:
            made = Path(temporary) / "kernels.so"
            run([*command, "-o", str(made), str(source)], temporary)
            _check_loads(made, command[0])
            made.chmod(0o700)
            final = folder / f"{key}-{_contents(made)}.so"
            os.replace(made, final)
        _tidy(folder, key)
        return final
    except OSError as error:
        raise CompilerError(f"the kernels cannot be kept in {folder}: {error.strerror or error}") from None


def _check_loads(made: Path, name: str) -> None:
    """Raises CompilerError where a compiler that ended well left no library."""
    try:
        ctypes.CDLL(str(made))
    except OSError as error:
        raise CompilerError(f"{name} ended without an error, but not with a library: {error}") from None


def _tidy(folder: Path, key: str) -> None:
    """Removes damaged libraries of this key, and what compilers left that were killed long ago."""
    with suppress(OSError):
        for path in folder.glob(f"{key}-*.so"):
            if path.stem != f"{key}-{_contents(path)}":
                path.unlink()
        for left in folder.glob(f"{BEGUN}*"):
            if left.stat().st_mtime < time.time() - BUSY * ZIG_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _forget_oldest(folder: Path) -> None:
    """Removes the libraries beyond GENERATED that nobody used for longest. Processes that run them keep them."""
    with suppress(OSError):
        found = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime)
        for path in found[:-GENERATED]:
            path.unlink(missing_ok=True)


def run(command: list[str], temporary: str) -> None:
    """Runs a compiler, which keeps its own files in `temporary`, in a session of its own: it ends with its children.

    Raises:
        CompilerError: it does not run, takes more CPU time than `seconds_of` it or none for long, or fails; with the
            first line that says why.
    """
    # zig keeps what it compiles for C++ in caches, which nobody would find again
    folders = dict.fromkeys(("TMPDIR", "ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"), temporary)
    _sigterm.hold()
    try:
        compiler = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **folders},
            start_new_session=True,
        )
    except OSError as error:
        _sigterm.go_on()
        raise CompilerError(f"the compiler {command[0]} does not run: {error.strerror or error}") from None
    said: list[bytes] = []
    listener = threading.Thread(target=_listen, args=(compiler.stderr, said), daemon=True)
    with compiler:
        try:
            _sigterm.go_on()
            listener.start()
            _wait(compiler, command)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(compiler.pid, signal.SIGKILL)
            raise
        listener.join(1)  # what it started may hold the pipe open
    if compiler.returncode != 0:
        lines = b"".join(said).decode(errors="replace").splitlines()
        first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "").strip()
        told = "".join(c if c.isprintable() else "?" for c in first[:LONGEST_LINE])
        raise CompilerError(f"{command[0]} failed: {told or f'exit code {compiler.returncode}'}")


def _wait(compiler: subprocess.Popen[bytes], command: list[str]) -> None:
    """Waits for a compiler. Raises CompilerError when it has had all its CPU time, or hangs."""
    limit, used, last_use = seconds_of(command), 0.0, time.monotonic()
    idle_limit = IDLE_SECONDS if Path("/proc/self/stat").exists() else BUSY * limit  # macOS has no /proc
    while True:
        try:
            compiler.wait(timeout=POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            now, before = time.monotonic(), used
            used = _cpu_seconds(compiler.pid)
            last_use = now if used > before else last_use
        if used > limit or now - last_use > idle_limit:
            spent = f"{limit:g} seconds of CPU time" if used > limit else f"{idle_limit:g} seconds without any"
            raise CompilerError(f"the compiler {command[0]} took more than {spent}, and was ended: {command[-1]}")


def _cpu_seconds(session: int) -> float:
    """The CPU time of the processes of a session and of their ended children; 0 without /proc."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # from the state on, after the name in parentheses: fields 3 to 17 of proc(5)
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / TICKS


def _listen(stream: Any, said: list[bytes]) -> None:
    """Keeps the first of what a compiler says, and lets it say the rest."""
    kept = 0
    with suppress(ValueError, OSError):  # closed meanwhile
        while part := stream.read1(1 << 16):
            if kept < MOST_SAID:
                said.append(part[: MOST_SAID - kept])
                kept += len(said[-1])
