"""Keys of a dict and members of a set: plain, so that hashing is fast for hostile files, too."""

from __future__ import annotations

from typing import Any

from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError

_INT64 = range(-(2**63), 2**63)  # larger ones can be made to collide
_MOST_TUPLES = 1000  # hash collisions of tuples can be constructed


def key(budget: Budget, value: Any) -> Any:
    """The value. Raises UnreadableError for what is no string, bytes, number, None, or short tuple of them."""
    if type(value) is tuple and len(value) <= 16:
        budget.tuple_keys += 1
        if budget.tuple_keys <= _MOST_TUPLES:
            return tuple(_plain(part) for part in value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if type(value) in (str, bytes, float, bool, type(None)) or (type(value) is int and value in _INT64):
        return value
    raise UnreadableError(
        f"a key of a dict or a member of a set that is {article(value)}",
        expected="strings, bytes, numbers, or short tuples of them",
    )


def article(value: Any) -> str:
    """A value's type in a sentence."""
    name = getattr(value, "name", None) if type(value).__name__ == "Allowed" else type(value).__name__
    return f"{'an' if str(name)[:1] in 'aeiou' else 'a'} {name}"
