"""CUDA arrays: what is said without a GPU, and with one that arrays go there and come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ox import devices
from ox.devices import cuda, cuda_state
from ox.errors import ArgumentError, DeviceError
from ox.installation import install_command
from ox.tensors.tensor import make_tensor


def test_without_a_gpu_the_error_says_what_to_install() -> None:
    if cuda.available():
        pytest.skip("there is a GPU here")
    with pytest.raises(DeviceError) as raised:
        cuda.to_device(np.ones(2))
    hint = raised.value.hint or ""
    assert ("a driver of version" if "finds no" in raised.value.what else install_command("cuda13")) in hint
    assert cuda.device_count() == 0
    assert not cuda_state.in_use
    with pytest.raises(DeviceError):
        make_tensor(np.ones(2)).to("cuda")


@pytest.mark.parametrize("name", ["cpu", "cuda:x", "tpu"])
def test_names_that_are_no_cuda_device(name: str) -> None:
    with pytest.raises(ArgumentError, match="is not a device"):
        cuda.ordinal(name)


@pytest.mark.gpu
def test_there_and_back() -> None:
    x = np.arange(6, dtype="f").reshape(2, 3)
    there = make_tensor(x).to("cuda")
    assert cuda_state.in_use
    assert there.device.startswith("cuda:")
    assert np.array_equal((there + there).cpu().numpy(), x + x)
    cuda.synchronize()


OPTUNA = """
try:
    import something_that_is_not_installed
except ImportError as error:
    kept = error  # and with it the frames of all that called
"""
FIRST_WRITE = """
import gc, weakref
import ox

class Model:
    pass

def first():
    model = Model()
    x = ox.zeros(3).to("cuda")
    x.scatter_add(0, ox.tensor([1]).to("cuda"), ox.ones(1).to("cuda")).cpu()
    return weakref.ref(model)

gone = first()
gc.collect()
import optuna
assert optuna.kept and gone() is None
"""


@pytest.mark.gpu
def test_imports_of_cupy_keep_nothing_of_their_callers(tmp_path: Path) -> None:
    """`ox.compile` would leave a step eager whose tensors somebody keeps."""
    if "strict_numpy" in sys.modules:
        pytest.skip("the stand-in has no parts that import Optuna")
    (tmp_path / "optuna.py").write_text(OPTUNA)
    stand_in = "import host_cuda; host_cuda.install()" if "host_cuda" in sys.modules else ""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", stand_in + FIRST_WRITE],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert not done.returncode, done.stderr


@pytest.mark.gpu
def test_tensors_of_two_devices_do_not_meet() -> None:
    x = make_tensor(np.ones(3, "f"))
    with pytest.raises(DeviceError, match="different devices"):
        x.to("cuda") + x


@pytest.mark.gpu
def test_what_a_device_is() -> None:
    assert cuda.available() and cuda.device_count() >= 1 and cuda.device_name(0)
    major, minor = cuda.capability(0)
    assert (major, minor) >= (5, 0) and cuda.cupy().cuda.Device(0).compute_capability == f"{major}{minor}"
    one, two = (make_tensor(np.ones(n)).to("cuda") for n in (1, 2))
    assert one.device == "cuda:0" and one.device is two.device


@pytest.mark.gpu
def test_memory_comes_back() -> None:
    before = cuda.memory().used
    big = cuda.to_device(np.ones(1 << 20, "f"))
    assert cuda.memory().used >= before + (4 << 20)
    del big
    cuda.empty_cache()
    assert cuda.memory().used <= before
    with cuda.stream():
        cuda.to_device(np.ones(3))
    cuda.synchronize()


@pytest.mark.gpu
def test_a_forced_cpu_executor_refuses_cuda() -> None:
    x = make_tensor(np.ones(3, "f")).to("cuda")
    with devices.forced("numpy"), pytest.raises(DeviceError, match="forced"):
        x + x
