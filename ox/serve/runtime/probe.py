"""Loads a model in a separate process with a memory limit, before the server's process loads it.

What grows past the limit, or brings the runtime down, does so there.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ox.devices.machine import available_memory
from ox.errors import DeviceError, LoadError, OxError
from ox.serve.config.model_config import ModelConfig
from ox.serve.runtime.load_control import LoadControl
from ox.serve.workers.subprocess_environment import subprocess_environment

MIB = 1 << 20
GRACE_S = 5.0
COMMAND = (sys.executable, "-P", "-c", "from ox.serve.runtime.probe import main; main()")


def probe(path: Path, options: ModelConfig, memory_mib: int | None = None, control: LoadControl | None = None) -> None:
    """Loads the file elsewhere, within the memory and the time that `control` leaves.

    Args:
        path: the file.
        options: how it would be run here.
        memory_mib: what it may take; half of what the machine, or this process's control group, has left if it is None.
        control: ends it, and the process with it.

    Raises:
        OxError: as loading it here would. LoadError: it needs more memory, or ends the process.
    """
    control = control or LoadControl()
    control.enter("testing it in a separate process")
    expected = f"at most {memory_mib} MiB (memory_mib)"
    if memory_mib is None:
        memory_mib = available_memory() // 2 // MIB
        expected = f"at most {memory_mib} MiB, half of what is free"
    orders = json.dumps({"path": str(path), "options": asdict(options), "memory_mib": memory_mib})
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, env=subprocess_environment())
        with child:
            control.add_stop(child.kill)
            out, err = child.communicate(orders.encode())
            control.forget(child.kill)
        control.check()
        answer = json.loads(out or b"null")
    except LoadError:  # the reason why it was ended, which is a ValueError as well
        raise
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be tested in a separate process", got=str(error)) from error
    if child.returncode in (-signal.SIGINT, -signal.SIGTERM):  # Ctrl-C, or whatever else ends the process group
        raise LoadError(f"{path} was not tested: its process was ended", got=signal.Signals(-child.returncode).name)
    if answer is None or child.returncode:
        got = _end(child.returncode, err)
        raise LoadError(f"{path} crashes its process while it is loaded", expected=expected, got=got)
    if answer.get("grown_mib", 0) > memory_mib or answer.get("memory"):
        got = f"{answer['grown_mib']} MiB" if "grown_mib" in answer else answer["memory"]
        raise LoadError(f"{path} exceeds its memory limit while it is loaded", expected=expected, got=got)
    if "error" in answer:
        raise _error(**answer["error"])


def _end(code: int, err: bytes) -> str:
    lines = err.decode(errors="replace").strip().splitlines()
    return f"exit code {code}" + (f": {lines[-1][:200]}" if lines else "")


def _error(device: bool, what: str, **fields: Any) -> OxError:
    return (DeviceError if device else LoadError)(what, **fields)


def main() -> None:
    """The child: orders on stdin, an answer on stdout."""
    orders = json.load(sys.stdin)
    if hasattr(signal, "setitimer"):  # if the parent is gone, a signal ends this process; not on Windows
        signal.setitimer(signal.ITIMER_REAL, orders["options"]["load_timeout_s"] + GRACE_S)
    from ox.devices.onnxruntime.runtime import onnxruntime
    from ox.serve.config.request_limits import RequestLimits
    from ox.serve.repository.model import Model

    onnxruntime()
    before = _resident()
    _limit(orders["memory_mib"] * MIB)
    try:
        Model(orders["path"], ModelConfig(**orders["options"]), RequestLimits())
    except MemoryError:
        answer: dict[str, Any] = {"memory": "out of memory"}
    except OxError as error:
        text = error.one_line()
        if any(word in text for word in ("bad_alloc", "Failed to allocate", "MemoryError", "BFCArena")):
            answer = {"memory": text}
        else:
            fields = {name: getattr(error, name) for name in ("where", "expected", "got", "hint")}
            answer = {"error": {"device": isinstance(error, DeviceError), "what": error.what, **fields}}
    else:
        answer = {"grown_mib": (_resident() - before) // MIB}
    print(json.dumps(answer), flush=True)


def _resident() -> int:
    """The most memory that this process has had, in bytes; 0 where the system does not say it (Windows)."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _limit(room: int) -> None:
    """Lets this process take `room` bytes more; a system without such a limit has what it took counted afterwards."""
    try:
        import resource

        status = Path("/proc/self/status").read_text()
    except (ImportError, OSError):
        return
    taken = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken + room, taken + room))
