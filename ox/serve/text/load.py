"""Reads what stands beside a model that reads texts."""

from __future__ import annotations

from pathlib import Path

from ox.graph.contract import TensorInfo
from ox.serve.text.folder import read_folder
from ox.serve.text.text_tensors import TextTensors, reads_text
from ox.serve.text.vocabulary import check_vocabulary


def text_tensors(
    folder: Path, file: Path, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]
) -> TextTensors | None:
    """The tensors of a model with a tokenizer beside it; None for a model that takes no tokens.

    Args:
        folder: with the tokenizer.
        file: the model in it.
        inputs, outputs: those of the file.

    Raises:
        LoadError: files that are damaged, contradict one another, or ask for what is not implemented.
        DeviceError: the package tokenizers is not installed.
    """
    if not reads_text(inputs):
        return None
    tensors = TextTensors(read_folder(folder, file), inputs, outputs)
    check_vocabulary(file, tensors.tokenizer)
    return tensors
