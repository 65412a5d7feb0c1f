"""May requests be padded? Rows of several lengths are run alone and together, and must come out the same.

A model promises nothing about it: one that averages over all tokens without a mask gives other answers for padded rows.
Where its graph shows that what is at one place of a padded dimension depends on that place alone, that is a proof.
Elsewhere masks and the values that fill decide, which the graph does not tell: then it has only been tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Sample
from ox.graph.reader.model_file import parse
from ox.serve.batching.padding import Padding, bucket
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.proof import SingleRun, draw
from ox.serve.runtime.row_independence import rows_mix
from ox.serve.runtime.session import Engine
from ox.tolerance import Through, compare

LENGTHS = (3, 5, 8, 13, 21, 40)
MIN_LENGTHS = 2  # lengths that must run


def prove_padding(engine: Engine, padding: Padding, samples: Sequence[Sample], through: Through = None) -> str | None:
    """Why requests cannot be padded, None if every row came out padded as it does alone."""
    tried = _rows(engine, padding, samples)
    if len({tuple(padding.sizes(feed).values()) for feed, _ in tried}) < MIN_LENGTHS:
        return "no valid inputs of several lengths to try it with"
    tried.sort(key=lambda alone: sum(padding.sizes(alone[0]).values()))
    # Neighbours share batches; the shortest with the longest is the most that padding can be.
    batches = [tried[at : at + 2] for at in range(len(tried) - 1)] + [[tried[0], tried[-1]], tried]
    try:
        for batch in batches:
            feeds = [feed for feed, _ in batch]
            why = _differs(padding, engine.run(padding.gather(feeds)), batch, through)
            if why is not None:
                return why
    except ServeError as error:
        return f"padded samples do not run ({error.got})"
    return None


def unproven_reason(path: Path, padding: Padding) -> str | None:
    """Why the graph does not show that padding changes no answer; None if it does, up to a length of 2^20."""
    model = parse(path)
    for dim in padding.dims:
        axes = padding.axes(dim)
        if axes is None:
            return f"a tensor has '{dim}' twice"
        why = rows_mix(model, path.parent, axes)
        if why is not None:
            return f"with '{dim}' as the batch axis, {why}"
    return None


def _differs(padding: Padding, outputs: Any, batch: Sequence[SingleRun], through: Through) -> str | None:
    longest = max(sum(padding.sizes(feed).values()) for feed, _ in batch)
    try:
        parts = padding.scatter(outputs, [feed for feed, _ in batch])
    except IndexError:
        return "the outputs do not have the dimensions of the file"
    for (feed, alone), part in zip(batch, parts, strict=True):
        for got, expected in zip(part, alone, strict=True):
            difference = compare(got, expected, through)
            if not difference.ok:
                sizes = ", ".join(f"{name} {size}" for name, size in padding.sizes(feed).items())
                return f"a sample of {sizes} padded to {longest} differs from it alone by {difference.max_abs:.1e}"
    return None


def _rows(engine: Engine, padding: Padding, samples: Sequence[Sample]) -> list[SingleRun]:
    """Rows of several lengths, as far as the model runs them: golden ones, and drawn ones like them."""
    random = np.random.default_rng(0)
    golden = [sample.inputs for sample in samples[:8]]
    alike = [feed for feed in golden if _shapes(feed) == _shapes(golden[0])]
    feeds: list[Feed] = list(golden)
    for length in LENGTHS:
        feed = draw(engine.inputs, alike, bucket(1), random, dict.fromkeys(padding.dims, length))
        if padding.mask is not None:
            del feed[padding.mask]
            padding.complete(feed)
        feeds.append(feed)
    tried = []
    for feed in feeds:
        try:
            tried.append((feed, engine.run(feed)))
        except ServeError:
            continue  # no length for this model
    return tried


def _shapes(feed: Feed) -> list[tuple[int, ...]]:
    return [array.shape for array in feed.values()]
