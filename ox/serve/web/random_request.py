"""A request with random values that a model takes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo
from ox.serve.protocol.rest.codec import Codec
from ox.serve.repository.model import Model
from ox.serve.runtime.proof import SIZES, draw
from ox.serve.web.sample import tensors

Feed = Mapping[str, Array]
MOST = 1 << 18  # elements: JSON of a million holds the interpreter for a second, whatever thread writes it


def random_request(model: Model, codec: Codec, random: np.random.Generator) -> bytes:
    """The JSON of a V2 inference request, but for BF16, which JSON does not have: its elements are numbers here.

    The sizes are those of an input that the server has run when it loaded the model, and values are within the range
    of that input's. A model of sequences gets a sequence of this one request.

    Args:
        model: one that takes tensors.
        codec: reads its requests.
        random: draws the values.

    Raises:
        ServeError: no input is known that the model takes (501).
    """
    row = model.proof.row
    if row is None:
        reason = "no random input ran when the model was loaded"
        raise ServeError(f"there is no random input for model '{model.name}'", status=501, got=reason)
    size = sum(row[info.name].size for info in model.inputs if info.name in row)
    if size > MOST:
        what = f"there is no random input for model '{model.name}': its inputs are too large"
        raise ServeError(what, status=501, expected=f"at most {MOST:,} numbers", got=f"{size:,}", hint="ox bench")
    refusal: ServeError | None = None
    for feed in _drawn(model.inputs, row, random):
        document: dict[str, Any] = {"inputs": tensors(feed)}
        if model.sequences is not None:
            identifier = new_sequence_id(model.sequences.id_dtype)
            document["parameters"] = {"sequence_id": identifier, "sequence_start": True, "sequence_end": True}
        try:
            _check(codec, document, feed)
        except ServeError as error:
            refusal = error
            continue
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    got = None if refusal is None else refusal.one_line()
    raise ServeError(f"there is no random input for model '{model.name}'", status=501, got=got)


def _drawn(inputs: Sequence[TensorInfo], row: Feed, random: np.random.Generator) -> Iterator[Feed]:
    """Feeds in the sizes of a known one, then in others, which the server's limits may ask for."""
    if all(info.name in row and row[info.name].ndim == len(info.dims) for info in inputs):
        # What JSON cannot carry is left out of the range.
        yield draw(inputs, [{info.name: _finite(row[info.name]) for info in inputs}], SIZES[0], random)
    for size in SIZES:
        yield draw(inputs, [], size, random)


def _finite(array: Array) -> Array:
    return np.where(np.isfinite(array), array, np.zeros_like(array)) if array.dtype.kind in "fV" else array


def _check(codec: Codec, document: Mapping[str, Any], feed: Feed) -> None:
    """Reads the request as the server would. Raises ServeError if it refuses it."""
    heads, blobs = [], []
    for tensor in document["inputs"]:
        head = dict(tensor)
        if tensor["datatype"] == "BF16":
            blobs.append(feed[tensor["name"]].tobytes())
            del head["data"]
            head["parameters"] = {"binary_data_size": len(blobs[-1])}
        heads.append(head)
    text = orjson.dumps({**document, "inputs": heads}, option=orjson.OPT_SERIALIZE_NUMPY)
    codec.decode(text + b"".join(blobs), len(text))


def new_sequence_id(dtype: str | None) -> int | str:
    """An id that no client is likely to use, for a model whose control input has this type; None for no such input."""
    if dtype in (None, "BYTES"):
        return f"page-{secrets.token_hex(8)}"
    return secrets.randbelow(2**30) + 2**30  # fits INT32, the smallest type of an id
