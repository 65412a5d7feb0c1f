"""A decoder in an ONNX file, run by ONNX Runtime."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.devices.runtime import onnxruntime
from ox.errors import LoadError
from ox.generation.generate import Generates
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]

DECODER = "ox.decoder"  # the metadata of a file: context length and number of tokens
PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")
TYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
UNLIMITED = 1 << 31  # of a file that does not tell its context length


class PastValues:
    """Keys and values of all layers between two runs of a file, and which tokens are real."""

    def __init__(self, empty: dict[str, tuple[int, int, np.dtype[Any]]]) -> None:
        self.values: dict[str, Array] = {}
        self.real: Array | None = None  # bool [batch, length]
        self._empty = empty

    def begin(self, batch: int) -> None:
        """No tokens yet."""
        self.values = {
            name: np.zeros((batch, heads, 0, size), dtype) for name, (heads, size, dtype) in self._empty.items()
        }
        self.real = np.ones((batch, 0), bool)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts of the batch, in this order; one may be there several times."""
        index = np.asarray(rows, np.int64)
        self.values = {name: value[index] for name, value in self.values.items()}
        if self.real is not None:
            self.real = self.real[index]


class OnnxDecoder(Generates):
    """A decoder in an ONNX file with the inputs and outputs of Optimum's: ``input_ids``, ``attention_mask``,
    ``position_ids`` (not all have it), ``past_key_values.N.key`` and ``.value`` to ``logits``, ``present.N.key`` and
    ``.value``. `ox.export.save_decoder` writes it.

    Args:
        path: the file, or a folder with model.onnx.
        threads: of ONNX Runtime; default: its own.

    Raises:
        LoadError: no such file, ONNX Runtime refuses it, or it has other inputs and outputs.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int = 0) -> None:
        self.path = Path(path) / "model.onnx" if Path(path).is_dir() else Path(path)
        if not self.path.is_file():
            raise LoadError(f"there is no file {self.path}", expected="a decoder in ONNX, or its folder")
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        try:
            self.session = ort.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            got = str(error).strip().splitlines()[0]
            raise LoadError(f"ONNX Runtime refuses {self.path}", got=got) from error
        self._inputs = {info.name: info for info in self.session.get_inputs()}
        self._outputs = [info.name for info in self.session.get_outputs()]
        self._pasts = [name for name in self._inputs if PAST.fullmatch(name)]
        self._presents = [name.replace("past_key_values", "present") for name in self._pasts]
        self._check()
        self._empty = {name: self._sizes(name) for name in self._pasts}
        stored = self.session.get_modelmeta().custom_metadata_map.get(DECODER)
        self._context = int(json.loads(stored)["context_length"]) if stored else UNLIMITED

    @property
    def context_length(self) -> int:
        return self._context

    def new_cache(self, capacity: int) -> PastValues:
        return PastValues(self._empty)

    def __call__(self, input_ids: Tensor, cache: PastValues | None = None, attention_mask: Any = None) -> Tensor:
        """Scores [batch, new, vocabulary] of the token after each of the new ones."""
        past = self.new_cache(0) if cache is None else cache
        ids = input_ids.numpy()
        if past.real is None:
            past.begin(len(ids))
        before = past.real
        assert before is not None
        new = np.ones(ids.shape, bool) if attention_mask is None else np.asarray(attention_mask) != 0
        real = np.concatenate([before, new], 1)
        feed: dict[str, Any] = {"input_ids": ids, "attention_mask": real.astype(np.int64), **past.values}
        if "position_ids" in self._inputs:
            feed["position_ids"] = np.maximum(real.cumsum(1) - 1, 0)[:, before.shape[1] :]
        if "use_cache_branch" in self._inputs:  # files with two branches in one graph
            feed["use_cache_branch"] = np.array([before.shape[1] > 0])
        logits, *presents = self.session.run(["logits", *self._presents], feed)
        past.values = dict(zip(self._pasts, presents, strict=True))
        past.real = real
        scores: Tensor = make_tensor(logits)
        return scores

    def _check(self) -> None:
        known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch", *self._pasts}
        missing = {"input_ids", "attention_mask"} - self._inputs.keys()
        missing |= {"logits", *self._presents} - set(self._outputs)
        if missing or not self._pasts or self._inputs.keys() - known:
            raise LoadError(
                f"{self.path} is no decoder with a cache",
                expected="input_ids, attention_mask, past_key_values.N.key and .value to logits and present.N...",
                got=f"inputs {', '.join(self._inputs)}; outputs {', '.join(self._outputs)}",
                hint="ox.export.save_decoder, or Optimum's task text-generation-with-past",
            )

    def _sizes(self, name: str) -> tuple[int, int, np.dtype[Any]]:
        shape = self._inputs[name].shape
        known = len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int)
        if not known or self._inputs[name].type not in TYPES:
            raise LoadError(
                f"'{name}' is no cache that can be given",
                expected="float32 or float16 [batch, 8, past, 64]",
                got=f"{self._inputs[name].type} {shape}",
            )
        return shape[1], shape[3], TYPES[self._inputs[name].type]
