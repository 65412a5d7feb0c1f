"""A second GPU in one process: what is computed of its arrays runs there, while the first one is the current device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child_pytest import CUDA_PACKAGES, HERE, environment_with, run

pytestmark = pytest.mark.slow

OPERATORS = [
    "Add",
    "MatMul",
    "Conv",
    "LayerNormalization",
    "Gather",
    "ScatterND",
    "Det",
    "RoiAlign",
    "Attention",
    "LSTM",
]
TRAINING = """
import os
os.environ["HOST_CUDA_DEVICES"] = "2"
import host_cuda; host_cuda.install()
import cupy
import ox
from ox import nn
from ox.errors import DeviceError

losses = {}
for device in ("cuda:0", "cuda:1"):
    ox.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 10), nn.LayerNorm(10), nn.Dropout(0.1)]
    model = nn.Sequential(*layers).to(device)
    optimizer, scaler = ox.optim.AdamW(model.parameters(), lr=1e-2), ox.GradScaler("cuda", init_scale=256.0)
    images, labels = ox.rand(6, 1, 8, 8).to(device), ox.arange(6, device=device)
    for _ in range(3):
        optimizer.zero_grad()
        with ox.autocast("cuda", ox.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    losses[device] = loss.item()
    kept = [p.grad for p in model.parameters()] + [t for state in optimizer.state.values() for t in state.values()]
    assert {x.device for x in kept} == {device}
assert losses["cuda:0"] == losses["cuda:1"] and ox.cuda.current_device() == 0

# a run on the second device, which becomes the current one; the thread that pins batches has it, too
import threading
from ox import train

threads = {}
allocate = cupy.cuda.alloc_pinned_memory
def noting(size):
    threads[threading.current_thread().name[:6]] = cupy.cuda.runtime.getDevice()
    return allocate(size)
cupy.cuda.alloc_pinned_memory = noting
points = ox.rand(32, 3)
network = nn.Linear(3, 2)
trainer = train.Trainer(
    network, nn.CrossEntropyLoss(), None, (points, points[:, 0].gt(0.5).long()), epochs=1, batch_size=8, workers=1,
    device="cuda:1",
)
trainer.fit()
assert trainer.device == "cuda:1" and network.weight.device == "cuda:1" and ox.cuda.current_device() == 1
assert threads["ox-pin"] == 1, threads
cupy.cuda.alloc_pinned_memory = allocate
ox.cuda.set_device(0)
try:
    train.Trainer(network, nn.CrossEntropyLoss(), None, (points, points[:, 0].long()), device="cuda:7")
except DeviceError as error:
    print("trainer:", error)

# parameters of both devices in one optimizer
both = [nn.Parameter(ox.ones(3, device=f"cuda:{i}")) for i in range(2)]
optimizer = ox.optim.Adam(both, lr=0.1)
for p in both:
    (p * p).sum().backward()
optimizer.step()
assert both[0].tolist() == both[1].tolist() and both[1].device == "cuda:1"

# a model on both, with a scaler, clipping and one step that is skipped
def trained(first, second):
    ox.manual_seed(0)
    one, two = nn.Linear(6, 5).to(first), nn.Linear(5, 2).to(second)
    parameters = [*one.parameters(), *two.parameters()]
    optimizer, scaler = ox.optim.AdamW(parameters, lr=0.1), ox.GradScaler(first.partition(":")[0], init_scale=8.0)
    x = ox.arange(24.0).reshape(4, 6).to(first) / 24
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        loss = (two(one(x).to(second)).square() * factor).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, 0.1)
        scaler.step(optimizer)
        scaler.update()
    return [*parameters, norm, ox.tensor(scaler.get_scale())]
for found, wanted in zip(trained("cuda:1", "cuda:0"), trained("cpu", "cpu"), strict=True):
    assert ox.allclose(found.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-6), (found, wanted)

# copies between devices, with gradients
x = ox.rand(4, device="cuda:0").requires_grad_()
y = x.to("cuda:1")
(y * 2).sum().backward()
assert y.device == "cuda:1" and x.grad.device == "cuda:0" and x.grad.tolist() == [2] * 4
z = ox.zeros(2, 4, device="cuda:1")
z[0] = x.detach()
assert z[0].tolist() == x.tolist() and z.device == "cuda:1"
with ox.cuda.device(1):
    assert ox.ones(2, device="cuda").device == "cuda:1" and ox.cuda.current_device() == 1
try:
    x + y
except DeviceError as error:
    print(error)
try:
    x.to("cuda:2")
except DeviceError as error:
    print(error)
# host_cuda notices memory of another device
kernel = cupy.RawModule(code='extern "C" __global__ void f(float* p) { p[0] = 1; }').get_function("f")
try:
    kernel((1,), (1,), (y.detach().array,))
except cupy.cuda.driver.CUDADriverError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """That of a process with host_cuda."""
    found = environment_with(HERE, CUDA_PACKAGES)
    code = "from host_cuda import build; print(build.missing() or '')"
    asked = subprocess.run([sys.executable, "-c", code], env=found, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    return found


@pytest.mark.usefixtures("environment")
def test_operators_run_where_their_arrays_are(tmp_path: Path) -> None:
    chosen = " or ".join(f"test_gradient[{name}]" for name in OPERATORS)
    results = run("on_second_device", ["-m", "gpu", "tests/ops/test_cuda.py", "-k", chosen], tmp_path, timeout=600)
    assert not results.failed, results.output
    assert len(results.passed) >= len(OPERATORS)


def test_calls_with_work_of_their_own(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "second_device_calls.py")],
        env={**environment, "HOST_CUDA_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout.count(" held\n") == 14, done.stdout + done.stderr


@pytest.mark.usefixtures("environment")
def test_served_models(tmp_path: Path) -> None:
    results = run(
        "on_host_cuda",
        ["-m", "gpu", "tests/serve/runtime/test_device_buffers.py", "-k", "test_the_gpus_of_instances"],
        tmp_path,
        timeout=600,
        HOST_CUDA_DEVICES="2",
    )
    assert len(results.passed) == 4, results.output


def test_training_and_copies(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "input 'B' on cuda:1, 'A' on cuda:0" in done.stdout
    assert "there is no cuda:2" in done.stdout and "cuda:0 to cuda:1" in done.stdout
    assert "trainer: there is no cuda:7" in done.stdout
    assert "memory of another device was touched" in done.stdout, done.stdout
