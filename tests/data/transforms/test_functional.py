"""The transforms as functions, beside Pillow's own functions, NumPy, and what must hold whatever the image."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from rows import rows

import ox
from ox.data.transforms import InterpolationMode
from ox.data.transforms import functional as F
from ox.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (20, 30, 3), np.uint8)
SMOOTH = (np.add.outer(np.arange(24) * 4, np.arange(32) * 3)[..., None] + np.array([0, 20, 40])).astype(np.uint8)
GREY = PHOTO[..., :1]


def tensor(image: np.ndarray[Any, Any]) -> ox.Tensor:
    return ox.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, -3)))


def back(image: ox.Tensor) -> np.ndarray[Any, Any]:
    return np.moveaxis(image.numpy(), -3, -1)


EVERY = {
    "resize": lambda x: F.resize(x, (9, 11)),
    "resize without antialias": lambda x: F.resize(x, (9, 11), antialias=False),
    "crop": lambda x: F.crop(x, 2, 3, 5, 7),
    "center_crop": lambda x: F.center_crop(x, 7),
    "resized_crop": lambda x: F.resized_crop(x, 2, 3, 8, 9, (4, 5)),
    "pad": lambda x: F.pad(x, [1, 2, 3, 4], padding_mode="reflect"),
    "hflip": F.hflip,
    "vflip": F.vflip,
    "affine": lambda x: F.affine(x, 20, (2, 1), 1.1, (5, 3), "bilinear"),
    "rotate": lambda x: F.rotate(x, 30, expand=True),
    "perspective": lambda x: F.perspective(
        x, [[0, 0], [29, 0], [29, 19], [0, 19]], [[2, 1], [27, 3], [28, 18], [1, 17]]
    ),
    "grayscale": lambda x: F.rgb_to_grayscale(x, 3),
    "brightness": lambda x: F.adjust_brightness(x, 1.3),
    "contrast": lambda x: F.adjust_contrast(x, 0.6),
    "saturation": lambda x: F.adjust_saturation(x, 1.7),
    "hue": lambda x: F.adjust_hue(x, 0.2),
    "gamma": lambda x: F.adjust_gamma(x, 0.7, 1.1),
    "sharpness": lambda x: F.adjust_sharpness(x, 1.8),
    "invert": F.invert,
    "posterize": lambda x: F.posterize(x, 3),
    "solarize": lambda x: F.solarize(x, 128 if _bytes(x) else 128 / 255),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "blur": lambda x: F.gaussian_blur(x, [5, 3], 1.2),
    "erase": lambda x: F.erase(x, 1, 2, 3, 4, 0.5),
}


def _bytes(x: Any) -> bool:
    return (x.array if hasattr(x, "node") else np.asarray(x)).dtype == np.uint8


@rows("name", EVERY)
def test_kinds_agree(name: str) -> None:
    """Arrays, tensors, Pillow's images, many at once, floats: one answer; and the input stays as it was."""
    function, before = EVERY[name], PHOTO.copy()
    made = function(PHOTO)
    assert isinstance(made, np.ndarray) and made.dtype == np.uint8 and (before == PHOTO).all()
    assert (back(function(tensor(PHOTO))) == made).all()
    assert (function(Image.fromarray(PHOTO)) == made).all()
    many = np.stack([PHOTO, PHOTO[::-1], PHOTO // 2])
    together = function(many)
    assert (together == np.stack([function(image) for image in many])).all()
    assert (back(function(tensor(many))) == together).all()
    floats = function(PHOTO.astype(np.float32) / 255)
    assert floats.dtype == np.float32 and floats.shape == made.shape
    if name not in ("equalize", "erase"):
        scaled = floats * 255
        near = np.abs(scaled - made) <= (7 if name in ("hue", "posterize") else 2.01)
        assert near.mean() > 0.99, np.abs(scaled - made).max()
    one = function(GREY[..., 0])
    assert one.dtype == np.uint8 and (name == "grayscale" or one.shape == function(GREY).shape[:2])


@rows("name", EVERY)
def test_what_is_no_image(name: str) -> None:
    for wrong, error, said in (
        ("a path", DTypeError, "str"),
        (np.zeros((3, 20, 30), np.uint8), ShapeError, "[..., h, w, c]"),
        (tensor(PHOTO).permute(1, 2, 0), ShapeError, "[..., c, h, w]"),
        (np.zeros(5), ShapeError, "[5]"),
        (np.zeros((0, 4, 3)), ShapeError, "[0, 4, 3]"),
        (np.zeros((4, 4, 3), np.complex64), DTypeError, "complex64"),
    ):
        with pytest.raises(error) as caught:
            EVERY[name](wrong)
        assert said in str(caught.value)


# -- sizes -----------------------------------------------------------------------------------------------------------

PIL_MODES = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "nearest-exact": Image.Resampling.NEAREST,
}


@rows("mode", PIL_MODES)
def test_resize_is_pillows(mode: str) -> None:
    for size in ((10, 10), (33, 17), (20, 60)):
        expected = np.asarray(Image.fromarray(PHOTO).resize(size[::-1], PIL_MODES[mode]))
        for spelling in (mode, InterpolationMode(mode), int(PIL_MODES[mode])):
            if spelling == 0:
                continue  # Pillow's number for NEAREST is torchvision's NEAREST of tensors
            assert (F.resize(PHOTO, size, spelling) == expected).all()


def test_resize_without_antialias() -> None:
    ramp = np.arange(8, dtype=np.float64).reshape(1, 8, 1)
    assert np.allclose(F.resize(ramp, (1, 4), antialias=False)[0, :, 0], [0.5, 2.5, 4.5, 6.5])
    assert np.allclose(F.resize(ramp, (1, 16), antialias=False)[0, 1:-1, 0], np.arange(14) / 2 + 0.25)
    assert np.allclose(
        F.resize(ramp, (1, 16), "bicubic", antialias=False)[0, 6:10, 0], [2.75, 3.25, 3.75, 4.25], atol=0.1
    )
    spike = np.zeros((1, 9, 1))
    spike[0, 4] = 1
    assert F.resize(spike, (1, 18), "bicubic", antialias=False)[0, 8:10, 0].tolist() == [0.87890625] * 2
    # twice as large and antialiased is the same: nothing falls together
    up = F.resize(SMOOTH, (48, 64), antialias=False).astype(int)
    assert np.abs(up - F.resize(SMOOTH, (48, 64)).astype(int)).max() <= 1
    with pytest.raises(ArgumentError, match="always antialiased"):
        F.resize(PHOTO, 5, "lanczos", antialias=False)


def test_resize_of_nearest_takes_pixels_as_they_are() -> None:
    x = np.arange(6).reshape(1, 6, 1)
    assert F.resize(x, (1, 3), "nearest")[0, :, 0].tolist() == [0, 2, 4]
    assert F.resize(x, (1, 3), "nearest-exact")[0, :, 0].tolist() == [1, 3, 5]
    assert F.resize(x > 2, (2, 3)).tolist() == [[[False], [True], [True]]] * 2
    assert F.resize(x, (2, 12), "nearest")[1, :, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@rows(
    ("height", "width", "size", "max_size", "expected"),
    [
        (20, 30, 10, None, (10, 15)),
        (30, 20, 10, None, (15, 10)),
        (20, 30, [10], None, (10, 15)),
        (20, 30, 10, 12, (8, 12)),
        (30, 20, 10, 12, (12, 8)),
        (20, 30, None, 15, (10, 15)),
        (20, 31, 10, None, (10, 15)),
        (20, 30, (5, 7), None, (5, 7)),
        (1, 500, 3, 10, (1, 10)),
    ],
)
def test_sides_after_resize(height: int, width: int, size: Any, max_size: Any, expected: tuple[int, int]) -> None:
    assert F.resize(np.zeros((height, width, 3), np.uint8), size, max_size=max_size).shape[:2] == expected


@pytest.mark.parametrize("size", [0, -3, (1, 2, 3), 2.5, (True, 3)])
def test_sizes_that_are_none(size: Any) -> None:
    with pytest.raises((ArgumentError, TypeError)):
        F.resize(PHOTO, size)


def test_other_wrong_sizes() -> None:
    for options in ({"size": 10, "max_size": 9}, {"size": (3, 4), "max_size": 9}, {"size": None}):
        with pytest.raises(ArgumentError):
            F.resize(PHOTO, **options)
    with pytest.raises(ArgumentError, match="no such interpolation"):
        F.resize(PHOTO, 5, "best")


def test_other_types_of_values() -> None:
    for dtype in (np.int16, np.int32, np.float16, np.float64):
        made = F.resize(SMOOTH.astype(dtype), (12, 16))
        assert made.dtype == dtype and np.abs(made - F.resize(SMOOTH, (12, 16)).astype(float)).max() <= 1


# -- cuts and frames -------------------------------------------------------------------------------------------------


def test_crops() -> None:
    assert (F.crop(PHOTO, 2, 3, 5, 7) == PHOTO[2:7, 3:10]).all()
    outside = F.crop(PHOTO, -2, 25, 6, 10)
    assert outside.shape == (6, 10, 3) and (outside[2:, :5] == PHOTO[:4, 25:]).all()
    assert not outside[:2].any() and not outside[:, 5:].any()
    assert not F.crop(PHOTO, 40, 40, 3, 3).any() and not F.crop(PHOTO, -9, 0, 3, 3).any()
    assert (F.center_crop(PHOTO, (10, 10)) == PHOTO[5:15, 10:20]).all()
    wide = F.center_crop(PHOTO, (10, 34))
    assert wide.shape == (10, 34, 3) and (wide[:, 2:32] == PHOTO[5:15]).all() and not wide[:, :2].any()
    with pytest.raises(ArgumentError, match="must be positive"):
        F.crop(PHOTO, 0, 0, 0, 3)
    five = F.five_crop(PHOTO, (5, 6))
    assert (five[1] == PHOTO[:5, -6:]).all() and (five[2] == PHOTO[-5:, :6]).all() and len(five) == 5
    ten = F.ten_crop(PHOTO, (5, 6))
    assert (ten[5] == PHOTO[:5, ::-1][:, :6]).all() and len(ten) == 10
    assert (F.ten_crop(PHOTO, 5, vertical_flip=True)[5] == PHOTO[::-1][:5, :5]).all()
    with pytest.raises(ShapeError, match="five_crop"):
        F.five_crop(PHOTO, 21)


def test_frames() -> None:
    framed = F.pad(PHOTO, [1, 2, 3, 4], fill=(9, 8, 7))
    assert framed.shape == (26, 34, 3) and (framed[2:-4, 1:-3] == PHOTO).all() and (framed[0] == [9, 8, 7]).all()
    assert F.pad(PHOTO, 2).shape == (24, 34, 3) and F.pad(PHOTO, (1, 2)).shape == (24, 32, 3)
    for mode in ("edge", "reflect", "symmetric"):
        assert (F.pad(PHOTO, (1, 2), padding_mode=mode) == np.pad(PHOTO, ((2, 2), (1, 1), (0, 0)), mode)).all()  # type: ignore[call-overload]
    assert (F.pad(PHOTO, [-1, -2, 0, 1])[:-1] == PHOTO[2:, 1:]).all()
    for wrong in ({"padding": [1, 2, 3]}, {"padding": 1, "padding_mode": "wrap"}, {"padding": -10}):
        with pytest.raises(ArgumentError):
            F.pad(PHOTO, **wrong)
    with pytest.raises(ArgumentError, match="one fill, or one a channel"):
        F.pad(PHOTO, 1, (1, 2))


def test_flips() -> None:
    assert (F.hflip(PHOTO) == PHOTO[:, ::-1]).all() and (F.vflip(PHOTO) == PHOTO[::-1]).all()
    assert (F.horizontal_flip(F.hflip(PHOTO)) == PHOTO).all() and (F.vertical_flip(F.vflip(PHOTO)) == PHOTO).all()


# -- turns -----------------------------------------------------------------------------------------------------------

SQUARE = RNG.integers(0, 256, (16, 16, 3), np.uint8)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_turns_without_loss(mode: str) -> None:
    assert (F.affine(PHOTO, 0, (0, 0), 1, 0, mode) == PHOTO).all()
    assert (F.rotate(SQUARE, 90, mode) == np.rot90(SQUARE)).all()  # counter-clockwise, as NumPy turns
    assert (F.affine(SQUARE, 90, (0, 0), 1, 0, mode) == np.rot90(SQUARE, -1)).all()  # clockwise
    assert (F.rotate(PHOTO, 180, mode) == PHOTO[::-1, ::-1]).all()
    assert (F.rotate(PHOTO, 90, mode, expand=True) == np.rot90(PHOTO)).all()
    moved = F.affine(PHOTO, 0, (3, -2), 1, 0, mode, fill=7)
    assert (moved[:-2, 3:] == PHOTO[2:, :-3]).all() and (moved[-2:] == 7).all() and (moved[:, :3] == 7).all()
    corners = [[0, 0], [29, 0], [29, 19], [0, 19]]
    assert (F.perspective(PHOTO, corners, corners, mode) == PHOTO).all()


@pytest.mark.parametrize("angle", [-33, 10, 75, 200])
def test_rotate_is_pillows(angle: float) -> None:
    for expand in (False, True):
        expected = np.asarray(
            Image.fromarray(SMOOTH).rotate(angle, Image.Resampling.BILINEAR, expand, fillcolor=(5, 6, 7))
        )
        made = F.rotate(SMOOTH, angle, "bilinear", expand, fill=(5, 6, 7))
        assert abs(made.shape[0] - expected.shape[0]) <= 1 and abs(made.shape[1] - expected.shape[1]) <= 1
        if made.shape == expected.shape:
            assert (np.abs(made.astype(int) - expected) <= 2).mean() > 0.97


def test_affine_is_its_formula() -> None:
    """Each pixel of the result comes from where torchvision's matrix, written out here, says."""
    angle, moved, scale, shear, center = np.radians(25), (2, -1), 1.2, np.radians([10, -7]), (10.0, 8.0)
    a = np.cos(angle - shear[1]) / np.cos(shear[1])
    b = -a * np.tan(shear[0]) - np.sin(angle)
    c = np.sin(angle - shear[1]) / np.cos(shear[1])
    d = -c * np.tan(shear[0]) + np.cos(angle)
    inverse = np.array([[d, -b], [-c, a]]) / scale
    y, x = np.mgrid[:20, :30] + 0.5
    at = inverse @ np.stack([(x - center[0] - moved[0]).ravel(), (y - center[1] - moved[1]).ravel()])
    column, row = (np.floor(at[i] + center[i]).astype(int).reshape(20, 30) for i in (0, 1))
    inside = (column >= 0) & (column < 30) & (row >= 0) & (row < 20)
    expected = np.where(inside[..., None], PHOTO[row.clip(0, 19), column.clip(0, 29)], 9)
    made = F.affine(PHOTO, 25, moved, scale, np.degrees(shear), "nearest", 9, center)
    assert (made == expected).all(-1).mean() > 0.99


def test_perspective_moves_its_points() -> None:
    image = np.zeros((41, 41, 1), np.float32)
    start = [[5, 5], [35, 5], [35, 35], [5, 35]]
    for x, y in start:
        image[y - 2 : y + 2, x - 2 : x + 2] = 1  # a spot around the point between pixels
    end = [[10, 8], [30, 12], [33, 30], [7, 28]]
    made = F.perspective(image, start, end)
    for x, y in end:
        assert made[y - 1 : y + 1, x - 1 : x + 1].mean() > 0.8
    with pytest.raises(ArgumentError, match="no perspective transform"):
        F.perspective(image, start, [[0, 0], [0, 0], [0, 0], [0, 0]])
    with pytest.raises(ArgumentError, match="four points"):
        F.perspective(image, start[:3], end[:3])


def test_turns_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="scale above 0"):
        F.affine(PHOTO, 0, (0, 0), 0, 0)
    with pytest.raises(ArgumentError, match="do not support interpolation 'lanczos'"):
        F.rotate(PHOTO, 10, "lanczos")


# -- colours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0, 0.3, 1, 1.7])
def test_bytes_are_adjusted_as_pillow_does(factor: float) -> None:
    image = Image.fromarray(PHOTO)
    for function, enhancer, most in (
        (F.adjust_brightness, ImageEnhance.Brightness, 0),
        (F.adjust_contrast, ImageEnhance.Contrast, 1),
        (F.adjust_saturation, ImageEnhance.Color, 0),
        (F.adjust_sharpness, ImageEnhance.Sharpness, 1),
    ):
        expected = np.asarray(enhancer(image).enhance(factor)).astype(int)
        assert np.abs(function(PHOTO, factor) - expected).max() <= most
    for function in (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_sharpness):
        assert (function(PHOTO, 1) == PHOTO).all()
        for wrong in (-0.1, float("nan"), float("inf")):
            with pytest.raises(ArgumentError, match="at least 0"):
                function(PHOTO, wrong)


def test_tables_are_pillows() -> None:
    image = Image.fromarray(SMOOTH)
    assert (F.invert(SMOOTH) == np.asarray(ImageOps.invert(image))).all()
    for bits in (1, 3, 8):
        assert (F.posterize(SMOOTH, bits) == np.asarray(ImageOps.posterize(image, bits))).all()
    for threshold in (0, 100, 256):
        assert (F.solarize(SMOOTH, threshold) == np.asarray(ImageOps.solarize(image, threshold))).all()
    assert np.abs(F.autocontrast(SMOOTH).astype(int) - np.asarray(ImageOps.autocontrast(image))).max() <= 1
    large = RNG.normal(100, 20, (64, 64, 3)).clip(0, 255).astype(np.uint8)
    assert (F.equalize(large) == np.asarray(ImageOps.equalize(Image.fromarray(large)))).all()
    assert (F.equalize(np.full((4, 4, 3), 9, np.uint8)) == 9).all() and (
        F.autocontrast(np.full((4, 4), 9.0)) == 9
    ).all()
    for wrong in (-1, 9):
        with pytest.raises(ArgumentError, match="0 to 8 bits"):
            F.posterize(PHOTO, wrong)


def test_grey() -> None:
    assert (F.rgb_to_grayscale(PHOTO)[..., 0] == np.asarray(Image.fromarray(PHOTO).convert("L"))).all()
    floats = RNG.random((4, 5, 3))
    assert np.allclose(F.rgb_to_grayscale(floats)[..., 0], floats @ [0.2989, 0.587, 0.114])
    assert F.to_grayscale(GREY, 3).shape == (20, 30, 3)
    with pytest.raises(ShapeError, match="1 or 3 channels"):
        F.rgb_to_grayscale(np.zeros((5, 5, 4), np.uint8))
    with pytest.raises(ArgumentError):
        F.rgb_to_grayscale(PHOTO, 2)


@pytest.mark.parametrize("turn", [-0.5, -0.2, 0, 0.1, 0.5])
def test_hue_is_the_standard_librarys(turn: float) -> None:
    floats = RNG.random((5, 6, 3))
    hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in floats.reshape(-1, 3)]
    expected = np.array([colorsys.hsv_to_rgb((h + turn) % 1, s, v) for h, s, v in hsv])
    assert np.allclose(F.adjust_hue(floats, turn).reshape(-1, 3), expected, atol=1e-6)
    assert np.abs(F.adjust_hue((floats * 255).astype(np.uint8), turn).reshape(-1, 3) / 255 - expected).mean() < 0.02
    assert (F.adjust_hue(GREY, turn) == GREY).all() and (F.adjust_saturation(GREY, 0.3) == GREY).all()
    with pytest.raises(ArgumentError, match=r"-0\.5 to 0\.5"):
        F.adjust_hue(PHOTO, 0.6)


