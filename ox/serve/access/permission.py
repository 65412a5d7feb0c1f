"""What a call needs of the key that it brings."""

from __future__ import annotations

from typing import NamedTuple

ALL = "*"  # models


class Permission(NamedTuple):
    """One of the actions of a key, and the model that it is about.

    Args:
        action: one of `ox.serve.access.key.ACTIONS`.
        model: its name; `ALL` for a call about all of them, "" for one about none.
    """

    action: str
    model: str = ALL
