"""The server under test, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]
# Shorter times than a user has, so that every one of them runs out during a soak.
CODE = """
import json, sys
from ox.serve import RequestLimits, ModelConfig, serve
workers, log, settings, *paths = sys.argv[1:]
settings = json.loads(settings)
limits = RequestLimits(**{"request_s": 4, "idle_s": 20, "poll_s": 0.5} | settings["limits"])
serve(paths, port=0, workers=int(workers), manage=True, log=log or None, access_log=bool(log), limits=limits,
      options=ModelConfig(device="cpu", **settings["options"]), show=lambda line: print(line, flush=True))
"""


class Server:
    """Raises RuntimeError if it does not start."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        log: str = "",
        stderr: IO[Any] | int | None = None,
        environment: dict[str, str] | None = None,
        before: Any = None,
        limits: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        settings = json.dumps({"limits": limits or {}, "options": options or {}})
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "cli"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(workers), log, settings, str(folder)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | {"PYTHONPATH": paths} | (environment or {}),
            preexec_fn=before,
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise RuntimeError(f"the server does not start: {self.lines}, exit code {self.process.wait()}")
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def children(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.process.pid:
                    found.append(int(entry.name))
        return found

    def memory_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000  # type: ignore[index]

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and how long it took."""
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code, time.perf_counter() - begun

    def kill(self) -> None:
        if self.running():
            self.process.kill()
        self.process.wait()
