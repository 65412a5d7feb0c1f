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
    assert not hasattr(ox, "hub")


@pytest.mark.parametrize(
    "line, answer",
    [
        ("from ox.nn.parallel import DataParallel", "DistributedDataParallel"),
        ("from ox.nn import DataParallel", "DistributedDataParallel"),
        ("import ox.hub", r"ox\.export\.load"),
    ],
)
def test_a_closed_door_says_so_to_an_import_too(line: str, answer: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=answer):
        exec(line)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'ox\.nothing'$"):
        import ox.nothing  # noqa: F401


def test_switches_may_be_set() -> None:
    import ox.backends.cudnn as cudnn

    before = cudnn.benchmark
    ox.backends.cudnn.benchmark = True
    assert cudnn.benchmark is True
    cudnn.benchmark = before
    assert not ox.backends.mps.is_available()
    ox.backends.cuda.matmul.allow_tf32 = False
    ox.set_float32_matmul_precision("high")
    assert ox.get_float32_matmul_precision() == "highest"


def test_the_files_that_older_scripts_name() -> None:
    from ox.nn.modules.batchnorm import _BatchNorm
    from ox.nn.modules.conv import Conv2d
    from ox.nn.modules.loss import _Loss

    from ox.autograd import Variable
    from ox.nn.modules.utils import _pair, _triple
    from ox.optim.lr_scheduler import _LRScheduler
    from ox.utils.data.dataloader import default_collate
    from ox.utils.data.dataset import random_split
    from ox.utils.data.sampler import SubsetRandomSampler

    assert Conv2d is ox.nn.Conv2d and isinstance(ox.nn.BatchNorm2d(2), _BatchNorm)
    assert isinstance(ox.nn.MSELoss(), _Loss) and _LRScheduler is ox.optim.lr_scheduler.LRScheduler
    assert (default_collate, random_split, SubsetRandomSampler) == (
        ox.data.default_collate, ox.data.random_split, ox.data.SubsetRandomSampler,
    )  # fmt: skip
    assert _pair(3) == (3, 3) and _triple((1, 2, 3)) == (1, 2, 3)
    assert Variable(ox.ones(2), requires_grad=True).requires_grad and isinstance(ox.ones(2), Variable)
    assert ox.utils.data.get_worker_info() is None
    assert ox.vmap is ox.func.vmap


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


def test_the_bases_that_people_ask_for() -> None:
    from ox.nn.modules.batchnorm import _BatchNorm
    from ox.nn.modules.conv import _ConvNd
    from ox.nn.modules.dropout import _DropoutNd

    nn = ox.nn
    for base, kinds in {
        _ConvNd: (nn.Conv1d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1)),
        _BatchNorm: (nn.BatchNorm2d(1), nn.BatchNorm3d(1)),
        _DropoutNd: (nn.Dropout(0.1), nn.Dropout2d(0.1)),
    }.items():
        assert all(isinstance(module, base) for module in kinds)
        assert not isinstance(nn.Linear(1, 1), base)
