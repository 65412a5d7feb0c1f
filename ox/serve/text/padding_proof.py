"""May texts of several lengths share a run? They are run alone and together, and must come out the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.runtime.instance import Feed
from ox.serve.text.text_tensors import TextTensors
from ox.tolerance import Through, compare

LENGTHS = (3, 5, 8, 13, 21, 34, 55)
Run = Callable[[Feed], Sequence[Array]]


def padding_difference(run: Run, text: TextTensors, through: Through = None) -> str | None:
    """Why texts cannot be padded; None if every text came out of a padded run as it does alone.

    Args:
        run: the model's.
        through: as in `ox.tolerance`.
    """
    longest = text.tokenizer.max_length
    rows = [text.samples(length, i + 1)[i] for i, length in enumerate(LENGTHS) if length <= longest]
    if len(rows) < 2:
        return f"texts have {longest} tokens at most"
    try:
        alone = [text.result(run(text.batch([row])), [row])[0] for row in rows]
        # The shortest with the longest is the most that padding can be.
        for batch in ([0, len(rows) - 1], [*range(len(rows))]):
            together = text.result(run(text.batch([rows[i] for i in batch])), [rows[i] for i in batch])
            for place, i in enumerate(batch):
                found = compare(together[place], alone[i], through)
                if not found.ok:
                    filled = rows[batch[-1]].shape[1]
                    return f"a text of {rows[i].shape[1]} tokens padded to {filled} differs by {found.max_abs:.1e}"
    except ServeError as error:
        return f"padded texts do not run ({error.got})"
    return None
