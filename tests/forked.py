"""Starts Python processes that have ox imported already: a process that waits with all imports done forks for each.

`Popen` is `subprocess.Popen`, but `python -m module`, `python -c code` and `python script` need a twentieth of a
second instead of two. What runs there is as in a fresh process: arguments, environment, folder, descriptors, signals,
`__main__`, `sys.path`, its parent, its end. It differs in that all modules of ox are loaded, that the stack begins
with functions of this file, and that all processes have the same hashes: an order of sets that differs among ranks is
not seen. A process that would differ in more is started by `subprocess` itself: options of Python, a terminal, another
value of an environment variable that is not in `FREE_VARIABLES`, anything but a list of words. Processes that a forked
process starts are forked, too.

The fixture `forked_processes` puts it in the place of `subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import errno
import fcntl
import gc
import importlib
import inspect
import json
import os
import re
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import machinery
from multiprocessing import process as multiprocessing_process
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "ox", "ox.train", "ox.train.run.curves", "ox.export", "ox.serve", "ox.distributed.mpi", "ox.data", "ox_cli.launch",
    "ox_cli.train", "ox_cli.serve", "matplotlib.figure", "matplotlib.backends.backend_agg", "onnx", "onnxruntime",
    "typer.rich_utils",
)  # fmt: skip
# Variables that nothing reads at its import.
FREE_VARIABLES = frozenset({
    "COLUMNS", "GROUP_RANK", "GROUP_WORLD_SIZE", "LINES", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "NO_COLOR", "OX_API_KEY", "OX_CACHE", "OX_DATA", "OX_HEARTBEAT_TIMEOUT", "OX_KERNELS",
    "OX_LAUNCH_ATTEMPT", "OX_LAUNCH_PIPE", "OX_LAUNCH_RUN", "OX_LAUNCH_STORE", "OX_LAUNCH_TIMEOUT",
    "OX_RENDEZVOUS_PORT", "OX_RENDEZVOUS_TOKEN", "OX_TEST_WAITS", "OX_TRACEBACK", "PWD", "PYTEST_CURRENT_TEST",
    "RANK", "TMPDIR", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE",
})  # fmt: skip
# One thread for each of several ranks, which share a small machine.
THREADS = dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: a child's orphans become children of this process
FIRST_DESCRIPTOR = 500  # descriptors from here on are in nobody's way
MAX_REQUEST = 1 << 17  # bytes of a request
LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, 32, 33})


def fixed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be those of the process that forks."""
    return {name: value for name, value in environment.items() if name not in FREE_VARIABLES}


class ForkServer:
    """The process that forks, a child of this one."""

    def __init__(
        self, environment: Mapping[str, str], channel: socket.socket, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.owner = os.getpid()
        self.process = process
        self.environment = fixed_variables(environment)
        self.channel = channel
        self.lock = threading.Lock()

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """The number of a new process, which is a child of this one. Raises OSError."""
        data = json.dumps(request).encode()
        if len(data) > MAX_REQUEST:
            raise OverflowError
        with self.lock:
            prctl = ctypes.CDLL(None).prctl
            prctl(SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self.channel, [data], descriptors)
                answer = json.loads(self.channel.recv(MAX_REQUEST))
            finally:
                prctl(SUBREAPER, 0, 0, 0, 0)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), request["cwd"])
        return int(answer["pid"])

    def end(self) -> None:
        """Lets it end, with the end of this process."""
        if self.owner == os.getpid() and self.process is not None:
            self.channel.close()
            self.process.wait()


servers: list[ForkServer] = []
main_process = os.getpid()  # the process that may start others


