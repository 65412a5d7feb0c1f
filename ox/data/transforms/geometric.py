"""Functions that move pixels: cuts, frames, flips, turns. Names and meanings are torchvision's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.data.transforms import pillow
from ox.data.transforms.images import Pixels, each, on_pixels, size_of
from ox.data.transforms.resizing import BILINEAR, NEAREST, PILLOW, mode_of, pair, resize
from ox.errors import ArgumentError, ShapeError


def fills(fill: Any, channels: int, name: str) -> list[float]:
    """A number a channel."""
    values = [0.0] if fill is None else [float(v) for v in np.atleast_1d(fill)]
    if len(values) not in (1, channels):
        raise ArgumentError(
            f"{name} takes one fill, or one a channel", expected=f"1 or {channels}", got=str(len(values))
        )
    return values * channels if len(values) == 1 else values


# -- cuts and frames -------------------------------------------------------------------------------------------------

_MODES = ("constant", "edge", "reflect", "symmetric")


@on_pixels
def pad(pixels: Pixels, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Pixels:
    """A frame around the image. `torchvision.transforms.functional.pad`.

    Args:
        padding: an int, [left and right, top and bottom], or [left, top, right, bottom]; negative ones cut.
        fill: a number, or one a channel, for "constant".
        padding_mode: "constant", "edge", "reflect" (without the edge itself), "symmetric" (with it).
    """
    values = [padding] if isinstance(padding, int | np.integer) else list(padding)
    if len(values) not in (1, 2, 4):
        raise ArgumentError("pad takes 1, 2 or 4 numbers of pixels", got=repr(padding))
    left, top, right, bottom = (int(v) for v in {1: values * 4, 2: values * 2, 4: values}[len(values)])
    if padding_mode not in _MODES:
        raise ArgumentError("there is no such padding_mode", expected=", ".join(_MODES), got=repr(padding_mode))
    height, width = pixels.shape[-3:-1]
    if height + min(top, 0) + min(bottom, 0) < 1 or width + min(left, 0) + min(right, 0) < 1:
        raise ArgumentError("the padding removes the whole image", got=f"padding {padding} of {height} × {width}")
    kept = pixels[..., max(-top, 0) : height - max(-bottom, 0), max(-left, 0) : width - max(-right, 0), :]
    top, bottom, left, right = (max(side, 0) for side in (top, bottom, left, right))
    if padding_mode != "constant":
        sides = ((0, 0),) * (pixels.ndim - 3) + ((top, bottom), (left, right), (0, 0))
        return np.pad(kept, sides, padding_mode)  # type: ignore[call-overload]
    rows, columns = kept.shape[-3:-1]
    channels = pixels.shape[-1]
    shape = (*pixels.shape[:-3], rows + top + bottom, columns + left + right, channels)
    out = np.empty_like(pixels, shape=shape)  # in the order of memory that the caller's kind of image has
    out[...] = np.asarray(fills(fill, channels, "pad"))
    out[..., top : top + rows, left : left + columns, :] = kept
    return out


@on_pixels
def crop(pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
    """A part of the image, black where it reaches outside. `torchvision.transforms.functional.crop`."""
    return _crop(pixels, top, left, height, width)


def _crop(pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
    if height < 1 or width < 1:
        raise ArgumentError("height and width of a crop must be positive", got=f"{height} × {width}")
    rows, columns = pixels.shape[-3:-1]
    bottom, right = top + height, left + width
    if top < 0 or left < 0 or bottom > rows or right > columns:
        out = np.zeros_like(pixels, shape=(*pixels.shape[:-3], height, width, pixels.shape[-1]))
        part = pixels[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0), :]
        down, across = max(-top, 0), max(-left, 0)
        out[..., down : down + part.shape[-3], across : across + part.shape[-2], :] = part
        return out
    return pixels[..., top:bottom, left:right, :]


@on_pixels
def center_crop(pixels: Pixels, output_size: Any) -> Pixels:
    """The middle of the image, black where that reaches outside. `torchvision.transforms.functional.center_crop`."""
    height, width = pair(output_size, "center_crop")
    rows, columns = pixels.shape[-3:-1]
    if height > rows or width > columns:  # torchvision first pads, the odd pixel at the end
        down, across = max(height - rows, 0), max(width - columns, 0)
        pixels = _crop(pixels, -(down // 2), -(across // 2), rows + down, columns + across)
        rows, columns = pixels.shape[-3:-1]
    return _crop(pixels, round((rows - height) / 2), round((columns - width) / 2), height, width)


@on_pixels
def resized_crop(
    pixels: Pixels,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = BILINEAR,
    antialias: bool | None = True,
) -> Pixels:
    """`crop`, and then `resize`. `torchvision.transforms.functional.resized_crop`."""
    return resize(_crop(pixels, top, left, height, width), size, interpolation, None, antialias)


@on_pixels
def hflip(pixels: Pixels) -> Pixels:
    """Left and right changed. `torchvision.transforms.functional.hflip`."""
    return pixels[..., ::-1, :]


@on_pixels
def vflip(pixels: Pixels) -> Pixels:
    """Top and bottom changed. `torchvision.transforms.functional.vflip`."""
    return pixels[..., ::-1, :, :]


def five_crop(image: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the middle: top left, top right, bottom left, bottom right, middle.
    `torchvision.transforms.functional.five_crop`."""
    (height, width), (rows, columns) = pair(size, "five_crop"), size_of(image, "five_crop")
    if height > rows or width > columns:
        raise ShapeError(
            "the size of five_crop is larger than the image",
            expected=f"at most {rows} × {columns}",
            got=f"{height} × {width}",
        )
    corners = [(top, left) for top in (0, rows - height) for left in (0, columns - width)]
    return (*(crop(image, top, left, height, width) for top, left in corners), center_crop(image, (height, width)))


