"""Where the instances of a model run: the CPU, or GPUs by number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from ox.errors import ArgumentError

EXPECTED = 'cpu, cuda, cuda:1, "cuda:0,cuda:1", tensorrt, tensorrt:1 or auto'


@dataclass(frozen=True)
class Placement:
    """The devices of a model's instances.

    Args:
        kind: "cpu", "cuda", "tensorrt", or "auto": CUDA where it works.
        numbers: of GPUs. Instances take them in turn, so a number that comes twice has twice the instances. Empty
            without numbers: then it is the first GPU.
    """

    kind: str
    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: Any) -> Placement:
        """That of "cpu", "cuda", "cuda:1", "cuda:0,cuda:1", "auto" or "auto:1"; of "tensorrt" as of "cuda".

        Raises:
            ArgumentError: the text is none of these.
        """
        if text in ("cpu", "cuda", "tensorrt", "auto"):
            return cls(text)
        parts = str(text).replace(" ", "").split(",")
        found = [re.fullmatch(r"(cuda|tensorrt|auto):(0|[1-9]\d{0,3})", part) for part in parts]
        kinds = {match[1] for match in found if match}
        if None in found or len(kinds) > 1:
            raise ArgumentError("unknown device", expected=EXPECTED, got=str(text)[:80])
        return cls(kinds.pop(), tuple(int(match[2]) for match in found if match))

    @classmethod
    def of_counts(cls, kind: str, counts: Mapping[int, int]) -> Placement:
        """The shortest one in which the numbers have these shares of the instances."""
        share = gcd(*counts.values())
        return cls(kind, tuple(number for number, count in counts.items() for _ in range(count // share)))

    def number(self, index: int) -> int:
        """The GPU of an instance."""
        return self.numbers[index % len(self.numbers)] if self.numbers else 0

    def __str__(self) -> str:
        return ",".join(f"{self.kind}:{number}" for number in self.numbers) or self.kind
