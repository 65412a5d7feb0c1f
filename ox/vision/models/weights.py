"""The two keywords that ask torchvision for trained weights, which ox does not download."""

from __future__ import annotations

from typing import Any

from ox.errors import ArgumentError


def refuse_downloads(name: str, weights: Any, options: dict[str, Any]) -> None:
    """Raises ArgumentError for trained weights; removes `pretrained` and `progress` from `options`."""
    pretrained = options.pop("pretrained", None)
    options.pop("progress", None)
    if weights is None and not pretrained:
        return
    got = f"weights={weights!r}" if weights is not None else f"pretrained={pretrained!r}"
    raise ArgumentError(
        f"{name} downloads no weights",
        expected="weights=None",
        got=got,
        hint=f"model = {name}(); model.load_state_dict(ox.load('{name}.pth')), torchvision's file",
    )
