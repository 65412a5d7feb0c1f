"""`torch.nn.DataParallel`: on one device, the module as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.core.warn_once import no_effect
from ox.devices import cuda
from ox.nn.base.module import Module

_SEVERAL = "one device computes; for several, nn.parallel.DistributedDataParallel and ox launch --nproc 2 script.py"


class DataParallel(Module):
    """Runs `module`, on the device where it is. `torch.nn.DataParallel`.

    PyTorch's splits a batch over GPUs, and without one, or with one, does what this does. Names in `state_dict` begin
    with ``module.``, as there. A process for each device does what several GPUs are for:
    `ox.nn.parallel.DistributedDataParallel`.

    Args:
        module: the module; it stays as the attribute `module`.
        device_ids, output_device, dim: PyTorch's, for splitting; where there are several GPUs to split over, a warning
            warns once that this is not supported.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if (cuda.device_count() if device_ids is None else len(device_ids)) > 1:
            no_effect("ox.nn.DataParallel", _SEVERAL)
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """``module(*inputs)``. `torch.nn.parallel.data_parallel`.

    Args:
        inputs: a tensor, or a tuple of arguments.
        module_kwargs: arguments by name.
    """
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*arguments, **(module_kwargs or {}))
