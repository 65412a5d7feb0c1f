"""Bodies of the attention and the embeddings into which ONNX Runtime's optimizer joins the layers of a transformer."""

from __future__ import annotations

import numpy as np

from ox.graph.reader.body_writer import BodyWriter

INT64, BOOL = 7, 9


def attention(w: BodyWriter) -> list[str]:
    """Heads of one product with all weights (Vaswani et al., 2017), with a mask of padding as ONNX Runtime takes it."""
    heads = int(w.attribute("num_heads"))
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
        kept = w.add("Unsqueeze", _kept(w, x, steps), w.ints(1, 2))
        scores = w.add("Add", scores, w.add("Where", kept, nothing, low))
    if w.attribute("unidirectional", 0):
        before = w.add("LessOrEqual", steps, w.add("Unsqueeze", steps, w.ints(1)))
        never = w.add("CastLike", w.constant(-np.inf), scores)
        scores = w.add("Where", before, scores, never)
    mixed = w.add("Transpose", w.add("MatMul", w.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return [w.add("Reshape", mixed, w.ints(0, 0, -1))]


def _numbers(w: BodyWriter, count: str) -> str:
    """0 to a count, exclusively."""
    return w.add("Range", w.constant(0, np.int64), count, w.constant(1, np.int64))


def _kept(w: BodyWriter, x: str, steps: str) -> str:
    """Whether each [sample, step] is no padding: 0 and 1 for each, or where each sample ends, and perhaps begins."""
    mask = w.add("Cast", w.input(3), to=INT64)
    rows = w.add("Shape", x, start=0, end=1)
    flat = w.add("Reshape", mask, w.ints(-1))
    ends = w.add("Slice", flat, w.ints(0), rows, w.ints(0))
    columns = w.add("Shape", x, start=1, end=2)
    places = w.add("Mul", rows, columns)
    padded = w.add("Concat", flat, w.add("Expand", w.constant(0, np.int64), places), axis=0)
    begins = w.add("Slice", padded, rows, w.add("Add", rows, rows), w.ints(0))
    before = w.add("Less", steps, w.add("Unsqueeze", ends, w.ints(1)))
    behind = w.add("GreaterOrEqual", steps, w.add("Unsqueeze", begins, w.ints(1)))
    single = w.add("Equal", w.add("Size", w.add("Shape", mask)), w.constant(1, np.int64))
    whole = w.add("Slice", padded, w.ints(0), places, w.ints(0))
    each = w.add("Cast", w.add("Reshape", whole, w.add("Concat", rows, columns, axis=0)), to=BOOL)
    return w.add("Where", single, w.add("And", before, behind), each)


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
