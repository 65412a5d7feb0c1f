"""Whether random numbers are PyTorch's: one switch for the whole process."""

from __future__ import annotations

from typing import Any, ClassVar

from ox.errors import ArgumentError


class torch_compatible:  # a switch that is called like a function, as PyTorch's are
    """Draw PyTorch's random numbers from here on, or Philox's again; as a context manager only inside the block.

    After `ox.manual_seed(s)`, what is drawn on the CPU in float32, float64, float16 or bfloat16 then has the bits that
    PyTorch 2.13 draws after `torch.manual_seed(s)`: `rand`, `randn`, `randint`, `randperm`, `normal`, `bernoulli`,
    `multinomial`, `poisson`, their `_like` and in-place forms, dropout, the initial values of layers and `nn.init`, and
    the orders of `DataLoader(shuffle=True)` and `random_split`. The page "From PyTorch" lists what stays different. It
    holds for the whole process and the workers of loaders, as the seed does.

    Such numbers are drawn on the host (a tensor for a GPU is sent there), and have no form in operators: what draws
    under a recording (`ox.compile`, an export while training) raises RecordError.

    Args:
        mode: True for PyTorch's numbers, False for ox's own.

    Raises:
        ArgumentError: a mode that is not a bool.
    """

    on: ClassVar[bool] = False

    def __init__(self, mode: bool = True) -> None:
        if not isinstance(mode, bool):
            raise ArgumentError("torch_compatible is on or off", expected="True or False", got=repr(mode))
        self._before, self._mode = torch_compatible.on, mode
        torch_compatible.on = mode

    def __enter__(self) -> None:
        torch_compatible.on = self._mode

    def __exit__(self, *_: Any) -> None:
        torch_compatible.on = self._before


def is_torch_compatible() -> bool:
    """Whether random numbers are PyTorch's now; see `torch_compatible`."""
    return torch_compatible.on
