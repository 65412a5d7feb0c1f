"""What Ray adds: a training step under Ray Train and under mpiexec; and requests per second of ox alone,
of Ray Serve with ox, and of Ray Serve with a plain session of ONNX Runtime.

    python benchmarks/bench_ray.py             # both; or: train, serve

Everything runs on this machine. Each side runs alone, one after the other, ROUNDS times; the figures are medians.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROUNDS, STEPS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("STEPS", "200"))
SECONDS, CLIENTS = float(os.environ.get("SECONDS", "5")), "1,32"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PROXIES = {"HAProxy": {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}, "Python proxy": {}}


# -- training ----------------------------------------------------------------------------------------------------


def steps() -> dict[str, float]:
    """On each rank: milliseconds a step of an MLP with DDP, batch 64."""
    import ox
    import ox.distributed as dist
    from ox import nn

    ox.set_num_threads(1)
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = ox.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = ox.randn(64, 784), ox.zeros(64, dtype=ox.int64)
    times = []
    for number in range(STEPS + 10):
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if number >= 10:
            times.append(time.perf_counter() - begun)
    slowest = [0.0] * dist.get_world_size()
    dist.all_gather_object(slowest, 1e3 * median(times))
    return {"step, ms": max(slowest)}


def under_mpiexec() -> None:
    import ox.distributed as dist

    dist.init_process_group()
    found = steps()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def under_ray() -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig

    from ox.ray import OxTrainer

    ray.init(address="local", num_cpus=2, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        trainer = OxTrainer(
            reports, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=folder)
        )
        found = trainer.fit().return_value
        print(json.dumps({**found, "whole run, s": time.perf_counter() - begun}), flush=True)
    ray.shutdown()


def reports() -> dict[str, float]:
    """`steps`, and milliseconds of a report with a checkpoint of 4 MB."""
    import ray.train
    from ray.train import Checkpoint

    found, times = steps(), []
    first = ray.train.get_context().get_world_rank() == 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_bytes(os.urandom(4 << 20))
        for _ in range(10):
            begun = time.perf_counter()
            ray.train.report({}, checkpoint=Checkpoint.from_directory(folder) if first else None)
            times.append(time.perf_counter() - begun)
    return {**found, "report with a checkpoint, ms": 1e3 * median(times)}


def train() -> None:
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", "2", sys.executable, __file__, "under_mpiexec"]
    sides = {"ox, mpiexec": mpiexec, "ox, Ray Train": [sys.executable, __file__, "under_ray"]}
    figures: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for side, command in sides.items():
            for name, value in last_line(command, ONE_THREAD).items():
                figures.setdefault(name, {}).setdefault(side, []).append(value)
    for name, of in figures.items():
        print(f"{name}: " + ", ".join(f"{side} {median(values):.2f}" for side, values in of.items()))
    alone, ray = (median(figures["step, ms"][side]) for side in sides)
    print(f"step, Ray Train / mpiexec: {ray / alone:.2f}")


def last_line(command: list[str], env: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    return found


# -- serving -----------------------------------------------------------------------------------------------------


def serve_ox(path: str, port: str) -> None:
    import ox.ray

    on_ray_serve(lambda: ox.ray.deployment(path), int(port))


def serve_onnxruntime(path: str, port: str) -> None:
    sys.path.insert(0, str(HERE / "peers"))
    os.environ["PYTHONPATH"] = f"{HERE / 'peers'}:{os.environ.get('PYTHONPATH', '')}"
    from rayserve_server import Model

    on_ray_serve(lambda: Model.bind(path), int(port))


def on_ray_serve(application: Callable[[], Any], port: int) -> None:
    import ray
    from ray import serve

    ray.init(address="local", num_cpus=2, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(application())
    signal.sigwait([signal.SIGTERM])
    serve.shutdown()
    ray.shutdown()


def serve() -> None:
    sys.path.insert(0, str(HERE))
    from serving.models import write

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        path = str(Path(folder, "mlp.onnx"))
        alone = ["-m", "ox_cli", "serve", path, "--threads", "1", "--instances", "1", "--port"]
        sides: dict[str, tuple[list[str], dict[str, str]]] = {"ox alone": (alone, {})}
        for proxy, env in PROXIES.items():
            sides[f"Ray Serve ({proxy}) with ox"] = ([__file__, "serve_ox", path], env)
            sides[f"Ray Serve ({proxy}) with ONNX Runtime"] = ([__file__, "serve_onnxruntime", path], env)
        rates: dict[str, list[dict[str, float]]] = {}
        for _ in range(ROUNDS):
            for side, (command, env) in sides.items():
                rates.setdefault(side, []).append(load([sys.executable, *command], env, Path(folder)))
    for side, found in rates.items():
        texts = [
            f"{median(each[clients] for each in found):,.0f} with {clients} clients" for clients in CLIENTS.split(",")
        ]
        print(f"{side}: requests/s {', '.join(texts)}")


def load(command: list[str], env: dict[str, str], folder: Path) -> dict[str, float]:
    """Starts a server and measures it with `ox bench`, JSON: requests per second by number of clients."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = folder / "bench.json"
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen([*command, str(port)], env={**os.environ, **env}, stdout=log, stderr=log)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/v2/models/mlp", server, folder / "server.log")
            bench = [sys.executable, "-m", "ox_cli", "bench", f"http://127.0.0.1:{port}", "--model", "mlp"]
            bench += ["--no-binary", "--concurrency", CLIENTS, "--seconds", str(SECONDS), "--json-out", str(out)]
            subprocess.run(bench, check=True, capture_output=True, timeout=300)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
    found = json.loads(out.read_text())
    out.unlink()
    return {str(step["clients"]): float(step["throughput"]) for step in found["steps"]}


def wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-4000:]}")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["train", "serve"]
    if chosen[0] in ("serve_ox", "serve_onnxruntime"):
        globals()[chosen[0]](*chosen[1:])
    else:
        for name in chosen:
            globals()[name]()
