"""Shows an input in a report: as an image, a curve, or its first numbers."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MAX_SIDE = 224  # pixels of a side; larger images are made smaller
CURVE = (160, 60)


def show(x: Array) -> str:
    """HTML of one input of one sample."""
    image = _as_image(x)
    if image is not None:
        return f'<img alt="input {list(x.shape)}" src="data:image/png;base64,{_png(image)}">'
    if x.dtype.kind == "f" and 8 <= x.size <= 4096 and (x.ndim == 1 or (x.ndim == 2 and min(x.shape) <= 4)):
        return _curve(x)
    first = ", ".join(f"{v:.4g}" if x.dtype.kind == "f" else str(v) for v in x.reshape(-1)[:12])
    more = ", ..." if x.size > 12 else ""
    return f"<code>{escape(first + more)}</code>"


def _as_image(x: Array) -> Array | None:
    """uint8 [H, W] or [H, W, 3], each scaled to its own range, from [H, W], [C, H, W] or [H, W, C]; else None."""
    if x.dtype.kind not in "fu" or x.ndim not in (2, 3):
        return None
    if x.ndim == 3:
        if x.shape[0] in (1, 3):
            x = x.transpose(1, 2, 0)
        elif x.shape[2] not in (1, 3):
            return None
        x = x[:, :, 0] if x.shape[2] == 1 else x
    if min(x.shape[:2]) < 5:  # a few columns of numbers are not an image
        return None
    if x.dtype != np.uint8:
        finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
        low, high = finite.min(), finite.max()
        x = ((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
    return np.ascontiguousarray(x)


def _png(image: Array) -> str:
    from PIL import Image

    picture = Image.fromarray(image)
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _curve(x: Array) -> str:
    """Line charts along the longer dimension."""
    lines = x[None] if x.ndim == 1 else (x if x.shape[0] <= x.shape[1] else x.T)
    width, height = CURVE
    finite = np.where(np.isfinite(lines), lines, 0).astype(np.float64)
    low, high = finite.min(), finite.max()
    across = np.linspace(2, width - 2, finite.shape[1])
    down = height - 2 - (finite - low) / (high - low if high > low else 1) * (height - 4)
    drawn = "".join(
        f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, row, strict=True))}"/>' for row in down
    )
    title = f"<title>{low:.4g} to {high:.4g}</title>"
    return f'<svg class="curve" role="img" viewBox="0 0 {width} {height}">{title}{drawn}</svg>'
