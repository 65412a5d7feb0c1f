"""Where PyTorch calls a method that subclasses replace, ox calls it, too: of every class, every method."""

from __future__ import annotations

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
