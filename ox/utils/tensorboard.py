"""`torch.utils.tensorboard`: the writer of tensorboardX, which has the same methods, for tensors of ox."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tensorboardX
from tensorboardX.proto import types_pb2
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

from ox.core.tensor import is_tensor
from ox.errors import ArgumentError, DTypeError

__all__ = ["SummaryWriter"]

__path__: list[str] = []  # older paths lie below
_NAMES = {
    "float32": "FLOAT", "float64": "DOUBLE", "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64",
}  # fmt: skip
_TENSOR_TYPES = {np.dtype(name): getattr(types_pb2, f"DT_{theirs}") for name, theirs in _NAMES.items()}


def _as_numpy(value: Any) -> Any:
    """Tensors as arrays on the host, in types that TensorBoard has; also those in lists, tuples and dicts."""
    if is_tensor(value) or getattr(value, "is_sparse", False):
        dense = value.to_dense() if value.is_sparse else value
        dense = dense.detach().cpu()
        return (dense.float() if dense.is_floating_point() and dense.dtype.itemsize < 4 else dense).numpy()
    if type(value) in (list, tuple):
        return type(value)(map(_as_numpy, value))
    if isinstance(value, dict):
        return {name: _as_numpy(each) for name, each in value.items()}
    return value


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_as_numpy, args), **{name: _as_numpy(value) for name, value in kwargs.items()})

    return call


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]
    """Writes event files for TensorBoard. `torch.utils.tensorboard.SummaryWriter`.

    Every method also takes tensors of any type and device, with or without a history. `add_figure` needs matplotlib,
    `add_video` moviepy, `add_audio` soundfile.
    """

    @property
    def log_dir(self) -> str:
        """The folder of the event files."""
        return str(self.logdir)

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """All elements of a tensor; bfloat16 and float16 as float32."""
        array = np.asarray(_as_numpy(tensor))
        if array.dtype not in _TENSOR_TYPES:
            raise DTypeError("add_tensor has no such element type", got=str(array.dtype), hint="x.float()")
        content = TensorProto(
            dtype=_TENSOR_TYPES[array.dtype],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in array.shape]),
            tensor_content=array.tobytes(),
        )
        about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="tensor"))
        summary = Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=content)])
        self._get_file_writer().add_summary(summary, _as_numpy(global_step), walltime)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
        **kwargs: Any,
    ) -> None:
        """A number, or a tensor of one element. `new_style` and `double_precision` change nothing here."""
        super().add_scalar(tag, _as_numpy(scalar_value), _as_numpy(global_step), walltime, **kwargs)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Hyperparameters and what came of them: numbers, strings, bools, or tensors of one element.

        Args:
            hparam_domain_discrete: accepted for PyTorch's scripts.
            run_name: the folder, within that of the writer; `name` is tensorboardX's word for it.
        """
        numbers = ({key: _number(value) for key, value in each.items()} for each in (hparam_dict, metric_dict))
        super().add_hparams(*numbers, run_name or name, global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The graph of a model: the one that `ox.export.save` writes for these inputs.

        Args:
            input_to_model: a tensor, or a tuple or list of the inputs.
            use_strict_trace: accepted for PyTorch's scripts.

        Raises:
            ArgumentError: there is no input.
            ExportError: the model cannot be exported.
        """
        from ox.export import save

        if input_to_model is None:
            raise ArgumentError("add_graph needs inputs of the model", hint="add_graph(model, x), or (model, (x, y))")
        example = tuple(input_to_model) if isinstance(input_to_model, list) else input_to_model
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            save(model, path, example, golden=False)
            with redirect_stdout(text := io.StringIO()):  # the library prints names of nodes
                self.add_onnx_graph(str(path))
        if verbose:
            print(text.getvalue())


def _number(value: Any) -> Any:
    return value.item() if is_tensor(value) else value


for _name in dir(tensorboardX.SummaryWriter):
    if _name.startswith("add_") and _name not in vars(SummaryWriter):
        setattr(SummaryWriter, _name, _taking_tensors(getattr(tensorboardX.SummaryWriter, _name)))
