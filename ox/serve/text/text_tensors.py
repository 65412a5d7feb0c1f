"""The tensors of a model that reads texts: strings as clients send them, tokens as the file takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ox.errors import LoadError, ServeError
from ox.graph.contract import DTYPES, Array, Sample, TensorInfo
from ox.serve.batching.padding import Padding
from ox.serve.runtime.instance import Feed
from ox.serve.text.folder import TextFolder
from ox.serve.text.pooling import pooled
from ox.serve.text.text_tokenizer import Text, TextTokenizer

IDS, MASK, KINDS, PLACES = "input_ids", "attention_mask", "token_type_ids", "position_ids"
TEXT, PAIR = "text", "text_pair"
TOKENS = "tokens"  # in the feed of a request whose texts were encoded
EMBEDDING = "embedding"
VECTORS = ("sentence_embedding", EMBEDDING)  # outputs that are a text's vector already
DEFAULT_LENGTH = 512  # where nothing says how long a text may be
SAMPLE_LENGTH = 16

Infos = tuple[TensorInfo, ...]


def reads_text(inputs: Sequence[TensorInfo]) -> bool:
    """Whether a model has the inputs of an encoder; those of a decoder with a cache are others."""
    names = {info.name for info in inputs}
    return IDS in names and names <= {IDS, MASK, KINDS, PLACES}


class TextTensors:
    """What stands between clients' strings and a model's tensors.

    Args:
        folder: the files.
        inputs, outputs: those of the model.

    Attributes:
        inputs, outputs: as clients see them.
        kind: "embedding", "classifier" or "cross-encoder", a classifier of two texts with one score.

    Raises:
        LoadError: the model has no output that is understood, or the tokenizer cannot be read.
    """

    def __init__(self, folder: TextFolder, inputs: Infos, outputs: Infos) -> None:
        self.folder, self._file_inputs = folder, inputs
        ids = next(info for info in inputs if info.name == IDS)
        if len(ids.dims) != 2:
            raise LoadError(f"'{IDS}' has other dimensions", expected="[batch, length]", got=str(ids))
        fixed = ids.dims[1]
        self.fixed_length = fixed if isinstance(fixed, int) else None  # of a file for texts of one length
        said = [each for each in (folder.max_length, self.fixed_length) if each is not None]
        self.tokenizer = TextTokenizer(folder.tokenizer, min(said, default=DEFAULT_LENGTH))
        self._output, self._poolings = self._choose(outputs)
        info = outputs[self._output]
        vector = bool(self._poolings) or info.name in VECTORS or folder.normalize
        self.normalize = folder.normalize
        batch = inputs[0].dims[0]
        if vector:
            width = info.dims[-1]
            width = width * max(1, len(self._poolings)) if isinstance(width, int) else width
            self.kind, self.outputs = "embedding", (TensorInfo(EMBEDDING, "FP32", (batch, width)),)
        else:
            self.kind = "cross-encoder" if info.dims[-1] == 1 else "classifier"
            labels = info.labels or (folder.labels if len(folder.labels) == info.dims[-1] else None)
            self.outputs = (replace(info, labels=labels),)
        names = (TEXT,) if vector else (TEXT, PAIR)
        meanings = {TEXT: "a text in UTF-8", PAIR: "a second text, read together with the first; may be left out"}
        self.inputs = tuple(TensorInfo(name, "BYTES", (batch, 1), meaning=meanings[name]) for name in names)

    def _choose(self, outputs: Infos) -> tuple[int, tuple[str, ...]]:
        """The output that counts, and how it is pooled."""
        place = next((i for i, info in enumerate(outputs) if info.name in (*VECTORS, "logits")), 0)
        rank = len(outputs[place].dims)
        if rank == 3 and outputs[place].name != "logits":
            return place, self.folder.poolings or ("mean",)  # as sentence-transformers does where nothing is said
        if rank == 2:
            return place, ()
        raise LoadError(
            "the model gives neither scores nor a vector of a text",
            expected="an output [batch, classes], [batch, size] or [batch, length, size]",
            got=", ".join(map(str, outputs)),
        )

    @property
    def pooling(self) -> str:
        """How the vectors of tokens become one, such as "mean"; "" where the model itself does it."""
        return "+".join(self._poolings)

    def __str__(self) -> str:
        said = {"cross-encoder": "pairs of texts to a score", "classifier": "texts to scores of classes"}
        parts = [said.get(self.kind, "texts to vectors")]
        parts += [f"{' and '.join(self._poolings)} pooling"] * bool(self._poolings) + ["normalized"] * self.normalize
        return ", ".join([*parts, f"up to {self.tokenizer.max_length} tokens"])

    def limit_length(self, most: Mapping[str, tuple[int, str]]) -> None:
        """Takes over limits of the model's dimensions, by name."""
        length = next(info.dims[1] for info in self._file_inputs if info.name == IDS)
        if isinstance(length, str) and length in most:
            self.tokenizer.limit(most[length][0])

    # ---- requests

    def add_pair(self, feed: Feed) -> None:
        """Adds the second texts to a request that has none."""
        if TEXT in feed and self.kind != "embedding" and PAIR not in feed:
            feed[PAIR] = np.full(feed[TEXT].shape, None, object)

    def characters(self, feed: Feed) -> int:
        """How much there is to encode."""
        return sum(len(text) for name in (TEXT, PAIR) if name in feed for text in feed[name].flat if text is not None)

    def encode(self, feed: Feed, truncate: bool = False) -> Feed:
        """The feed of a request with tokens in place of texts.

        Raises:
            ServeError: a text that has too many tokens or none.
        """
        pairs = feed[PAIR].flat if PAIR in feed else [None] * feed[TEXT].size
        both: list[Text] = [
            text if pair is None else (text, pair) for text, pair in zip(feed[TEXT].flat, pairs, strict=True)
        ]
        return self.feed_of(self.tokenizer.encode_texts(both, truncate))

    def feed_of(self, tokens: Sequence[Array]) -> Feed:
        """The feed of texts that are tokens already, each int32 [2, length]."""
        column = np.empty(len(tokens), object)
        column[:] = tokens
        return {TOKENS: column}

    def ids(self, ids: Sequence[int], place: int, count: int, truncate: bool = False) -> Array:
        """Tokens that a client sends in place of a text, the text at `place` of `count`.

        Raises:
            ServeError: too many or none, or one that the model does not have.
        """
        if truncate:
            ids = ids[: self.tokenizer.max_length]
        self.tokenizer.check(len(ids), place, count)
        wrong = next((each for each in ids if not 0 <= each <= self.tokenizer.largest_id), None)
        if wrong is not None:
            raise ServeError("there is no such token", expected=f"0 to {self.tokenizer.largest_id}", got=str(wrong))
        return np.array([ids, [0] * len(ids)], np.int32)

    # ---- runs

    def batch(self, rows: Sequence[Array]) -> Feed:
        """The model's inputs for texts, filled up to the longest."""
        longest = self.fixed_length or max(row.shape[1] for row in rows)
        ids = np.full((len(rows), longest), self.tokenizer.pad, np.int64)
        kinds, mask = np.zeros_like(ids), np.zeros_like(ids)
        for place, row in enumerate(rows):
            length = row.shape[1]
            ids[place, :length], kinds[place, :length] = row
            mask[place, :length] = 1
        places = np.arange(longest)[None].repeat(len(rows), 0)
        arrays = {IDS: ids, MASK: mask, KINDS: kinds, PLACES: places}
        return {info.name: arrays[info.name].astype(DTYPES[info.dtype], copy=False) for info in self._file_inputs}

    def padding(self, outputs: Infos, most: Mapping[str, int]) -> Padding | None:
        """How runs on a GPU are filled up to whole lengths; None where the file has one length.

        Args:
            outputs: those of the model.
            most: the largest sizes of its dimensions, by name, where they are set.
        """
        length = next(info.dims[1] for info in self._file_inputs if info.name == IDS)
        if not isinstance(length, str):
            return None
        longest = min(self.tokenizer.max_length, most.get(length, self.tokenizer.max_length))
        fill = {length: 0, IDS: self.tokenizer.pad}
        return Padding(self._file_inputs, outputs, fill, whole=True, most={length: longest})

    def result(self, outputs: Sequence[Array], rows: Sequence[Array]) -> Array:
        """What clients get of a run's outputs, [batch, size]."""
        values = outputs[self._output]
        if self.kind != "embedding":
            return values
        if not self._poolings:
            return pooled(values[:, None], np.ones((len(rows), 1)), ("cls",), self.normalize)
        lengths = np.array([row.shape[1] for row in rows])
        mask = np.arange(values.shape[1]) < lengths[:, None]
        return pooled(values, mask, self._poolings, self.normalize)

    def samples(self, length: int, count: int) -> list[Array]:
        """Different texts of so many tokens: other stretches of one text."""
        whole = self.tokenizer.raw.encode(SAMPLE).ids
        length = min(length, self.tokenizer.max_length)
        stretches = [(whole[i + 1 :] + whole * (length // len(whole) + 1))[: length - 2] for i in range(count)]
        ends = (whole[0], whole[-1])
        return [np.array([[ends[0], *inner, ends[1]][-length:], [0] * length], np.int32) for inner in stretches]

    def golden(self) -> tuple[Sample, ...]:
        """Inputs that the model can be measured with; they have no expected outputs."""
        rows = self.samples(self.fixed_length or SAMPLE_LENGTH, 2)
        return tuple(Sample(self.batch([row]), {}) for row in rows)


SAMPLE = (
    "A server reads the request, finds the model, and writes the answer; what it has measured once, it need not "
    "measure again. Is one text among many the same as that text alone? It has to be, or the batch is not worth "
    "its speed. So every file is tried with short texts and long ones before the first client comes."
)
