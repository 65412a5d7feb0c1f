"""Start times of `ox --help`, `import ox`, and `ox serve` of a 64-64-10 MLP until it is ready."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 7


def _wait(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - start


def _ready(model: Path) -> float:
    """Seconds from starting `ox serve` to the line that names its address."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "ox_cli", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if "http://" in line:
                break
        seconds = time.perf_counter() - start
        server.terminate()
        server.stdout.read()
    return seconds


def main() -> None:
    import ox
    from ox import nn

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mlp.onnx"
        mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        ox.export.save(mlp, model, ox.randn(2, 64))
        measures: dict[str, Callable[[], float]] = {
            "ox --help": lambda: _wait("-m", "ox_cli", "--help"),
            "import ox": lambda: _wait("-c", "import ox"),
            "ox serve, ready": lambda: _ready(model),
        }
        for name, measure in measures.items():
            print(f"{name:<20} {statistics.median(measure() for _ in range(ROUNDS)):.2f} s (median of {ROUNDS})")


if __name__ == "__main__":
    main()
