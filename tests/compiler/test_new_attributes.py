"""Attributes that a call gives for the first time to a function, to a compiled function or to a threading.local."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox

ONE = ox.ones(1)


def helper(x: Any) -> Any:
    helper.calls = getattr(helper, "calls", 0) + 1  # type: ignore[attr-defined]
    return x * helper.calls  # type: ignore[attr-defined]


def asking(x: Any) -> Any:
    asking.calls = asking.calls + 1 if hasattr(asking, "calls") else 1  # type: ignore[attr-defined]
    return x * asking.calls  # type: ignore[attr-defined]


own = threading.local()


def of_a_thread(x: Any) -> Any:
    own.calls = getattr(own, "calls", 0) + 1
    return x * own.calls


def count(x: Any) -> Any:
    itself.calls = getattr(itself, "calls", 0) + 1
    return x * itself.calls


itself: Any = ox.compile(count)


@pytest.mark.parametrize("counting", [helper, asking, of_a_thread, itself])
def test_an_attribute_that_the_first_call_makes(counting: Callable[[Any], Any]) -> None:
    compiled = counting if counting is itself else ox.compile(lambda x: counting(x))
    assert [compiled(ONE).item() for _ in range(4)] == [1, 2, 3, 4]
    assert "calls is changed by the call" in reasons(compiled)


def test_an_attribute_that_somebody_else_makes() -> None:
    def scale(x: Any) -> Any:
        return x * getattr(scale, "factor", 1)

    compiled = ox.compile(lambda x: scale(x))
    assert [compiled(ONE).item() for _ in range(3)] == [1, 1, 1]
    scale.factor = 3  # type: ignore[attr-defined]
    assert [compiled(ONE).item() for _ in range(2)] == [3, 3]
    del scale.factor  # type: ignore[attr-defined]
    assert compiled(ONE).item() == 1
    assert len(recordings(compiled)) == 2 and not reasons(compiled)


def test_an_attribute_of_a_compiled_function_is_read() -> None:
    scale: Any = ox.compile(lambda x: x * scale.factor)
    scale.factor = 2
    assert [scale(ONE).item() for _ in range(3)] == [2, 2, 2]
    scale.factor = 5
    assert [scale(ONE).item() for _ in range(3)] == [5, 5, 5]
    assert len(recordings(scale)) == 2 and not reasons(scale)


FUNCTION_NAMES: dict[str, Callable[[Any], Any]] = {
    "__name__": lambda f: f.__name__,
    "__qualname__": lambda f: f.__qualname__,
    "__doc__": lambda f: f.__doc__,
    "__module__": lambda f: f.__module__,
}


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_names_and_the_docstring_of_a_function(name: str) -> None:
    def named() -> None:
        """Two words"""

    read = FUNCTION_NAMES[name]
    compiled = ox.compile(lambda x: x * len(read(named)))
    assert compiled(ONE).item() == len(read(named))
    setattr(named, name, "another text that is of another length than all of them were before")
    assert compiled(ONE).item() == len(read(named)) and len(recordings(compiled)) == 2


def test_the_level_of_a_logger() -> None:
    logger = logging.getLogger("ox_test_of_a_level")
    logger.setLevel(logging.WARNING)
    compiled = ox.compile(lambda x: x * logger.level)
    assert compiled(ONE).item() == logging.WARNING
    logger.setLevel(logging.ERROR)
    assert compiled(ONE).item() == logging.ERROR and len(recordings(compiled)) == 2
