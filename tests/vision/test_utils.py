"""`make_grid` and `save_image`, beside what torchvision's documentation says of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox.vision.utils import make_grid, save_image


def expected(images: np.ndarray, columns: int, padding: int, value: float) -> np.ndarray:
    """Images placed one by one."""
    n, c, h, w = images.shape
    rows, columns = -(-n // columns), min(columns, n)
    grid = np.full((c, rows * (h + padding) + padding, columns * (w + padding) + padding), value, images.dtype)
    for i, image in enumerate(images):
        y, x = padding + i // columns * (h + padding), padding + i % columns * (w + padding)
        grid[:, y : y + h, x : x + w] = image
    return grid


@pytest.mark.parametrize(("n", "columns", "padding", "value"), [(7, 3, 2, 0.5), (2, 8, 1, 0.0), (4, 2, 0, 1.0)])
def test_images_stand_side_by_side(n: int, columns: int, padding: int, value: float) -> None:
    images = np.random.default_rng(0).random((n, 3, 4, 5), dtype=np.float32)
    grid = make_grid(ox.tensor(images), nrow=columns, padding=padding, pad_value=value)
    np.testing.assert_array_equal(grid.numpy(), expected(images, columns, padding, value))
    listed = make_grid([ox.tensor(image) for image in images], columns, padding, pad_value=value)
    np.testing.assert_array_equal(listed.numpy(), grid.numpy())


def test_grey_and_single_images() -> None:
    assert make_grid(ox.rand(4, 1, 2, 2)).shape == (3, 6, 18)
    for shape in ((3, 4), (1, 3, 4), (1, 1, 3, 4)):
        assert make_grid(ox.rand(*shape, requires_grad=True)).shape == (3, 3, 4)
    assert not make_grid(ox.rand(2, 3, 4, 4, requires_grad=True)).requires_grad
    assert make_grid(ox.rand(1, 5, 3, 4)).shape == (5, 3, 4)


def test_normalized() -> None:
    images = ox.tensor(np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2))
    before = images.clone()
    whole = make_grid(images, padding=0, normalize=True)
    np.testing.assert_allclose([whole.min().item(), whole.max().item()], [0, 1])
    each = make_grid(images, padding=0, normalize=True, scale_each=True)
    np.testing.assert_allclose(each[..., :2].numpy(), each[..., 2:].numpy(), rtol=1e-6)
    ranged = make_grid(images, padding=0, normalize=True, value_range=(0, 12))
    np.testing.assert_allclose(ranged[..., :2].numpy(), images[0].numpy() / 12, rtol=1e-6)
    assert ranged.max().item() == 1 and bool((images == before).all())


def test_save(tmp_path: Path) -> None:
    from PIL import Image

    images = ox.tensor(np.random.default_rng(1).random((3, 1, 4, 4), dtype=np.float32) * 1.2)
    save_image(images, tmp_path / "x.png", nrow=2)
    read = np.asarray(Image.open(tmp_path / "x.png"))
    grid = make_grid(images, nrow=2).numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(read, np.clip(grid * 255 + 0.5, 0, 255).astype(np.uint8))
    file = io.BytesIO()
    save_image(images, file, format="png", nrow=2)
    assert file.getvalue() == (tmp_path / "x.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor": ox.rand(2)}, "a grid is made of images"),
        ({"tensor": ox.rand(0, 3, 2, 2)}, "a grid is made of images"),
        ({"tensor": ox.rand(2, 3, 2, 2), "nrow": 0}, "a grid has a column"),
        ({"tensor": ox.rand(2, 3, 2, 2), "padding": -1}, "no negative padding"),
        ({"tensor": ox.rand(2, 3, 2, 2), "normalize": True, "value_range": 3}, "value_range is the least"),
    ],
)
def test_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_grid(**arguments)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for name in ("nothing/x.png", "x.nothing", "x"):
        with pytest.raises(OSError, match="was not written"):
            save_image(ox.rand(3, 4, 4), tmp_path / name)