def test_gamma() -> None:
    floats = RNG.random((4, 5, 3))
    assert np.allclose(F.adjust_gamma(floats, 2.2, 0.5), 0.5 * floats**2.2)
    assert (F.adjust_gamma(PHOTO, 1) == PHOTO).all()


def test_blur() -> None:
    spot = np.zeros((9, 9, 1))
    spot[4, 4] = 1
    weights = np.exp(-0.5 * (np.arange(-2, 3) / 0.8) ** 2)
    weights /= weights.sum()
    assert np.allclose(F.gaussian_blur(spot, 5, 0.8)[2:7, 2:7, 0], np.outer(weights, weights))
    across = F.gaussian_blur(spot, [5, 1], [0.8, 1.0])
    assert np.allclose(across[4, 2:7, 0], weights) and across[:4].max() == 0
    assert np.allclose(F.gaussian_blur(spot, 5), F.gaussian_blur(spot, 5, 0.15 * 5 + 0.35))
    assert (F.gaussian_blur(np.full((6, 6, 3), 77, np.uint8), 5, 2.0) == 77).all()
    padded = np.pad(PHOTO.astype(float), ((1, 1), (0, 0), (0, 0)), "reflect")
    third = np.exp(-0.5 * np.array([1, 0, 1]) / 1.5**2)
    expected = sum(w * padded[i : i + 20] for i, w in enumerate(third / third.sum()))
    assert np.abs(F.gaussian_blur(PHOTO, [1, 3], 1.5) - expected).max() <= 0.501
    for size, sigma in ((4, 1.0), (-1, 1.0), (3, 0), (3, -1.0), ([3, 2], 1.0)):
        with pytest.raises(ArgumentError):
            F.gaussian_blur(PHOTO, size, sigma)
    with pytest.raises(ShapeError, match="kernel of gaussian_blur is too large"):
        F.gaussian_blur(np.zeros((2, 9, 1)), 5)


