"""The paths that PyTorch users type open onto the rooms of ox, and say what is there where there is none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from rows import rows

import ox
from ox.core import legacy_paths


@rows("path", ["nn.functional", "nn.utils", "nn.init", "optim.lr_scheduler", "utils.data", "utils.tensorboard", "cuda"])
def test_a_door_opens_by_attribute_and_by_import(path: str) -> None:
    thing = ox
    for part in path.split("."):
        thing = getattr(thing, part)
    assert thing is importlib.import_module(f"ox.{path}")


def test_behind_the_door_is_the_room() -> None:
    from ox.utils.data import DataLoader

    assert DataLoader is ox.data.DataLoader


def test_a_closed_door_says_what_is_there() -> None:
    with pytest.raises(AttributeError, match=r"ox\.export\.quantize"):
        ox.quantization  # noqa: B018
    with pytest.raises(AttributeError, match=r"^module 'ox' has no attribute 'nothing'$"):
        ox.nothing  # noqa: B018
    assert not hasattr(ox, "nested")


@pytest.mark.parametrize(
    "line, answer",
    [
        ("from ox.nn.parallel import replicate", "DistributedDataParallel"),
        ("import ox.distributed.fsdp", "DistributedDataParallel"),
        ("from ox.cuda import CUDAGraph", r"ox\.export\.save"),
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


def test_the_precision_of_products_has_two_names() -> None:
    assert ox.get_float32_matmul_precision() == "highest"
    try:
        ox.set_float32_matmul_precision("medium")
        assert ox.get_float32_matmul_precision() == "medium" and ox.backends.cuda.matmul.allow_tf32
        ox.backends.cuda.matmul.allow_tf32 = False
        assert ox.get_float32_matmul_precision() == "highest"
        ox.backends.cuda.matmul.fp32_precision = "tf32"
        assert ox.get_float32_matmul_precision() == "high"
        with pytest.raises(ox.errors.ArgumentError, match="no such precision"):
            ox.set_float32_matmul_precision("low")
    finally:
        ox.set_float32_matmul_precision("highest")


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


@rows(
    ("older", "newer"),
    [*legacy_paths.PATHS.items()],
)
def test_older_paths_give_the_module(older: str, newer: str) -> None:
    module = importlib.import_module(older)
    assert module is importlib.import_module(newer) and module.__name__ == newer
    assert module.__spec__ is not None and module.__spec__.name == newer
    thing = ox
    for part in older.split(".")[1:]:
        thing = getattr(thing, part)
    assert thing is module


@rows(("older", "newer"), [*legacy_paths.MOVED.items()])
def test_a_moved_module_has_its_path_before_the_move(older: str, newer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one warning, which names the path of now and the line of the import."""
    monkeypatch.delitem(sys.modules, older, raising=False)
    with pytest.warns(DeprecationWarning, match=f"^{older} has moved: import {newer}$") as caught:
        __import__(older)
    module = sys.modules[older]
    assert [each.filename for each in caught] == [__file__]
    assert module is importlib.import_module(newer) is importlib.import_module(older) and module.__name__ == newer
    assert module.__spec__ is not None and module.__spec__.name == newer


def test_switches_of_other_machines_answer() -> None:
    assert not (ox.xpu.is_available() or ox.mps.is_available() or ox.backends.mkldnn.is_available())
    assert not ox.backends.cuda.flash_sdp_enabled() and ox.backends.cuda.math_sdp_enabled()
    with ox.backends.cudnn.flags(enabled=False), ox.backends.cuda.sdp_kernel(enable_flash=False):
        ox.backends.cuda.enable_flash_sdp(False)
    with ox.nn.attention.sdpa_kernel([ox.nn.attention.SDPBackend.MATH]):
        pass
    ox.backends.opt_einsum.strategy = "greedy"
    x = ox.ones(2)
    assert not any((x.is_xpu, x.is_mps, x.is_meta, x.is_mkldnn, x.is_vulkan, x.is_ipu, x.is_sparse_csr, x.is_quantized))
    assert x.layout == ox.strided and isinstance(x.layout, ox.layout)


def test_dtypes_as_scripts_use_them() -> None:
    x = ox.ones(2)
    assert x.dtype in (ox.float16, ox.float32) and {ox.float32: 1}[x.dtype] == 1 and x.dtype == ox.float
    assert isinstance(x.dtype, ox.dtype) and getattr(ox, "float32") is ox.float32  # noqa: B009
    assert str(x.dtype).split(".")[-1] == "float32" and x.dtype.itemsize == 4
    assert x.is_floating_point() and not ox.is_floating_point(x.long()) and x.type() == "torch.FloatTensor"


def test_numbers_of_versions() -> None:
    assert ox.version.torch.startswith("2.") and ox.version.__version__ == ox.__version__
    assert ox.version.debug is False and ox.version.hip is None


def test_the_default_type_by_a_tensors_name() -> None:
    try:
        ox.set_default_tensor_type("torch.DoubleTensor")
        assert ox.get_default_dtype() == ox.float64
        ox.set_default_tensor_type(ox.FloatTensor)
        assert ox.get_default_dtype() == ox.float32
        with pytest.raises(ox.errors.DTypeError):
            ox.set_default_tensor_type(ox.LongTensor)
        with pytest.raises(ox.errors.ArgumentError, match="the default device is always the CPU"):
            ox.set_default_tensor_type("torch.cuda.FloatTensor")
        with pytest.raises(ox.errors.ArgumentError, match="is no type of tensor"):
            ox.set_default_tensor_type("torch.NothingTensor")
    finally:
        ox.set_default_dtype(ox.float32)


