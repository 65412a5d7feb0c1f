"""Images in folders, one a class."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ox.data.checksum import checksum
from ox.data.dataset import Dataset
from ox.data.datasets.paths import applied
from ox.errors import ArgumentError, BoundsError, LoadError, cannot_open

MAX_BYTES = 1 << 26  # files that are larger together are compared by name and size
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# by content, whatever a file is called; not among them are those for which Pillow starts other programs, as PostScript
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


def read_image(path: str | os.PathLike[str], mode: str = "RGB") -> NDArray[np.uint8]:
    """The pixels of an image file: BMP, GIF, JPEG, JPEG 2000, PNG, PPM, TIFF or WebP.

    Pixels of 16 bits keep their upper 8. A PNG file is read whole or not at all: its checksums are compared.

    Args:
        mode: "RGB" for three channels, "L" for one of grey levels, or another of Pillow's modes of 8 bits.

    Returns:
        uint8 [h, w, c].

    Raises:
        LoadError: no such file (then also a FileNotFoundError), no image, a damaged one, or one of 32 bits a pixel,
            which have no range; or one of more than `PIL.Image.MAX_IMAGE_PIXELS` pixels (about 89 million unless you
            set it), as small files that unpack to gigabytes are.
    """
    from PIL import Image

    limit = Image.MAX_IMAGE_PIXELS
    try:
        with open(path, "rb") as file, Image.open(file, formats=FORMATS) as image:
            if limit is not None and image.width * image.height > limit:
                raise Image.DecompressionBombError(f"{image.width:,} × {image.height:,}")
            array = _pixels(image, mode)
            if image.format == "PNG":
                file.seek(0)
                _check_png(file)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LoadError(
            f"{path} is too large an image",
            expected=f"at most {limit:,} pixels",
            got=str(error),
            hint="PIL.Image.MAX_IMAGE_PIXELS = ..., if you trust the file",
        ) from None
    except Exception as error:  # what a hostile file can make of Pillow's decoders has no common base
        if isinstance(error, OSError) and error.errno is not None:
            raise cannot_open(path, error) from error
        raise LoadError(f"{path} is no image, or a damaged one", got=str(error) or type(error).__name__) from error
    return array if array.ndim == 3 else array[..., np.newaxis]


def _pixels(image: Any, mode: str) -> NDArray[np.uint8]:
    """The pixels in a mode of 8 bits. Raises ValueError for those of 32 bits."""
    from PIL import Image

    if image.mode == mode:
        return np.asarray(image)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))  # Pillow would cut off what is above 255
    elif image.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits (mode {image.mode}), of which nothing says what is white")
    return np.asarray(image if image.mode == mode else image.convert(mode))


def _check_png(file: BinaryIO) -> None:
    """Raises ValueError for a PNG file that lacks its end or has a wrong checksum, which Pillow does not notice where
    all pixels are there."""
    file.seek(8)
    kind = b""
    while kind != b"IEND":
        length, kind = int.from_bytes(file.read(4)), file.read(4)
        data, checksum = file.read(length), file.read(4)
        if len(checksum) < 4:
            raise ValueError("the file is truncated: it has no IEND chunk")
        if zlib.crc32(data, zlib.crc32(kind)) != int.from_bytes(checksum):
            raise ValueError(f"the checksum of the chunk {kind!r} is wrong")


class DatasetFolder(Dataset):
    """Files in folders: each folder of `root` is a class, with all files in it and below.
    `torchvision.datasets.DatasetFolder`; links to files and folders are followed.

    A sample is what `loader` and `transform` make of the file, and its class, an int.

    Attributes:
        classes: the folders' names, sorted. class_to_idx: their numbers.
        samples: (path, class) of each sample. targets: the classes alone.

    Args:
        loader: takes a path.
        extensions: endings of the files that count, in small letters; capitals are taken for the same.
        is_valid_file: takes a path and returns whether it is a sample, instead of `extensions`.
        allow_empty: take classes without a file.

    Raises:
        LoadError: no such folder, no folders in it, classes without a file; when a sample is read, a file that
            cannot be read, with its path and its index.
        ArgumentError: both or neither of `extensions` and `is_valid_file`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Any = None,
        target_transform: Any = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        if (extensions is None) == (is_valid_file is None):
            raise ArgumentError("a folder of files needs extensions or is_valid_file, and not both")
        self.root, self.loader = os.fspath(Path(root).expanduser()), loader
        self.transform, self.target_transform = transform, target_transform
        self.classes, self.class_to_idx = self.find_classes(self.root)
        counts = is_valid_file or (lambda path: path.lower().endswith(tuple(extensions or ())))
        self.samples = [
            (path, number)
            for name, number in sorted(self.class_to_idx.items())
            for path in _files(os.path.join(self.root, name))
            if counts(path)
        ]
        self.targets = [number for _, number in self.samples]
        empty = sorted(set(self.class_to_idx.values()) - set(self.targets))
        if empty and not allow_empty:
            names = [name for name, number in self.class_to_idx.items() if number in empty]
            raise LoadError(
                f"{self.root} has classes without a file",
                expected="files that end in " + ", ".join(extensions)
                if extensions
                else "files that is_valid_file takes",
                got=", ".join(names[:20]),
                hint="allow_empty=True",
            )

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The classes and their numbers; a subclass may find them otherwise."""
        try:
            with os.scandir(directory) as entries:
                classes = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise cannot_open(directory, error, hint="root=...") from error
        if not classes:
            raise LoadError(f"{directory} has no folders", expected="a folder for each class")
        return classes, {name: i for i, name in enumerate(classes)}

    def __len__(self) -> int:
        return len(self.samples)

    def fingerprint(self) -> str:
        """A checksum of the files: names in the folder, classes and sizes; of up to `MAX_BYTES` together also the
        bytes."""
        files = [(os.path.relpath(path, self.root), number, os.stat(path).st_size) for path, number in self.samples]
        content = []
        if sum(size for _, _, size in files) <= MAX_BYTES:
            content = [checksum(Path(path).read_bytes()) for path, _ in self.samples]
        return checksum([self.classes, files, content])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not -len(self) <= index < len(self):
            raise BoundsError(f"{self.root} has no sample {index}", expected=f"0 to {len(self) - 1}")
        path, target = self.samples[index]
        try:
            sample = self.loader(path)
        except LoadError as error:
            error.extra["sample"] = str(index)
            raise
        except OSError as error:
            raise LoadError(f"{path} cannot be read", got=str(error), extra={"sample": str(index)}) from error
        return applied(self.transform, sample), applied(self.target_transform, target)


class ImageFolder(DatasetFolder):
    """Images in folders: ``root/dog/xxx.png``, ``root/cat/123.jpg``. `torchvision.datasets.ImageFolder`.

    A sample is an image, uint8 [h, w, 3] by `read_image`, and its class, an int, or what `transform` and
    `target_transform` make of them. All else as for `DatasetFolder`; `imgs` is another name for `samples`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Any = None,
        loader: Callable[[str], Any] = read_image,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


def _files(folder: str) -> Iterator[str]:
    """All files below, sorted by folder and then by name."""
    for below, names in sorted(_folders(folder, ())):
        yield from (os.path.join(below, name) for name in names)


def _folders(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Each folder and the names of its files; a link to a parent folder is not followed."""
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    yield folder, [entry.name for entry in entries if not entry.is_dir()]
    for entry in entries:
        if entry.is_dir():
            yield from _folders(entry.path, (*above, real))
