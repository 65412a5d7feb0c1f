"""Text files: their lines, and blocks of their characters or tokens for language models. Files stay on disk and are
mapped, so they may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ox.core.operator import make_tensor
from ox.data.dataset import Dataset
from ox.data.datasets.paths import applied
from ox.errors import ArgumentError, BoundsError, DTypeError, LoadError, cannot_open
from ox.installation import install_command
from ox.serialization.files import write_whole
from ox.tensors.tensor import Tensor

CHUNK = 1 << 24  # bytes looked at together


def _mapped(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    try:
        if Path(path).stat().st_size == 0:  # nothing of this size can be mapped
            return np.zeros(0, np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise cannot_open(path, error) from error


def _chunks(data: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    return ((start, data[start : start + CHUNK]) for start in range(0, len(data), CHUNK))


class TextLines(Dataset):
    """The lines of a text file, without their ends: ``\\n``, ``\\r\\n``. The file is mapped; 8 bytes a line are kept.

    Args:
        transform: makes of a line what the sample is, as a tokenizer does.

    Raises:
        LoadError: no such file; when a line is read, bytes that are no text in `encoding`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Callable[[str], Any] | None = None,
        encoding: str = "utf-8",
    ) -> None:
        try:
            known = "a\n".encode(encoding) == b"a\n"
        except LookupError:
            known = False
        if not known:
            raise ArgumentError(
                "TextLines needs a known encoding that extends ASCII",
                expected="as utf-8, latin-1 or cp1252",
                got=encoding,
            )
        self.path, self.transform, self.encoding = Path(path), transform, encoding
        self._bytes = _mapped(path)
        ends = [start + np.flatnonzero(chunk == 10) for start, chunk in _chunks(self._bytes)]
        if len(self._bytes) and self._bytes[-1] != 10:
            ends.append(np.array([len(self._bytes)]))
        self._ends: NDArray[np.int64] = np.concatenate([np.array([-1]), *ends])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Any:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise BoundsError(f"{self.path} has no line {index}", expected=f"0 to {len(self) - 1}")
        line = self._bytes[self._ends[at] + 1 : self._ends[at + 1]].tobytes()
        try:
            text = line.removesuffix(b"\r").decode(self.encoding)
        except UnicodeDecodeError as error:
            raise LoadError(
                f"line {at + 1} of {self.path} is no {self.encoding}",
                got=str(error),
                hint="encoding='latin-1', or the file's own",
            ) from None
        return applied(self.transform, text)


class TokenBlocks(Dataset):
    """Stretches of a long row of tokens: a sample is ``(x, y)``, each int64 [block], and y is x one token further on.

    Args:
        tokens: integers [n], an array (which may be mapped) or the path of an ``.npy`` file, which is mapped.
        block: tokens a sample.
        stride: from one sample's start to the next one's; default `block`, so that an epoch reads the text once.
            With 1 each place starts a sample.

    Raises:
        ArgumentError: a text too short for one block.
        DTypeError: tokens that are no integers.
        LoadError: a path that is no ``.npy`` file.
    """

    def __init__(self, tokens: Any, block: int, stride: int | None = None) -> None:
        if isinstance(tokens, str | os.PathLike):
            tokens = _npy(tokens)
        self.tokens: NDArray[Any] = tokens.array if isinstance(tokens, Tensor) else np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise DTypeError("tokens are integers in one row", got=f"{self.tokens.dtype} {list(self.tokens.shape)}")
        self.block, self.stride = block, block if stride is None else stride
        if block < 1 or self.stride < 1:
            raise ArgumentError("block and stride are at least 1", got=f"{block} and {self.stride}")
        if len(self.tokens) <= block:
            raise ArgumentError(
                "the text is too short for one block",
                expected=f"more than {block} tokens",
                got=str(len(self.tokens)),
                hint="a smaller block",
            )

    def __len__(self) -> int:
        return (len(self.tokens) - 1 - self.block) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise BoundsError(f"there is no block {index}", expected=f"0 to {len(self) - 1}")
        x, y = self.batch(np.array([index % len(self)]))
        return make_tensor(x.array[0]), make_tensor(y.array[0])

    def batch(self, indices: NDArray[Any]) -> list[Tensor]:
        """x and y of many indices, int64 [n, block] each."""
        places = np.asarray(indices)[:, np.newaxis] * self.stride + np.arange(self.block + 1)
        tokens = self.encoded(self.tokens[places])
        return [make_tensor(np.ascontiguousarray(part)) for part in (tokens[:, :-1], tokens[:, 1:])]

    def encoded(self, raw: NDArray[Any]) -> NDArray[np.int64]:
        """The tokens in `self.tokens`."""
        return raw.astype(np.int64)


def _npy(path: str | os.PathLike[str]) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise cannot_open(path, error) from error
    except Exception as error:  # NumPy reads the header as Python source, so much can be wrong with it
        raise LoadError(f"{path} is no .npy file, or a damaged one", got=str(error)) from error


