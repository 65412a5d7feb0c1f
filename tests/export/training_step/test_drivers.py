"""The drivers in examples/training_step: a hundred steps end at eager's weights, in each runtime that is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import onnxruntime
import pytest
from steps_eager import EXAMPLES, Digits, check_weights, digits, driver, train_eager

import ox
from ox import nn
from ox.engines.openvino import core

train = driver()
STEPS, BATCH = 100, 5
SECONDS = 300  # that a driver may take on a busy machine


def write(folder: Path, dropout: float) -> None:
    """A step, a batch for each time that it is taken, and where eager ends on these batches."""
    ox.manual_seed(0)
    model, loss = Digits(dropout), nn.CrossEntropyLoss()
    optimizer = ox.optim.Adam(model.parameters(), 3e-3, eps=1e-3)
    ox.export.save_step(model, loss, optimizer, folder / "step.onnx", *digits(20), clip=1.0, seed=7)
    x, y = digits(STEPS * BATCH, 1)
    data = x.reshape(STEPS, BATCH, 1, 8, 8), y.reshape(STEPS, BATCH)
    ox.save({"image": data[0], "target": data[1]}, folder / "batches.safetensors")
    ox.manual_seed(7)
    losses = train_eager(model, loss, optimizer, data, clip=1.0)
    ox.save({"losses": np.array(losses), "model": model.state_dict()}, folder / "eager.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples beside a step with dropout."""
    folder = tmp_path_factory.mktemp("drivers")
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    write(folder, dropout=0.2)
    return folder


def check(folder: Path, trained: Path) -> None:
    """The weights of a driver are those of the eager steps, and ox loads them."""
    model = Digits()
    model.load_state_dict(ox.load(folder / "eager.safetensors")["model"])
    state = ox.load(trained)
    check_weights({name: tensor.numpy() for name, tensor in state.items()}, model)
    model.load_state_dict({name: state[name] for name in model.state_dict()})


def check_losses(folder: Path, printed: str) -> None:
    eager = ox.load(folder / "eager.safetensors")["losses"]
    lines = [line.split() for line in printed.splitlines()]
    assert [line[1] for line in lines] == ["loss"] * STEPS
    np.testing.assert_allclose([float(line[2]) for line in lines], eager, rtol=1e-3)


def test_python(folder: Path) -> None:
    """In a process that cannot import ox."""
    words = ["train.py", "step.onnx", "batches.safetensors", "python.safetensors"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    check_losses(folder, done.stdout)
    check(folder, folder / "python.safetensors")
    text = (EXAMPLES / "train.py").read_text()
    assert "import ox" not in text


def test_openvino(tmp_path: Path) -> None:
    """Without dropout: OpenVINO's CPU computes the 64-bit integers of the random numbers in 32 bits."""
    pytest.importorskip("openvino")
    write(tmp_path, dropout=0.0)
    trainer = train.Trainer(tmp_path / "step.onnx")
    compiled = core().compile_model(tmp_path / "step.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    state = {name: array.copy() for name, array in trainer.state.items()}
    rates = {name: np.asarray(rate) for name, rate in trainer.lr.items()}
    batches = train.read_state(tmp_path / "batches.safetensors")
    for i in range(STEPS):
        results = compiled({**{name: array[i].copy() for name, array in batches.items()}, **rates, **state})
        state = {name: np.array(results[following]) for name, following in trainer.layout["state"].items()}
    model = Digits()
    model.load_state_dict(ox.load(tmp_path / "eager.safetensors")["model"])
    check_weights(state, model)


def test_c(folder: Path) -> None:
    """With the library of the Python package, and headers where `ONNXRUNTIME_INCLUDE` or the system has them."""
    places = [os.environ.get("ONNXRUNTIME_INCLUDE", ""), "/usr/include/onnxruntime", "/usr/local/include/onnxruntime"]
    headers = next((p for p in places if p and (Path(p) / "onnxruntime_c_api.h").is_file()), None)
    found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    compiler = shutil.which("cc")
    if headers is None or not found or compiler is None:
        pytest.skip("no C compiler, or no headers of ONNX Runtime: set ONNXRUNTIME_INCLUDE to their folder")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(found[0])
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        headers,
        "-L",
        str(folder),
        "-lonnxruntime",
        "-o",
        "train",
    ]
    subprocess.run([compiler, "train.c", *flags], cwd=folder, check=True, timeout=SECONDS)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    words = ["./train", "step.onnx", "batches.safetensors", "0.003", "c.safetensors"]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    check_losses(folder, done.stdout)
    check(folder, folder / "c.safetensors")


@pytest.fixture(scope="module")
def packages(folder: Path) -> Path:
    """The folder with what package.json names."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    environment = {**os.environ, "ONNXRUNTIME_NODE_INSTALL": "skip"}  # the package holds the CPU's library
    words = ["npm", "install", "--no-fund", "--no-audit", "--no-package-lock"]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        pytest.skip(f"npm cannot install onnxruntime: {done.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.mark.slow
def test_node(packages: Path) -> None:
    words = ["node", "train.mjs", "step.onnx", "batches.safetensors", "node.safetensors"]
    done = subprocess.run(words, cwd=packages, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    check_losses(packages, done.stdout)
    check(packages, packages / "node.safetensors")


class Handler(SimpleHTTPRequestHandler):
    """A static server that also takes what a page posts."""

    posted: dict[str, bytes]
    done: Event

    def do_POST(self) -> None:
        self.posted[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        if self.path in ("/used", "/failed"):
            self.done.set()

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@pytest.fixture
def posted(packages: Path) -> Iterator[tuple[str, dict[str, bytes], Event]]:
    """The address of a server of the folder, what pages post to it, and whether the last one did."""
    shutil.copy(Path(__file__).with_name("browser.html"), packages)
    handler = type("Posting", (Handler,), {"posted": {}, "done": Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(packages)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.posted, handler.done  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_browser(packages: Path, posted: tuple[str, dict[str, bytes], Event], tmp_path: Path) -> None:
    """A hundred steps in a browser; then a user trains the page of digits on strokes, and it reads the next one."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium is installed")
    address, received, done = posted
    words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    browser = subprocess.Popen(
        [*words, "--remote-debugging-port=0", f"{address}/browser.html"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert done.wait(SECONDS), f"the page did not end; it sent {list(received)}"
    finally:
        browser.terminate()
        browser.wait(60)
    assert "/failed" not in received, received["/failed"].decode()
    trained = packages / "browser.safetensors"
    trained.write_bytes(received["/trained"])
    check(packages, trained)
    used = json.loads(received["/used"])
    assert used["steps"] == 70 and used["guess"] == "1", used
    assert used["loss"] < 1.0, used