# -- values and kinds ------------------------------------------------------------------------------------------------


def test_normalize() -> None:
    floats = tensor(RNG.random((4, 5, 3)).astype(np.float32))
    mean, std = [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]
    made = F.normalize(floats, mean, std)
    expected = (floats.numpy() - np.array(mean).reshape(3, 1, 1)) / np.array(std).reshape(3, 1, 1)
    assert made.dtype == ox.float32 and np.allclose(made.numpy(), expected, atol=1e-5)
    again = F.normalize(made, [-m / s for m, s in zip(mean, std, strict=True)], [1 / s for s in std])
    assert np.allclose(again.numpy(), floats.numpy(), atol=1e-6)
    assert np.allclose(F.normalize(back(floats), mean, std), np.moveaxis(expected, 0, -1), atol=1e-5)
    with pytest.raises(DTypeError, match="takes floats") as error:
        F.normalize(PHOTO, mean, std)
    assert "ToTensor" in str(error.value)
    with pytest.raises(ArgumentError, match="std of normalize must not be 0"):
        F.normalize(floats, mean, [0.1, 0, 0.1])
    with pytest.raises(ShapeError, match="a channel"):
        F.normalize(floats, [0.5, 0.5], [1, 1])


def test_to_tensor() -> None:
    made = F.to_tensor(PHOTO)
    assert made.shape == (3, 20, 30) and made.dtype == ox.float32
    assert np.allclose(made.numpy(), np.moveaxis(PHOTO, -1, 0) / 255) and made.numpy().max() == 1
    assert F.to_tensor(Image.fromarray(PHOTO)).tolist() == made.tolist()
    assert F.to_tensor(GREY[..., 0]).shape == (1, 20, 30) and F.to_tensor(PHOTO[None]).shape == (1, 3, 20, 30)
    assert F.to_tensor(PHOTO.astype(np.float64)).numpy().max() == 255  # only bytes are scaled
    assert F.to_tensor(GREY > 9).dtype == ox.float32
    bytes_ = F.pil_to_tensor(PHOTO)
    assert bytes_.dtype == ox.uint8 and (bytes_.numpy() == np.moveaxis(PHOTO, -1, 0)).all()
    assert F.to_image(bytes_) is bytes_ and F.to_image(PHOTO).tolist() == bytes_.tolist()
    for wrong in (made, [[1]], "path"):
        with pytest.raises(DTypeError, match="a tensor is made of"):
            F.to_tensor(wrong)
    with pytest.raises(ShapeError, match="other layout"):
        F.to_tensor(np.zeros((3, 20, 30)))


