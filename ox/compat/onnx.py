"""`torch.onnx`: `export` calls `ox.export.save`, which verifies the file before it appears."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ox.core.lazy import lazy_modules
from ox.core.mode import MODE
from ox.core.warn_once import no_effect
from ox.errors import ArgumentError
from ox.export import Report, save
from ox.export.example_inputs import argument_names
from ox.graph.writer.opset import LOWEST, LOWEST_ALLOWED
from ox.nn.base.module import Module

__all__ = ["OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export", "select_model_mode_for_export"]

# PyTorch's arguments that choose how it traces and writes: one way is enough, and it checks the file itself
_WITHOUT_EFFECT = {
    "artifacts_dir", "autograd_inlining", "custom_opsets", "do_constant_folding", "dump_exported_program", "dynamo",
    "export_params", "fallback", "keep_initializers_as_inputs", "operator_export_type", "optimize", "profile",
    "report", "verbose", "verify",
}  # fmt: skip


class TrainingMode(enum.Enum):
    """Models are written in eval mode. `torch.onnx.TrainingMode`."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """Files hold standard operators. `torch.onnx.OperatorExportTypes`."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def export(
    model: Module,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    dynamic_shapes: Any = None,
    training: TrainingMode = TrainingMode.EVAL,
    external_data: bool = True,
    **options: Any,
) -> Report:
    """Write a model as an ONNX file. `torch.onnx.export`, by way of `ox.export.save`.

    Args:
        model: the module; it is recorded in eval mode.
        args: an example of its inputs: a tensor, or a tuple of them.
        f: the file.
        kwargs: further inputs, by name.
        input_names, output_names: names of the file's inputs and outputs; the arguments of `forward`, and ``output``.
        opset_version: the opset. Where none so old is written it is chosen as if none were named, with a warning.
        dynamic_axes: for an input's name, its dimensions that may vary: ``{0: "batch"}`` or ``[0]``. As in PyTorch,
            every other one is fixed. Those of outputs follow by themselves.
        dynamic_shapes: the same as `torch.export.export` spells it.
        **options: PyTorch's others, which have no effect here.

    Raises:
        ArgumentError: no file, a mode of training, a name or a dimension that the inputs have not, or
            an argument that PyTorch has not.
        ExportError: the model cannot be recorded, written or proven.
    """
    if f is None:
        raise ArgumentError("an export needs a file", hint="f='model.onnx'")
    if unknown := sorted(set(options) - _WITHOUT_EFFECT):
        raise ArgumentError(f"ox.onnx.export has no argument {unknown[0]}", hint="ox.export.save")
    if training not in (TrainingMode.EVAL, False, None):
        raise ArgumentError("models are written in eval mode", got=str(training), hint="without training=")
    example, keywords = _example(args, kwargs)
    own = list(keywords) if keywords else argument_names(model, len(example))
    names = [*(input_names or ()), *own[len(input_names or ()) :]]
    if len(names) > len(example):
        raise ArgumentError("there are more names than inputs", expected=str(own), got=str(names))
    if dynamic_shapes is None and dynamic_axes is None:
        dynamic_axes = {}
    values = dict(zip(keywords, example, strict=True)) if keywords else tuple(example)
    return save(
        model,
        f,
        values,
        input_names=names,
        output_names=output_names,
        dynamic_axes=dynamic_axes,
        dynamic_shapes=dynamic_shapes,
        opset=_opset(opset_version),
    )


def _example(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[list[Any], list[str]]:
    """The inputs, and their names where they are given by name; a dict at the end of `args` gives names, too."""
    values = list(args) if isinstance(args, tuple | list) else [args]
    if values and isinstance(values[-1], Mapping):
        kwargs = {**values.pop(), **(kwargs or {})}
    if kwargs and values:
        raise ArgumentError("inputs are given by position or by name, not both", hint="all of them in kwargs=")
    return (list(kwargs.values()), list(kwargs)) if kwargs else (values, [])


def _opset(version: int | None) -> int | None:
    """The opset that is asked for, or None, with a word about it, where none so old is written."""
    if version is None or version >= LOWEST_ALLOWED:
        return version
    no_effect(f"opset_version={version}", f"none below {LOWEST_ALLOWED} is written; the file has {LOWEST} or newer")
    return None


def is_in_onnx_export() -> bool:
    """Whether a call is being recorded for a file now. `torch.onnx.is_in_onnx_export`."""
    return MODE.get().recording is not None


@contextlib.contextmanager
def select_model_mode_for_export(model: Module, mode: Any) -> Iterator[None]:
    """A block in which nothing differs: a recording is in eval mode by itself."""
    no_effect("ox.onnx.select_model_mode_for_export", "a recording is in eval mode")
    yield


__getattr__, __dir__ = lazy_modules(__name__)
