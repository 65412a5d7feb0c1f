"""Marks in a text that comes in pieces."""

from __future__ import annotations


def overlap(text: str, *marks: str) -> int:
    """How many of the last characters of a text may be the begin of a mark."""
    longest = max(map(len, marks), default=1) - 1
    for count in range(min(len(text), longest), 0, -1):
        if any(len(mark) > count and mark.startswith(text[-count:]) for mark in marks):
            return count
    return 0
