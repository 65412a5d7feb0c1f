"""MLServer: adaptive batching on, inference in the server's own process (its worker processes are slower here)."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

PATH, PORT, THREADS = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def main() -> None:
    name = Path(PATH).stem
    folder = Path(tempfile.mkdtemp(prefix="mlserver-"))
    settings = {
        "host": "127.0.0.1",
        "http_port": PORT,
        "grpc_port": PORT + 1,
        "metrics_port": PORT + 2,
        "parallel_workers": 0,
        "debug": False,
        "use_structured_logging": False,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {
        "name": name,
        "implementation": "mlserver_runtime.Onnx",
        "max_batch_size": 8,
        "max_batch_time": 0.001,
    }
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.environ |= {"MODEL": PATH, "THREADS": THREADS, "PYTHONPATH": str(Path(__file__).parent)}
    command = Path(sys.executable).parent / "mlserver"
    os.execv(command, [str(command), "start", str(folder)])


if __name__ == "__main__":
    main()
