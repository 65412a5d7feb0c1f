"""MPICH's banner is taken out of what mpiexec prints, and nothing else is."""

from __future__ import annotations

import random

import pytest

from ox.distributed.mpiexec_output import Banner

BANNER = b"""
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT node1
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_the_banner_goes(step: int) -> None:
    banner, given = Banner(), b"epoch 1\n" + BANNER + b"epoch 2\n"
    shown = b"".join(banner.filter(given[i : i + step]) for i in range(0, len(given), step)) + banner.end()
    assert shown == b"epoch 1\n\nepoch 2\n"


def test_everything_else_stays() -> None:
    chance = random.Random(0)
    pieces = [
        b"=" * 30 + b"\n",
        b"=" * 5,
        b"\n",
        b"===\n",
        b"text",
        b"This is\n",
        b"YOUR",
        b"\r 10 %",
        b"\xff\n",
        b"= a\n",
    ]
    for _ in range(500):
        banner, given, shown = Banner(), [chance.choice(pieces) for _ in range(chance.randint(1, 12))], b""
        for piece in given:
            shown += banner.filter(piece)
        assert shown + banner.end() == b"".join(given)


def test_a_line_in_the_making_is_shown() -> None:
    assert Banner().filter(b"epoch 1  [===>") == b"epoch 1  [===>"
    assert Banner().filter(b"\r 10 %") == b"\r 10 %"
