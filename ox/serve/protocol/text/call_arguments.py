"""The arguments of a call in answers that have them as an object, and not as a string."""

from __future__ import annotations

import orjson

from ox.serve.protocol.text.json_call import joined


def arguments_object(arguments: str) -> orjson.Fragment | None:
    """Arguments as the object that they are, as the model wrote them: its numbers may be of any size. None where they
    are not an object, such as those of a call that was cut off."""
    return None if joined([arguments]) is None else orjson.Fragment(arguments)
