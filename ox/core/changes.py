"""A count of the changes that a recording of `ox.compile` may have to notice, so that it looks for them only then:
attributes of modules, hooks, which tensors require a gradient."""

from __future__ import annotations


class Changes:
    """The count; one for the process."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


CHANGES = Changes()
