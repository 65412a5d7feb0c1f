"""Why a file is not read, and how much memory its pickle may ask for."""

from __future__ import annotations

MIB = 1 << 20
LONGEST_PICKLE = 64 * MIB
LEAST = 64 * MIB  # what the shortest pickle may ask for


class UnreadableError(ValueError):
    """What is wrong, in the words of a LoadError; `read` adds the file."""

    def __init__(self, got: str, *, expected: str | None = None, hint: str | None = None) -> None:
        super().__init__(got)
        self.got, self.expected, self.hint = got, expected, hint


class Budget:
    """Bytes that the values of a pickle may take: in proportion to its length, for a byte can ask for a whole set."""

    def __init__(self, length: int) -> None:
        self.remaining = LEAST + 24 * min(length, LONGEST_PICKLE)
        self.tuple_keys = 0  # tuples that were hashed

    def take(self, count: int) -> None:
        self.remaining -= count
        if self.remaining < 0:
            raise UnreadableError(
                "a pickle that needs far more memory than its length", hint="a file from somebody whom you trust"
            )
