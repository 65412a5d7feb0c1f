"""The work of a generated kernel on one element: instructions in order, each a number computed from earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ox.dtypes import DType


class Instruction(NamedTuple):
    """One number: what a NumPy function of this name gives for the numbers of earlier instructions.

    Besides those names there are "input" (payload: which one), "constant" (payload: its bytes), "cast" and "where"; and
    "row_sum", "row_mean" and "row_max" of the numbers along the last axis.
    """

    name: str
    dtype: DType
    arguments: tuple[int, ...] = ()
    payload: Any = None


@dataclass
class Body:
    """Instructions, each of them once."""

    instructions: list[Instruction] = field(default_factory=list)
    _places: dict[Instruction, int] = field(default_factory=dict)

    def add(self, instruction: Instruction) -> int:
        """The place of an instruction, which is taken along if it is new."""
        place = self._places.get(instruction)
        if place is None:
            place = self._places[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return place

    def include(self, other: Body, inputs: list[int]) -> list[int]:
        """Take the instructions of another body along, whose inputs are at these places. The place of each."""
        places: list[int] = []
        for each in other.instructions:
            if each.name == "input":
                places.append(inputs[each.payload])
            else:
                places.append(self.add(each._replace(arguments=tuple(places[a] for a in each.arguments))))
        return places
