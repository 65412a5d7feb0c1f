"""Marks in a text that comes in pieces."""

from __future__ import annotations


def overlap(text: str, *marks: str) -> int:
    """How many of the last characters of a text may be the begin of a mark."""
    most = 0
    for mark in marks:
        tail = text[-len(mark) + 1 :] if len(mark) > 1 else ""
        place = tail.find(mark[0])  # nearly always there is none, and this is called for each token
        while place >= 0 and not mark.startswith(tail[place:]):
            place = tail.find(mark[0], place + 1)
        if place >= 0:
            most = max(most, len(tail) - place)
    return most
