"""ox where the system has not what only Unix has, as Windows: hidden here in a process that trains, exports, serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = '''
import asyncio, concurrent.futures, importlib, multiprocessing, os, signal, socket, subprocess, sys

class Hidden:
    """Finds no module of these names."""

    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "termios", "pwd", "grp", "uvloop"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules.pop(name, None)
for module, names in (
    (os, "fork register_at_fork sched_getaffinity memfd_create killpg getuid geteuid O_CLOEXEC O_NOFOLLOW O_DIRECTORY"),
    (os, "posix_spawn chown preadv pwritev getloadavg sysconf mkfifo"),
    (signal, "pthread_sigmask setitimer alarm SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGQUIT SIGALRM"),
    (socket, "SO_REUSEPORT"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

for name in "ox nn optim data export train serve distributed generation compiler remote".split():
    importlib.import_module(name if name == "ox" else f"ox.{name}")
for name in "main train export serve runs doctor".split():
    importlib.import_module(f"ox_cli.{name}")

import urllib.request
import numpy as np
import ox
from ox import nn
from ox.train import Trainer

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
data = ox.randn(100, 4), ox.randint(0, 3, (100,))
Trainer(model, nn.CrossEntropyLoss(), None, data, epochs=1).fit("run")
assert sum(len(x) for x, _ in ox.data.DataLoader(ox.data.TensorDataset(*data), batch_size=10)) == 100

def refused(call):
    try:
        call()
    except ox.errors.OxError as error:
        assert "need Linux or macOS" in error.what, error
    else:
        raise AssertionError("not refused")

refused(lambda: next(iter(ox.data.DataLoader(ox.data.TensorDataset(*data), num_workers=1))))
ox.save(model.state_dict(), "model.safetensors")
assert len(ox.load("model.safetensors")) == 4
ox.export.save(model, "model.onnx", data[0][:2])
with ox.no_grad():
    assert ox.export.load("model.onnx")(data[0]).allclose(model(data[0]), atol=1e-5)
    assert ox.compile(model)(data[0]).allclose(model(data[0]), atol=1e-5)
with ox.serve.Server(["model.onnx"]) as server:
    assert urllib.request.urlopen(f"{server.url}/v2/models/model").status == 200
refused(lambda: ox.serve.serve(["model.onnx"], workers=2))
from ox.distributed import launcher
refused(lambda: launcher.run(launcher.Plan(["-m", "this"], 2), print))
os.environ |= {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
refused(lambda: ox.distributed.init_process_group("gloo"))
from ox.serve.access import keyfile
keyfile.write(__import__("pathlib").Path("keys.toml"), [])
keyfile.write(__import__("pathlib").Path("keys.toml"), [])  # over one that has an owner

import threading

def no_handler(*_):
    raise NotImplementedError  # as the loops of Windows

asyncio.SelectorEventLoop.add_signal_handler = no_handler
lines = []

def show(line):
    lines.append(line)
    if len(lines) == 1:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

ox.serve.serve(["model.onnx"], port=0, show=show)
assert lines[-1].startswith("stopped"), lines
print("done")
'''


def test_train_export_serve(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("done\n"), done.stderr
