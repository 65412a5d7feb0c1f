"""ONNX Runtime without any server: what no server can beat."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

BATCHES = (1, 8, 32)


def rates(model: Path, cores: int, seconds: float) -> float:
    """Rows a second on that many cores: the best of batch sizes, and of one session's threads or a session a core."""
    best = 0.0
    for batch in BATCHES:
        best = max(best, _rate([_session(model, cores)], model, batch, seconds / 6))
        if cores > 1:
            best = max(best, _rate([_session(model, 1) for _ in range(cores)], model, batch, seconds / 6))
    return best


def run_ms(model: Path) -> float:
    """The median of one row's run."""
    session, x = _session(model, 1), _row(model)
    times = []
    for _ in range(2000):
        begun = time.perf_counter()
        session.run(None, {"x": x})
        times.append(time.perf_counter() - begun)
    return 1000 * float(np.median(times))


def _rate(sessions: list[Any], model: Path, batch: int, seconds: float) -> float:
    x = np.repeat(_row(model), batch, 0)
    counts = [0] * len(sessions)
    for session in sessions:
        session.run(None, {"x": x})
    begun = time.perf_counter()

    def work(place: int) -> None:
        while time.perf_counter() - begun < seconds:
            sessions[place].run(None, {"x": x})
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return batch * sum(counts) / (time.perf_counter() - begun)


def _session(model: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _row(model: Path) -> Any:
    with np.load(model.with_suffix(".npz")) as held:
        return held["x"]
