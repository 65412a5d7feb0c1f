"""Bodies of the attention and the embeddings into which ONNX Runtime's optimizer joins the layers of a transformer."""

from __future__ import annotations

import numpy as np

from ox.graph.reader.body_writer import BodyWriter
from ox.graph.reader.mask_bodies import kept


def attention(w: BodyWriter) -> list[str]:
    """Heads of one product with all weights (Vaswani et al., 2017), with a mask of padding as ONNX Runtime takes it."""
    heads = w.count("num_heads")
    if any(w.input(place) for place in (4, 5, 6)) or len(w.node.output) > 1:
        raise w.refuse("with keys and values of the past, or a bias of the scores")
    if w.attribute("qkv_hidden_sizes") or w.attribute("do_rotary", 0) or not w.input(2):
        raise w.refuse("with heads of several sizes, rotary places or no bias")
    x, weights, bias = w.input(0), w.input(1), w.input(2)
    joined = w.add("Add", w.add("MatMul", x, weights), bias)
    parts = w.split(joined, ["queries", "keys", "values"])
    apart = w.ints(0, 0, heads, -1)
    q, k, v = (w.add("Transpose", w.add("Reshape", part, apart), perm=[0, 2, 1, 3]) for part in parts)
    scale = w.attribute("scale")
    if not scale:
        width = w.add("CastLike", w.add("Shape", q, start=3, end=4), q)
        factor = w.add("Reciprocal", w.add("Sqrt", width))
    else:
        factor = w.add("CastLike", w.constant([scale]), q)
    scores = w.add("Mul", w.add("MatMul", q, w.add("Transpose", k, perm=[0, 1, 3, 2])), factor)
    steps = _numbers(w, w.add("Squeeze", w.add("Shape", x, start=1, end=2)))
    low = w.add("CastLike", w.constant(w.attribute("mask_filter_value", -10000.0)), scores)
    nothing = w.add("CastLike", w.constant(0.0), scores)
    if w.input(3):
        seen = kept(w, 3, w.add("Shape", x, start=0, end=1), steps)
        scores = w.add("Add", scores, w.add("Where", seen, nothing, low))
    if w.attribute("unidirectional", 0):
        before = w.add("LessOrEqual", steps, w.add("Unsqueeze", steps, w.ints(1)))
        never = w.add("CastLike", w.constant(-np.inf), scores)
        scores = w.add("Where", before, scores, never)
    mixed = w.add("Transpose", w.add("MatMul", w.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return [w.add("Reshape", mixed, w.ints(0, 0, -1))]


def _numbers(w: BodyWriter, count: str) -> str:
    """0 to a count, exclusively."""
    return w.add("Range", w.constant(0, np.int64), count, w.constant(1, np.int64))


def embeddings(w: BodyWriter) -> list[str]:
    """Words, places and segments, normalized, and how many tokens of each sample the mask keeps."""
    tokens, segments, words, places, kinds, scale, shift, mask, where = (w.input(place) for place in range(9))
    if not where:
        where = _numbers(w, w.add("Squeeze", w.add("Shape", tokens, start=1, end=2)))
    total = w.add("Add", w.add("Gather", words, tokens), w.add("Gather", places, where))
    if segments:
        total = w.add("Add", total, w.add("Gather", kinds, segments))
    made = w.add("LayerNormalization", total, scale, shift, axis=-1, epsilon=w.attribute("epsilon", 1e-12))
    if mask:
        count = w.add("ReduceSum", mask, w.ints(1), keepdims=0)
    else:
        rows = w.add("Shape", tokens, start=0, end=1)
        count = w.add("Expand", w.constant(0, np.int32), rows)
    return [made, count, total][: len(w.node.output)]