def ten_crop(image: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop`, and that of the flipped image. `torchvision.transforms.functional.ten_crop`."""
    return (*five_crop(image, size), *five_crop((vflip if vertical_flip else hflip)(image), size))


# -- turns -----------------------------------------------------------------------------------------------------------


def _moved(x: float, y: float) -> NDArray[Any]:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def affine_matrix(
    center: tuple[float, float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> NDArray[np.float64]:
    """Where a point (x, y, 1) of the image goes: about `center` sheared, turned clockwise by `angle` degrees, scaled;
    then moved. [3, 3]."""
    turn, x, y = (math.radians(v) for v in (angle, *shear))
    # Sheared along x, then along y, then turned: torchvision's order.
    sheared = np.array([[1, 0], [-math.tan(y), 1]]) @ np.array([[1, -math.tan(x)], [0, 1]])
    turned = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    whole = np.eye(3)
    whole[:2, :2] = scale * turned @ sheared
    return _moved(center[0] + translate[0], center[1] + translate[1]) @ whole @ _moved(-center[0], -center[1])


def _back(matrix: NDArray[np.float64]) -> list[float]:
    """Pillow's six coefficients for the way back; rounded, so that a quarter turn reads exactly at pixels."""
    return np.linalg.inv(matrix)[:2].round(12).reshape(-1).tolist()


def _warped(
    pixels: Pixels, kind: int, coefficients: Sequence[float], size: tuple[int, int], interpolation: Any, fill: Any
) -> Pixels:
    """Each pixel of the result from where the coefficients point to: Pillow's AFFINE (0) and PERSPECTIVE (2)."""
    mode = mode_of(interpolation)
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ArgumentError(
            f"rotate, affine and perspective do not support interpolation {mode!r}",
            expected="nearest, bilinear or bicubic",
        )
    number = 0 if pixels.dtype == np.bool_ else PILLOW[mode]
    values = fills(fill, pixels.shape[-1], "a turn")

    def turned(image: Any, outside: Any) -> Any:
        return image.transform(size, kind, tuple(coefficients), number, fillcolor=outside)

    return each(pixels, lambda one: pillow.through(one, turned, values))


def _two(values: Any) -> tuple[float, float]:
    numbers = [float(values), 0.0] if isinstance(values, int | float) else [float(v) for v in values]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0.0


@on_pixels
def affine(
    pixels: Pixels,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any = NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Pixels:
    """Turned, moved, scaled and sheared. `torchvision.transforms.functional.affine`.

    Args:
        angle: degrees, clockwise. translate: pixels right and down. scale: above 0. shear: degrees along x, or along
            x and y. center: (x, y) of what stays in place; default the middle.
        fill: a number, or one a channel, for what comes from outside.
    """
    if scale <= 0:
        raise ArgumentError("affine takes a scale above 0", got=str(scale))
    rows, columns = pixels.shape[-3:-1]
    middle = (columns / 2, rows / 2) if center is None else _two(center)
    matrix = affine_matrix(middle, angle, _two(translate), scale, _two(shear))
    return _warped(pixels, 0, _back(matrix), (columns, rows), interpolation, fill)


@on_pixels
def rotate(
    pixels: Pixels,
    angle: float,
    interpolation: Any = NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Pixels:
    """Turned counter-clockwise by `angle` degrees. `torchvision.transforms.functional.rotate`.

    Args:
        expand: make the image as large as the turned one needs.
        center: (x, y) of what stays in place; default the middle.
        fill: a number, or one a channel, for what comes from outside.
    """
    rows, columns = pixels.shape[-3:-1]
    middle = (columns / 2, rows / 2) if center is None else _two(center)
    matrix, size = affine_matrix(middle, -angle, (0, 0), 1.0, (0, 0)), (columns, rows)
    if expand:
        corners = matrix @ np.array([[0, columns, columns, 0], [0, 0, rows, rows], [1, 1, 1, 1]])
        low, high = (edge(corners[:2], axis=1).round(9) for edge in (np.min, np.max))
        first, last = np.floor(low), np.ceil(high)
        size = (int(last[0] - first[0]), int(last[1] - first[1]))
        middle_now = (low + high) / 2
        matrix = _moved(size[0] / 2 - middle_now[0], size[1] / 2 - middle_now[1]) @ matrix
    return _warped(pixels, 0, _back(matrix), size, interpolation, fill)


@on_pixels
def perspective(
    pixels: Pixels,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: Any = BILINEAR,
    fill: Any = None,
) -> Pixels:
    """Seen from elsewhere: four points [x, y] of the image go to four others.
    `torchvision.transforms.functional.perspective`.

    Raises:
        ArgumentError: not four points each, or three of them in a line.
    """
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ArgumentError("perspective takes four points and where they go")
    lines, values = [], []
    for (x, y), (u, v) in zip(startpoints, endpoints, strict=True):
        lines += [[u, v, 1, 0, 0, 0, -x * u, -x * v], [0, 0, 0, u, v, 1, -y * u, -y * v]]
        values += [x, y]
    try:
        coefficients = np.linalg.solve(np.array(lines, np.float64), np.array(values, np.float64)).tolist()
    except np.linalg.LinAlgError:
        raise ArgumentError(
            "no perspective transform maps the start points to the end points", got=repr(endpoints)
        ) from None
    return _warped(pixels, 2, coefficients, (pixels.shape[-2], pixels.shape[-3]), interpolation, fill)
