"""Folders of images: which files make which samples, and files that are no images."""

from __future__ import annotations

import errno
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rows import rows

from ox.data.datasets import DatasetFolder, ImageFolder, read_image
from ox.errors import ArgumentError, BoundsError, LoadError


def picture(path: Path, value: int = 0, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (6, 4), value if mode == "L" else (value, 10, 20)).save(path)
    return path


def zoo(root: Path) -> Path:
    picture(root / "dog" / "b.png", 1)
    picture(root / "dog" / "a.PNG", 2)
    picture(root / "dog" / "young" / "0.bmp", 3)
    picture(root / "dog" / "young" / "z" / "1.bmp", 5)
    picture(root / "dog" / "young-ones" / "0.bmp", 6)
    picture(root / "cat" / "x.jpeg", 4)
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "readme.txt").write_text("no class")
    return root


def test_samples_and_classes(tmp_path: Path) -> None:
    data = ImageFolder(zoo(tmp_path))
    assert data.classes == ["cat", "dog"] and data.class_to_idx == {"cat": 0, "dog": 1}
    names = [str(Path(path).relative_to(tmp_path)) for path, _ in data.samples]
    # as torchvision sorts them: by the whole path of the folder
    inside = ["dog/young/0.bmp", "dog/young-ones/0.bmp", "dog/young/z/1.bmp"]
    assert names == ["cat/x.jpeg", "dog/a.PNG", "dog/b.png", *inside]
    assert data.targets == [0, 1, 1, 1, 1, 1] and data.imgs is data.samples and len(data) == 6
    image, label = data[2]
    assert image.dtype == np.uint8 and image.shape == (4, 6, 3) and image[0, 0].tolist() == [1, 10, 20] and label == 1
    assert (data[-1][0] == data[5][0]).all()
    with pytest.raises(BoundsError, match="no sample 6"):
        data[6]
    shown = ImageFolder(tmp_path, transform=lambda x: x.shape, target_transform=lambda y: y * 10)
    assert shown[1] == ((4, 6, 3), 10)


def test_which_files_count(tmp_path: Path) -> None:
    zoo(tmp_path)
    small = ImageFolder(tmp_path, is_valid_file=lambda path: Path(path).name in ("x.jpeg", "b.png", "1.bmp"))
    assert [Path(path).name for path, _ in small.samples] == ["x.jpeg", "b.png", "1.bmp"]
    texts = DatasetFolder(tmp_path, lambda path: Path(path).read_text(), (".txt",), allow_empty=True)
    assert [texts[i] for i in range(len(texts))] == [("no image", 0)]
    with pytest.raises(LoadError, match="classes without a file") as error:
        DatasetFolder(tmp_path, str, (".txt",))
    assert "dog" in str(error.value) and ".txt" in str(error.value)
    for both in ({"extensions": (".a",), "is_valid_file": bool}, {}):
        with pytest.raises(ArgumentError, match="not both"):
            DatasetFolder(tmp_path, str, **both)  # type: ignore[arg-type]


