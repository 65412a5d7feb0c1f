"""`len` of a tensor in a recording."""

from __future__ import annotations

import builtins
from threading import Event, Thread

import pytest

import ox
from ox.core.symbolic import Dim
from ox.graph.record.recording import record
from ox.graph.record.tensor_lengths import lengths_as_sizes

PLAIN = builtins.len


def test_it_is_the_size_in_a_recording_only() -> None:
    x, seen = ox.randn(3, 2), []

    def function(x: ox.Tensor) -> ox.Tensor:
        seen.extend([len(x), len([1, 2])])
        return x + 1

    with lengths_as_sizes():
        record(function, {"x": x}, dims={"x": ["n", 2]})
        assert type(len(x)) is int and len("abc") == 3
        with pytest.raises(TypeError):
            len(3)  # type: ignore[arg-type]
    assert [type(n) for n in seen] == [Dim, int] and seen == [3, 2]
    assert builtins.len is PLAIN


def test_the_name_is_pythons_again_behind_errors_and_threads() -> None:
    inside, done = Event(), Event()

    def other() -> None:
        with lengths_as_sizes():
            inside.set()
            done.wait(60)

    thread = Thread(target=other)
    with pytest.raises(ValueError, match="stop"), lengths_as_sizes():
        thread.start()
        inside.wait(60)
        raise ValueError("stop")
    assert builtins.len is not PLAIN
    done.set()
    thread.join(60)
    assert builtins.len is PLAIN
