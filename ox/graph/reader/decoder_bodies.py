"""Bodies of the attention of decoders: heads with a past, groups of heads that share keys, and rotary positions.

The operators are those that ONNX Runtime's optimizer and its model builder write (docs/ContribOperators.md of ONNX
Runtime). Scores are softmax(scale·Q·Kᵀ + bias), [samples, heads, steps, keys].
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ox.graph.reader.body_writer import BodyWriter
from ox.graph.reader.mask_bodies import kept

INT64 = 7


def simplified_normalization(w: BodyWriter) -> list[str]:
    """x / sqrt(mean(x²) + epsilon) · scale."""
    if any(w.node.output[1:]):
        raise w.refuse("with the deviation as an output")
    epsilon, axis = w.attribute("epsilon", 1e-5), w.attribute("axis", -1)
    return [w.add("RMSNormalization", w.input(0), w.input(1), axis=axis, epsilon=epsilon)]


def skip_simplified_normalization(w: BodyWriter) -> list[str]:
    """Y, mean, deviation, sum; the two in the middle belong to training and are not computed."""
    if any(w.node.output[1:3]):
        raise w.refuse("with the mean and the deviation as outputs")
    total = w.add("Add", w.input(0), w.input(1))
    total = w.add("Add", total, w.input(3)) if w.input(3) else total
    normalized = w.add("RMSNormalization", total, w.input(2), axis=-1, epsilon=w.attribute("epsilon", 1e-12))
    return [normalized, "", "", total][: len(w.node.output)]


def rotary(w: BodyWriter) -> list[str]:
    """Positions [samples, steps], or one from which all samples count."""
    if w.attribute("is_packed_batching", 0):
        raise w.refuse("of samples that are packed")
    x, positions, rank = w.input(0), w.input(1), w.rank(1)
    steps = w.add("Shape", x, start=-2, end=-1)  # [N, T, heads·E] or [N, heads, T, E]
    if rank != 2:
        counted = _count(w, steps)
        if rank is None:
            counted = w.add("Where", w.is_rank(positions, 2), w.constant(0, np.int64), counted)
        samples = w.add("Shape", x, start=0, end=1)
        shape = w.add("Concat", samples, steps, axis=0)
        positions = w.add("Expand", w.add("Add", counted, positions), shape)
    return [_turned(w, x, (w.input(2), w.input(3)), positions)]


def _turned(w: BodyWriter, x: str, caches: tuple[str, str], positions: str) -> str:
    """Without `num_heads`, an x of three dimensions has heads as wide as the caches say."""
    heads, rank = int(w.attribute("num_heads", 0)), w.rank(0)
    width, interleaved = int(w.attribute("rotary_embedding_dim", 0)), int(w.attribute("interleaved", 0))
    if rank == 4 or (rank == 3 and heads):
        return w.add(
            "RotaryEmbedding", x, *caches, positions, interleaved=interleaved, rotary_embedding_dim=width,
            num_heads=heads,
        )  # fmt: skip
    if width and not heads:
        raise w.refuse("of a part of each head, without num_heads")
    half = w.add("Shape", caches[0], start=1, end=2)
    if rank is None:
        return _turned_alone(w, (x, *caches), positions, w.add("Add", half, half))
    shape = w.add("Concat", w.ints(0, 0, -1), w.add("Add", half, half), axis=0)
    apart = w.add("Transpose", w.add("Reshape", x, shape), perm=[0, 2, 1, 3])
    turned = w.add("RotaryEmbedding", apart, *caches, positions, interleaved=interleaved)
    return w.add("Reshape", w.add("Transpose", turned, perm=[0, 2, 1, 3]), w.ints(0, 0, -1))


def _turned_alone(w: BodyWriter, x_and_caches: tuple[str, str, str], positions: str, size: str) -> str:
    """With each head of each step as a sample of its own, [N·heads·T, 1, 1, E], for the file does not tell which of
    [N, T, heads·E] and [N, heads, T, E] x is. `size` is E as the caches have it."""
    x, *caches = x_and_caches
    heads, width = int(w.attribute("num_heads", 0)), int(w.attribute("rotary_embedding_dim", 0))
    shape, joined = w.add("Shape", x), w.is_rank(x, 3)
    samples, second, steps = (w.add("Shape", x, start=i, end=i + 1) for i in (0, 1, -2))
    last = w.add("Shape", x, start=-1)
    if heads:
        size = w.add("Where", joined, w.add("Div", last, w.ints(heads)), last)
    count = w.add("Where", joined, w.add("Div", last, size), second)
    one = w.ints(1)

    def ordered(number: str) -> str:
        behind, before = (w.add("Concat", samples, *each, axis=0) for each in ((steps, number), (number, steps)))
        return w.add("Where", joined, behind, before)

    each = w.add("Expand", w.add("Reshape", positions, ordered(one)), ordered(count))
    alone = w.add("Reshape", x, w.add("Concat", w.ints(-1, 1, 1), size, axis=0))
    turned = w.add(
        "RotaryEmbedding", alone, *caches, w.add("Reshape", each, w.ints(-1, 1)),
        interleaved=int(w.attribute("interleaved", 0)), rotary_embedding_dim=width,
    )  # fmt: skip
    return w.add("Reshape", turned, shape)


def _count(w: BodyWriter, count: str) -> str:
    """0 to a count [1], exclusively."""
    return w.add("Range", w.constant(0, np.int64), w.add("Squeeze", count), w.constant(1, np.int64))


def _apart(w: BodyWriter, x: str, heads: int) -> str:
    """[samples, steps, heads·size] as [samples, heads, steps, size]."""
    return w.add("Transpose", w.add("Reshape", x, w.ints(0, 0, heads, -1)), perm=[0, 2, 1, 3])


def _together(w: BodyWriter, x: str) -> str:
    return w.add("Reshape", w.add("Transpose", x, perm=[0, 2, 1, 3]), w.ints(0, 0, -1))


def _scaled(w: BodyWriter, scores: str, q: str) -> str:
    """Scores times `scale`, by default one over the root of the size of a head."""
    scale = w.attribute("scale", 0.0)
    if scale:
        return w.add("Mul", scores, w.add("CastLike", w.constant(scale), scores))
    size = w.add("CastLike", w.add("Shape", q, start=-1), scores)
    return w.add("Div", scores, w.add("Sqrt", size))


def _low(w: BodyWriter, scores: str) -> str:
    """What takes a key out."""
    return w.add("CastLike", w.constant(-np.inf), scores)


def multi_head(w: BodyWriter) -> list[str]:
    """MultiHeadAttention: three tensors, or one or two that hold them packed; a bias, masks, and a past."""
    if w.input(8) or w.input(9) or w.input(10) or any(w.node.output[3:]):
        raise w.refuse("with a shared buffer of the past, or the scores as an output")
    heads = w.count("num_heads")
    q, k, v = _heads_of(w, heads)
    if w.input(6):
        k, v = (w.add("Concat", past, x, axis=2) for past, x in ((w.input(6), k), (w.input(7), v)))
    scores = _scaled(w, w.add("MatMul", q, w.add("Transpose", k, perm=[0, 1, 3, 2])), q)
    if w.input(5):
        scores = w.add("Add", scores, w.input(5))
    steps, keys = w.add("Shape", q, start=2, end=3), w.add("Shape", k, start=2, end=3)
    numbers = _count(w, keys)
    if w.input(4):
        seen = kept(w, 4, w.add("Shape", q, start=0, end=1), numbers)
        fill = w.add("CastLike", w.constant(w.attribute("mask_filter_value", -10000.0)), scores)
        scores = w.add("Add", scores, w.add("Where", seen, w.add("CastLike", w.constant(0.0), scores), fill))
    if w.attribute("unidirectional", 0):
        scores = w.add("Where", _before(w, steps, numbers), scores, _low(w, scores))
    mixed = w.add("MatMul", w.add("Softmax", scores, axis=-1), v)
    return [_together(w, mixed), k, v][: len(w.node.output)]


def _before(w: BodyWriter, steps: str, numbers: str) -> str:
    """Whether a query [steps, 1] sees a key [keys]: those of the past, and of the others as many as come before it.
    The last query sees every key, in ONNX Runtime also where there are more keys than that."""
    own = w.add("Unsqueeze", _count(w, steps), w.ints(1))
    last = w.add("Equal", own, w.add("Sub", steps, w.ints(1)))
    past = w.add("Shape", w.input(6), start=2, end=3) if w.input(6) else w.ints(0)
    return w.add("Or", last, w.add("LessOrEqual", numbers, w.add("Add", own, past)))


def _heads_of(w: BodyWriter, heads: int) -> tuple[str, str, str]:
    """Queries, keys and values [samples, heads, steps, size], with their part of the bias."""
    packed = 0 if w.input(2) else 2 if w.input(1) else 3  # keys and values, or all three
    biases = ["", "", ""]
    if w.input(3):
        if packed:
            raise w.refuse("with a bias of packed tensors")
        biases = _parts_of_bias(w)
    if packed:
        source = w.input(3 - packed)
        apart = [w.add("Gather", source, w.constant(i, np.int64), axis=3) for i in range(packed)]
        turned = [w.add("Transpose", each, perm=[0, 2, 1, 3]) for each in apart]
        first = [_apart(w, w.input(0), heads)] if packed == 2 else []
        q, k, v = [*first, *turned]
        return q, k, v
    made = [_apart(w, w.add("Add", w.input(0), biases[0]) if biases[0] else w.input(0), heads)]
    for i in (1, 2):  # keys and values of an encoder have their heads already, and no bias
        x, bias, rank = w.input(i), biases[i], w.rank(i)
        if rank is None:
            made.append(_apart_if_joined(w, x, bias, heads))
        elif rank == 4:
            made.append(x)
        else:
            made.append(_apart(w, w.add("Add", x, bias) if bias else x, heads))
    return made[0], made[1], made[2]


def _apart_if_joined(w: BodyWriter, x: str, bias: str, heads: int) -> str:
    """[samples, heads, steps, size], for the file does not tell whether x is so or [samples, steps, heads·size]: rows
    in either order, which are gathered. A bias belongs to the latter."""
    joined, last = w.is_rank(x, 3), w.add("Shape", x, start=-1)
    samples, steps = w.add("Shape", x, start=0, end=1), w.add("Shape", x, start=-2, end=-1)
    size = w.add("Where", joined, w.add("Div", last, w.ints(heads)), last)
    rows = w.add("Reshape", x, w.add("Concat", samples, w.add("Mul", steps, w.ints(heads)), size, axis=0))
    head, step = w.constant(np.arange(heads)[:, None], np.int64), _count(w, steps)
    behind = w.add("Add", w.add("Mul", step, w.ints(heads)), head)
    before = w.add("Add", w.add("Mul", head, steps), step)
    made = w.add("Gather", rows, w.add("Where", joined, behind, before), axis=1)
    if not bias:
        return made
    nothing = w.add("CastLike", w.constant(0.0), bias)
    return w.add("Add", made, w.add("Where", joined, w.add("Reshape", bias, w.ints(heads, 1, -1)), nothing))


def _parts_of_bias(w: BodyWriter) -> list[str]:
    """Of the queries, of as many keys, and the rest."""
    width = w.add("Shape", w.input(0), start=2, end=3)
    twice = w.add("Add", width, width)
    ends = w.ints(np.iinfo(np.int64).max)
    borders = [(w.ints(0), width), (width, twice), (twice, ends)]
    return [w.add("Slice", w.input(3), start, end, w.ints(0)) for start, end in borders]


def grouped_query(w: BodyWriter) -> list[str]:
    """GroupQueryAttention: each sample has `seqlens_k` + 1 keys, of which the newest are those of this call."""
    heads, groups = w.count("num_heads"), w.count("kv_num_heads")
    if heads % groups:
        raise w.refuse("with heads that make no equal groups", got=f"num_heads {heads}, kv_num_heads {groups}")
    if any(w.input(place) for place in range(12, len(w.node.input))) or any(w.node.output[3:]):
        raise w.refuse("with a quantized past, or the scores as an output")
    q, k, v = _grouped_heads(w, heads, groups)
    steps = w.add("Shape", q, start=2, end=3)
    whole = w.add("Add", w.add("Cast", w.add("Reshape", w.input(5), w.ints(-1)), to=INT64), w.ints(1))
    before = w.add("Max", w.add("Sub", whole, steps), w.constant(0, np.int64))  # [samples], keys of the past
    own = w.add("Add", w.add("Unsqueeze", before, w.ints(1)), _count(w, steps))  # [samples, steps], the positions
    if w.attribute("do_rotary", 0):
        positions = w.input(9) or own
        caches = (w.input(7), w.input(8))
        q, k = (_rotated(w, x, caches, positions) for x in (q, k))
    total = w.add("Reshape", w.add("Cast", w.input(6), to=INT64), w.ints(1))
    keys, values = (_joined(w, past, x, before, total) for past, x in ((w.input(3), k), (w.input(4), v)))
    mixed = _weighted(w, (q, keys, values), own, (heads, groups))
    return [_together(w, mixed), keys, values][: len(w.node.output)]


def _grouped_heads(w: BodyWriter, heads: int, groups: int) -> tuple[str, str, str]:
    if w.input(1):
        return _apart(w, w.input(0), heads), _apart(w, w.input(1), groups), _apart(w, w.input(2), groups)
    apart = _apart(w, w.input(0), heads + 2 * groups)  # packed along the heads
    ends = (0, heads, heads + groups, heads + 2 * groups)
    q, k, v = (w.add("Slice", apart, w.ints(a), w.ints(b), w.ints(1)) for a, b in pairwise(ends))
    return q, k, v


def _rotated(w: BodyWriter, x: str, caches: tuple[str, str], positions: str) -> str:
    half = w.add("Shape", caches[0], start=1, end=2)
    width = w.add("Add", half, half)
    end = w.ints(np.iinfo(np.int64).max)
    interleaved = int(w.attribute("rotary_interleaved", 0))
    part = w.add("Slice", x, w.ints(0), width, w.ints(3))
    turned = w.add("RotaryEmbedding", part, *caches, positions, interleaved=interleaved)
    return w.add("Concat", turned, w.add("Slice", x, width, end, w.ints(3)), axis=-1)


def _joined(w: BodyWriter, past: str, x: str, before: str, total: str) -> str:
    """Keys [samples, groups, keys, size] with those of this call after as many of the past as each sample has."""
    if not past:
        past = w.add("Slice", x, w.ints(0), w.ints(0), w.ints(2))
    room = w.add("Shape", past, start=2, end=3)
    numbers = _count(w, w.add("Max", room, total))
    own = w.add("Unsqueeze", before, w.ints(1))
    index = w.add("Where", w.add("Less", numbers, own), numbers, w.add("Add", w.add("Sub", numbers, own), room))
    joined = w.add("Concat", past, x, axis=2)
    last = w.add("Sub", w.add("Shape", joined, start=2, end=3), w.ints(1))
    index = w.add("Unsqueeze", w.add("Min", index, last), w.ints(1, 3))
    lengths = w.add("Shape", w.add("Squeeze", index, w.ints(1, 3)), start=1, end=2)
    shape = w.add(
        "Concat", w.add("Shape", joined, start=0, end=2), lengths, w.add("Shape", joined, start=3, end=4), axis=0
    )
    return w.add("GatherElements", joined, w.add("Expand", index, shape), axis=2)


def _weighted(w: BodyWriter, heads_of: tuple[str, str, str], own: str, counts: tuple[int, int]) -> str:
    """The values that each query sees, [samples, heads, steps, size]."""
    (q, keys, values), (heads, groups) = heads_of, counts
    size = w.add("Shape", q, start=2, end=4)
    grouped = w.add("Reshape", q, w.add("Concat", w.ints(0, groups, heads // groups), size, axis=0))
    turned = w.add("Unsqueeze", w.add("Transpose", keys, perm=[0, 1, 3, 2]), w.ints(2))
    scores = _scaled(w, w.add("MatMul", grouped, turned), q)
    flat = w.add("Concat", w.ints(0, heads), w.add("Shape", scores, start=3, end=5), axis=0)
    scores = w.add("Reshape", scores, flat)
    if softcap := w.attribute("softcap", 0.0):
        limit = w.add("CastLike", w.constant(softcap), scores)
        scores = w.add("Mul", limit, w.add("Tanh", w.add("Div", scores, limit)))
    if w.input(10):
        scores = w.add("Add", scores, w.input(10))
    numbers, at = _count(w, w.add("Shape", keys, start=2, end=3)), w.add("Unsqueeze", own, w.ints(1, 3))
    seen = w.add("LessOrEqual", numbers, at)
    if (window := int(w.attribute("local_window_size", -1))) >= 0:
        seen = w.add("And", seen, w.add("Greater", numbers, w.add("Sub", at, w.constant(window, np.int64))))
    scores = w.add("Where", seen, scores, _low(w, scores))
    weights = _softmax(w, scores)
    apart = w.add("Concat", w.ints(0, groups, heads // groups), w.add("Shape", scores, start=2, end=4), axis=0)
    mixed = w.add("MatMul", w.add("Reshape", weights, apart), w.add("Unsqueeze", values, w.ints(2)))
    return w.add("Reshape", mixed, w.add("Concat", w.ints(0, heads), size, axis=0))


def _softmax(w: BodyWriter, scores: str) -> str:
    """With `smooth_softmax` or sinks, one more score takes a share and gives nothing."""
    if not w.attribute("smooth_softmax", 0) and not w.input(11):
        return w.add("Softmax", scores, axis=-1)
    end = w.add("Shape", scores, start=3, end=4)
    shape = w.add("Concat", w.add("Shape", scores, start=0, end=3), w.ints(1), axis=0)
    sink = w.add("Reshape", w.input(11), w.ints(1, -1, 1, 1)) if w.input(11) else w.constant(0.0)
    column = w.add("Expand", w.add("CastLike", sink, scores), shape)
    weights = w.add("Softmax", w.add("Concat", scores, column, axis=-1), axis=-1)
    return w.add("Slice", weights, w.ints(0), end, w.ints(3))