def test_types_of_values() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(16, 16)
    floats = F.convert_image_dtype(every)
    assert floats.dtype == np.float32 and floats.max() == 1 and (F.convert_image_dtype(floats, np.uint8) == every).all()
    assert F.convert_image_dtype(floats, ox.float64).dtype == np.float64
    assert (F.convert_image_dtype(every, np.uint8) == every).all()
    wide = F.convert_image_dtype(every, ox.int16)
    assert wide.max() == 255 * 128 and (F.convert_image_dtype(wide, np.uint8) == every).all()
    narrow = F.convert_image_dtype(tensor(every[..., None]), ox.bfloat16)
    assert narrow.dtype == ox.bfloat16 and abs(narrow.float().numpy() * 255 - every).max() <= 1
    assert np.abs(F.convert_image_dtype(narrow, ox.uint8).numpy().astype(int) - every).max() <= 1
    assert F.to_dtype(tensor(PHOTO), ox.float32, scale=True).numpy().max() == 1
    assert F.to_dtype(tensor(PHOTO), ox.float32).numpy().max() == 255
    with pytest.raises(DTypeError):
        F.convert_image_dtype(PHOTO, np.complex64)


def test_pictures() -> None:
    assert (np.asarray(F.to_pil_image(tensor(PHOTO))) == PHOTO).all()
    assert F.to_pil_image(GREY).mode == "L" and F.to_pil_image(PHOTO, "L").mode == "L"
    assert (np.asarray(F.to_pil_image(F.to_tensor(PHOTO))) == PHOTO).all()
    with pytest.raises(ShapeError, match="one image"):
        F.to_pil_image(PHOTO[None])
    with pytest.raises(DTypeError):
        F.to_pil_image(PHOTO.astype(np.int64))
    assert F.get_dimensions(PHOTO) == [3, 20, 30] and F.get_image_size(tensor(PHOTO)) == [30, 20]


def test_erase() -> None:
    made = F.erase(tensor(PHOTO), 2, 3, 4, 5, ox.tensor([1, 2, 3], dtype=ox.uint8))
    assert (back(made)[2:6, 3:8] == [1, 2, 3]).all()
    whole = back(made).copy()
    whole[2:6, 3:8] = PHOTO[2:6, 3:8]
    assert (whole == PHOTO).all()