def start_server(environment: Mapping[str, str]) -> ForkServer:
    """Starts a fresh Python, which imports ox and then waits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        process = subprocess_popen([sys.executable, __file__, str(number)], pass_fds=[number], env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    assert ours.recv(1), "the process that forks has ended"
    server = ForkServer(environment, ours, process)
    servers.append(server)
    atexit.register(server.end)
    return server


def server_for(environment: Mapping[str, str]) -> ForkServer | None:
    """The process that forks for such an environment; None if there is none, and none can be started here."""
    wanted = fixed_variables(environment)
    for server in servers:
        if server.environment == wanted and server.owner == os.getpid():
            return server
    usual = fixed_variables(os.environ)
    if os.getpid() != main_process or sys.platform != "linux" or wanted not in (usual, usual | THREADS):
        return None
    return start_server(environment)


subprocess_popen = subprocess.Popen
EXECUTE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`, with forked processes where they are the same."""

    def _execute_child(self, *words: Any) -> None:
        bound = EXECUTE.bind(self, *words).arguments
        pid = self._forked(bound)
        if pid is None:
            super()._execute_child(*words)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(bound[name] for name in names))  # type: ignore[attr-defined]

    @staticmethod
    def _forked(bound: dict[str, Any]) -> int | None:
        args = bound["args"]
        if not isinstance(args, list | tuple) or not args or os.fspath(args[0]) != sys.executable:
            return None
        plain = bound["close_fds"] and bound["umask"] < 0 and not bound["shell"] and bound["restore_signals"]
        others = ("executable", "preexec_fn", "gid", "gids", "uid")
        if not plain or any(bound[name] is not None for name in others) or signal.pthread_sigmask(0, ()):
            return None
        args = [os.fsdecode(word) for word in args[1:]]
        options = parse(args)
        environment = os.environ if bound["env"] is None else bound["env"]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        if options is None or (server := server_for(environment)) is None:
            return None
        targets = {0: bound["p2cread"], 1: bound["c2pwrite"], 2: bound["errwrite"]}
        targets = {number: number if source < 0 else source for number, source in targets.items()}
        targets |= {number: number for number in bound["pass_fds"]}
        try:
            if any(map(os.isatty, targets.values())):
                return None
        except OSError:  # a standard descriptor is closed
            return None
        request = {
            "args": args, "env": environment, "targets": list(targets),
            "cwd": os.path.abspath(os.fsdecode(bound["cwd"] or ".")),
            "session": bool(bound["start_new_session"]), "group": bound.get("process_group", -1),
            "umask": re.search(r"Umask:\s*(\d+)", Path("/proc/self/status").read_text())[1],  # type: ignore[index]
            "cores": list(os.sched_getaffinity(0)), "limits": [resource.getrlimit(number) for number in LIMITS],
            "ignored": [int(number) for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        }  # fmt: skip
        with suppress(OverflowError):
            return server.start(request, list(targets.values()))
        return None


def parse(args: list[str]) -> tuple[bool, list[str], list[str]] | None:
    """Of Python's command line: -P, the values of -W, and the rest, from -c, -m or the script on; None for another."""
    safe, filters, rest = False, [], list(args)
    while rest and rest[0] in ("-P", "-W"):
        if rest.pop(0) == "-P":
            safe = True
        elif rest:
            filters.append(rest.pop(0))
    if not rest or (rest[0] in ("-c", "-m") and len(rest) < 2):
        return None
    if rest[0] not in ("-c", "-m") and (rest[0].startswith("-") or not rest[0].endswith(".py")):
        return None
    return safe, filters, rest


# -- in the process that forks -------------------------------------------------------------------------------------


def next_request(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Waits for requests, and forks for each; returns in the new process. Ends with the process that asks."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST, 64)
        if not data:
            os._exit(0)
        read, write = os.pipe()
        intermediate = os.fork()
        if intermediate:
            os.close(write)
            for number in descriptors:
                os.close(number)
            with open(read, "rb") as pipe:
                answer = pipe.read()
            os.waitpid(intermediate, 0)  # its child is now one of the process that asks
            channel.send(answer or json.dumps({"errno": errno.ECHILD}).encode())
            continue
        os.close(read)
        request = json.loads(data)
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            os.write(write, json.dumps({"errno": error.errno}).encode())
            os._exit(0)
        intermediate = os.getpid()
        own = os.fork()
        if own:
            os.write(write, json.dumps({"pid": own}).encode())
            os._exit(0)
        os.close(write)
        while os.getppid() == intermediate:
            os.sched_yield()
        return request, descriptors


def apply_request(request: dict[str, Any], descriptors: list[int]) -> None:
    """Makes this process what was asked for, all but its arguments."""
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) for number in descriptors]
    for number in descriptors:
        os.close(number)
    for source, target in zip(high, request["targets"], strict=True):
        os.dup2(source, target)
        os.close(source)
    for number in SIGNALS:
        usual = signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL
        signal.signal(number, usual)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, mode = getattr(sys, name), "w" if number else "r"
        new = os.fdopen(number, mode, 1 if number == 2 else -1, old.encoding, old.errors, "\n", closefd=False)
        new.buffer.raw.name = f"<{name}>"
        setattr(sys, name, new), setattr(sys, f"__{name}__", new)
    os.umask(int(request["umask"], 8))
    os.sched_setaffinity(0, request["cores"])
    for number, limit in zip(LIMITS, request["limits"], strict=True):
        resource.setrlimit(number, tuple(limit))
    multiprocessing_process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(ox_environment | request["env"])

    import numpy as np

    from ox.devices.onnxruntime import dispatch_table, node_session
    from ox.distributed import init

    np.random.seed()
    # ox stays on NumPy in a forked process, where the threads of sessions are missing: here there was no session yet.
    node_session.forked = False
    dispatch_table.ALLOWED.update(accelerated)
    init._attempt_began[:] = [init.SYSTEM.now()]  # as after the import of a new process
    importlib.invalidate_caches()


