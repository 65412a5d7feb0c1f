"""The paths that PyTorch users type open onto the rooms of ox, and say what is there where there is none."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import ox


@pytest.mark.parametrize(
    "path", ["nn.functional", "nn.utils", "nn.init", "optim.lr_scheduler", "utils.data", "utils.tensorboard", "cuda"]
)
def test_a_door_opens_by_attribute_and_by_import(path: str) -> None:
    thing = ox
    for part in path.split("."):
        thing = getattr(thing, part)
    assert thing is importlib.import_module(f"ox.{path}")


def test_behind_the_door_is_the_room() -> None:
    from ox.utils.data import DataLoader

    assert DataLoader is ox.data.DataLoader


def test_a_closed_door_says_what_is_there() -> None:
    with pytest.raises(AttributeError, match=r"ox\.export\.save"):
        ox.onnx  # noqa: B018
    with pytest.raises(AttributeError, match=r"^module 'ox' has no attribute 'nothing'$"):
        ox.nothing  # noqa: B018


def test_a_device_is_a_string_with_parts() -> None:
    device = ox.device("cuda:1")
    assert device == "cuda:1" and (device.type, device.index) == ("cuda", 1)
    assert ox.device("cuda", 1) == device and ox.device(device) == device
    assert repr(ox.device("cpu")) == "device(type='cpu')"
    assert ox.zeros(2).device == ox.device("cpu") == "cpu"
    assert ox.zeros(2).device.type == "cpu"


@pytest.mark.parametrize("wrong", ["gpu", "cuda:x", "", "cuda:-1"])
def test_other_names_are_no_devices(wrong: str) -> None:
    with pytest.raises(ox.errors.ArgumentError, match="is not a device"):
        ox.device(wrong)


def test_cuda_answers_without_a_gpu() -> None:
    if ox.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert ox.cuda.device_count() == 0
    assert ox.cuda.memory_allocated() == 0
    assert not ox.cuda.is_bf16_supported()
    with pytest.raises(ox.errors.DeviceError):
        ox.cuda.synchronize()
    ox.cuda.manual_seed_all(5)
    first = ox.rand(3)
    ox.manual_seed(5)
    assert np.array_equal(first.array, ox.rand(3).array)


@pytest.mark.gpu
def test_cuda_names_on_a_device() -> None:
    x = ox.ones(1000, device=ox.device("cuda"))
    ox.cuda.synchronize()
    assert x.device.type == "cuda"
    assert ox.cuda.memory_allocated() >= 4000
    assert ox.cuda.get_device_capability() >= (6, 0)
    assert ox.cuda.get_device_name()
    with ox.cuda.device(0):
        assert ox.cuda.current_device() == 0