class CharText(TokenBlocks):
    """Blocks of a text's characters; each character is a token, and samples are those of `TokenBlocks`.

    A file of plain ASCII is mapped, and encoded as it is read, so it may be larger than memory; one with other
    characters is decoded whole and kept at four bytes a character.

    Attributes:
        alphabet: the characters in the order of their tokens.

    Args:
        path: a text file in UTF-8.
        alphabet: the characters, as of the training text for a validation text; default all that the text has, sorted.
        start, end: the part of the text to take, as fractions from 0 to 1.

    Raises:
        ArgumentError: a character that the alphabet lacks; a text too short for one block.
        LoadError: no such file, or no UTF-8.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        block: int,
        stride: int | None = None,
        alphabet: Sequence[str] | None = None,
        start: float = 0.0,
        end: float = 1.0,
    ) -> None:
        raw: NDArray[Any] = _mapped(path)
        if any(int(chunk.max()) > 127 for _, chunk in _chunks(raw)):
            try:
                raw = np.frombuffer(raw.tobytes().decode("utf-8").encode("utf-32-le"), "<u4")
            except UnicodeDecodeError as error:
                raise LoadError(f"{path} is no UTF-8 text", got=str(error)) from None
        if not 0 <= start < end <= 1:
            raise ArgumentError("start and end are fractions of the text", got=f"{start} to {end}")
        seen = np.unique(np.concatenate([np.zeros(0, raw.dtype), *(np.unique(chunk) for _, chunk in _chunks(raw))]))
        characters = [chr(code) for code in seen.tolist()]
        self.alphabet = characters if alphabet is None else list(alphabet)
        lacking = sorted(set(characters) - set(self.alphabet))
        if lacking:
            raise ArgumentError(f"{path} has characters that the alphabet lacks", got=repr("".join(lacking[:20])))
        self._codes = {character: i for i, character in enumerate(self.alphabet)}
        self._seen, self._tokens = seen, np.array([self._codes[c] for c in characters], np.int64)
        super().__init__(raw[int(len(raw) * start) : int(len(raw) * end)], block, stride)

    def encoded(self, raw: NDArray[Any]) -> NDArray[np.int64]:
        return self._tokens[np.searchsorted(self._seen, raw)]

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, int64 [len(text)]. Raises ArgumentError for a character that the alphabet lacks."""
        try:
            return make_tensor(np.array([self._codes[character] for character in text], np.int64))
        except KeyError as error:
            raise ArgumentError(f"the alphabet has no {error}", got=repr(text[:60])) from None

    def decode(self, tokens: Any) -> str:
        """The text of tokens, integers [n]."""
        array = tokens.array if isinstance(tokens, Tensor) else np.asarray(tokens)
        return "".join(self.alphabet[int(i)] for i in array.reshape(-1))


def load_tokenizer(path: str | os.PathLike[str]) -> Any:
    """The `tokenizers.Tokenizer` of a ``tokenizer.json``, the form in which Hugging Face's models bring theirs.

    Raises:
        ArgumentError: the package `tokenizers` is not installed. LoadError: no such file, or not of this form.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ArgumentError(
            "tokenizers are read by the package tokenizers, which is not installed", hint=install_command("text")
        ) from None
    try:
        return Tokenizer.from_str(Path(path).read_text("utf-8"))
    except OSError as error:
        raise cannot_open(path, error) from error
    except Exception as error:  # the library raises nothing finer
        raise LoadError(f"{path} is no tokenizer.json", got=str(error)) from None


def write_tokens(lines: Iterable[str], encode: Callable[[str], Sequence[int]], path: str | os.PathLike[str]) -> int:
    """Encode a text line by line into an ``.npy`` file of uint32 tokens for `TokenBlocks`; memory holds one line.

    Args:
        encode: gives a line's tokens; ``lambda line: tokenizer.encode(line + "\\n").ids`` for one of `load_tokenizer`.
        path: the file to write; it appears when it is whole.

    Returns:
        How many tokens were written.

    Raises:
        ArgumentError: a token that is no integer from 0 to 2^32 - 1. WriteError: the system refuses.
    """
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with open(temporary, "wb") as f:
            _write_header(f, 0)
            for number, line in enumerate(lines, 1):
                tokens = np.asarray(encode(line))
                if tokens.size and (
                    tokens.ndim != 1 or tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >> 32
                ):
                    raise ArgumentError(
                        f"the tokens of line {number} are no row of integers from 0 to 2^32 - 1",
                        got=f"{tokens.dtype} {list(tokens.shape)}",
                    )
                f.write(tokens.astype("<u4").tobytes())
                count += tokens.size
            f.seek(0)
            _write_header(f, count)

    write_whole(path, write)
    return count


def _write_header(file: BinaryIO, count: int) -> None:
    """NumPy leaves room for a larger count, so the header can be written again once that is known."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<u4", "fortran_order": False, "shape": (count,)})