def test_folders_that_do_not_do(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be opened"):
        ImageFolder(tmp_path / "none")
    with pytest.raises(LoadError, match="has no folders"):
        ImageFolder(tmp_path)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    zoo(tmp_path / "real")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cat").symlink_to(tmp_path / "real" / "cat")
    (tmp_path / "root" / "dog").mkdir()
    (tmp_path / "root" / "dog" / "one.png").symlink_to(tmp_path / "real" / "dog" / "b.png")
    (tmp_path / "root" / "dog" / "again").symlink_to(tmp_path / "root")
    data = ImageFolder(tmp_path / "root")
    names = [str(Path(path).relative_to(tmp_path / "root")) for path, _ in data.samples]
    assert names == ["cat/x.jpeg", "dog/one.png", "dog/again/cat/x.jpeg"]
    assert data[1][0][0, 0, 0] == 1


def test_other_modes(tmp_path: Path) -> None:
    grey = picture(tmp_path / "g.png", 200, "L")
    assert read_image(grey).tolist() == [[[200] * 3] * 6] * 4
    assert read_image(grey, "L").shape == (4, 6, 1) and read_image(grey, "RGBA").shape == (4, 6, 4)


def png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that promises width × height pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_damaged_images_name_file_and_sample(tmp_path: Path) -> None:
    zoo(tmp_path)
    data = ImageFolder(tmp_path)
    path = tmp_path / "dog" / "b.png"
    whole = path.read_bytes()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), np.uint8)).save(tmp_path / "noise.jpg")
    noise = (tmp_path / "noise.jpg").read_bytes()
    for content in (b"", b"text", whole[:40], whole[:45], png(0, 0), png(40, 40), noise[: len(noise) // 2]):
        path.write_bytes(content)
        with pytest.raises(LoadError, match=r"b\.png is no image, or a damaged one") as error:
            data[2]
        assert error.value.extra == {"sample": "2"}
    path.unlink()
    with pytest.raises(LoadError, match=r"b\.png cannot be opened") as error:
        data[2]
    assert error.value.extra == {"sample": "2"}


def test_programs_are_no_images(tmp_path: Path) -> None:
    """Pillow knows images by their content, and runs an interpreter for this one, whatever it is called."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "EPS"
    with pytest.raises(LoadError, match="no image") as error:
        read_image(tmp_path / "a.png")
    assert "cannot identify" in str(error.value)  # and it was not tried to run the interpreter


@pytest.mark.parametrize("side", [9_500, 20_000, 100_000])
def test_bombs_are_refused(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(png(side, side))
    with pytest.raises(LoadError, match="too large an image") as error:
        read_image(tmp_path / "bomb.png")
    assert "MAX_IMAGE_PIXELS" in str(error.value)


def test_the_limit_of_pixels_is_pillows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = picture(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 23)
    with pytest.raises(LoadError, match="too large"):
        read_image(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert read_image(path).shape == (4, 6, 3)


def test_a_loader_of_ones_own_that_fails(tmp_path: Path) -> None:
    def loader(path: str) -> Any:
        raise OSError("the network is down") if path.endswith("x.jpeg") else ZeroDivisionError("a mistake")

    data = ImageFolder(zoo(tmp_path), loader=loader)
    with pytest.raises(LoadError, match=r"x\.jpeg cannot be read") as error:
        data[0]
    assert error.value.extra == {"sample": "0"} and "network" in str(error.value)
    with pytest.raises(ZeroDivisionError):
        data[1]


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


MODES = ["RGB", "L", "P", "1", "RGBA", "I;16"]


@rows("mode", MODES)
def test_a_png_file_that_was_cut_or_changed_is_an_error(tmp_path: Path, mode: str) -> None:
    """Pillow reads it, without a word, where all pixels are there, and compares no checksum of pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    image = Image.fromarray(pixels).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    whole, path = encoded(image, "PNG"), tmp_path / "a.png"
    for count in range(0, len(whole), 3):
        path.write_bytes(whole[:count])
        with pytest.raises(LoadError, match=r"a\.png is no image, or a damaged one"):
            read_image(path)
    start = whole.index(b"IDAT")
    for position in range(start + 4, len(whole) - 12, 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        with pytest.raises(LoadError, match=r"a\.png"):
            read_image(path)
    path.write_bytes(whole + b"what comes after the end does not count")
    assert read_image(path).shape == (6, 6, 3)


FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("JPEG", {}), ("JPEG", {"progressive": True}), ("GIF", {}), ("WEBP", {}), ("WEBP", {"lossless": True}), ("BMP", {}),
    ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("TIFF", {"compression": "tiff_deflate"}), ("PPM", {}),
]  # fmt: skip


@rows(("kind", "options"), FORMATS, ids=str)
def test_a_file_that_was_cut_gives_an_error_or_all_of_its_pixels(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    whole, path = encoded(Image.fromarray(pixels), kind, **options), tmp_path / "a"
    path.write_bytes(whole)
    expected = read_image(path)
    for count in range(0, len(whole), 29):
        path.write_bytes(whole[:count])
        try:
            assert np.array_equal(read_image(path), expected)
        except LoadError as error:
            assert str(path) in error.what


def test_pixels_of_16_bits_keep_their_upper_ones(tmp_path: Path) -> None:
    """Pillow's conversion cuts off what is above 255: nearly all becomes white."""
    values = np.arange(0, 65536, 1024, np.uint16).reshape(8, 8)
    for kind in ("PNG", "TIFF", "PPM"):
        (tmp_path / "a").write_bytes(encoded(Image.fromarray(values), kind))
        assert np.array_equal(read_image(tmp_path / "a", "L")[..., 0], values >> 8), kind
        assert np.array_equal(read_image(tmp_path / "a")[..., 2], values >> 8), kind
    for dtype in (np.int32, np.float32):
        (tmp_path / "a").write_bytes(encoded(Image.fromarray(values.astype(dtype)), "TIFF"))
        with pytest.raises(LoadError, match="damaged") as error:
            read_image(tmp_path / "a")
        assert "32 bits" in str(error.value)


def test_a_missing_image_is_a_file_that_was_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be opened") as error:
        read_image(tmp_path / "gone.png")
    assert isinstance(error.value, LoadError) and error.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError):
        read_image(tmp_path)