def test_marks_of_scripts_for_the_serializer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ox import serialization
    from ox.core import warn_once

    monkeypatch.setattr(warn_once, "_warned", set())
    with pytest.warns(UserWarning, match="add_safe_globals changes nothing"):
        serialization.add_safe_globals([dict])
    assert serialization.get_safe_globals() == [] and serialization.load is ox.load
    with pytest.warns(UserWarning), serialization.safe_globals([dict]):
        pass


def test_trees() -> None:
    from ox.utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

    tree = {"a": [1, (2, 3)], "b": 4}
    leaves, spec = tree_flatten(tree)
    assert leaves == [1, 2, 3, 4] and tree_unflatten([x * 2 for x in leaves], spec) == tree_map(lambda x: x * 2, tree)
    assert tree_map_only(str, len, ["ab", 1]) == [2, 1]


def test_many_tensors_as_one() -> None:
    from ox._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    tensors = [ox.rand(2, 3), ox.rand(4), ox.rand(1, 1)]
    flat = _flatten_dense_tensors(tensors)
    assert flat.shape == (11,)
    for part, x in zip(_unflatten_dense_tensors(flat, tensors), tensors, strict=True):
        assert part.shape == x.shape and bool((part == x).all())


def test_names_of_old_optimizers_and_layers() -> None:
    from ox.nn.modules.utils import _reverse_repeat_tuple, _single
    from ox.optim.optimizer import Optimizer, required

    assert repr(required) == "<required parameter>" and Optimizer is ox.optim.Optimizer
    assert _reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1) and _single(2) == (2,)
    with pytest.warns(FutureWarning, match=r"nn\.init\.constant is now nn\.init\.constant_"):
        assert ox.nn.init.constant(ox.zeros(2), 3).tolist() == [3, 3]
    with pytest.raises(AttributeError):
        ox.nn.init.nothing  # noqa: B018


def test_functions_are_overridden_by_nothing() -> None:
    from ox.overrides import handle_torch_function, has_torch_function, is_tensor_like

    x = ox.ones(2)
    assert not has_torch_function((x,)) and not ox.nn.functional.has_torch_function_unary(x)
    assert handle_torch_function(ox.add, (x,), x, 1).tolist() == [2, 2] and is_tensor_like(x)


def test_a_device_is_a_string_with_parts() -> None:
    device = ox.device("cuda:1")
    assert device == "cuda:1" and (device.type, device.index) == ("cuda", 1)
    assert ox.device("cuda", 1) == device and ox.device(device) == device
    assert repr(ox.device("cpu")) == "device(type='cpu')"
    assert ox.zeros(2).device == ox.device("cpu") == "cpu"
    assert ox.zeros(2).device.type == "cpu"


@rows("wrong", ["gpu", "cuda:x", "", "cuda:-1"])
def test_other_names_are_no_devices(wrong: str) -> None:
    with pytest.raises(ox.errors.ArgumentError, match="is not a device"):
        ox.device(wrong)


def test_cuda_answers_without_a_gpu() -> None:
    if ox.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert ox.cuda.max_memory_allocated() == ox.cuda.memory_reserved() == ox.accelerator.memory_allocated() == 0
    ox.cuda.reset_peak_memory_stats()
    ox.cuda.ipc_collect()
    assert ox.cuda.get_rng_state_all() == [] and not ox.cuda.is_current_stream_capturing()
    ox.cuda.set_rng_state_all([])
    assert ox.cuda.get_arch_list() == [] and issubclass(ox.cuda.OutOfMemoryError, RuntimeError)
    with ox.cuda.stream(None), ox.cuda.nvtx.range("step {}", 3):
        ox.cuda.nvtx.range_push("forward")
        ox.cuda.nvtx.mark("here")
        ox.cuda.nvtx.range_pop()
    assert not ox.accelerator.is_available() and ox.accelerator.current_accelerator() is None
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
    properties = ox.cuda.get_device_properties(0)  # PyTorch's names
    assert properties.name == ox.cuda.get_device_name() and properties.warp_size == 32
    assert properties.total_memory == ox.cuda.mem_get_info()[1] and properties.multi_processor_count > 0
    assert (properties.major, properties.minor) == ox.cuda.get_device_capability()
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


def test_classes_of_data_take_types_in_brackets() -> None:
    from ox.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Sampler, Subset

    class Pairs(Dataset[tuple[ox.Tensor, int]]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> tuple[ox.Tensor, int]:
            return ox.ones(1) * index, index

    class Backwards(Sampler[int]):
        def __iter__(self) -> object:
            return iter([1, 0])

    loader: DataLoader[ox.Tensor] = DataLoader(Pairs(), sampler=Backwards())
    assert [int(i) for _, i in loader] == [1, 0] and isinstance(Pairs(), Dataset)
    assert all(kind[int].__origin__ is kind for kind in (ConcatDataset, IterableDataset, Subset, DataLoader))


@pytest.mark.parametrize(
    ("package", "name", "told"),
    [
        ("ox", "lobpcg", "not yet written with ONNX operators"),
        ("ox.linalg", "eig", "do not support complex numbers"),
        ("ox.distributed", "init_device_mesh", "dir(ox.distributed)"),
    ],
)
def test_what_is_left_out_says_why_when_it_is_imported(package: str, name: str, told: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import {name}", {})
    assert told in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import anything_else_", {})
    assert "anything_else_" in str(caught.value)
