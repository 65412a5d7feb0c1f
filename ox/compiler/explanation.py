"""What `explain()` of a compiled function returns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ox.compiler.picture import Drawing, dot_text, draw
from ox.engines.engine import Executable, Grouped, Task
from ox.serialization.files import write_whole


class Explanation:
    """Lines for people; printed, it is a page of text.

    Args:
        history: why each call was recorded, or tried.
        parts: what runs modules inside calls that stay eager.
        tries: how many of these gave no recording.
    """

    def __init__(
        self,
        name: str,
        plans: Mapping[Any, Sequence[Any]],
        history: Sequence[str],
        eager: Mapping[str, int],
        parts: Sequence[Any] = (),
        tries: int = 0,
    ) -> None:
        self.name = name
        self.drawings: list[Drawing] = []
        recorded = len(history) - tries
        self.lines = [f"{name}: recorded {recorded} time{'s' * (recorded != 1)}"]
        if tries:
            self.lines.append(f"tried, and not recorded: {_calls(tries)}")
        for number, (kind, plan) in enumerate(_recorded(plans), 1):
            self.lines.append(f"recording {number}: {kind}")
            self.lines += [f"    {line}" for line in plan.explain()]
            self._draw(f"recording {number}", plan)
        for reason, count in eager.items():
            self.lines.append(f"eager, {_calls(count)}: {reason}")
        for part in parts:
            self._add_part(part)

    def _add_part(self, part: Any) -> None:
        for kind, plan in _recorded(part.plans):
            counts = f"{len(plan.layout.task.graph.nodes)} operators"
            if plan.layout.backward is not None:
                counts += f", backward: {len(plan.layout.backward.graph.nodes)} operators"
            self.lines.append(f"    inside, {part.name} runs compiled for {kind}: {counts}")
            self._draw(f"{part.name}, {kind}", plan)
        for reason, count in part.eager.items():
            self.lines.append(f"    inside, {part.name} stays eager, {_calls(count)}: {reason}")

    def _draw(self, title: str, plan: Any) -> None:
        layout = plan.layout
        self.drawings += _drawings(title, layout.task, plan.forward)
        if layout.backward is not None:
            self.drawings += _drawings(f"{title}, backward", layout.backward, plan.backward)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of every recording: as recorded, and (where the engine says it) as it runs, with what is
        fused in one box. The lines of code are tooltips of an .svg.

        Args:
            path: ends with .svg, .png or .pdf, for which Graphviz must be installed, or with .dot for its own text.

        Raises:
            ArgumentError: another ending.
            WriteError: Graphviz is not installed, or the file cannot be written; a file that was there stays.
        """
        suffix = Path(path).suffix
        write_whole(path, lambda temporary: draw(dot_text(self.drawings), temporary, suffix))


def _recorded(plans: Mapping[Any, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """The recordings, each with the kinds of its tensors in words."""
    for key, held in plans.items():
        for plan in held:
            if hasattr(plan, "explain"):
                yield ", ".join(_tensors(key[0])) or "no tensors", plan


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _drawings(title: str, task: Task, executable: Executable) -> Iterator[Drawing]:
    """The graph as it was recorded, and as the engine runs it."""
    yield Drawing(title, task.graph.inputs, [("", [node]) for node in task.graph.nodes])
    if isinstance(executable, Grouped):
        yield Drawing(f"{title}, as it runs", task.graph.inputs, executable.groups())


def _tensors(key: Any) -> list[str]:
    """The kinds of the tensors in a signature."""
    if isinstance(key, tuple) and len(key) == 4 and isinstance(key[0], tuple) and hasattr(key[1], "itemsize"):
        return [f"{key[1]} {list(key[0])}"]
    return [text for part in key for text in _tensors(part)] if isinstance(key, tuple) else []
