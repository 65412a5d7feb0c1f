"""Names of `ox.nn.init` without the trailing underscore, as scripts of PyTorch before 0.4 have them."""

from __future__ import annotations

import warnings
from typing import Any

NAMES = (
    "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal", "sparse", "uniform",
    "xavier_normal", "xavier_uniform",
)  # fmt: skip


def named(name: str) -> Any:
    """The current function behind a deprecated name; calling it warns, as in PyTorch."""
    from ox.nn import init

    def older(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"nn.init.{name} is now nn.init.{name}_", FutureWarning, stacklevel=2)
        return getattr(init, f"{name}_")(*args, **kwargs)

    older.__name__, older.__doc__ = name, f"`{name}_`, by its older name. `torch.nn.init.{name}`."
    return older