def set_warnings(filters: list[str]) -> None:
    """Warnings as `python -W` sets them, below those that modules have set at their import."""
    if filters:
        own = warnings.filters[: len(warnings.filters) - len(usual_filters)]
        sys.warnoptions[:] = filters
        warnings.filters[:] = usual_filters  # type: ignore[index]
        warnings._processoptions(filters)  # type: ignore[attr-defined]
        warnings.filters[:0] = own  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def call(args: list[str]) -> None:
    """Runs what Python's command line says, as `__main__`."""
    options = parse(args)
    assert options is not None
    safe, filters, rest = options
    set_warnings(filters)
    sys.modules["forked"] = sys.modules["__main__"]
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={}, __loader__=machinery.BuiltinImporter)
    sys.modules["__main__"] = main
    sys.orig_argv[:] = [sys.executable, *args]
    script = rest[0] not in ("-c", "-m")
    sys.argv[:] = rest if script else [rest[0], *rest[2:]]
    if not safe:
        folder = os.path.dirname(os.path.realpath(rest[0])) if script else os.getcwd() if rest[0] == "-m" else ""
        sys.path.insert(0, folder)
    if rest[0] == "-m":
        runpy._run_module_as_main(rest[1])  # type: ignore[attr-defined]
        return
    code, name = rest[-1] if script else rest[1], "<string>"
    if script:
        name = main.__file__ = os.path.abspath(rest[0])
        vars(main).update(__cached__=None, __loader__=machinery.SourceFileLoader("__main__", name))
        try:
            with open(name, "rb") as file:
                code = file.read()  # type: ignore[assignment]
        except OSError as error:
            path = os.path.abspath(name)
            print(
                f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr
            )
            sys.exit(2)
    exec(compile(code, name, "exec", dont_inherit=True), vars(main))


def serve(channel: socket.socket) -> None:
    """Waits for requests; returns at the end of one, in a process of its own."""
    for number in SIGNALS:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        request, descriptors = next_request(channel)
        channel.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            theirs.close()
            number = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
            ours.close()
            break
        ours.close()  # this process forks for the other one
        for descriptor in descriptors:
            os.close(descriptor)
        channel = theirs
    apply_request(request, descriptors)
    servers[:] = [ForkServer(os.environ, socket.socket(fileno=number))]
    subprocess.Popen = Popen  # type: ignore[misc]
    end(code_of(call, request["args"]))


def code_of(function: Callable[..., object], *args: object) -> int:
    """Calls a function, and prints what it raises as Python does; returns the exit code."""
    try:
        function(*args)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(code: int) -> NoReturn:
    """Ends as Python does, without the destruction of loaded modules, for which the system would copy their memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()
    for name in [name for name in sys.modules if name not in loaded]:
        if isinstance(module := sys.modules.pop(name), types.ModuleType) and module.__dict__ is not globals():
            vars(module).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            if stream is sys.stdout and sys.stderr is not None:
                with suppress(OSError, ValueError):
                    print(f"Exception ignored in: {stream!r}", *traceback.format_exception_only(error), sep="\n",
                          end="", file=sys.stderr)  # fmt: skip
            code = code if code == -signal.SIGINT else 120
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 255)


if __name__ == "__main__":
    del sys.path[0]
    usual_filters, usual_environment = list(warnings.filters), dict(os.environ)
    importlib.import_module("ox")
    ox_environment = {name: value for name, value in os.environ.items() if name not in usual_environment}
    for name in PRELOADED:
        importlib.import_module(name)
    accelerated = dict(importlib.import_module("ox.devices.onnxruntime.dispatch_table").ALLOWED)
    loaded = set(sys.modules)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        waiting.set_inheritable(False)
        waiting.send(b"1")
        serve(waiting)
