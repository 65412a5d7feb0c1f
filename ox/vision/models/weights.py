"""The two keywords that ask torchvision for trained weights, which ox does not download."""

from __future__ import annotations

from typing import Any

from ox.errors import ArgumentError
from ox.where import users_line


def refuse_downloads(name: str, weights: Any, options: dict[str, Any], depth: int = 3) -> None:
    """Raises ArgumentError where trained weights are asked for; takes `pretrained` and `progress` out of `options`."""
    pretrained = options.pop("pretrained", None)
    options.pop("progress", None)
    if weights is None and not pretrained:
        return
    got = f"weights={weights!r}" if weights is not None else f"pretrained={pretrained!r}"
    raise ArgumentError(
        f"{name} downloads no weights",
        where=users_line(depth),
        expected="weights=None",
        got=got,
        hint=f"model = {name}(); model.load_state_dict(ox.load('{name}.pth')), torchvision's file",
    )
