"""Tensors on their way to JavaScript and back."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_json(feed: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: {"type": str(x.dtype), "dims": list(x.shape), "data": x.ravel().tolist()} for name, x in feed.items()}


def from_json(tensors: list[dict[str, Any]]) -> list[np.ndarray]:
    return [np.array(t["data"], t["type"]).reshape(t["dims"]) for t in tensors]
