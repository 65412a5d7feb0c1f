"""Which keys a mask keeps, in the forms that attention in ONNX Runtime takes."""

from __future__ import annotations

import numpy as np

from ox.graph.reader.body_writer import BodyWriter

INT64 = 7


def kept(w: BodyWriter, place: int, samples: str, numbers: str) -> str:
    """Whether each key is seen, [samples, 1, steps or 1, keys].

    [samples] says where the keys of each sample end, [2·samples] also where they begin, and of [3·samples + 2] only
    the first numbers count. [samples, keys] and [samples, steps, keys] are 0 where a key is not seen; [samples, 1] and
    [1, 1] stand for no mask. Which form it is shows at run time, for the file may not tell the rank: that of one sample
    alone fits several.

    Args:
        place: the input that is the mask.
        samples: how many there are, [1].
        numbers: of the keys, [keys].
    """
    mask = w.add("Cast", w.input(place), to=INT64)
    apart = w.ints(-1, 1, 1, 1)
    flat, twice = w.add("Reshape", mask, w.ints(-1)), w.add("Add", samples, samples)
    ends = w.add("Reshape", w.add("Slice", flat, w.ints(0), samples, w.ints(0)), apart)
    padded = w.add("Concat", flat, w.add("Expand", w.constant(0, np.int64), samples), axis=0)
    has_begins = w.add("Equal", w.add("Size", flat), twice)
    begins = w.add("Reshape", w.add("Slice", padded, samples, twice, w.ints(0)), apart)
    begins = w.add("Where", has_begins, begins, w.constant(0, np.int64))
    between = w.add("And", w.add("Less", numbers, ends), w.add("GreaterOrEqual", numbers, begins))
    shape = w.add("Concat", w.add("Shape", mask, start=0, end=1), w.ints(1), w.last_sizes(mask, 2), axis=0)
    each = w.add("Greater", w.add("Reshape", mask, shape), w.constant(0, np.int64))
    each = w.add("Slice", each, w.ints(0), samples, w.ints(0))
    no_mask = w.add("And", w.is_rank(mask, 2), w.add("Equal", w.add("Shape", mask, start=-1), w.ints(1)))
    return w.add("Where", w.is_rank(mask, 1), between, w.add("Or", each, no_mask))
