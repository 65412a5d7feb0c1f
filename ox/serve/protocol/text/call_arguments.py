"""The arguments of a call in answers that have them as an object, and not as a string."""

from __future__ import annotations

import orjson

EMPTY = orjson.Fragment(b"{}")


def arguments_object(arguments: str) -> orjson.Fragment:
    """Arguments as the object that they are, as the model wrote them: its numbers may be of any size.

    Of a call that was cut off nothing is known: {}.
    """
    try:
        document = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return EMPTY
    return orjson.Fragment(arguments) if isinstance(document, dict) else EMPTY
