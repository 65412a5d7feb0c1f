"""Functions of a module that are others while any thread records."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from ox.graph.record.replaced_functions import replacing


class Functions(Mapping[str, Any]):
    """Notes, each time it is read, whether others are kept out."""

    def __init__(self) -> None:
        self.lock: Any = None
        self.locked: list[bool] = []

    def __getitem__(self, name: str) -> Any:
        return {"f": "recorded"}[name]

    def __iter__(self) -> Iterator[str]:
        if self.lock is not None:
            self.locked.append(self.lock.locked())
        return iter(["f"])

    def __len__(self) -> int:
        return 1


def test_they_are_python_s_own_again_after_the_last() -> None:
    module, functions = ModuleType("module"), Functions()
    module.f = "plain"  # type: ignore[attr-defined]
    replaced = replacing(module, functions)
    functions.lock = inspect.getclosurevars(inspect.unwrap(replaced)).nonlocals["lock"]
    one, other = replaced(), replaced()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert vars(module)["f"] == "recorded"
    other.__exit__(None, None, None)
    assert vars(module)["f"] == "plain"
    assert functions.locked == [True, True] and not functions.lock.locked()
