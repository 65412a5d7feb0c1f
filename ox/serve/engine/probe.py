"""Tries a model in a process of its own, which may take only so much memory, before the server's own process loads it.

What grows past the limit, or brings the runtime down, does so there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ox.errors import DeviceError, LoadError, OxError
from ox.serve.options import Options

MIB = 1 << 20
LONGEST_S = 300.0
COMMAND = (sys.executable, "-c", "from ox.serve.engine.probe import main; main()")


def probe(path: Path, options: Options, memory_mib: int) -> None:
    """Loads the file elsewhere, within the memory.

    Raises:
        OxError: as loading it here would. LoadError: it needs more memory, takes too long, or ends the process.
    """
    orders = json.dumps({"path": str(path), "options": asdict(options), "memory_mib": memory_mib})
    # The child finds what this process has found, installed or not.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    expected = f"at most {memory_mib} MiB (memory_mib)"
    try:
        done = subprocess.run(
            COMMAND, input=orders.encode(), capture_output=True, env=environment, timeout=LONGEST_S, check=False
        )
        answer = json.loads(done.stdout or b"null")
    except subprocess.TimeoutExpired:
        raise LoadError(f"{path} takes too long to load", expected=f"at most {LONGEST_S:g} s") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be tried in a process of its own", got=str(error)) from error
    if answer is None or done.returncode:
        raise LoadError(f"{path} brings its process down while it is loaded", expected=expected, got=_end(done))
    if answer.get("grown_mib", 0) > memory_mib or answer.get("memory"):
        got = f"{answer['grown_mib']} MiB" if "grown_mib" in answer else answer["memory"]
        raise LoadError(f"{path} grows past its memory limit while it is loaded", expected=expected, got=got)
    if "error" in answer:
        raise _error(**answer["error"])


def _end(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"exit code {done.returncode}" + (f": {lines[-1][:200]}" if lines else "")


def _error(device: bool, what: str, **fields: Any) -> OxError:
    return (DeviceError if device else LoadError)(what, **fields)


def main() -> None:
    """The child: orders on stdin, an answer on stdout."""
    orders = json.load(sys.stdin)
    from ox.devices.runtime import onnxruntime
    from ox.serve.limits import Limits
    from ox.serve.repository.model import Model

    onnxruntime()
    before = _resident()
    _limit(orders["memory_mib"] * MIB)
    try:
        Model(orders["path"], Options(**orders["options"]), Limits())
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
    """The most memory that this process has had, in bytes."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _limit(room: int) -> None:
    """Lets this process take `room` bytes more; a system without such a limit has what it took counted afterwards."""
    import resource

    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return
    taken = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken + room, taken + room))
