"""A decoder in an ONNX file, run by ONNX Runtime."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import LoadError, first_line
from ox.generation.genai_config import FILE, read_genai_config
from ox.generation.generate import Generates
from ox.generation.generation_config import read_generation_config
from ox.generation.past_values import GroupedPastValues, PastValues
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]

DECODER = "ox.decoder"  # the metadata of a file: context length and number of tokens
KINDS = ("key", "value")
PLAIN = {  # names of Optimum's
    name: name
    for name in (
        "input_ids", "attention_mask", "position_ids", "logits",
        *(f"{side}.%d.{kind}" for side in ("past_key_values", "present") for kind in KINDS),
    )
}  # fmt: skip
INTEGERS: dict[str, np.dtype[Any]] = {"tensor(int32)": np.dtype(np.int32), "tensor(bool)": np.dtype(bool)}
TYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
UNLIMITED = 1 << 31  # of a file that does not tell its context length


class OnnxDecoder(Generates):
    """A decoder in an ONNX file with the inputs and outputs of Optimum's: ``input_ids``, ``attention_mask``,
    ``position_ids`` (not all have it), ``past_key_values.N.key`` and ``.value`` to ``logits``, ``present.N.key`` and
    ``.value``. `ox.export.save_decoder` writes it. Folders of onnxruntime-genai, which name them in genai_config.json,
    are read, too. What is in bfloat16 is computed in float32.

    Args:
        path: the file, or a folder with model.onnx or genai_config.json.
        threads: of ONNX Runtime; default: its own.

    Attributes:
        defaults: how texts are chosen by the files beside the model; ``generate(ids, **decoder.defaults)``.

    Raises:
        LoadError: no such file, ONNX Runtime refuses it, or it has other inputs and outputs.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int = 0) -> None:
        path = Path(path)
        config = read_genai_config(path) if (path / FILE).is_file() else None
        self.path = config.file if config is not None else path / "model.onnx" if path.is_dir() else path
        if not self.path.is_file():
            raise LoadError(f"there is no file {self.path}", expected="a decoder in ONNX, or its folder")
        self.session = self._session(threads)
        self._inputs = {info.name: info for info in self.session.get_inputs()}
        self._outputs = [info.name for info in self.session.get_outputs()]
        self._names = dict(PLAIN) if config is None else config.names
        # GroupQueryAttention, which such files have, counts positions from the first column of the mask.
        self._grouped = config is not None
        self._pasts, self._presents = self._cache_names(None if config is None else config.layers)
        self._check()
        self._empty = {name: self._sizes(name, (None, None) if config is None else config.cache_dims)
                       for name in self._pasts}  # fmt: skip
        stored = self.session.get_modelmeta().custom_metadata_map.get(DECODER)
        self._context = int(json.loads(stored)["context_length"]) if stored else UNLIMITED
        self.defaults: dict[str, Any] = {}
        if config is not None:
            self._context, self.defaults = config.context_length, config.defaults
        elif (beside := self.path.with_name("generation_config.json")).is_file():
            self.defaults = read_generation_config(beside)

    def _session(self, threads: int) -> Any:
        from ox.graph.bfloat16_file import takes_bfloat16, widen  # onnx takes a while to import
        from ox.graph.reader.model_file import parse

        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        session = partial(ort.InferenceSession, sess_options=options, providers=["CPUExecutionProvider"])
        with suppress(Exception):  # ONNX Runtime's exceptions share no base class; a file in bfloat16 is refused
            plain = session(str(self.path))
            if all(info.type != "tensor(bfloat16)" for info in plain.get_inputs()):
                return plain
        model = parse(self.path)
        if takes_bfloat16(model):
            widen(model)
        folder = str(self.path.resolve().parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        try:
            return session(model.SerializeToString())
        except Exception as error:
            raise LoadError(f"ONNX Runtime refuses {self.path}", got=first_line(error)) from error

    @property
    def context_length(self) -> int:
        return self._context

    def new_cache(self, capacity: int) -> PastValues | GroupedPastValues:
        return GroupedPastValues(self._empty) if self._grouped else PastValues(self._empty)

    def __call__(
        self, input_ids: Tensor, cache: PastValues | GroupedPastValues | None = None, attention_mask: Any = None
    ) -> Tensor:
        """Scores [batch, new, vocabulary] of the token after each of the new ones."""
        past = self.new_cache(0) if cache is None else cache
        ids = input_ids.numpy()
        new = np.ones(ids.shape, bool) if attention_mask is None else np.asarray(attention_mask) != 0
        if isinstance(past, PastValues):
            scores: Tensor = make_tensor(self._run(ids, new, past))
            return scores
        if not past.groups:
            past.begin(new.sum(1).tolist())
        whole: Array | None = None
        for rows, values in past.groups:
            count = int(new[rows[0]].sum())
            logits = self._run(ids[rows, -count:], new[rows, -count:], values)
            if whole is None:
                whole = np.zeros((*ids.shape, logits.shape[-1]), logits.dtype)
            whole[rows, -count:] = logits
        scores = make_tensor(whole)
        return scores

    def _run(self, ids: Array, new: Array, past: PastValues) -> Array:
        """The scores after new tokens, of which `new` says which are real."""
        if past.real is None:
            past.begin(len(ids))
        before = past.real
        assert before is not None
        real = np.concatenate([before, new], 1)
        count, total = before.shape[1], real.shape[1]
        feed: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": real,
            "position_ids": np.maximum(real.cumsum(1) - 1, 0)[:, count:],
            "past_sequence_length": np.full((len(ids), 1), count),
            "total_sequence_length": np.full(1, total),
            "seqlens_k": np.full(len(ids), total - 1),
            "use_cache_branch": np.full(1, count > 0),  # files with two branches in one graph
        }
        given = {self._names.get(name, name): value for name, value in feed.items()}
        arrays = {name: self._fitted(name, value) for name, value in given.items() if name in self._inputs}
        logits, *presents = self.session.run([self._names["logits"], *self._presents], arrays | past.values)
        past.values = dict(zip(self._pasts, presents, strict=True))
        past.real = real
        scores: Array = logits
        return scores

    def _fitted(self, name: str, value: Array) -> Array:
        """A number for each text, or one for all, in the type and with the dimensions of an input."""
        info = self._inputs[name]
        array = value.astype(INTEGERS.get(info.type, np.dtype(np.int64)))
        return array.reshape(()) if array.shape == (1,) and not info.shape else array

    def _cache_names(self, layers: int | None) -> tuple[list[str], list[str]]:
        """The inputs and outputs of keys and values, in the same order."""
        pairs = [(self._names[f"past_key_values.%d.{kind}"], self._names[f"present.%d.{kind}"]) for kind in KINDS]
        pasts, presents = [], []
        for layer in range(len(self._inputs) if layers is None else layers):
            for past, present in pairs:
                if layers is not None or past % layer in self._inputs:
                    pasts.append(past % layer)
                    presents.append(present % layer)
        return pasts, presents

    def _check(self) -> None:
        known = {*self._names.values(), "seqlens_k", "use_cache_branch", *self._pasts}
        missing = {self._names[name] for name in ("input_ids", "attention_mask") if name in self._names}
        missing = (missing | {*self._pasts}) - self._inputs.keys()
        missing |= {self._names["logits"], *self._presents} - set(self._outputs)
        if missing or not self._pasts or self._inputs.keys() - known:
            raise LoadError(
                f"{self.path} is no decoder with a cache",
                expected="input_ids, attention_mask, past_key_values.N.key and .value to logits and present.N...",
                got=f"inputs {', '.join(self._inputs)}; outputs {', '.join(self._outputs)}",
                hint="ox.export.save_decoder, or Optimum's task text-generation-with-past",
            )

    def _sizes(self, name: str, said: tuple[int | None, int | None]) -> tuple[int, int, np.dtype[Any]]:
        """Heads, size and type of an input; where the file leaves them open, what is said of them."""
        info = self._inputs[name]
        dims = (info.shape[1], info.shape[3]) if len(info.shape) == 4 else (None, None)
        heads, size = (dim if isinstance(dim, int) else other for dim, other in zip(dims, said, strict=True))
        if heads is None or size is None or info.type not in TYPES:
            raise LoadError(
                f"'{name}' is no cache that can be given",
                expected="float32 or float16 [batch, 8, past, 64]",
                got=f"{info.type} {info.shape}",
            )
        return heads, size, TYPES[info.type]
