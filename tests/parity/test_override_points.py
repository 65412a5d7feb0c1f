"""Where PyTorch calls a method that subclasses replace, ox calls it, too: of every class, every method."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

from override_points import counted, override_points  # noqa: E402

# PyTorch's own machinery, which no subclass can mean to replace: compilers, memory formats, warnings, fast paths
MACHINERY = {
    "_slow_forward": "for torch.jit.trace",
    "_get_backward_hooks": "how hooks are kept",
    "_get_backward_pre_hooks": "how hooks are kept",
    "_maybe_warn_non_full_backward_hook": "a warning about a deprecated hook",
    "compile": "for torch.compile",
    "_get_abs_string_index": "how a list finds an item; __getitem__ and its like are called",
    "_key_to_attr": "how a dict finds an item",
    "_get_item_by_idx": "how a Sequential finds an item",
    "_require_tuple_int": "a check of arguments",
    "_require_tuple_tuple": "a check of arguments",
    "flatten_parameters": "how cuDNN's weights are kept",
    "_init_flat_weights": "how cuDNN's weights are kept",
    "_update_flat_weights": "how cuDNN's weights are kept",
    "_weights_have_changed": "how cuDNN's weights are kept",
    "_lazy_load_hook": "UninitializedParameter takes its shape from a loaded state by itself",
    "_infer_parameters": "initialize_parameters is called",
    "_get_in_channels": "initialize_parameters is called",
    "_get_num_spatial_dims": "initialize_parameters is called",
    "_check_non_zero_input_channels": "of the kernel that ox has not",
    "get_extra_state": "there only where a subclass defines it: test_module_state",
    "set_extra_state": "there only where a subclass defines it: test_module_state",
}
# name of the class -> arguments, and shapes of what forward takes
IMAGE, SIGNAL, VOLUME, ROWS = (2, 4, 6, 6), (2, 4, 8), (2, 4, 6, 6, 6), (3, 4)
RANKS = {"1d": SIGNAL, "2d": IMAGE, "3d": VOLUME}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Linear": (4, 2), "LazyLinear": (2,), "LayerNorm": (4,), "RMSNorm": (4,), "GroupNorm": (2, 4), "Softmax": (-1,),
    "LogSoftmax": (-1,), "Softmin": (-1,), "Threshold": (0.1, 2.0), "LocalResponseNorm": (2,), "CrossMapLRN2d": (3,),
    "Unflatten": (1, (2, 2)), "ChannelShuffle": (2,), "PixelShuffle": (2,), "PixelUnshuffle": (2,),
    "Unfold": (2,), "Upsample": (None, 2.0), "UpsamplingNearest2d": (None, 2.0), "UpsamplingBilinear2d": (None, 2.0),
    "RNN": (4, 3), "LSTM": (4, 3), "GRU": (4, 3), "RNNCell": (4, 3), "LSTMCell": (4, 3), "GRUCell": (4, 3),
    "TransformerEncoderLayer": (4, 2, 8), "TransformerDecoderLayer": (4, 2, 8), "MultiheadAttention": (4, 2),
    "Bilinear": (4, 4, 2),
}  # fmt: skip
BY_ENDING: dict[str, tuple[Any, ...]] = {
    "BatchNorm": (4,), "InstanceNorm": (4,), "LazyConv": (2, 3), "LazyConvTranspose": (2, 3), "Conv": (4, 2, 3),
    "ConvTranspose": (4, 2, 3), "MaxPool": (2,), "AvgPool": (2,), "LPPool": (2, 2), "AdaptiveAvgPool": (2,),
    "AdaptiveMaxPool": (2,), "ZeroPad": (1,), "ConstantPad": (1, 0.5), "ReflectionPad": (1,), "ReplicationPad": (1,),
    "CircularPad": (1,),
}  # fmt: skip
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "PixelShuffle": [IMAGE], "PixelUnshuffle": [IMAGE], "ChannelShuffle": [IMAGE], "Unfold": [IMAGE],
    "Upsample": [IMAGE], "UpsamplingNearest2d": [IMAGE], "UpsamplingBilinear2d": [IMAGE],
    "Softmax2d": [IMAGE], "LocalResponseNorm": [IMAGE],
    "CrossMapLRN2d": [IMAGE], "RNN": [(5, 2, 4)], "LSTM": [(5, 2, 4)], "GRU": [(5, 2, 4)],
    "TransformerEncoderLayer": [(5, 2, 4)], "TransformerDecoderLayer": [(5, 2, 4), (6, 2, 4)],
    "MultiheadAttention": [(5, 2, 4)] * 3, "Bilinear": [ROWS, ROWS], "CosineSimilarity": [ROWS, ROWS],
    "PairwiseDistance": [ROWS, ROWS], "GLU": [ROWS], "CosineEmbeddingLoss": [ROWS, ROWS, (3,)],
    "MarginRankingLoss": [ROWS, ROWS, ROWS], "TripletMarginLoss": [ROWS] * 3,
    "TripletMarginWithDistanceLoss": [ROWS] * 3, "GaussianNLLLoss": [ROWS] * 3,
}  # fmt: skip
# forward wants indices, other modules or more than tensors of numbers: below, or without a method of their own
APART = {
    "Module", "Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "Container", "DataParallel",
    "LinearCrossEntropyOptions", "LinearCrossEntropyLoss", "ModuleList", "ModuleDict", "ParameterList",
    "ParameterDict", "Sequential", "RNNBase", "RNNCellBase", "Transformer", "TransformerEncoder", "TransformerDecoder",
    "CTCLoss", "NLLLoss", "NLLLoss2d", "CrossEntropyLoss", "MultiMarginLoss", "MultiLabelMarginLoss", "Embedding",
    "EmbeddingBag", "AdaptiveLogSoftmaxWithLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Fold",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "SyncBatchNorm", "AdaptiveAvgPool", "Conv",
}  # fmt: skip
NAMES = sorted(
    name
    for name, cls in vars(torch.nn).items()
    if inspect.isclass(cls) and issubclass(cls, torch.nn.Module) and hasattr(ox.nn, name) and name not in APART
)


def arguments(name: str) -> tuple[Any, ...]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    stem = name[:-2] if name[-2:] in RANKS else name
    found = BY_ENDING.get(stem, BY_ENDING.get(stem.removeprefix("Lazy"), ()))
    return found[1:] if stem in ("LazyBatchNorm", "LazyInstanceNorm") else found


def inputs(T: Any, name: str) -> list[Any]:
    usual = RANKS.get(name[-2:], ROWS)
    shapes = SHAPES.get(name) or ([usual, usual] if name.endswith("Loss") else [usual])
    return [T.tensor(np.full(shape, 0.5, np.float32)) for shape in shapes]


def use(T: Any, module: Any, args: list[Any]) -> None:
    """All that a script does with a module."""
    module(*args)
    outer = T.nn.Sequential(T.nn.Sequential(module))
    outer.eval()
    with T.enable_grad():  # where nothing is to be differentiated PyTorch has faster ways around the methods
        module(*args)
    outer.train()
    outer.load_state_dict(outer.state_dict())
    outer.double().float()
    outer.to(T.float64)
    outer.requires_grad_(False).requires_grad_(True)
    outer.zero_grad()
    outer.apply(lambda m: None)
    assert len(list(outer.named_parameters())) == len(list(outer.parameters()))
    assert len(list(outer.named_buffers())) == len(list(outer.buffers()))
    assert list(outer.named_modules())
    module._register_load_state_dict_pre_hook(lambda *a: None)
    module.register_load_state_dict_pre_hook(lambda *a: None)
    repr(outer)


def called_by(T: Any, cls: type, points: set[str], args: tuple[Any, ...], drive: Callable[[Any], None]) -> set[str]:
    called: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drive(counted(cls, points, called)(*args))
    return called


def compare(theirs: type, ours: type, args: tuple[Any, ...], drive: Callable[[Any, Any], None]) -> None:
    points = override_points(theirs) - set(MACHINERY)
    if theirs.__name__.startswith("Lazy"):
        points -= {"_register_load_state_dict_pre_hook", "reset_running_stats"}  # how PyTorch's are built
    expected = called_by(torch, theirs, points, args, lambda m: drive(torch, m))
    found = called_by(ox, ours, points, args, lambda m: drive(ox, m))
    assert expected
    assert not expected - found, f"{theirs.__name__}: {sorted(expected - found)} are called in PyTorch alone"


@pytest.mark.parametrize("name", NAMES)
def test_modules(name: str) -> None:
    args = arguments(name)

    def drive(T: Any, module: Any) -> None:
        use(T, module, inputs(T, name))

    compare(getattr(torch.nn, name), getattr(ox.nn, name), args, drive)


# -- optimizers and schedulers -----------------------------------------------------------------------------------------

OF_OPTIMIZERS = {
    "_init_group": "refused where step is not replaced, too: tests/optim/test_override_points.py",
    "_patch_step_function": "how hooks around a step are kept",
    "profile_hook_step": "how hooks around a step are kept",
    "_optimizer_step_code": "for profilers",
    "_accelerator_graph_capture_health_check": "nothing is to be checked",
    "_cuda_graph_capture_health_check": "nothing is to be checked",
    "_zero_grad_profile_name": "for profilers",
    **dict.fromkeys(
        ("_numel", "_add_grad", "_gather_flat_grad", "_set_param", "_clone_param"), "parts of LBFGS's step"
    ),
    "_directional_evaluate": "a part of LBFGS's step",
}
OF_SCHEDULERS = {
    **dict.fromkeys(("_init_scale_fn", "_triangular_scale_fn", "_triangular2_scale_fn"), "parts of CyclicLR.scale_fn"),
    "_exp_range_scale_fn": "a part of CyclicLR.scale_fn",
    **dict.fromkeys(("_anneal_func", "_annealing_cos", "_annealing_linear"), "parts of OneCycleLR.get_lr"),
    "_init_is_better": "a check of arguments",
    "recursive_undo": "how SequentialLR begins",
}


def parameters(T: Any) -> list[Any]:
    return [T.nn.Parameter(T.ones(3, 2)), T.nn.Parameter(T.ones(2, 2))]


def used_optimizer(T: Any, cls: type, called: set[str], points: set[str]) -> None:
    own = parameters(T)
    optimizer = counted(cls, points, called)(own, lr=0.1)
    optimizer.add_param_group({"params": [T.nn.Parameter(T.ones(1, 2))]})

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((p * p).sum() for p in own)
        loss.backward()
        return loss

    if cls.__name__ == "SparseAdam":
        optimizer.step()
    else:
        optimizer.step(closure)
    optimizer.load_state_dict(optimizer.state_dict())
    repr(optimizer)


OPTIMIZERS = sorted(
    n for n, c in vars(torch.optim).items() if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer)
)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n not in ("Optimizer", "LBFGS")])
def test_optimizers(name: str) -> None:
    theirs = getattr(torch.optim, name)
    points = override_points(theirs) - set(OF_OPTIMIZERS)
    found: list[set[str]] = [set(), set()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for T, called in zip((torch, ox), found, strict=True):
            used_optimizer(T, getattr(T.optim, name), called, points)
    assert found[0] and not found[0] - found[1], sorted(found[0] - found[1])


PLANS: dict[str, tuple[Any, ...]] = {
    "StepLR": (2,), "MultiStepLR": ([1, 2],), "ConstantLR": (), "LinearLR": (), "ExponentialLR": (0.9,),
    "PolynomialLR": (4,), "CosineAnnealingLR": (4,), "CosineAnnealingWarmRestarts": (2,), "CyclicLR": (0.01, 0.1),
    "OneCycleLR": (0.1, 10), "LambdaLR": (lambda epoch: 0.9**epoch,), "MultiplicativeLR": (lambda epoch: 0.9,),
    "ReduceLROnPlateau": ("min", 0.5, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_schedulers(name: str) -> None:
    theirs = getattr(torch.optim.lr_scheduler, name)
    points = override_points(theirs) - set(OF_SCHEDULERS)
    found: list[set[str]] = [set(), set()]
    for T, called in zip((torch, ox), found, strict=True):
        optimizer = T.optim.SGD(parameters(T), lr=0.1, momentum=0.9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = counted(getattr(T.optim.lr_scheduler, name), points, called)(optimizer, *PLANS[name])
            for _ in range(3):
                optimizer.step()
                made.step(1.0) if name == "ReduceLROnPlateau" else made.step()
            if name not in ("ReduceLROnPlateau", "OneCycleLR"):
                made.step(1)
            made.load_state_dict(made.state_dict())
            made.get_last_lr()
    assert found[0] and not found[0] - found[1], sorted(found[0] - found[1])


# -- which class is which ----------------------------------------------------------------------------------------------

# a lazy norm becomes the class itself at its first call, and is one here before that
LAZY = {
    (f"Lazy{kind}{rank}d", f"{kind}{rank}d") for kind in ("BatchNorm", "InstanceNorm") for rank in (1, 2, 3)
} | {("UninitializedBuffer", "Buffer")}  # fmt: skip
# written in formulas of their own, not as a base and a transform
WRITTEN_OUT = {(name, "TransformedDistribution") for name in ("InverseGamma", "LogNormal")}


@pytest.mark.parametrize("space", ["nn", "optim", "optim.lr_scheduler", "utils.data", "distributions"])
def test_subclasses_of_each_other(space: str) -> None:
    """What a script finds with `isinstance(module, nn.ReLU)` is the same in both."""
    theirs, ours = (importlib.import_module(f"{library}.{space}") for library in ("torch", "ox"))
    pairs = {
        name: (cls, getattr(ours, name))
        for name, cls in vars(theirs).items()
        if inspect.isclass(cls) and cls.__module__.startswith("torch") and inspect.isclass(getattr(ours, name, None))
        if not name.startswith("_")
    }
    assert len(pairs) > 8
    wrong = [
        (a, b)
        for a, (their_a, our_a) in pairs.items()
        for b, (their_b, our_b) in pairs.items()
        if issubclass(their_a, their_b) != issubclass(our_a, our_b) and (a, b) not in LAZY | WRITTEN_OUT
    ]
    assert not wrong
