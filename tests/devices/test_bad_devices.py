"""Devices that are not there or are too old, and tensors of the host among those of a GPU: one error that says it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import DeviceError, DTypeError, OxError
from ox.installation import install_command

F = nn.functional
pytestmark = pytest.mark.gpu


def here(*shape: int) -> Any:
    return ox.rand(*shape)


def there(*shape: int) -> Any:
    return ox.rand(*shape).cuda()


def with_gradient(parameter: Any, gradient: Any) -> Any:
    parameter = nn.Parameter(parameter)
    parameter.grad = gradient
    return parameter


def add_in_place(x: Any, y: Any) -> None:
    x += y


MIXED: list[tuple[str, Callable[[], Any], type[OxError], str]] = [
    ("operator", lambda: there(3) * here(3), DeviceError, r"Mul got tensors on different devices.*'B' on cpu"),
    ("model on the host", lambda: nn.Linear(3, 4)(there(2, 3)), DeviceError, r"Linear.*to\(\"cuda\"\)"),
    ("batch on the host", lambda: nn.Linear(3, 4).cuda()(here(2, 3)), DeviceError, r"Linear got tensors.*'X' on cpu"),
    ("loss", lambda: F.cross_entropy(there(2, 3), ox.tensor([0, 1])), DeviceError, r"'target' on cpu"),
    ("regression", lambda: F.mse_loss(there(4), here(4)), DeviceError, r"Sub got tensors.*'B' on cpu"),
    ("embedding", lambda: nn.Embedding(5, 3).cuda()(ox.tensor([1, 2])), DeviceError, r"'indices' on cpu"),
    ("in place", lambda: add_in_place(there(3), here(3)), DeviceError, r"Add got tensors"),
    ("in place on the host", lambda: add_in_place(here(3), there(3)), DeviceError, r"'A' on cpu"),
    ("concatenation", lambda: ox.cat([there(2), here(2)]), DeviceError, r"Concat got tensors"),
    ("gradient", lambda: with_gradient(there(3), here(3)), DTypeError, r"type and device.*cuda:0.*float32 on cpu"),
    ("optimizer", lambda: ox.optim.Adam([with_gradient(there(3), here(3))]).step(), DTypeError, r"type and device"),
    ("backward", lambda: there(3).requires_grad_().mul(2).backward(here(3)), DeviceError,
     r"gradient given to backward is on another device.*cuda:0.*cpu.*to\(\"cuda:0\"\)"),
    ("out", lambda: ox.add(there(3), there(3), out=here(3)), DeviceError, r"out= is on another device"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), [case[1:] for case in MIXED], ids=[case[0] for case in MIXED])
def test_tensors_of_both_sides(call: Callable[[], Any], error: type[OxError], says: str) -> None:
    with pytest.raises(error, match="(?s)" + says) as raised:
        call()
    assert "test_bad_devices.py" in str(raised.value)


def test_assignments_copy() -> None:
    for x, value in ((here(2, 3), there(3)), (there(2, 3), here(3))):
        x[0] = value
        x[ox.tensor([1])] = value
        assert np.array_equal(x.cpu().numpy(), np.stack([value.cpu().numpy()] * 2))
        x[ox.tensor([True, False]).to(value.device)] = 0
        assert x[0].cpu().tolist() == [0, 0, 0]


COUNT = 9  # no machine has so many


@pytest.mark.parametrize(
    "call",
    [
        lambda: here(3).to(f"cuda:{COUNT}"),
        lambda: here(3).cuda(COUNT),
        lambda: ox.rand(3, device=f"cuda:{COUNT}"),
        lambda: ox.zeros(3, device=f"cuda:{COUNT}"),
        lambda: nn.Linear(2, 2).to(f"cuda:{COUNT}"),
        lambda: ox.cuda.set_device(COUNT),
        lambda: ox.cuda.device(COUNT).__enter__(),
        lambda: ox.cuda.synchronize(COUNT),
        lambda: ox.cuda.get_device_properties(COUNT),
        lambda: ox.cuda.mem_get_info(f"cuda:{COUNT}"),
    ],
)
def test_a_device_that_is_not_there(call: Callable[[], Any]) -> None:
    with pytest.raises(DeviceError, match=rf"(?s)there is no cuda:{COUNT}.*cuda:0.*CUDA_VISIBLE_DEVICES"):
        call()


def in_a_process(code: str, **variables: str) -> str:
    """What a process prints whose device is another one of host_cuda."""
    if "host_cuda" not in sys.modules:
        pytest.skip("only host_cuda has other devices: the stand-in has no choice of them")
    done = subprocess.run(
        [sys.executable, "-c", "import host_cuda; host_cuda.install()\nimport ox\n" + code],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"HOST_CUDA_STATUS": "35", "HOST_CUDA_DRIVER": "0"}, ["there is no NVIDIA driver", install_command("cuda13")]),
        ({"HOST_CUDA_STATUS": "35", "HOST_CUDA_DRIVER": "12040"},
         ["driver is too old", "a driver for CUDA 13.0", "one for CUDA 12.4", install_command("cuda12")]),
        ({"HOST_CUDA_STATUS": "35", "HOST_CUDA_DRIVER": "11080"}, ["driver is too old", "CUDA 11.8", "a newer driver"]),
        ({"HOST_CUDA_STATUS": "100"}, ["finds no CUDA device", "cudaErrorNoDevice", "CUDA_VISIBLE_DEVICES"]),
    ],
    ids=["no driver", "too old", "far too old", "no device"],
)  # fmt: skip
def test_drivers(variables: dict[str, str], says: list[str]) -> None:
    text = in_a_process("assert not ox.cuda.is_available()\nox.ones(3).to('cuda')", **variables)
    assert "DeviceError" in text
    for part in says:
        assert part in text, text


def test_bfloat16_on_an_older_card() -> None:
    code = """
assert not ox.cuda.is_bf16_supported()
x = ox.ones(2, 2, device="cuda")
print((x.half() @ x.half()).float().sum().item(), (x.bfloat16() + x.bfloat16()).float().sum().item())
for call in (lambda: x.bfloat16() @ x.bfloat16(), lambda: ox.autocast("cuda", ox.bfloat16)):
    try:
        call()
    except ox.errors.DeviceError as error:
        print(error)
"""
    text = in_a_process(code, HOST_CUDA_CAPABILITY="7.5")
    assert text.splitlines()[0] == "8.0 8.0", text
    assert "a product of bfloat16 needs a newer GPU" in text and "ox.autocast('cuda', ox.bfloat16) needs" in text
    assert text.count("compute capability 8.0 or newer") == text.count("7.5 of cuda:0") == 2
